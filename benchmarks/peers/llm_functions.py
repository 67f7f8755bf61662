"""llm as its user runs it with --functions, a function that reads a file; it logs to its SQLite database."""

from llm.cli import cli

READ_FILE = '''
from pathlib import Path

def read_file(filename: str) -> str:
    """Read a file"""
    return Path(filename).read_text()
'''

cli(["-m", "gpt-4o-mini", "--functions", READ_FILE, "--chain-limit", "0", "Read the notes"])
