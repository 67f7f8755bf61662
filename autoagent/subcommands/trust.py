"""Define `autoagent trust` and `rules`: which settings of a folder take effect, and which calls run without asking."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from autoagent.core.errors import SettingsError, StateError
from autoagent.fleet.record import origin_in
from autoagent.registry.parts import UntrustedValue
from autoagent.safety.rules import Rule, Rulebook
from autoagent.session.build import saved_rules, warn_of_old_rules
from autoagent.session.session import Session, checks_of_task, checks_of_team, describe_values, one_line, refused_notice
from autoagent.session.trust import Trusted
from autoagent.settings import user_state_path
from autoagent.subcommands.flags import command_names
from autoagent.terminal.answers import ClickTerminal
from autoagent.terminal.output import echo, echo_list, minute


@click.command("trust")
@click.argument("place", default=".", metavar="[FOLDER | FILE]", type=click.Path(path_type=Path))
@click.option("--list", "show_list", is_flag=True, help="List the trusted folders and values.")
@click.option("--revoke", is_flag=True, help="Stop trusting FOLDER.")
@click.option("--json", "as_json", is_flag=True, help="With --list: a list of objects: folder, items, time.")
@click.pass_context
def trust(ctx: click.Context, place: Path, show_list: bool, revoke: bool, as_json: bool) -> None:
    """Show the values of FOLDER that reach out, weaken a boundary or run a program, and trust the folder with them.

    Default: the current folder. At a terminal it asks first. Each value is trusted until it changes. The checks in the
    FILE of a task or a team are trusted for the current folder. The FOLDER of a fleet that was not started here is
    trusted with its runs.
    """
    if as_json and not show_list:
        raise click.UsageError("--json requires --list.")
    if show_list:
        echo_list(
            Trusted(user_state_path(os.environ)).records(),
            as_json,
            lambda row: {"folder": row.folder, "items": sorted(row.items.values()), "time": row.t},
            lambda row: f"{minute(row.t)}  {one_line(row.folder)}  {one_line(', '.join(sorted(row.items.values())))}",
            "No folder is trusted.",
        )
    elif revoke:
        was_trusted = Trusted(user_state_path(os.environ)).remove(place.resolve())
        echo(f"{one_line(str(place.resolve()))} {'is no longer' if was_trusted else 'was not'} trusted.")
    elif not place.exists():
        raise click.UsageError(f"{place} does not exist.")
    elif place.is_file():
        _ask_to_trust(Session.load(ctx.obj, file_values=_checks_in(place, ctx.obj)))
    else:
        _ask_to_trust(Session.load(ctx.obj, folder=place.resolve(), task=True, file_values=origin_in(place)))


def _checks_in(file: Path, flags: Any) -> list[UntrustedValue]:
    """Return the checks of a task file or a team file. Raises SettingsError if it is neither."""
    from autoagent.session.task_file import read_task
    from autoagent.teams.team_file import read_team
    from autoagent.text.yaml_file import read_mapping

    if file.suffix in (".jsonl", ".csv") or "tasks" in (mapping := read_mapping(file, None)):
        from autoagent.fleet.task_list import read_tasks

        return read_tasks(file, Session.load(flags).settings).untrusted
    if "roles" in mapping:
        return checks_of_team(Path.cwd(), file, read_team(file))
    read_task(file)
    return checks_of_task(Path.cwd(), file)


def _ask_to_trust(session: Session) -> None:
    if line := refused_notice(session):
        echo(line)
    if not session.waiting:
        echo(f"Nothing in {one_line(str(session.folder))} needs your trust.")
        return
    echo(f"{one_line(str(session.folder))} has values that reach out, weaken a boundary or run a program:")
    for line in describe_values(session.waiting):
        echo(line)
    try:  # a script that runs this command has decided already
        if sys.stdin.isatty() and not ClickTerminal().decide("Trust it with these, until they change? (y/n)"):
            echo("Not trusted.")
            return
    except EOFError:
        raise SettingsError("The input ended before an answer; the folder is not trusted.") from None
    session.trust()
    echo("Trusted until one of them changes; `autoagent trust --revoke` revokes that.")


@click.group("rules")
def rules() -> None:
    """Rules for calls that run without a question, even despite a warning: COMMAND or COMMAND:PATTERN.

    The pattern must match the command's first argument; * stands for any text: write_to_file:notes/*, execute_shell:git
    status, browse_website:https://docs.python.org/*. docs/security.md says what * never matches.
    """


@rules.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects; `origin`: saved or settings.")
@click.pass_context
def list_rules(ctx: click.Context, as_json: bool) -> None:
    """List the rules, those of the settings first."""
    settings = Session.read(ctx.obj).settings
    saved = saved_rules()
    warn_of_old_rules(settings, partial(echo, err=True))
    listed = [("settings", Rule.parse(text)) for text in settings.allow] + [("saved", rule) for rule in saved.load()]
    echo_list(
        [{"rule": str(rule), **asdict(rule), "origin": origin} for origin, rule in listed],
        as_json,
        lambda row: row,
        lambda row: f"{row['origin']:8}  {row['rule']}",
        f"There are no saved rules for this folder ({saved.path}); you are asked about every command.",
    )


@rules.command("add")
@click.argument("rule", shell_complete=command_names)
def add_rule(rule: str) -> None:
    """Save RULE for calls to run without a question. It applies from the next run on."""
    from autoagent.commands.selection import all_specs

    parsed = Rulebook(all_specs()).parse(rule)
    is_new = saved_rules().add(parsed)
    echo(f"Saved the rule {parsed}." if is_new else f"The rule {parsed} exists already.")


@rules.command("remove")
@click.argument("rule")
def remove_rule(rule: str) -> None:
    """Revoke RULE, as `autoagent rules list` shows it."""
    saved = saved_rules()
    if not saved.remove(Rule.parse(rule)):
        raise StateError(f"There is no saved rule {rule!r}; `autoagent rules list` lists them.")
    echo(f"Revoked the rule {Rule.parse(rule)}.")
