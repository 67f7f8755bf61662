"""`python -m autoagent`."""

import os
import sys
from contextlib import suppress

with suppress(OSError):  # the current folder is gone
    if sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109 - as Python itself has put it there
        del sys.path[0]  # or a folder that somebody else wrote could bring a click.py

from autoagent.cli import main

if __name__ == "__main__":
    main()
