"""Play scenarios: scripted runs of the program with their expected results.

May import the rooms of rank 2 and below. It runs the program as a separate process. Exports `read_scenario` and
`play`.
"""
