"""Read a person's answers: edited lines at a terminal, plain lines from a pipe or a dumb terminal."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

import click

from autoagent.settings import user_state_path
from autoagent.terminal.line_editor import LOAD_DELAY_SECONDS, LineEditor, Watch, can_edit, ends_with_terminal, watched
from autoagent.terminal.output import echo
from autoagent.text.redaction import Redactor
from autoagent.text.sanitize import escape, valid_text
from autoagent.text.wrapping import wrap

if TYPE_CHECKING:
    from autoagent.terminal.screen import Screen, Style


class AnswerReader:
    """Read lines from `stdin`, edited if it is a terminal. `mask` removes secrets from the history of typed lines."""

    def __init__(self, stdin: TextIO, screen: Screen, style: Style, mask: Callable[[Any], Any]) -> None:
        self._stdin = stdin
        self._screen = screen
        self.are_edited = not style.plain and can_edit(stdin, screen.stream)
        self._editor = LineEditor(stdin, screen.stream, style.history, mask) if self.are_edited else None

    @property
    def at_terminal(self) -> bool:
        """Return whether a person types the answers."""
        return self._stdin.isatty()

    def read(self, watch: Watch | None = None, words: Sequence[str] = ()) -> str:
        """Read an answer. Tab completes `words` after a slash.

        Raises EOFError at the end of input, KeyboardInterrupt for Ctrl-C, the error of `watch`, and UnicodeDecodeError
        for input that is not text.
        """
        if self._editor is not None:
            return valid_text(self._editor.read("> ", watch=watch, words=words))
        screen = self._screen
        screen.open_line = True  # after Ctrl-C or the end of input, the cursor is still behind the prompt
        with ends_with_terminal(), watched(watch):
            if self.at_terminal and self._stdin is sys.stdin and screen.stream is sys.stdout and sys.stdout.isatty():
                import readline  # noqa: F401 (line editing for input(); loaded only where a person types)

                line = input("> ")
            else:
                screen.write("> ")
                line = self._stdin.readline()
                if not line:
                    raise EOFError
                line = line.rstrip("\n")
                if not self.at_terminal:
                    screen.write(f"{escape(line)}\n")  # a terminal echoes its input
        screen.open_line = False
        return valid_text(line)

    def poll_line(self) -> str | None:
        """Return a line typed while nothing was asked, or None."""
        with suppress(OSError, ValueError):  # closed, or not a file
            if select.select([self._stdin], [], [], 0.0)[0]:
                return self._stdin.readline() or None
        return None

    def rewrite(self, text: str) -> str | None:
        """Return the text as edited by the user on prefilled lines, or None without line editing."""
        try:
            return valid_text(self._editor.read("> ", default=text)) if self._editor is not None else None
        except (EOFError, KeyboardInterrupt):
            return text

    def discard_typeahead(self) -> None:
        """Discard input typed before the question was shown."""
        _discard_typeahead(self._stdin, self._editor)


def _discard_typeahead(stdin: TextIO, editor: LineEditor | None) -> None:
    """Discard the input received by the terminal, and the input that the editor has read ahead of its answer."""
    if stdin.isatty():
        with suppress(termios.error):  # closed meanwhile
            termios.tcflush(stdin, termios.TCIFLUSH)
    if editor is not None:
        editor.discard_typeahead()


class ClickTerminal:
    """Ask the set-up questions on standard input and error, so that standard output stays clean.

    `while_reading` is called once, in its own thread, shortly after the first question is shown.
    """

    def __init__(self, while_reading: Callable[[], None] | None = None) -> None:
        self.interactive = sys.stdin.isatty()  # whether a person is reading and can say no
        self._while_reading = while_reading
        self.given_answers: list[str] = []  # without secrets
        self._editor = None
        if can_edit(sys.stdin, sys.stderr):
            self._editor = LineEditor(sys.stdin, sys.stderr, user_state_path(os.environ) / "history", Redactor().mask)

    def say(self, text: str) -> None:
        echo(wrap(text, shutil.get_terminal_size().columns), err=True)

    def ask(self, prompt: str, default: str = "") -> str:
        """Return the answer, or `default` for an empty answer. Raises EOFError at the end of input."""
        answer = self._prompt(prompt, default)
        self.given_answers.append(answer)
        if not self.interactive:
            echo(answer, err=True)  # a terminal echoes its input
        return answer

    def decide(self, question: str) -> bool:
        """Ask a yes-or-no question. Discard earlier input, so that nobody answers it by accident."""
        _discard_typeahead(sys.stdin, self._editor)
        while (answer := self.ask(question).strip().lower()) not in ("y", "yes", "n", "no"):
            self.say("Please answer y or n.")
        return answer in ("y", "yes")

    def secret(self, prompt: str) -> str:
        """Return the answer as `ask` does, without echoing the input."""
        if self.interactive:
            return self._prompt(prompt, hidden=True)
        answer = self._prompt(prompt)  # getpass ignores a pipe
        echo(err=True)
        return answer

    def _prompt(self, prompt: str, default: str = "", *, hidden: bool = False) -> str:
        if self._while_reading is not None:
            thread = threading.Timer(LOAD_DELAY_SECONDS, self._while_reading)
            thread.daemon = True  # not waited for at exit
            thread.start()
            self._while_reading = None
        text = wrap(prompt, shutil.get_terminal_size().columns)
        if self._editor is not None:
            above, newline, last = text.rpartition("\n")
            if newline:
                echo(above, err=True)
            return self._editor.read(f"{last} ", hidden=hidden) or default
        try:
            answer = click.prompt(
                text, default=default, show_default=False, prompt_suffix=" ", hide_input=hidden, err=True
            )
        except click.Abort as abort:
            if not hidden:  # click itself ends the line of a hidden answer
                echo(err=True)
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise
            raise EOFError from abort
        return str(answer)
