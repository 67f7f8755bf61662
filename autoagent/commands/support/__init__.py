"""The tools shared by several commands, or used by one long one: diffs, encodings, shell lines, searches, summaries.

May import what commands may, and their declarations. Exports plain functions to the modules of commands alone.
"""
