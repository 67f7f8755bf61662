"""Teams: roles that work together, each in a thread of its own, by messages that are published round by round.

May import the loop, the machinery of sub-agents, `session` and all below. Exports `Team`, `Role`, `Action`, `Message`
and `Environment` from the modules of these names, under MetaGPT's names by `metagpt`, and `team_file` for YAML teams.
"""
