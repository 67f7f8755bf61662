"""The agent: its state, folded from the events of its run, and the parts of a step, which the loop puts in order.

May import the rooms of rank 2 and below. Hands out `Tools`, `Policy` and `State`, and a collaborator for each part.
"""
