"""Scenarios: runs of the program that are scripted beforehand, with the results they should have.

May import the rooms of rank 2 and below. The program is a process of its own to it. Exports `read_scenario` and
`play`.
"""
