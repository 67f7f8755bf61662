"""The durable log of a run, and the folds over it, each with `add(event)`.

May import the rooms of rank 1 and core. Hands out `EventLog` and the folds: history, budget, loop guard, goals and
figures. Nothing else remembers anything, so resuming is folding the log once more.
"""
