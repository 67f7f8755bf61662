"""Provide tools for commands: diffs, encodings, shell lines and searches.

May import what commands/ may, and its declarations. Exports plain functions, for the modules of commands only.
"""
