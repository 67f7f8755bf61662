"""`autoagent setup`: choose the model, describe the agent, and save both."""

from __future__ import annotations

from pathlib import Path

import click

from autoagent.models.servers import find_servers
from autoagent.session.dotenv import store_variables
from autoagent.session.session import Session, trust_made
from autoagent.session.task_file import write_task
from autoagent.subcommands.tools import Noun
from autoagent.terminal.click_terminal import ClickTerminal
from autoagent.terminal.setup_wizard import ask_task, choose_model, model_is_chosen


@click.group(
    "setup",
    cls=Noun,
    invoke_without_command=True,
    parts={
        "check": "doctor",
        "show": "config",
        "model": "model",
        "completion": "completion",
        "man": "man",
        "migrate": "migrate",
    },
)
@click.pass_context
def setup(ctx: click.Context) -> None:
    """Choose a model, name the agent and its goals; writes .env and ai_settings.yaml."""
    if ctx.invoked_subcommand is not None:
        return
    terminal = ClickTerminal()
    settings = Session.open(ctx.obj).settings
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
