"""`autoagent tools`: what the agent can use, under one noun. The parts are subcommands of their own, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from autoagent.subcommands.commands import commands


class Noun(click.Group):
    """A group whose subcommands are `parts` of the program's own, by another name or the same."""

    def __init__(self, *args: Any, parts: Mapping[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._parts = parts

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._parts)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        program = ctx.find_root().command
        if cmd_name not in self._parts or not isinstance(program, click.Group):
            return None
        return program.get_command(ctx, self._parts[cmd_name])


@click.group(
    "tools",
    cls=Noun,
    invoke_without_command=True,
    parts={"commands": "commands", "skills": "skills", "mcp": "mcp", "plugins": "plugins", "new": "new-plugin"},
)
@click.pass_context
def tools(ctx: click.Context) -> None:
    """The agent's tools. Without a subcommand: its commands, and why some cannot be used here."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(commands)
