"""What a subcommand prints. All of it passes here, so that nothing of a file, a log or a page steers the terminal."""

from __future__ import annotations

import json
from typing import Any

import click

from autoagent.text.sanitize import escape, escape_json


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines, whatever a terminal would obey, reorder or hide in them as escapes; `err`: on standard error."""
    click.echo(escape(text), err=err)


def echo_over(text: str) -> None:
    """Write over the line that standard error is at: a bar that grows."""
    click.echo(f"\r{escape(text)}", err=True, nl=False)


def echo_json(value: Any) -> None:
    """Print a JSON value, in which the same stands as escapes of JSON."""
    click.echo(escape_json(json.dumps(value, ensure_ascii=False, indent=2)))
