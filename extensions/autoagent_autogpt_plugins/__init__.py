"""Run plug-ins written for AutoGPT (auto-gpt-plugin-template), each in its own process.

`folder` says which of a folder's plug-ins the user is asked about, `running` opens the enabled ones for a run, and
`command_line` is `autoagent plugins`. `child` is run in the plug-ins' processes: it and this file import nothing else.
"""
