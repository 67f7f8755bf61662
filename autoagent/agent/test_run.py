"""A run of the workspace's own tests before a run ends, in a throwaway copy of the workspace.

Tests are recognised by pytest's naming convention. The copy lies in the private folder for temporary files of the
sandbox, so that nothing that tests leave behind is a result of the run. pytest runs them if the Python of the programs
has it, else unittest.

Not covered: a test can still write to the workspace through its absolute path, as any program can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoagent.commands.context import Context
from autoagent.commands.support.program_output import described
from autoagent.core.errors import CommandError
from autoagent.workspace.gate import CODE_FOLDER, NOT_ENTERED, WorkspaceEntry

_SECONDS = 60.0
_MOST_BYTES = 50_000_000  # of a workspace that is copied
_MOST_ENTRIES = 5_000
_NONE_FOUND = 5  # pytest's exit status where no file holds a test

# Only regular files that can be read are copied: what the sandbox hides in the workspace is a device there.
_SCRIPT = """
import importlib.util, os, shutil, subprocess, sys, tempfile
_, skipped, *names = sys.argv
place = tempfile.mkdtemp()
copy = os.path.join(place, "copy")
try:
    shutil.copytree(".", copy, symlinks=True, ignore=shutil.ignore_patterns(*skipped.split("/")))
except shutil.Error:
    pass
os.chdir(copy)
with_pytest = ["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "--rootdir", "."]
with_unittest = ["-c", '''
import sys, unittest
result = unittest.main(None, argv=sys.argv, exit=False).result
sys.exit(5 if not result.testsRun else not result.wasSuccessful())
''']
how = with_pytest if importlib.util.find_spec("pytest") else with_unittest
status = subprocess.call([sys.executable, "-B", *how, *names])
shutil.rmtree(place, ignore_errors=True)
sys.exit(status if status >= 0 else 1)
"""


@dataclass(frozen=True, slots=True)
class TestRun:
    """The tests that were run: their `files`, what they `printed`, and whether any of them `failed`."""

    __test__ = False  # for pytest, where the tests of the program import it

    files: tuple[str, ...]
    printed: str
    failed: bool


def run_tests(context: Context, entries: Sequence[WorkspaceEntry]) -> TestRun | None:
    """Run the tests among the entries of the workspace. Return None where there are none, or they cannot be run."""
    venvs = [entry.path.removesuffix("pyvenv.cfg") for entry in entries if entry.path.endswith("/pyvenv.cfg")]
    paths = [entry.path for entry in entries if entry.kind == "file" and not entry.path.startswith(tuple(venvs))]
    files = tuple(filter(_is_test, paths))
    if not files or len(entries) >= _MOST_ENTRIES or sum(entry.size for entry in entries) > _MOST_BYTES:
        return None
    skipped = "/".join(sorted({*NOT_ENTERED, CODE_FOLDER}))
    try:
        if not context.sandbox.confines:
            return None
        argv = [context.python, "-B", "-c", _SCRIPT, skipped, *files]
        exit = context.sandbox.run(argv, seconds=_SECONDS, network=False)
    except CommandError:  # there is no sandbox
        return None
    return None if exit.status == _NONE_FOUND else TestRun(files, described(exit), exit.status != 0)


def _is_test(path: str) -> bool:
    """Return whether a path is one of a test, as pytest collects them."""
    *folders, name = path.split("/")
    named = name.endswith("_test.py") or (name.startswith("test_") and name.endswith(".py"))
    return named and CODE_FOLDER not in folders
