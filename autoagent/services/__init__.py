"""The services behind the commands that reach out: the web, search engines, a browser, media, X.

May import the rooms of rank 1 and core. Hands out implementations of the protocols in core, put together by `session`.
"""
