"""Scenarios: a run of the program that is written down beforehand, with what is to come of it.

May import the rooms of rank 2 and below; the program is a process of its own to it. Hands out `read_scenario` and
`play`.
"""
