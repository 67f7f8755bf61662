"""Define the commands, one module per category. Everything about a command is declared with it.

May import the rooms of rank 1 and core. Services come in a command's `Context`. Exports `registry.command`, which
turns a typed function into a command, the `Registry`, which checks and runs commands, and the choice of commands for a
run (`selection`).
"""
