"""Plug-ins written for AutoGPT (auto-gpt-plugin-template), each in a process of its own.

May import rank 3 and below, and its neighbours. Hands out `discovery`, what there is and whether it is enabled;
`plugin_hooks`, what the enabled ones do in a run; and `child`, which is run in their processes.
"""
