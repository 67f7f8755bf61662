"""The commands, one module for each category: all facts about a command are declared with it.

May import the rooms of rank 1 and core. Services come in a command's `Context`. Exports `registry.command`, which
makes a command from a typed function, the `Registry`, which checks and runs them, and the choice of commands for a run
(`selection`).
"""
