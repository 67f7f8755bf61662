"""MCP, the Model Context Protocol, both ways: servers of others are called, and our own abilities are served.

May import rooms of rank 1 and below, and the `mcp` package. Hands out `connected`, and `serve`.
"""
