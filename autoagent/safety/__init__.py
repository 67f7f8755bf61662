"""Authorize commands and protect data: questions, saved rules, the guard of three, marks on files.

May import the rooms of rank 1 and core. Exports the authorizers, the `Rulebook` and `ExfiltrationGuard`.
"""
