"""The terminal: events as lines, questions, signals, the set-up. All that is printed is escaped here.

May import the rooms of rank 2 and below. Exports `Console`, `output.echo` for subcommands, and `Interrupts`.
"""
