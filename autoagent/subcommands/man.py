"""Define `autoagent man` and `completion`: manual pages, and shell completions by click's own scripts."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from autoagent import __version__
from autoagent.cli import LazyGroup
from autoagent.core.errors import SettingsError
from autoagent.terminal.output import echo
from autoagent.text.text_file import write_text

MAN_FOLDER = ".local/share/man/man1"  # in the user's home; searched by man if ~/.local/bin is in PATH
INSTALL = "install"


@click.command("man")
@click.argument("subcommand", required=False, metavar="[SUBCOMMAND | install]")
@click.pass_context
def man(ctx: click.Context, subcommand: str | None) -> None:
    """Print the manual page of autoagent, or of a SUBCOMMAND. Read it with `autoagent man show | man -l -`.

    With install, write all pages to where man finds them: `man autoagent`, `man autoagent-show`.
    """
    program = ctx.find_root()
    group = program.command
    assert isinstance(group, LazyGroup)
    if subcommand != INSTALL:
        _, command, _ = group.resolve_command(program, [subcommand]) if subcommand else (None, group, [])
        assert command is not None
        echo(manual_page(command, program if subcommand else None))
        return
    folder = Path.home() / MAN_FOLDER
    subcommands = [group.usable_command(program, name) for name in group.list_commands(program)]
    pages = [manual_page(group, None), *(manual_page(command, program) for command in subcommands if command)]
    for text in pages:
        write_text(folder / f"{text.split()[1].lower()}.1", text, parents=True)
    echo(f"Written to {folder}: {len(pages)} pages; `man autoagent` shows the first.", err=True)


def manual_page(command: click.Command, program: click.Context | None) -> str:
    """Return the manual page of a command, or of the `program` itself, in man's source format."""
    ctx = click.Context(command, program, info_name=command.name if program else "autoagent")
    name = f"autoagent-{command.name}" if program else "autoagent"
    lines = [f'.TH {name.upper()} 1 "" "autoagent {__version__}"', ".SH NAME", f"{name} \\- {_escape(_about(command))}"]
    see_also = [".SH SEE ALSO", ".BR autoagent (1)"] if program else []
    return "\n".join([*lines, *_sections(ctx), *see_also, ""])


def _sections(ctx: click.Context) -> Iterator[str]:
    """Yield a command's synopsis, purpose and options, and the same for its own subcommands."""
    command = ctx.command
    yield ".SH SYNOPSIS"
    yield f".B {_escape(ctx.command_path)}"
    yield _escape(" ".join(command.collect_usage_pieces(ctx)))
    yield ".SH DESCRIPTION"
    yield from _prose(command.help or "")
    yield ".SH OPTIONS"
    yield from _options(ctx)
    if not isinstance(command, click.Group):
        return
    yield ".SH SUBCOMMANDS"
    find = command.usable_command if isinstance(command, LazyGroup) else command.get_command
    for name in command.list_commands(ctx):
        if (subcommand := find(ctx, name)) is None:
            continue
        if ctx.parent is None:  # these have their own pages
            yield from _item(name, f"{_about(subcommand)}; autoagent-{name}(1).")
        else:
            inner = click.Context(subcommand, ctx, info_name=name)
            yield ".TP"
            yield f".B {_escape(' '.join([name, *subcommand.collect_usage_pieces(inner)]))}"
            yield from _prose(subcommand.help or "", ".IP")
            yield ".RS"
            yield from _options(inner, excluded={parameter.name for parameter in command.get_params(ctx)})
            yield ".RE"


def _about(command: click.Command) -> str:
    return command.get_short_help_str(limit=200).rstrip(".")


def _options(ctx: click.Context, excluded: Collection[str | None] = ()) -> Iterator[str]:
    """Yield the parameters with help, except those in `excluded`."""
    for parameter in ctx.command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record and record[1] and parameter.name not in excluded:
            yield from _item(*record)


def _item(term: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {_escape(term)}"
    yield _escape(text)


def _prose(text: str, paragraph: str = ".PP") -> Iterator[str]:
    for number, part in enumerate(re.split(r"\n\s*\n", text.replace("\b\n", "").strip())):
        if number:
            yield paragraph
        yield _escape(part)


def _escape(text: str) -> str:
    """Return the text on one line, escaped for man, with dashes that can be copied."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line


SCRIPT_PATHS = {  # searched by each shell itself, in the user's home
    "bash": ".local/share/bash-completion/completions/autoagent",
    "zsh": ".local/share/zsh/site-functions/_autoagent",
    "fish": ".config/fish/completions/autoagent.fish",
}


@click.command("completion")
@click.argument("what", type=click.Choice(["install", *SCRIPT_PATHS]))
@click.argument("shell", type=click.Choice(list(SCRIPT_PATHS)), required=False)
@click.pass_context
def completion(ctx: click.Context, what: str, shell: str | None) -> None:
    """Print or install shell completion for bash, zsh or fish. Default: your own shell ($SHELL)."""
    if shell and what != "install":
        raise click.UsageError(f"Give one shell: `autoagent completion install {shell}`, or `completion {shell}`.")
    shell = shell or (Path(os.environ.get("SHELL", "")).name if what == "install" else what)
    if shell not in SCRIPT_PATHS:
        shells = ", ".join(SCRIPT_PATHS)
        raise SettingsError(f"SHELL is {shell or 'not set'}: print the script of one of {shells} instead.")
    root = ctx.find_root().command
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(root, {}, "autoagent", "_AUTOAGENT_COMPLETE").source()
    if what != "install":
        echo(script)
        return
    path = Path.home() / SCRIPT_PATHS[shell]
    write_text(path, script, parents=True)
    echo(f"Written to {path}; start a new {shell} to use it.", err=True)
    if shell == "zsh":
        echo(f"Add this before compinit in .zshrc, unless it is there already: fpath+=({path.parent})", err=True)
