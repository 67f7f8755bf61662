"""What several commands, or one long one, work with: diffs, encodings, shell lines, searches, summaries.

May import what commands may, and their declarations. Hands out plain functions to the modules of commands alone.
"""
