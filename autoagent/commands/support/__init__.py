"""The tools shared by several commands, or used by one long one: diffs, encodings, shell lines, searches, summaries.

May import what commands may, and their declarations. Hands out plain functions to the modules of commands alone.
"""
