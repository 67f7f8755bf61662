"""Load settings, trusted files, plug-ins and servers once, and build the parts of a run from them.

May import every room but `subcommands`; nothing but these imports it. Exports the settings in effect, the trust in a
folder's files, the builders of models, memories, contexts, services and sub-agents, `drive.drive`, and the checks of
`doctor`.
"""
