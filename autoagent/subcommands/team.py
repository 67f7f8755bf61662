"""Define `autoagent team`: roles that work together, described by a YAML file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from autoagent.core.memory import PRIVATE, Origin
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.session import build
from autoagent.session.attachments import PIPED, Attachments, with_piped_input
from autoagent.session.session import Session, checks_of_team, claimed_state
from autoagent.subcommands.flags import merge_flags, team_flags
from autoagent.subcommands.running import check_flags, report_failure_as_event
from autoagent.teams.message import Message
from autoagent.terminal.answers import ClickTerminal

DEFAULT_INVESTMENT = 3.0  # USD
DEFAULT_ROUNDS = 5


@click.command("team")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("idea", required=False)
@click.option("--investment", type=float, metavar="USD", help=f"Budget of all roles. Default: {DEFAULT_INVESTMENT:g}.")
@click.option("--n-round", type=click.IntRange(min=1), metavar="N", help=f"Maximum rounds. Default: {DEFAULT_ROUNDS}.")
@click.option("--human", is_flag=True, help="Let a person take the roles marked may_be_human in the file.")
@team_flags
@click.pass_context
def team(
    ctx: click.Context,
    /,
    file: Path,
    idea: str | None,
    investment: float | None,
    n_round: int | None,
    human: bool,
    **flags: Any,
) -> None:
    """Let the team of FILE work on IDEA, or on the idea in the file, round by round.

    In each round every role reads the messages published before, roles with news act at once, and their messages are
    published when the round ends. The team ends when nobody has news or the rounds planned in FILE are over: exit 0, 9
    if not verified, 10 if a role's work is not done. It also ends at the last round (exit 4), and when the investment
    is used up (exit 7). `autoagent resume` continues.
    """
    flags = merge_flags(ctx.obj or {}, flags)
    with report_failure_as_event(flags):
        flags = dict(with_piped_input({**flags, "wish": idea}))
        ctx.exit(start_team(flags, file, idea, investment, n_round, human=human))


def _attachments_of(flags: dict[str, Any], idea: str, session: Session) -> Iterator[Message]:
    """Yield the files named in the idea as `@path`, and any piped input, as messages of the user."""
    settings = session.settings
    tainted = TaintedFiles(settings.state_dir / "taint.jsonl", settings.workspace.absolute())
    attachments = Attachments(settings.workspace, tainted, ClickTerminal().say).at_start([idea], flags.get(PIPED, ""))
    for attachment in attachments:
        message = Message(f"{attachment.sender}:\n{attachment.text}", "Human")
        outside_source = str(attachment.data.get("untrusted", ""))
        sources = [outside_source, PRIVATE if attachment.data.get("private") else ""]
        message.origin = Origin(", ".join(filter(None, sources)), trusted=not outside_source)
        yield message


def start_team(
    flags: dict[str, Any], file: Path, idea: str | None, investment: float | None, n_round: int | None, *, human: bool
) -> int:
    """Run the team defined in `file` on an idea until it ends. Return the exit code."""
    from autoagent.subcommands.run import with_model
    from autoagent.teams.launch import TeamPlan
    from autoagent.teams.team_file import read_team, team_of

    if investment is not None and not (math.isfinite(investment) and investment >= 0):
        raise click.UsageError(f"--investment {investment} is not an amount of USD.")
    definition = read_team(file)
    if not (idea or definition["idea"]):
        raise click.UsageError(f"There is no idea: add IDEA, or `idea:` in {file}.")
    checks = checks_of_team(Path.cwd(), file, definition)
    session = Session.open(flags, file_values=checks)
    check_flags(flags, session.settings)
    left_out = {check.value for check in checks if not session.trusts(check)}
    for role in definition["roles"]:
        for action in role["actions"]:
            if action.get("check") in left_out:
                del action["check"]
    crew = team_of(definition, human=human)
    for attachment in _attachments_of(flags, idea or "", session):
        crew.env.publish_message(attachment)
    crew.run_project(idea or definition["idea"])
    crew.invest(definition.get("investment", DEFAULT_INVESTMENT) if investment is None else investment)
    session = with_model(session, ClickTerminal())
    with claimed_state(session.settings.state_dir):
        console = build.console_of(session)
        return TeamPlan(crew, session, console, n_round or definition.get("n_round", DEFAULT_ROUNDS)).drive()
