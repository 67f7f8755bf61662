"""`autoagent replay`: shows a run again from its log, or verifies that the log explains it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from autoagent import __version__
from autoagent.core.events import Resumed, RunStarted
from autoagent.log.reader import find_run, read
from autoagent.session import build
from autoagent.session.prompt_replay import verify
from autoagent.session.session import Session
from autoagent.subcommands.flags import run_ids_here
from autoagent.subcommands.runs import belongs, end_showing
from autoagent.terminal.output import echo
from autoagent.terminal.rendering import counted
from autoagent.terminal.screen import Style, decide_color

LONGEST_PAUSE = 3.0  # seconds, however long the model thought or the user was away


@click.command("replay")
@click.argument("run", shell_complete=run_ids_here)
@click.option("--fast", is_flag=True, help="Without pauses.")
@click.option("--step", type=click.IntRange(1), metavar="N", help="This step alone.")
@click.option("--full", is_flag=True, help="With nothing cut: whole results, arguments and diffs.")
@click.option("--verify", "verifies", is_flag=True, help="Check that the log leads to every prompt that was sent.")
@click.pass_context
def replay(ctx: click.Context, run: str, fast: bool, step: int | None, full: bool, verifies: bool) -> None:
    """Show RUN again step by step, at its own pace with long pauses cut short. No model is asked, nothing is run.

    With --verify nothing is shown: each prompt is derived from the events before it and its sha256 compared with that
    of the prompt that was sent. Exit 1 and the first step that differs, where one does.
    """
    settings = Session.read(ctx.obj).settings
    run = find_run(settings.state_dir, run)
    if verifies:
        ctx.exit(_verify(settings.state_dir, run))
    at_terminal = sys.stdout.isatty()
    color = not settings.plain_output and decide_color(os.environ, at_terminal)
    style = Style(color, plain=settings.plain_output or not at_terminal, whole=full)
    console = build.open_replay(settings, sys.stdout, style)
    last = None
    for event in read(settings.state_dir, run):
        if not belongs(event, step):
            console.pass_over(event)
            continue
        if not fast and last is not None:
            time.sleep(min(max(0.0, event.t - last), LONGEST_PAUSE))
        last = event.t
        console.show(event)
    end_showing(console, settings.state_dir / "runs" / run / "events.jsonl", step)


def _verify(state_dir: Path, run: str) -> int:
    from autoagent.text.tokens import counter

    prompts, differing = 0, []
    for prompted, same in verify(read(state_dir, run), counter):
        prompts += 1
        if not same:
            differing.append(prompted)
    if not differing:
        echo(f"{counted(prompts, 'prompt')} of {run} derived from its log: each is the one that was sent.")
        return 0
    first = differing[0]
    whose = f" of the agent {first.agent}" if first.agent else ""
    all_of_them = counted(prompts, "prompt")
    echo(f"{len(differing):,} of {all_of_them} of {run} differ, first that of step {first.step}{whose}.")
    if others := sorted(_versions(state_dir, run) - {__version__}):
        echo(f"The reason may be that the run was of version {', '.join(others)}, and this is {__version__}.")
    return 1


def _versions(state_dir: Path, run: str) -> set[str]:
    """Return the versions of the program that worked on the run."""
    starts = read(state_dir, run, (RunStarted, Resumed))
    return {event.version for event in starts if isinstance(event, RunStarted)}
