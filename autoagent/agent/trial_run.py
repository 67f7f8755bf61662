"""Run the workspace's own tests and programs in a throwaway copy of the workspace, before a run ends and with drafts.

Tests follow pytest's naming convention, and run with pytest if available, else with unittest. Programs are the Python
files that the goals name. The copy lies in the sandbox's private temporary folder, so that its files are no result of
the run.

Neither can change the workspace itself, by its absolute path or through links in it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from autoagent.agent.goal_words import names_in
from autoagent.commands.context import Context
from autoagent.commands.support.program_output import describe_exit
from autoagent.core.errors import CommandError
from autoagent.core.frozen import dataclass
from autoagent.workspace.gate import CODE_FOLDER, MAX_COPIED_BYTES, NOT_ENTERED, Workspace, WorkspaceEntry, shown

if TYPE_CHECKING:
    from autoagent.agent.state import State

_TEST_SECONDS = 60.0  # for all tests
_PROGRAM_SECONDS = 10.0
_DRAFT_SECONDS = 20.0  # for a draft and the programs after it, and again for tests
_MAX_PROGRAMS = 3
_MAX_TESTS = 10  # in the title
_MAX_ENTRIES = 5_000
_TRACEBACK = b"Traceback (most recent call last)"
_MAX_CHANGED_BYTES = 200_000  # of all files that a draft changes
_MISSING_MODULE = re.compile(r"No module named '(\w+)")
_UNDEFINED_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_MISSING_FOLDER = re.compile(r"FileNotFoundError: .*: '((?:[\w-][\w .-]*/)+)[^/'\n]+'$", re.MULTILINE)
TEST_SETTINGS = frozenset({"conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml"})
_NO_TESTS_STATUS = 5  # pytest's exit status if the files contain no tests

# Both scripts start in the workspace, but import no module from it (-I). Only readable regular files are copied, as the
# sandbox hides files behind a device.
_COPY_SCRIPT = """
import hashlib, importlib.util, json, os, pathlib, shutil, subprocess, sys, tempfile
place = tempfile.mkdtemp()
copy = os.path.join(place, "copy")
try:
    shutil.copytree(".", copy, symlinks=True, ignore=shutil.ignore_patterns(*sys.argv[1].split("/")))
except shutil.Error:
    pass
os.chdir(copy)
with_pytest = ["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "--rootdir", "."]
with_unittest = ["-c", '''
import sys, unittest
result = unittest.main(None, argv=sys.argv, exit=False).result
sys.exit(5 if not result.testsRun else not result.wasSuccessful())
''']
tester = [sys.executable, "-B", *(with_pytest if importlib.util.find_spec("pytest") else with_unittest)]
"""

_RUN_SCRIPT = (
    _COPY_SCRIPT
    + """
_, _, tests, *names = sys.argv
status = subprocess.call([*(tester if tests else [sys.executable, "-B"]), *names])
shutil.rmtree(place, ignore_errors=True)
sys.exit(status if status >= 0 else 1)
"""
)

# The answer is the last line, in JSON, so that it is not mistaken for the output of a draft. A draft can still forge
# it, so it counts as untrusted text and is no evidence.
_DRAFT_SCRIPT = (
    _COPY_SCRIPT
    + """
_, skipped, kept, target, most, tests, *named = sys.argv
skipped, most, tests, text = skipped.split("/"), int(most), int(tests), sys.stdin.read()

def digests():
    found = {}
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if name not in skipped]
        for name in names:
            full = os.path.normpath(os.path.join(folder, name))
            if os.path.isfile(full) and not os.path.islink(full) and os.access(full, os.R_OK):
                found[full] = hashlib.sha256(pathlib.Path(full).read_bytes()).hexdigest()
    return found

def run(*argv):
    with tempfile.TemporaryFile() as printed:  # no pipe: what the program leaves running would hold it open
        status = subprocess.call(argv, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT)
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - 2000))
        return status, printed.read().decode("utf-8", "replace")

before = digests()
name = target or os.path.join(kept, "code.py")
os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
pathlib.Path(name).write_text(text, encoding="utf-8")
python = [sys.executable, "-u", "-B"]
ends = [] if target else [run(*python, name)]
if not any(status for status, _ in ends):
    ends += [run(*python, program) for program in named[tests:]]
after = digests()
paths = [path for path in {**before, **after} if before.get(path) != after.get(path)]
paths = [path for path in paths if path.split(os.sep)[0] != kept]
changed = None
if sum(os.path.getsize(path) for path in paths if path in after) <= most:
    texts = {path: pathlib.Path(path).read_bytes().decode("utf-8", "replace") for path in paths if path in after}
    changed = {path: texts.get(path) for path in paths}
