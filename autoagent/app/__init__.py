"""Puts a run together: from the settings to its parts, from the parts to its exit code, from its log to what it was.

May import every room but `subcommands`; nothing but these imports it. Hands out the builders of models, memories,
contexts, services and sub-agents, `run_driver.drive`, the settings that hold here, and what `doctor` looks at.
"""
