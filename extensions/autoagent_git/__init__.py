"""Repositories: the command that clones one with git, in the sandbox and through the network guard."""
