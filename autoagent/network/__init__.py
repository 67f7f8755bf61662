"""The guarded way to the web: which addresses may be connected to, and requests that connect nowhere else.

May import core, text and workspace (a download lies in it). Exports `NetworkGuard`, `HttpClient` and `download`.
"""
