"""The commands, one module for each category: all that is true of one is declared with it.

May import the rooms of rank 1 and core; what lies behind a command comes in its `Context`. Hands out
`registry.command`, which makes one from a typed function, the `Registry` that checks and runs them, and which of them
there are and suit (`selection`).
"""
