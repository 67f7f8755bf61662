"""Parse a model's reply into its command, or the reason why there is none.

May import the rooms of rank 1 and core. Exports `parser.parse`, and the thoughts of a growing reply.
"""
