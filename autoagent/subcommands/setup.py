"""`autoagent setup`: choose the model, say what the agent is to be, and write both down."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from autoagent.dotenv import store_variables
from autoagent.printable import escape
from autoagent.servers import find_servers
from autoagent.settings import load
from autoagent.taskfile import write_task
from autoagent.welcome import ask_task, choose_model, model_is_chosen


class ClickTerminal:
    """The questions of set-up on standard input and error, so that standard output stays clean."""

    def say(self, text: str) -> None:
        click.echo(escape(text), err=True)

    def ask(self, prompt: str, default: str = "") -> str:
        return self._prompt(prompt, default, hidden=False)

    def secret(self, prompt: str) -> str:
        return self._prompt(prompt, "", hidden=sys.stdin.isatty())  # getpass would not look at a pipe

    @staticmethod
    def _prompt(prompt: str, default: str, *, hidden: bool) -> str:
        try:
            answer = click.prompt(
                escape(prompt), default=default, show_default=False, prompt_suffix="", hide_input=hidden, err=True
            )
        except click.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise
            raise EOFError from abort
        return str(answer)


@click.command("setup")
@click.pass_context
def setup(ctx: click.Context) -> None:
    """Choose a model, name the agent and its goals; writes .env and ai_settings.yaml."""
    terminal = ClickTerminal()
    settings = load(ctx.obj or {}, os.environ, Path.cwd()).settings
    if model_is_chosen(settings):
        terminal.say("The model is set up already; `autoagent config` shows it, and .env is where to change it.")
    else:
        choice = choose_model(terminal, find_servers())
        if choice.save:
            store_variables(Path(".env"), choice.env)
            terminal.say("Kept in .env.")
        else:
            terminal.say(f"Not kept; to use it, set {' and '.join(choice.env)}.")
    path = settings.ai_settings_file
    write_task(path, ask_task(terminal))
    terminal.say(f"Saved in {path}. Start with: autoagent")
