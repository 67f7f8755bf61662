"""Define `autoagent skills`: the skills of the user and of the folder, and making a skill from a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from autoagent.core.commands import Call
from autoagent.core.errors import SettingsError, StateError, StopRun
from autoagent.core.events import Event, Returned, RunStarted, Started
from autoagent.core.task import Outcome, Status
from autoagent.session.folder_texts import (
    SKILL_FILE,
    folder_skills,
    skill_parts,
    skills_in,
    untrusted_skill,
    user_skills_path,
)
from autoagent.session.session import Session, claimed_state
from autoagent.terminal.answers import ClickTerminal
from autoagent.terminal.output import echo, echo_list
from autoagent.text.sanitize import shorten, shorten_lines
from autoagent.text.text_file import read_text, write_text


@click.group("skills")
def skills() -> None:
    """List skills, or turn a finished run into one. Places: .agents/skills, .claude/skills and your config folder."""


@skills.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects; `trusted`: whether the agent may load it.")
@click.pass_context
def list_skills(ctx: click.Context, as_json: bool) -> None:
    """List your skills and those of this folder."""

    def warn(line: str) -> None:
        echo(f"autoagent: {line}", err=True)

    session = Session.load(ctx.obj)
    user_path = user_skills_path()
    skills_here = [(skill, True) for skill in skills_in(user_path, user_path, warn)]
    for skill in folder_skills(session.folder, warn):
        skills_here.append((skill, session.trusts(untrusted_skill(skill, session.folder))))
    rows: list[dict[str, Any]] = [
        {"name": skill.name, "description": skill.description, "place": str(skill.place), "trusted": trusted}
        for skill, trusted in skills_here
    ]
    echo_list(rows, as_json, lambda row: row, _line, "There are no skills.")


@skills.command("propose")
@click.argument("run", required=False)
@click.pass_context
def propose(ctx: click.Context, run: str | None) -> None:
    """Have the model describe how a finished RUN was done, as a skill. Default: the newest run.

    You see the skill as a diff first. It goes to ~/.config/autoagent/skills, where every later run may load it.
    """
    from autoagent.commands.support.edited_text import unified
    from autoagent.core.model import Message
    from autoagent.log.reader import find_run, read
    from autoagent.session.build import mask_of, open_console, open_model
    from autoagent.session.earlier_runs import earlier_runs

    settings = Session.open(ctx.obj).settings
    if run is None:
        finished = (earlier.run for earlier in earlier_runs(settings.state_dir) if earlier.status == Status.FINISHED)
        if (run := next(finished, None)) is None:
            raise StateError("There is no finished run here; name a RUN.")
    run = find_run(settings.state_dir, run)
    goals, calls, sources = work_of_run(read(settings.state_dir, run))
    if not calls:
        raise StateError(f"The run {run} has used no command; there is nothing to propose.")
    with claimed_state(settings.state_dir):
        model = open_model(settings, open_console(settings, json=True))
        prompt = mask_of(settings)(proposal_prompt(goals, calls))
        text = proposed_text(model.complete([Message("user", prompt)], max_tokens=REPLY_TOKENS).text)
    try:
        name, _, _ = skill_parts(text, Path(SKILL_FILE))
    except SettingsError as error:
        raise StateError(f"The proposal is not a valid skill ({error}); nothing was kept.") from error
    path = user_skills_path() / name / SKILL_FILE
    before = read_text(path) if path.exists() else ""
    if text == before:
        echo(f"{path} has this text already.")
        return
    echo(unified(str(path), before, text))
    if sources:
        echo(
            f"The run has read text from outside ({', '.join(sources)}), which may have shaped this proposal.", err=True
        )
    try:
        keep = ClickTerminal().decide("Keep it for all later runs? y = yes, n = no:")
    except EOFError:
        raise StopRun(Outcome(Status.UNANSWERED, "The input has ended; nothing was kept.")) from None
    if keep:
        write_text(path, text, private=True, parents=True)
        echo(f"Kept as {path}.")
    else:
        echo("Not kept.")


def _line(row: dict[str, Any]) -> str:
    note = "" if row["trusted"] else "  NOT HERE: the folder is not trusted with it (`autoagent trust`)"
    return f"{row['name']}  ({row['place']}){note}\n    {row['description']}"


MAX_CALL_CHARACTERS = 300  # of each call shown to the model
MAX_CALLS = 80
REPLY_TOKENS = 1500


def work_of_run(events: Iterable[Event]) -> tuple[Sequence[str], Sequence[str], Iterable[str]]:
    """Return the goals of a run's own agent, its calls, and the sources of text from outside that it has read.

    Results are left out, since they may hold other people's words.
    """
    goals: list[str] = []
    calls: list[str] = []
    sources: dict[str, None] = {}
    call: Call | None = None
    for event in events:
        if event.agent:
            continue
        match event:
            case RunStarted():
                goals = [goal.text for goal in event.task.goals]
            case Started():
                call = event.call
            case Returned() if call is not None:
                calls.append(f"{shorten(str(call), MAX_CALL_CHARACTERS)} -> {'ok' if event.ok else 'failed'}")
                sources |= dict.fromkeys(filter(None, (event.meta.source,)))
    return goals, calls, sources


def proposal_prompt(goals: Sequence[str], calls: Sequence[str]) -> str:
    """Return the prompt that asks a model to write a skill."""
    goal_list, call_list = "\n".join(f"- {goal}" for goal in goals), "\n".join(shorten_lines(calls, MAX_CALLS))
    return (
        f"An agent has reached these goals:\n{goal_list}\n\nIt used these commands:\n{call_list}\n\n"
        "Write down as a skill how such a task is done, so that another agent does it quicker next time: what to look "
        "at first, which steps in which order, what went wrong and how to avoid it. Leave out what belongs to this one "
        "task alone, and all secrets. Answer with nothing but the text of its SKILL.md, in this form:\n"
        "---\nname: small-letters-and-hyphens\ndescription: what it does, and when to use it, in a sentence or two\n"
        "---\n\nThe steps, in Markdown."
    )


def proposed_text(reply: str) -> str:
    """Return the SKILL.md in a reply, without a fence or text around it."""
    text = reply.strip().replace("\r\n", "\n")
    if block := re.search(r"```\w*\n(---\n.*?)\n```\s*$", text, re.DOTALL):
        text = block[1]
    start = re.search(r"^---$", text, re.MULTILINE)
    return (text[start.start() :] if start else text).strip() + "\n"
