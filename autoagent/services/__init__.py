"""The services behind the commands that reach out: the web, search engines, a browser, a service of the user's choice.

May import the rooms of rank 1 and core. Exports implementations of the protocols in core, put together by `session`.
"""
