"""The one folder the agent works in: the gate its paths go through, its lock, and what it held at other times.

May import core and text. Exports `Workspace`, `Snapshots` and `sole_writer`.
"""
