"""`autoagent new-plugin`: writes an extension that works, with tests, to begin with."""

from __future__ import annotations

import re
from pathlib import Path

import click

from autoagent.core.errors import SettingsError
from autoagent.terminal.output import echo

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
    """Write a new extension into the folder NAME: a command, and tests for it, to begin with."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", name):
        raise click.UsageError(f"{name!r}: a name is made of small letters and digits, in words with '-' between.")
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
