"""Define `autoagent tools`: the agent's commands and plug-ins, and a new extension. Its parts are subcommands, too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from autoagent.core.errors import SettingsError
from autoagent.session.session import Session
from autoagent.terminal.output import echo, echo_json


class AliasGroup(click.Group):
    """Group some of the program's own subcommands (`parts`), perhaps under other names."""

    def __init__(self, *args: Any, parts: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
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
    cls=AliasGroup,
    invoke_without_command=True,
    parts={"commands": "commands", "skills": "skills", "mcp": "mcp", "plugins": "plugins", "new": "new-plugin"},
)
@click.pass_context
def tools(ctx: click.Context) -> None:
    """The agent's tools. Without a subcommand: its commands, and why some cannot be used here."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(commands)


@click.command("commands")
@click.option("--json", "as_json", is_flag=True, help="A list of objects; `reason`: why it cannot be used here.")
@click.pass_context
def commands(ctx: click.Context, as_json: bool) -> None:
    """List the commands. If one cannot be used with these settings, say why."""
    from autoagent.commands import selection

    registry = selection.available(Session.read(ctx.obj).settings)
    additions = [addition for addition in selection.plugin_commands() if not addition.plugin.is_ours]
    plugin_by_command = {command.spec.name: each.plugin for each in additions for command in each.commands}
    for addition in selection.plugin_commands():
        if addition.problem:
            echo(f"autoagent: {addition.problem}", err=True)
    rows: list[dict[str, Any]] = [
        {
            "name": spec.name,
            "signature": spec.signature(),
            "label": spec.label,
            "category": spec.category,
            "risk": spec.risk,
            "aliases": list(spec.aliases),
            "reason": registry.switched_off.get(spec.name, ""),
            "plugin": plugin_by_command[spec.name].description if spec.name in plugin_by_command else "",
        }
        for spec in selection.all_specs()
    ]
    if as_json:
        echo_json(rows)
        return
    for category in selection.categories():
        echo(category)
        for row in rows:
            if row["category"] == category:
                aliases = f" [{', '.join(row['aliases'])}]" if row["aliases"] else ""
                reason = f"  NOT HERE: {row['reason']}" if row["reason"] else ""
                origin = f"  plug-in: {row['plugin']}" if row["plugin"] else ""
                echo(f"  {row['signature']}{aliases}\n      {row['label']} ({row['risk']}){origin}{reason}")


_PROJECT = """\
[build-system]
requires = ["setuptools>=69"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1"
description = "An extension of autoagent"
requires-python = ">=3.11"
dependencies = ["autoagent"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points.autoagent]
{name} = "{module}:register"

[tool.setuptools]
py-modules = ["{module}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
"""

_MODULE = '''\
"""An extension of autoagent. docs/extending.md there says what else `register` can add."""

from __future__ import annotations

from typing import Annotated

from autoagent.extension import Context, Effects, Host, command


# Declare all that is true: the risk of a call, and what it does beyond that. What is not declared counts as the worst.
@command("{module}_hello", "Greet somebody", risk="read", effects=Effects(), always_offered=True)
def hello(context: Context, name: Annotated[str, "who is greeted", "text"]) -> str:
    return f"Hello, {{name}}."


def register(host: Host) -> None:
    host.command(hello)
'''

_TESTS = '''\
"""What the extension registers, and what it does."""

from pathlib import Path

import {module}

from autoagent.extension import registered, try_command


def test_it_registers_its_command() -> None:
    assert [command.spec.name for command in registered({module}.register).commands] == ["{module}_hello"]


def test_it_greets(tmp_path: Path) -> None:
    result = try_command(registered({module}.register), "{module}_hello", tmp_path, name="Ann")
    assert (result.ok, result.text) == (True, "Hello, Ann.")
'''


@click.command("new-plugin")
@click.argument("name")
def new_plugin(name: str) -> None:
    """Write a first extension with tests into the folder NAME."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", name):
        raise click.UsageError(f"{name!r}: a name consists of lowercase letters and digits, with '-' between words.")
    folder, module = Path(name), name.replace("-", "_")
    files = {"pyproject.toml": _PROJECT, f"{module}.py": _MODULE, f"tests/test_{module}.py": _TESTS}
    try:
        folder.mkdir()
        (folder / "tests").mkdir()
        for file, text in files.items():
            (folder / file).write_text(text.format(name=name, module=module), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{folder} cannot be written: {error.strerror}; choose another NAME.") from error
    echo(f"Written: {', '.join(str(folder / file) for file in files)}.")
    echo(f"Try it: pip install -e './{name}[test]' && pytest {name} && autoagent commands")
