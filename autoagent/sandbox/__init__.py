"""The sandbox of the agent's programs: the boundary around them, and the limits on them.

May import the rooms of rank 1 and core. Exports `Programs`, which satisfies the `Sandbox` of commands, and the kinds
of boundary that the registry opens.
"""
