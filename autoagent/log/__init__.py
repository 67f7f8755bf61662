"""The durable log of a run: how it is written, read and indexed, and the checkpoint beside it.

May import the rooms of rank 1 and core. Hands out `EventLog`, the readings of `reader` and `WorkspaceHistory`.
"""
