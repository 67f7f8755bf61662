"""Authorization and data protection: questions, saved rules, the guard of three, marks on files.

May import the rooms of rank 1 and core. Hands out the authorizers, the `Rulebook` and `ExfiltrationGuard`.
"""