fails, printed = any(status for status, _ in ends), "\\n".join(text for _, text in ends)
passes = not tests or (not fails and run(*tester, *named[:tests])[0] in (0, 5))  # 5: there are no tests in them
shutil.rmtree(place, ignore_errors=True)
print(json.dumps({"fails": fails, "passes": passes, "printed": printed, "changed": changed}))
"""
)


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a draft in a copy: the texts of the changed files, None for a deleted file.

    It `fails` if the draft, or a program that the goals name, ended with an error, and `passes` if the tests then pass.
    `missing` lists the modules that were not installed. `preamble` holds the lines that may mend a program that failed:
    imports of standard modules, and folders to be made.
    """

    changed: Mapping[str, str | None]
    fails: bool
    passes: bool
    missing: tuple[str, ...] = ()
    preamble: str = ""


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A run of all tests, or of one program.

    `paths` are the files that were run. `fails` describes a failure, or is ''. A program `passed` if it exited with 0.
    Test files also pass if they define no tests, since such files assert while they are imported.
    """

    paths: tuple[str, ...]
    is_of_tests: bool
    title: str
    output: str
    fails: str
    passed: bool


def entries_of(workspace: Workspace) -> list[WorkspaceEntry]:
    """Return the first entries of the workspace; none if it cannot be read."""
    try:
        return list(islice(workspace.walk(".", NOT_ENTERED), _MAX_ENTRIES))
    except CommandError:
        return []


def run_tests(state: State, entries: Sequence[WorkspaceEntry]) -> list[TrialRun]:
    """Run the tests among the entries, then each program that the goals name, if possible. Ctrl-C skips them.

    Nothing runs unless the policy allows it and the agent itself may run programs.
    """
    runs: list[TrialRun] = []
    effects = [spec.effects for spec in state.tools.registry.specs if spec.effects is not None]
    if not (state.policy.runs_tests and any(spec_effects.runs_programs for spec_effects in effects)):
        return runs
    context, program_names = state.tools.context, names_in("\n".join(goal.text for goal in state.start.task.goals))
    venvs = [entry.path.removesuffix("pyvenv.cfg") for entry in entries if entry.path.endswith("/pyvenv.cfg")]
    paths = [entry.path for entry in entries if entry.kind == "file" and not entry.path.startswith(tuple(venvs))]
    code = [path for path in paths if path.endswith(".py") and CODE_FOLDER not in path.split("/")]
    tests = [path for path in code if path.endswith("_test.py") or path.rpartition("/")[2].startswith("test_")]
    others = [path for path in code if path not in tests]
    programs = [path for path in others if not {path, path.rpartition("/")[2]}.isdisjoint(program_names)]
    too_large = len(entries) >= _MAX_ENTRIES or sum(entry.size for entry in entries) > MAX_COPIED_BYTES
    if too_large or not (tests or programs):
        return runs
    excluded = "/".join(sorted({*NOT_ENTERED, CODE_FOLDER}))
    with suppress(KeyboardInterrupt, CommandError), state.policy.interruptible():  # CommandError: without a sandbox
        if not context.sandbox.confines:
            return runs
        for names in ([tests] if tests else []) + [[path] for path in programs[:_MAX_PROGRAMS]]:
            argv = [context.python, "-I", "-B", "-c", _RUN_SCRIPT, excluded, "tests" if names is tests else "", *names]
            seconds = _TEST_SECONDS if names is tests else _PROGRAM_SECONDS
            exit = context.sandbox.run(argv, seconds=seconds, network=False, read_only=True)
            passed = exit.status == 0 or (names is tests and exit.status == _NO_TESTS_STATUS)
            if names is tests:
                title = f"Tests in the workspace ({', '.join(map(shown, names[:_MAX_TESTS]))}), run now in a copy of it"
                fails = "" if passed else "Tests in the workspace fail"
            else:
                title = f"{shown(names[0])}, run now in a copy of the workspace"
                fails = f"{shown(names[0])} fails" if exit.status and _TRACEBACK in exit.output else ""
            runs.append(TrialRun(tuple(names), names is tests, title, describe_exit(exit), fails, passed))
    return runs


def try_out(context: Context, path: str, text: str, tests: Sequence[str], programs: Sequence[str]) -> Trial | None:
    """Write the text to a file in a copy of the workspace, or run it as a Python program if there is no `path`.

    The programs run after it, then the tests. Return None if that cannot be done, or takes too long.
    """
    excluded, numbers = "/".join(sorted({*NOT_ENTERED})), [str(_MAX_CHANGED_BYTES), str(len(tests))]
    argv = [context.python, "-I", "-B", "-c", _DRAFT_SCRIPT, excluded, CODE_FOLDER, path, *numbers, *tests, *programs]
    seconds = _DRAFT_SECONDS * (2 if tests else 1)
    try:
        exit = context.sandbox.run(
            argv, seconds=seconds, network=False, read_only=True, data=text.encode("utf-8", "replace")
        )
        report = json.loads(exit.output.splitlines()[-1]) if exit.status == 0 and exit.output else {}
    except (CommandError, ValueError, RecursionError):
        return None
    match report:
        case {"fails": bool(fails), "passes": bool(passes), "printed": str(printed), "changed": dict(changed)}:
            if all(isinstance(text, str | None) for text in changed.values()):
                names = [name for name in _UNDEFINED_NAME.findall(printed) if name in sys.stdlib_module_names]
                additions = [f"import {name}\n" for name in names]
                for folder in _MISSING_FOLDER.findall(printed):
                    additions.append(f'import os\nos.makedirs("{folder}", exist_ok=True)\n')
                preamble = "".join(additions) if fails else ""
                return Trial(changed, fails, passes, tuple(_MISSING_MODULE.findall(printed)), preamble)
    return None
