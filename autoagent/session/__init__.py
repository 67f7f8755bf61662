"""A session: settings, trusted files, plug-ins and servers loaded once, and the parts of a run built from them.

May import every room but `subcommands`; nothing but these imports it. Hands out the settings in effect, the trust in a
folder's files, the builders of models, memories, contexts, services and sub-agents, `drive.drive`, and the checks
of `doctor`.
"""
