"""Scenarios: a run of the program that is written down beforehand, with what is to come of it."""
