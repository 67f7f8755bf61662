"""Keep the long-term memory: stores of texts and their vectors, and the rules by which memories fade.

May import the rooms of rank 1 and core. Exports stores that satisfy `MemoryStore`, opened by the registry, and
`LivingMemory`, which makes one the agent's `Memory`.
"""
