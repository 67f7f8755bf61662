"""The questions of the set-up: edited at a terminal, read with click from a pipe or a dumb terminal."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable

import click

from autoagent.settings import user_state_path
from autoagent.terminal.line_editor import LineEditor, can_edit
from autoagent.terminal.output import echo
from autoagent.text.redaction import Redactor
from autoagent.text.wrapping import wrap

READING_BEGINS = 0.2  # seconds after a question is written; until then nothing competes with the writing


class ClickTerminal:
    """The questions of set-up on standard input and error, so that standard output stays clean.

    `while_reading` is called once, in a thread of its own, shortly after the first question is on screen.
    """

    def __init__(self, while_reading: Callable[[], None] | None = None) -> None:
        self._while_reading = while_reading
        self.typed: list[str] = []  # the answers, without secrets
        self._editor = None
        if can_edit(sys.stdin, sys.stderr):
            self._editor = LineEditor(sys.stdin, sys.stderr, user_state_path(os.environ) / "history", Redactor().mask)

    @property
    def interactive(self) -> bool:
        return sys.stdin.isatty()

    def say(self, text: str) -> None:
        echo(wrap(text, shutil.get_terminal_size().columns), err=True)

    def ask(self, prompt: str, default: str = "") -> str:
        answer = self._prompt(prompt, default, hidden=False)
        self.typed.append(answer)
        if not sys.stdin.isatty():
            echo(answer, err=True)  # a terminal has echoed it
        return answer

    def decide(self, question: str) -> bool:
        """Ask a yes-or-no question that nobody answers by accident: input typed before it is discarded."""
        if sys.stdin.isatty():
            import termios

            termios.tcflush(sys.stdin, termios.TCIFLUSH)
        while (answer := self.ask(question).strip().lower()) not in ("y", "yes", "n", "no"):
            self.say("Please answer y or n.")
        return answer in ("y", "yes")

    def secret(self, prompt: str) -> str:
        if sys.stdin.isatty():
            return self._prompt(prompt, "", hidden=True)
        answer = self._prompt(prompt, "", hidden=False)  # getpass would not look at a pipe
        echo(err=True)
        return answer

    def _prompt(self, prompt: str, default: str, *, hidden: bool) -> str:
        if self._while_reading is not None:
            thread = threading.Timer(READING_BEGINS, self._while_reading)
            thread.daemon = True  # an answer that ends the program does not wait for it
            thread.start()
            self._while_reading = None
        shown = wrap(prompt, shutil.get_terminal_size().columns)
        if self._editor is not None:
            above, newline, last = shown.rpartition("\n")
            if newline:
                echo(above, err=True)
            return self._editor.read(f"{last} ", hidden=hidden) or default
        try:
            answer = click.prompt(
                shown, default=default, show_default=False, prompt_suffix=" ", hide_input=hidden, err=True
            )
        except click.Abort as abort:
            if not hidden:  # click itself ends the line of a hidden answer
                echo(err=True)
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise
            raise EOFError from abort
        return str(answer)
