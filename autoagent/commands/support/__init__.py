"""The tools shared by several commands, or used by a long command: diffs, encodings, shell lines, searches.

May import what commands may, and their declarations. Exports plain functions to the modules of commands alone.
"""
