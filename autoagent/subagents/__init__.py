"""Run sub-agents: agents started by an agent of the run, each in its own thread while the others continue.

May import the loop and all below it. `session` tells it how to build one. Exports `WorkerPool`, whose `mailbox` is
for the run's own agent.
"""
