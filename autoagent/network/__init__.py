"""Guard access to the web: decide which addresses may be used, and send requests that reach nothing else.

May import core, text and workspace (for downloads). Exports `NetworkGuard`, `HttpClient` and `download`.
"""
