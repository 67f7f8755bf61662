"""The lines that a person answers with: edited at a terminal, read as they are from a pipe or a dumb terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TextIO

from autoagent.terminal.line_editor import LineEditor, can_edit, edit_in_editor
from autoagent.text.sanitize import escape

if TYPE_CHECKING:
    from autoagent.terminal.screen import Screen
    from autoagent.terminal.style import Style

_LONGEST_TIMEOUT = 1e8  # seconds, three years: the system's timer refuses much longer ones


class Answers:
    """Reads lines from `stdin`; `mask` takes secrets out of the history of what was typed."""

    def __init__(self, stdin: TextIO, screen: Screen, style: Style, mask: Callable[[Any], Any]) -> None:
        self._stdin = stdin
        self._screen = screen
        edits = not style.plain and can_edit(stdin, screen.stream)
        self._editor = LineEditor(stdin, screen.stream, style.history, mask) if edits else None

    @property
    def are_edited(self) -> bool:
        """Whether lines are edited: at a terminal that can move its cursor."""
        return self._editor is not None

    def read(self, timeout: float | None = None) -> str:
        """Read an answer; after `timeout` seconds (not on Windows) give up.

        Raises EOFError at the end of input, KeyboardInterrupt for Ctrl-C, TimeoutError, and UnicodeDecodeError for what
        is no text.
        """
        if self._editor is not None:
            return _whole(self._editor.read("> ", timeout=timeout))
        self._screen.open_line = True  # after Ctrl-C or the end of input, the cursor stands behind the prompt
        with nullcontext() if timeout is None else _deadline(timeout):
            line = self._read_line("> ")
        self._screen.open_line = False
        return _whole(line)

    def typed(self) -> str:
        """Return a line that was typed while nothing was asked; '' at the end of the input."""
        return self._stdin.readline()

    def edit(self, text: str, suffix: str) -> str | None:
        """Return the text as the user leaves it in an editor; None where there is none or it fails."""
        return edit_in_editor(text, suffix) if self._editor is not None else None

    def discard_typeahead(self) -> None:
        """Forget what was typed before the question could be read."""
        if self._stdin.isatty():
            _flush_input(self._stdin)
        if self._editor is not None:
            self._editor.discard_typeahead()

    def _read_line(self, prompt: str) -> str:
        screen = self._screen
        if self._stdin is sys.stdin and screen.stream is sys.stdout and self._stdin.isatty() and sys.stdout.isatty():
            import readline  # noqa: F401 (line editing for input(); loaded only where a person types)

            return input(prompt)
        screen.write(prompt)
        line = self._stdin.readline()
        if not line:
            raise EOFError
        line = line.rstrip("\n")
        if not self._stdin.isatty():
            screen.write(f"{escape(line)}\n")  # a terminal has echoed it
        return line


def _whole(line: str) -> str:
    """Return the line without lone surrogates, which no log can hold."""
    return line.encode("utf-8", "replace").decode("utf-8")


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread once the time is over."""
    if sys.platform == "win32":
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, min(max(seconds, 0.001), _LONGEST_TIMEOUT))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _flush_input(stdin: TextIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        termios.tcflush(stdin.fileno(), termios.TCIFLUSH)
