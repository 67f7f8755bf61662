"""Runs of the workspace's own tests and programs before a run ends, in a throwaway copy of the workspace.

Tests are recognised by pytest's naming convention, and run by pytest if the Python of the programs has it, else by
unittest. Programs are the Python files that the goals name. The copy lies in the private folder for temporary files of
the sandbox, so that nothing that they leave behind is a result of the run.

Not covered: they can still write to the workspace through its absolute path, as any program can.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from autoagent.commands.context import Context
from autoagent.commands.support.program_output import described
from autoagent.core.errors import CommandError
from autoagent.workspace.gate import CODE_FOLDER, NOT_ENTERED, WorkspaceEntry, shown

_SECONDS = {True: 60.0, False: 10.0}  # for all tests, and for a program
_PROGRAMS = 3
_NAMED = 10  # tests, in the title
_MOST_BYTES = 50_000_000  # of a workspace that is copied
_MOST_ENTRIES = 5_000
_TRACEBACK = b"Traceback (most recent call last)"
_NONE_FOUND = 5  # pytest's exit status where no file holds a test

# Only regular files that can be read are copied: what the sandbox hides in the workspace is a device there.
_SCRIPT = """
import importlib.util, os, shutil, subprocess, sys, tempfile
_, skipped, tests, *names = sys.argv
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
status = subprocess.call([sys.executable, "-B", *(how if tests else ()), *names])
shutil.rmtree(place, ignore_errors=True)
sys.exit(status if status >= 0 else 1)
"""


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A run of tests or of a program: its title, its output, and in words that it `fails`, '' where it does not."""

    title: str
    printed: str
    fails: str = ""


def run_tests(context: Context, entries: Sequence[WorkspaceEntry], named: Collection[str]) -> list[TrialRun]:
    """Run the tests among the entries of the workspace, and the programs whose files have these names.

    Return nothing where none is there, or they cannot be run.
    """
    venvs = [entry.path.removesuffix("pyvenv.cfg") for entry in entries if entry.path.endswith("/pyvenv.cfg")]
    paths = [entry.path for entry in entries if entry.kind == "file" and not entry.path.startswith(tuple(venvs))]
    code = [path for path in paths if path.endswith(".py") and CODE_FOLDER not in path.split("/")]
    tests = [path for path in code if path.endswith("_test.py") or path.rpartition("/")[2].startswith("test_")]
    programs = [path for path in code if path not in tests and not {path, path.rpartition("/")[2]}.isdisjoint(named)]
    if len(entries) >= _MOST_ENTRIES or sum(entry.size for entry in entries) > _MOST_BYTES:
        return []
    skipped = "/".join(sorted({*NOT_ENTERED, CODE_FOLDER}))
    found = []
    with suppress(CommandError):  # there is no sandbox
        for names in ([tests] if tests else []) + [[path] for path in programs[:_PROGRAMS]]:
            if not context.sandbox.confines:
                return []
            argv = [context.python, "-B", "-c", _SCRIPT, skipped, "tests" if names is tests else "", *names]
            exit = context.sandbox.run(argv, seconds=_SECONDS[names is tests], network=False)
            if names is not tests:
                fails = f"{shown(names[0])} fails" if exit.status and _TRACEBACK in exit.output else ""
                found.append(TrialRun(f"{shown(names[0])}, run now in a copy of the workspace", described(exit), fails))
            elif exit.status != _NONE_FOUND:
                title = f"Tests in the workspace ({', '.join(map(shown, names[:_NAMED]))}), run now in a copy of it"
                found.append(TrialRun(title, described(exit), "Tests in the workspace fail" if exit.status else ""))
    return found
