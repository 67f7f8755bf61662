"""The ordinary user that tests become which root runs."""

from __future__ import annotations

import functools
import os
import pwd
import site
import subprocess
import sys
from pathlib import Path

import pytest

ID = 65534
# setpriv itself still finds a program with root's rights: env is what starts it, as one who is no longer root.
BECOME = ("setpriv", f"--reuid={ID}", f"--regid={ID}", "--clear-groups", "--", "/usr/bin/env")
ROOT = Path(__file__).parent.parent
PACKAGES = os.pathsep.join([str(ROOT), str(ROOT / "extensions"), *site.getsitepackages()])
"""The PYTHONPATH by which an interpreter that knows neither the program nor what it needs finds both."""


@functools.cache
def interpreter() -> str:
    """An interpreter that this user can run the program with, given PACKAGES, or ''."""
    for python in (sys.executable, "/usr/bin/python3"):
        argv = [*BECOME, python, "-c", "import autoagent.cli, openai"]
        try:
            done = subprocess.run(argv, env={"PYTHONPATH": PACKAGES}, stderr=subprocess.DEVNULL, cwd="/")
        except OSError:
            return ""
        if done.returncode == 0:
            return python
    return ""


def require() -> None:
    """Skip where the tests cannot be this user."""
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    if not interpreter():
        pytest.skip(f"{pwd.getpwuid(ID).pw_name} cannot run the interpreter or read the program")
