"""`autoagent model`: the embedded model on this machine."""

from __future__ import annotations

import click

from autoagent.models.local import weights
from autoagent.session.build import fetch_once
from autoagent.terminal.output import echo, echo_json


@click.group()
def model() -> None:
    """The embedded model: list, fetch or remove it."""


@model.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON list on stdout.")
def list_models(as_json: bool) -> None:
    """Show the models that need no key."""
    known = weights.EMBEDDED
    row = {
        "name": known.name,
        "size": known.size,
        "license": known.license,
        "installed": weights.installed(),
        "path": str(weights.path()),
        "sha256": known.sha256,
        "url": known.url,
    }
    if as_json:
        echo_json([row])
        return
    state = f"installed in {row['path']}" if row["installed"] else "not installed (autoagent model fetch)"
    echo(f"{known.name}  {known.size / 1e9:.1f} GB  {known.license}  {state}")


@model.command()
def fetch() -> None:
    """Fetch the embedded model into the user's cache, once. A fetch that was broken off goes on where it stopped."""
    if weights.installed():
        echo(f"Already there: {weights.path()}")
        return
    echo(f"Fetched and verified: {fetch_once()}")


@model.command()
def remove() -> None:
    """Delete the embedded model, and the remains of an interrupted fetch."""
    removed = weights.remove()
    echo(f"Removed {weights.EMBEDDED.name}." if removed else "There is nothing to remove.")
