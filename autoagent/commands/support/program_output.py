"""Render a program's output and exit for the model."""

from __future__ import annotations

import signal
from contextlib import suppress

from autoagent.core.services import ProcessExit

_NOT_EXECUTABLE, _NOT_FOUND, _BY_SIGNAL = 126, 127, 128  # statuses that shells give a meaning (POSIX, XCU 2.8.2)


def ending(exit: ProcessExit) -> str:
    """Describe the end: `exit status 0`, `ended by SIGKILL`, `stopped at the limit of 120 s`, with its cause."""
    if exit.limit:
        return f"stopped at the limit of {exit.limit}"
    if exit.signal:
        return f"ended by {exit.signal}"
    status = exit.status or 0
    meanings = {_NOT_EXECUTABLE: "is not executable", _NOT_FOUND: "was not found"}
    with suppress(ValueError):
        meanings[status] = f"was ended by {signal.Signals(status - _BY_SIGNAL).name}"
    return f"exit status {exit.status}" + (f" (a program in it {meanings[status]})" if status in meanings else "")


def has_failed(exit: ProcessExit) -> bool:
    """Return whether the program failed. 1 without output is an answer, as grep, test and diff give it."""
    return exit.status != 0 and not (exit.status == 1 and not exit.output.strip())


def described(exit: ProcessExit) -> str:
    """Describe the exit of the program and its kept output."""
    printed = exit.output.decode("utf-8", "replace")
    if "\r" in printed:  # as a terminal finally shows it
        printed = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in printed.split("\n"))
    end = ending(exit)
    end = end[0].upper() + end[1:]
    text = f"{end}. It printed:\n{printed}" if printed.strip() else f"{end}; nothing was printed."
    if not exit.put_back:
        return text
    lines = "\n".join(exit.put_back)
    return f"{text}\nOnly the user may allow what runs as the user later; write_to_file asks about it:\n{lines}"
