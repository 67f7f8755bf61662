"""A session: settings, trusted files, plug-ins and servers loaded once, and the parts of a run built from them.

May import every room but `subcommands`; nothing but these imports it. Hands out the settings that hold here, which
files of a folder are trusted, the builders of models, memories, contexts, services and sub-agents, `run_driver.drive`,
and what `doctor` looks at.
"""
