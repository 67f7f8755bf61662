"""Sub-agents: agents that an agent of the run has started, each in a thread of its own while the others go on.

May import the loop and all below it. `session` tells it how to build one. Exports `WorkerPool`, whose `mailbox` is
that of the run's own agent.
"""
