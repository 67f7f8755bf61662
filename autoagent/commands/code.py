"""Run programs in the sandbox, and ask the model about code.

A Python program runs from the exact bytes shown for approval: they go to the interpreter on standard input, and the
file is not read again.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import partial
from typing import Annotated

from autoagent.commands.context import Context, in_a_shell
from autoagent.commands.files import write_to_file
from autoagent.commands.registry import Command, CommandOutput, command
from autoagent.commands.support.edited_text import decode
from autoagent.commands.support.program_output import describe_exit, describe_program, has_failed
from autoagent.commands.support.shell_lines import program_name, programs, risk_of
from autoagent.core.commands import CODE, DETAIL, EXISTING, PLAIN, Effects, ResultMeta, Risk
from autoagent.core.errors import CommandError, ModelError
from autoagent.core.services import ProcessExit
from autoagent.settings import Settings
from autoagent.workspace.gate import CODE_FOLDER, shown

LOG_FOLDER = "background"
MAX_SOURCE_BYTES = 1_000_000  # of a Python program
MAX_LINE_BYTES = 131_071  # of a shell line, as Linux takes no longer argument (MAX_ARG_STRLEN, with a final null)

CommandLine = Annotated[str, "a shell command", "shell"]
Code = Annotated[str, "the whole code", "exact", CODE]

_AUTOGPT = ("execute_code",)

_run_command = partial(command, risk="run", repeatable=True, effects=Effects(runs_programs=True))

# Python ------------------------------------------------------------------------------------------------------------

# For small models, which are not asked for a name: they would confuse that file with the file that they are to write.
_DEFAULT_NAME = "code.py"

# Run the source from standard input as `python FILE` does. Tracebacks omit the frames of this text.
_LAUNCHER = """
def _start():
    import os, sys
    del sys.argv[0]
    path = globals()["__file__"] = os.path.abspath(sys.argv[0])
    sys.path[0] = os.path.dirname(path)
    show = sys.excepthook
    def hook(kind, error, trace):
        while trace and trace.tb_frame.f_code.co_filename == "<string>":
            trace = trace.tb_next
        show(kind, error.with_traceback(trace), trace)
    sys.excepthook = hook
    return compile(sys.stdin.buffer.read(), path, "exec")
