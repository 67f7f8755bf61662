"""`autoagent setup`: choose the model, say what the agent is to be, and write both down."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import click

from autoagent.dotenv import store_variables
from autoagent.servers import find_servers
from autoagent.subcommands.here import trust_made, trusted_here
from autoagent.subcommands.output import echo
from autoagent.taskfile import write_task
from autoagent.welcome import ask_task, choose_model, model_is_chosen
from autoagent.wrapping import wrap

READING_BEGINS = 0.2  # seconds after a question is written; until then nothing competes with the writing


class ClickTerminal:
    """The questions of set-up on standard input and error, so that standard output stays clean.

    `while_reading` is called once, in a thread of its own, shortly after the first question is on screen.
    """

    def __init__(self, while_reading: Callable[[], None] | None = None) -> None:
        self._while_reading = while_reading

    def say(self, text: str) -> None:
        echo(wrap(text, shutil.get_terminal_size().columns), err=True)

    def ask(self, prompt: str, default: str = "") -> str:
        answer = self._prompt(prompt, default, hidden=False)
        if not sys.stdin.isatty():
            echo(answer, err=True)  # a terminal has echoed it
        return answer

    def decide(self, question: str) -> bool:
        """A yes or a no that nobody gives by accident: what was typed before the question does not count."""
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


@click.command("setup")
@click.pass_context
def setup(ctx: click.Context) -> None:
    """Choose a model, name the agent and its goals; writes .env and ai_settings.yaml."""
    terminal = ClickTerminal()
    settings = trusted_here(ctx.obj).settings
    if model_is_chosen(settings):
        terminal.say("The model is set up already; `autoagent config` shows it, and .env is where to change it.")
    else:
        choice = choose_model(terminal, find_servers)
        if choice.save:
            store_variables(Path(".env"), choice.env)
            trust_made(choice.env)
            terminal.say("Kept in .env.")
        else:
            shown = (name if name == "OPENAI_API_KEY" else f"{name}={value}" for name, value in choice.env.items())
            terminal.say(f"Not kept; to use it, set {' and '.join(shown)}.")
    path = settings.ai_settings_file
    task = ask_task(terminal)
    write_task(path, task)
    trust_made({}, path, task)
    terminal.say(f"Saved in {path}. Start with: autoagent")
