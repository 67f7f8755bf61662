"""`autoagent skills`: how things are done, written down for the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from autoagent.core.errors import SettingsError, StateError, StopRun
from autoagent.core.outcome import Outcome, Status
from autoagent.session.agent_files import SKILL_FILE, SKILL_FOLDERS, skill_parts, skills_in, untrusted_skill
from autoagent.session.folder_texts import user_skills_path
from autoagent.session.session import Session, claimed_state
from autoagent.terminal.click_terminal import ClickTerminal
from autoagent.terminal.output import echo, echo_list
from autoagent.text.text_file import read_text, write_text


@click.group("skills")
def skills() -> None:
    """Skills: folders with a SKILL.md, in ~/.config/autoagent/skills, and in .agents/skills and .claude/skills here."""


@skills.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects; `trusted`: whether the agent may load it.")
@click.pass_context
def list_skills(ctx: click.Context, as_json: bool) -> None:
    """List the skills of yours and of this folder."""
    here = Session.load(ctx.obj)
    own = user_skills_path()
    found = [(skill, True) for skill in skills_in(own, own, _tell)]
    for place in SKILL_FOLDERS:
        for skill in skills_in(here.folder / place, here.folder, _tell):
            found.append((skill, here.holds(untrusted_skill(skill, here.folder))))
    rows: list[dict[str, Any]] = [
        {"name": skill.name, "description": skill.description, "place": str(skill.place), "trusted": trusted}
        for skill, trusted in found
    ]
    echo_list(rows, as_json, lambda row: row, _line, "There are no skills.")


@skills.command("propose")
@click.argument("run", required=False)
@click.pass_context
def propose(ctx: click.Context, run: str | None) -> None:
    """Let the model write down how a finished RUN (the newest one) was done, and keep that as a skill if you say so.

    You see it as a diff first. It goes to ~/.config/autoagent/skills, where every later run may load it.
    """
    from autoagent.commands.support.diff import unified
    from autoagent.core.model import Message
    from autoagent.runs.log_reader import find_run, read
    from autoagent.session.build import mask_of, open_console, open_model
    from autoagent.session.skill_proposal import REPLY_TOKENS, done_work, proposal_prompt, proposed_text

    settings = Session.open(ctx.obj).settings
    run = find_run(settings.state_dir, run) if run else _newest_finished(settings.state_dir)
    work = done_work(read(settings.state_dir, run))
    if not work.calls:
        raise StateError(f"The run {run} has used no command; there is nothing to write down.")
    with claimed_state(settings):
        model = open_model(settings, open_console(settings, json=True))
        prompt = mask_of(settings)(proposal_prompt(work))
        text = proposed_text(model.complete([Message("user", prompt)], max_tokens=REPLY_TOKENS).text)
    try:
        name, _, _ = skill_parts(text, Path(SKILL_FILE))
    except SettingsError as error:
        raise StateError(f"What the model proposes is no skill ({error}); nothing was kept.") from error
    path = user_skills_path() / name / SKILL_FILE
    before = read_text(path) if path.exists() else ""
    if text == before:
        echo(f"{path} says that already.")
        return
    echo(unified(str(path), before, text))
    if work.sources:
        echo(f"The run has read text from outside ({', '.join(work.sources)}), which may speak in this.", err=True)
    if _is_kept():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(path, text, private=True)
        echo(f"Kept as {path}.")
    else:
        echo("Not kept.")


def _is_kept() -> bool:
    """Ask the person. Nobody else keeps a skill. Raises StopRun at the end of the input."""
    try:
        return ClickTerminal().decide("Keep it, for all later runs? y = yes, n = no:")
    except EOFError:
        raise StopRun(Outcome(Status.UNANSWERED, "The input has ended; nothing was kept.")) from None


def _newest_finished(state_dir: Path) -> str:
    from autoagent.session.earlier_runs import earlier_runs

    for earlier in earlier_runs(state_dir):
        if earlier.status == Status.FINISHED:
            return earlier.run
    raise StateError("There is no finished run here; name one with RUN.")


def _tell(line: str) -> None:
    echo(f"autoagent: {line}", err=True)


def _line(row: dict[str, Any]) -> str:
    waits = "" if row["trusted"] else "  NOT HERE: the folder is not trusted with it (`autoagent trust`)"
    return f"{row['name']}  ({row['place']}){waits}\n    {row['description']}"
