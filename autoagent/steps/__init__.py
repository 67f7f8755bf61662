"""The parts of a step, which the loop puts in order: recall, the model's turn, authorization, execution.

May import the rooms of rank 2 and below. Hands out `Tools`, `Policy` and `RunState`, and a collaborator for each part.
"""
