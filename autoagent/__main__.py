"""Run `python -m autoagent`."""

import os
import sys
from contextlib import suppress

with suppress(OSError):  # the current folder is gone
    if sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109 - compared with the string that Python put there
        del sys.path[0]  # otherwise a click.py in a folder written by somebody else would be imported

from autoagent.cli import main

if __name__ == "__main__":
    main()
