"""The subcommands, one module for each noun. The root command loads them when they are called.

May import everything but `cli`. Exports one click command each, and in `flags` the flags of a run.
"""
