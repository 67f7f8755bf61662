"""Render a program's output and exit for the model."""

from __future__ import annotations

import signal
from contextlib import suppress

from autoagent.core.services import BackgroundProcess, ProcessExit

# Statuses to which shells give a meaning (POSIX, XCU 2.8.2).
_MEANINGS = {126: " (a program that it ran is not executable)", 127: " (a program that it ran was not found)"}
_SIGNAL_BASE = 128  # plus the number of the signal


def exit_phrase(exit: ProcessExit) -> str:
    """Describe the end: `exit status 0`, `ended by SIGKILL`, `stopped at the limit of 120 s`, with its cause."""
    if exit.lost:
        return f"stopped, as it could no longer be watched: {exit.lost}"
    if exit.limit:
        return f"stopped at the limit of {exit.limit}"
    if exit.signal:
        return f"ended by {exit.signal}"
    status = exit.status or 0
    meaning = _MEANINGS.get(status, "")
    with suppress(ValueError):
        meaning = f" (a program that it ran was ended by {signal.Signals(status - _SIGNAL_BASE).name})"
    return f"exit status {exit.status}{meaning}"


def has_failed(exit: ProcessExit) -> bool:
    """Return whether the program failed. 1 without output is an answer, as from `grep`, `test` and `cmp -s`."""
    return exit.status != 0 and not (exit.status == 1 and not exit.output.strip())


def describe_program(program: BackgroundProcess) -> str:
    """Describe a program in the background in one line."""
    state = "running" if program.exit is None else exit_phrase(program.exit)
    return f"{program.pid}: {state}; {program.command}; prints to {program.output}"


def describe_exit(exit: ProcessExit) -> str:
    """Describe the exit of the program and its kept output."""
    # Each line in its last state after `\r`, as a terminal finally shows it.
    lines = exit.output.decode("utf-8", "replace").split("\n")
    output = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    end = exit_phrase(exit)
    end = end[0].upper() + end[1:]
    text = f"{end}. It printed:\n{output}" if output.strip() else f"{end}; nothing was printed."
    if not exit.put_back:
        return text
    note = "These files were restored, since they would later run as the user. Only the user can allow that"
    return "\n".join([text, f"{note}; write_to_file asks:", *exit.put_back])
