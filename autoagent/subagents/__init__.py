"""Sub-agents: agents that an agent of the run has started, each in a thread of its own while the others go on."""
