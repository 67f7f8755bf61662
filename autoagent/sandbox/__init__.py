"""Where the agent's programs run: the boundary around them, and the limits on them."""
