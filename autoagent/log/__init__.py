"""Write, read and index the durable log of a run, with checkpoints.

May import the rooms of rank 1 and core. Exports `EventLog`, the readings of `reader` and `WorkspaceHistory`.
"""
