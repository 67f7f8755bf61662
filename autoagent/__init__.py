"""autoagent: the autonomous agent for the terminal that a person can leave alone."""

__version__ = "0.2.0"
