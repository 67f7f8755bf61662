"""Runs to look at in a browser: a report in one file, and live pages, both made from the logs alone.

May import the rooms up to rank 3. Exports `page.report_page`, which renders the events of a run as one HTML file, and
`serve.serve`, which serves the live pages. Only the latter needs the extra `view`.
"""
