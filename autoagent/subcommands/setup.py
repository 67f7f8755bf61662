"""Define `autoagent setup` and its parts: model and task, settings, diagnosis, and migration from AutoGPT."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from autoagent.core.errors import SettingsError
from autoagent.core.services import Finding
from autoagent.models.local import weights
from autoagent.models.servers import find_servers
from autoagent.session.session import Session, one_line, save_task, save_variables
from autoagent.session.task_file import is_saved
from autoagent.settings import GROUPS, all_settings, secrets_of
from autoagent.subcommands.tools import AliasGroup
from autoagent.terminal.answers import ClickTerminal
from autoagent.terminal.output import echo, echo_json, echo_list
from autoagent.terminal.setup_wizard import ask_task, choose_model, model_is_chosen, no_answer_error
from autoagent.text.redaction import MASK, Redactor


@click.group(
    "setup",
    cls=AliasGroup,
    invoke_without_command=True,
    parts={  # the names here, and those of the subcommands
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
        terminal.say("The model is set up already; `autoagent config` shows it, and .env changes it.")
    else:
        choice = choose_model(terminal, find_servers)
        if choice.save:
            save_variables(choice.env)
            terminal.say("Saved in .env.")
        else:
            assignments = (
                name if name == "OPENAI_API_KEY" else f"{name}={value}" for name, value in choice.env.items()
            )
            terminal.say(f"Not saved; to use it, set {' and '.join(assignments)}.")
    path = settings.ai_settings_file
    try:
        if is_saved(path) and not terminal.decide(f"Replace the task in {path}? y = yes, n = no:"):
            return
    except EOFError:
        raise no_answer_error(f"edit {path}") from None
    task = ask_task(terminal)
    save_task(path, task)
    terminal.say(f"Saved in {path}. Start with: autoagent")


@click.command("config")
@click.option("--all", "show_all", is_flag=True, help="Show default values too.")
@click.option("--show-origin", is_flag=True, help="Show where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="A list of name, value, origin, left_out, env, help, group.")
@click.pass_context
def config(ctx: click.Context, show_all: bool, show_origin: bool, as_json: bool) -> None:
    """Show the settings here that differ from the defaults. Secrets are masked."""
    session = Session.load(ctx.obj)
    session.report_left_out()
    rows = list(_rows(session))
    if as_json:
        echo_json(rows)
        return
    changed = {f.name for f in dataclasses.fields(all_settings()) if getattr(session.settings, f.name) != f.default}
    visible_rows = [row for row in rows if show_all or row["left_out"] or row["name"] in changed]
    for group, members in groupby(visible_rows, lambda row: row["group"]):
        echo(f"{group}:")
        for row in members:
            value = ",".join(row["value"]) if isinstance(row["value"], (list, tuple)) else row["value"]
            reason = f"; left out: {row['left_out']}" if row["left_out"] else ""
            origin = f"  ({row['origin']}{reason})" if show_origin else ""
            echo(f"  {row['name']} = {'' if value is None else value}{origin}")
    if rest := len(rows) - len(visible_rows):
        echo(f"{rest} of {len(rows)} settings have their default values; --all shows them.", err=True)


def _rows(session: Session) -> Iterator[dict[str, Any]]:
    loaded = session.loaded
    left_out = {untrusted.setting: one_line(untrusted.location) for untrusted in session.left_out}
    redactor = Redactor(secrets_of(loaded.settings))
    group = ""  # a setting without a group belongs to that of the one before it
    for setting in dataclasses.fields(all_settings()):
        group = setting.metadata.get("group") or GROUPS.get(setting.name, group)
        value = getattr(loaded.settings, setting.name)
        if isinstance(value, Path):
            value = str(value)
        if setting.metadata["secret"] and value:
            value = MASK
        yield {
            "name": setting.name,
            "value": redactor.mask_json(value),
            "origin": loaded.origins[setting.name],
            "left_out": left_out.get(setting.name, ""),
            "env": list(setting.metadata["env"]),
            "help": setting.metadata["help"],
            "group": group,
        }


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="A list of objects: check, status, found, mend.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check key, endpoint, model, embedder, folders and settings. Say how to fix each problem.

    Exit status: 0 if it can run, 2 if a setting is invalid, 3 if no model can be used, 1 for any other failure.
    """
    from autoagent.session.diagnosis import examine

    findings = examine(ctx.obj or {}, os.environ, Path.cwd(), sys.stdout)
    width = max(len(finding.check) for finding in findings)

    def line(finding: Finding) -> str:
        mend = f"\n{'':4}  {'':{width}}  -> {finding.mend}" if finding.mend else ""
        return f"{finding.status:4}  {finding.check:{width}}  {finding.found}{mend}"

    echo_list(findings, as_json, dataclasses.asdict, line, empty="")
    failed = {finding.check for finding in findings if finding.status == "fail"}
    for check, code in (("settings", 2), ("model", 3)):
        if check in failed:
            ctx.exit(code)
    ctx.exit(1 if failed else 0)


@click.group()
def model() -> None:
    """List, fetch or remove the embedded model."""


@model.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def list_models(as_json: bool) -> None:
    """Show the embedded model, which needs no key."""
    embedded = weights.EMBEDDED
    row = {
        "name": embedded.name,
        "size": embedded.size,
        "license": embedded.license,
        "installed": weights.is_installed(),
        "path": str(weights.path()),
        "sha256": embedded.sha256,
        "url": embedded.url,
    }
    state = f"installed in {row['path']}" if row["installed"] else "not installed (autoagent model fetch)"
    line = f"{embedded.name}  {embedded.size / 1e9:.1f} GB  {embedded.license}  {state}"
    echo_list([row], as_json, lambda row: row, lambda row: line, empty="")


@model.command()
def fetch() -> None:
    """Download the embedded model into your cache. An interrupted download continues where it stopped."""
    from autoagent.session.build import ensure_weights

    if weights.is_installed():
        echo(f"Already there: {weights.path()}")
        return
    echo(f"Fetched and verified: {ensure_weights()}")


@model.command()
def remove() -> None:
    """Delete the embedded model and any incomplete download of it."""
    removed = weights.remove()
    echo(f"Removed {weights.EMBEDDED.name}." if removed else "There is nothing to remove.")


@click.command("migrate")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--apply", is_flag=True, help="Carry out the plan; without this flag it is only shown.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects: item, how, to, why.")
@click.pass_context
def migrate(ctx: click.Context, folder: Path, apply: bool, as_json: bool) -> None:
    """Copy the contents of an AutoGPT FOLDER into this one.

    Shows a table of what is copied, renamed or left behind, with reasons. No file here is overwritten, and a copied
    file is not trusted. An AutoGPT folder also works as it is; there, `autoagent migrate .` imports its memories.
    """
    from autoagent.session.migration import apply_plan, plan_migration

    source, target = folder.resolve(), Path.cwd()
    migration = plan_migration(source, target)
    if source == target.resolve() and not migration.memories:
        raise SettingsError("This is the current folder, which needs no migration: start autoagent here.")
    if apply:
        apply_plan(migration, target, ctx.obj or {}, partial(echo, err=True))
    if as_json:
        echo_json([dataclasses.asdict(row) for row in migration.rows])
        return
    width = min(48, max(len(row.item) for row in migration.rows))
    for row in migration.rows:
        line = f"{row.how:9}  {row.item:{width}}  {'-> ' + row.to if row.to else ''}{row.why}"
        echo(" ".join(line.splitlines()).rstrip())
    echo("Done; start autoagent here." if apply else "Nothing was written; --apply carries out the plan.", err=True)
