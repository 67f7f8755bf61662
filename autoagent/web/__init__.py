"""Runs to look at in a browser: a report in one file, made from the log alone.

May import the rooms up to rank 3. Hands out `report.page_of`, which renders the events of a run as one HTML file.
"""