exec(globals().pop("_start")())
"""


def _preview_code(context: Context, code: str, name: str = _DEFAULT_NAME) -> str:
    filename = _code_file(name)
    assert write_to_file.preview is not None
    diff = write_to_file.preview(context, filename, code)
    return diff or f"Runs {filename}, which holds this code already:\n{code}"


@_run_command(
    "execute_python_code",
    "Count, filter, sort, convert or compute with Python code, kept in the folder executed_code",
    preview=_preview_code,
    autogpt=_AUTOGPT,
    always_offered=True,
)
def execute_python_code(
    context: Context, code: Code, name: Annotated[str, "file name in that folder", "exact", DETAIL] = _DEFAULT_NAME
) -> CommandOutput:
    filename = _code_file(name)
    report = write_to_file.function(context, filename, code)
    assert isinstance(report, CommandOutput)
    return _result(_run_python(context, filename, code.encode(), []), report.meta)


@_run_command(
    "execute_python_file",
    "Run a Python file",
    preview=lambda context, filename, args=None: _source_note(context, filename, *_source(context, filename)),
    autogpt=_AUTOGPT,
    always_offered=True,
)
def execute_python_file(
    context: Context,
    filename: Annotated[str, "path relative to the workspace", "path", EXISTING, ".py"],
    args: Annotated[list[str] | None, "arguments of the program"] = None,
) -> CommandOutput:
    source, text = _source(context, filename)
    if context.shown is not None and context.shown != _source_note(context, filename, source, text):
        raise CommandError(f"{filename} is no longer what was shown when it was allowed; it was not run. Try again.")
    return _result(_run_python(context, filename, source, [str(arg) for arg in args or ()]))


def _code_file(name: str) -> str:
    if "/" in name or not name.strip() or name in (".", ".."):
        raise CommandError(f"{shown(name)} is not a plain file name; use one without a folder, such as 'main.py'.")
    return f"{CODE_FOLDER}/{name}" if name.endswith(".py") else f"{CODE_FOLDER}/{name}.py"


def _source(context: Context, filename: str) -> tuple[bytes, str]:
    entry = context.workspace.find(filename, follow=False)
    if entry is not None and entry.kind == "link":
        raise CommandError(f"{shown(filename)} is a symbolic link; name the file itself.")
    source = context.workspace.read(filename, MAX_SOURCE_BYTES + 1)
    if not filename.endswith(".py"):
        raise CommandError(f"{shown(filename)} is not a Python file: its name must end in .py.")
    if len(source) > MAX_SOURCE_BYTES:
        raise CommandError(f"{shown(filename)} is larger than {MAX_SOURCE_BYTES:,} bytes, too large to be run.")
    decoded = decode(source)
    if decoded is None:
        raise CommandError(f"{shown(filename)} is a binary file, not Python source.")
    return source, decoded.text


def _source_note(context: Context, filename: str, source: bytes, text: str) -> str:
    digest = hashlib.sha256(source).hexdigest()
    name = context.workspace.display(filename)
    return f"Runs {name} ({len(source):,} bytes, SHA-256 {digest}):\n{text}"


def _run_python(context: Context, filename: str, source: bytes, args: list[str]) -> ProcessExit:
    # -u keeps the output in the order of printing. -B leaves no __pycache__ in the workspace.
    name = context.workspace.display(filename)
    return context.sandbox.run([context.python, "-u", "-B", "-c", _LAUNCHER, name, *args], data=source)


# The shell ---------------------------------------------------------------------------------------------------------


def _shell_off_reason(settings: Settings) -> str:
    return "" if settings.execute_local_commands else "shell commands are switched off (EXECUTE_LOCAL_COMMANDS)"


def _preview_shell(context: Context, command_line: str, **_: object) -> str:
    arguments = _arguments(context, command_line)
    if context.shell_rule is not in_a_shell:
        return f"Runs {arguments[0]}, without a shell."
    return f"Runs in a shell: {', '.join(programs(command_line)) or 'nothing that its text names'}."


def _assess_shell(context: Context, command_line: str, **_: object) -> Risk:
    return risk_of(command_line[:MAX_LINE_BYTES])  # a longer one is refused anyway, and takes long to read


_shell_command = partial(
    _run_command, available=_shell_off_reason, preview=_preview_shell, assess=_assess_shell, autogpt=_AUTOGPT
)


@_shell_command("execute_shell", "Run a shell command and wait for its end", always_offered=True)
def execute_shell(context: Context, command_line: CommandLine) -> CommandOutput:
    exit = context.sandbox.run(_arguments(context, command_line))
    sleeps = "sleep" in programs(command_line)
    waits = any(program.exit is None for program in context.sandbox.programs()) if sleeps else None
    return _result(exit, ResultMeta(waits=waits))


@_run_command(
    "verify",
    "Check a goal with a shell command that exits 0 if it is met",
    available=_shell_off_reason,
    preview=_preview_shell,
    assess=_assess_shell,
)
def verify(
    context: Context, goal: Annotated[int, "the number of the goal"], command_line: CommandLine
) -> CommandOutput:
    return _result(context.sandbox.run(_arguments(context, command_line)))


@_shell_command("execute_shell_popen", "Start a shell command that runs on in the background", rare=True)
def execute_shell_popen(context: Context, command_line: CommandLine) -> CommandOutput:
    arguments = _arguments(context, command_line)
    program = program_name(next(iter(programs(command_line)), "program"))
    name, number = re.sub(r"[^\w.-]", "_", program)[:40].lstrip(".-") or "program", 1
    while context.workspace.find(log := f"{LOG_FOLDER}/{name}-{number}.log", follow=False) is not None:
        number += 1
    started = context.sandbox.start(arguments, output=log)
    text = (
        f"Started as program {started.pid}. What it prints goes to {started.output}; wait_for waits for its end, "
        "stop_program ends it."
    )
    return CommandOutput(text, ResultMeta(changed=(started.output,), details={"pid": started.pid}))


_background_command = partial(command, rare=True, available=_shell_off_reason, effects=Effects(), autogpt=_AUTOGPT)


@_background_command("list_programs", "List the programs in the background", risk="read", repeatable=True)
def list_programs(context: Context) -> CommandOutput:
    background = context.sandbox.programs()
    text = "\n".join(map(describe_program, background)) or "No program was started in the background."
    return CommandOutput(text, ResultMeta(waits=any(program.exit is None for program in background)))


@_background_command("stop_program", "End a program in the background", risk="run")
def stop_program(context: Context, pid: Annotated[int, "as list_programs shows it", "text"]) -> str:
    return describe_program(context.sandbox.stop(pid))


def _arguments(context: Context, line: str) -> list[str]:
    if "\0" in line:
        raise CommandError("The command holds a null character, which no argument of a program can hold.")
    if not line.strip():
        raise CommandError("The command is empty.")
    try:
        size = len(line.encode())
    except UnicodeEncodeError as error:
        raise CommandError(f"The command holds {line[error.start]!a}, which is not valid Unicode.") from error
    if size > MAX_LINE_BYTES:
        raise CommandError(
            f"The command has {size:,} bytes, and the system takes {MAX_LINE_BYTES:,} at most (E2BIG): "
            "write it to a file and run that."
        )
    return list(context.shell_rule(line))


def _result(exit: ProcessExit, meta: ResultMeta = PLAIN) -> CommandOutput:
    # A failing program is not a failure of the command.
    details = {"exit": exit.status, "signal": exit.signal, "limit": exit.limit}
    return CommandOutput(describe_exit(exit), replace(meta, failed=has_failed(exit), details=details))


# Asking the model --------------------------------------------------------------------------------------------------

_advice_command = partial(command, risk="read", rare=True, effects=Effects())


@_advice_command(
    "analyze_code", "Have code analyzed", aliases=["evaluate_code"], autogpt=["analyze_code", "evaluate_code"]
)
def analyze_code(context: Context, code: Code) -> str:
    return _answer(context, "List what should be improved in this code: faults first, then clarity. Be specific.", code)


@_advice_command("improve_code", "Have code improved", autogpt=["improve_code"])
def improve_code(context: Context, suggestions: Annotated[list[str], "what to improve"], code: Code) -> str:
    task = "Improve this code as suggested, and answer with the whole improved code alone. The suggestions:"
    return _answer(context, "\n".join([task, *(f"- {suggestion}" for suggestion in suggestions)]), code)


@_advice_command("write_tests", "Have tests written for code", autogpt=["write_tests"])
def write_tests(context: Context, code: Code, focus: Annotated[list[str], "what the tests should cover"]) -> str:
    task = "Write tests for this code, and answer with the whole test file alone. What they should cover above all:"
    return _answer(context, "\n".join([task, *(f"- {topic}" for topic in focus)]), code)


def _answer(context: Context, task: str, code: str) -> str:
    """Ask the model to do a task on code, fenced so that the code cannot close the fence. Return the answer."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    try:
        return context.complete(f"{task}\n\n{fence}\n{code}\n{fence}")
    except ModelError as error:  # the run can continue without this answer
        raise CommandError(f"The model gave no answer: {error}") from error


COMMANDS: tuple[Command, ...] = (
    execute_python_code, execute_python_file, execute_shell, verify, execute_shell_popen, list_programs,
    stop_program, analyze_code, improve_code, write_tests,
)  # fmt: skip
