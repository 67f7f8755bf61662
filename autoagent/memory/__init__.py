"""What the agent keeps from run to run: stores of texts and their vectors, and the life that memories lead in them.

May import the rooms of rank 1 and core. Hands out stores that satisfy `MemoryStore`, opened by the registry, and
`LivingMemory`, which makes one the agent's `Memory`.
"""
