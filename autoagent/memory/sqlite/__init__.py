"""Store the memory on this machine: texts in SQLite, and vectors in a file next to it.

May import what memory/ may. Exports `LocalStore`, which the registry opens.
"""
