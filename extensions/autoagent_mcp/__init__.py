"""MCP, the Model Context Protocol, both ways: tools of other programs for the agent, and its own for other agents.

`folder` tells what of a folder the user is asked about, `running` connects the listed servers of a run, `command_line`
is `autoagent mcp`. The `mcp` package, an extra, is imported by `client`, `server` and nothing else.
"""
