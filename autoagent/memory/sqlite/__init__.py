"""The memory on this machine: SQLite for the texts, a file beside it for the vectors.

May import what memory may. Exports `LocalStore`, which the registry opens.
"""
