"""`autoagent completion`: what a shell completes, by click's own scripts."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from autoagent.core.errors import SettingsError
from autoagent.terminal.output import echo

PLACES = {  # where each shell looks by itself, under the home of the user
    "bash": ".local/share/bash-completion/completions/autoagent",
    "zsh": ".local/share/zsh/site-functions/_autoagent",
    "fish": ".config/fish/completions/autoagent.fish",
}


@click.command("completion")
@click.argument("what", type=click.Choice(["install", *PLACES]))
@click.argument("shell", type=click.Choice(list(PLACES)), required=False)
@click.pass_context
def completion(ctx: click.Context, what: str, shell: str | None) -> None:
    """Print the script for bash, zsh or fish, or install it: for SHELL, or the one you use ($SHELL)."""
    if shell and what != "install":
        raise click.UsageError(f"Give one shell: `autoagent completion install {shell}`, or `completion {shell}`.")
    shell = shell or (Path(os.environ.get("SHELL", "")).name if what == "install" else what)
    if shell not in PLACES:
        raise SettingsError(f"SHELL is {shell or 'not set'}: print the script of one of {', '.join(PLACES)} instead.")
    root = ctx.find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, "autoagent", "_AUTOAGENT_COMPLETE").source()
    if what != "install":
        echo(script)
        return
    path = Path.home() / PLACES[shell]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, "utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}.") from error
    echo(f"Written to {path}; a new {shell} completes.", err=True)
    if shell == "zsh":
        echo(f"Put this before compinit in .zshrc, if it is not there: fpath+=({path.parent})", err=True)
