"""The state of an agent, folded from the events of its run, and the parts of a step, which the loop orders.

May import the rooms of rank 2 and below. Exports `Tools`, `Policy` and `State`, and a collaborator for each part.
"""
