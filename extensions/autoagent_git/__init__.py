"""Clone repositories with git, in the sandbox and through the network guard."""
