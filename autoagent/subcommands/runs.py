"""Define `autoagent runs`, `show`, `report` and `replay`, each reading runs from their logs."""

from __future__ import annotations

import os
import sys
import time
from io import StringIO
from pathlib import Path

import click

from autoagent import __version__
from autoagent.core.codec import to_plain
from autoagent.core.errors import StateError
from autoagent.core.events import Resumed, RunStarted
from autoagent.fleet.command_line import FLEET_FOLDER
from autoagent.log.checkpoint import load
from autoagent.log.reader import log_path, read, summary_events
from autoagent.reply.file_reply import in_block
from autoagent.session import build, earlier_runs
from autoagent.session.permissions import enforce_inside
from autoagent.session.session import Session
from autoagent.settings import checkpoint_key
from autoagent.subcommands.flags import run_ids_here
from autoagent.terminal.console import Console
from autoagent.terminal.output import echo, echo_list, page_out
from autoagent.terminal.screen import Style
from autoagent.text.figures import counted
from autoagent.text.text_file import write_text


@click.command("runs")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="A list: id, name, status, steps, cost, updated, workspace, parent, goals, proofs.",
)
@click.pass_context
def runs(ctx: click.Context, as_json: bool) -> None:
    """List the runs of the state folder, the newest first."""
    state_dir = Session.read(ctx.obj).settings.state_dir
    rows, empty = list(earlier_runs.rows(state_dir)), f"There are no runs in {state_dir}."
    echo_list(rows, as_json, to_plain, earlier_runs.line_of, empty, earlier_runs.COLUMNS)


_step_option = click.option("--step", type=click.IntRange(1), metavar="N", help="Only this step.")
_full_option = click.option("--full", is_flag=True, help="Show results, arguments and diffs in full.")


@click.command("show")
@click.argument("run", required=False, shell_complete=run_ids_here)
@click.option("--json", "as_json", is_flag=True, help="Print the events of the log.")
@_step_option
@_full_option
@click.option("--prompt", is_flag=True, help="Show the prompt of --step N, rebuilt from the log.")
@click.option("--export", metavar="FILE", help="Write it to FILE.md, or a report to FILE.html.")
@click.pass_context
def show(
    ctx: click.Context, run: str | None, as_json: bool, step: int | None, full: bool, prompt: bool, export: str | None
) -> None:
    """Show RUN from its log as it appeared on screen. RUN is any unique prefix of an id; default: the newest."""
    if export is not None and not export.endswith((".md", ".html")):
        raise click.UsageError("--export takes a file that ends in .md or .html.")
    if export is not None and (as_json or prompt):
        raise click.UsageError("--export cannot be used with --json or --prompt.")
    if prompt and (as_json or full):
        raise click.UsageError("--prompt cannot be used with --json or --full.")
    if export is not None and step is not None and export.endswith(".html"):
        raise click.UsageError("FILE.html holds the whole run; leave out --step.")
    settings = Session.read(ctx.obj).settings
    run = earlier_runs.named_run(settings.state_dir, run)
    if prompt:
        from autoagent.web.prompt_parts import prompt_text

        if step is None:
            raise click.UsageError("--prompt needs --step N.")
        page_out(prompt_text(settings.state_dir, run, step))
        return
    if as_json:
        console = build.open_console(settings, json=True, replays=True)
        _show_events(console, settings.state_dir, run, step)
        return
    if export is not None:
        enforce_inside(Path(export))
    if export is not None and export.endswith(".html"):
        from autoagent.web.report_files import write_run_report

        echo(write_run_report(settings.state_dir, Path(export), run), err=True)
        return
    paged = export is None and sys.stdout.isatty()
    color = build.palette(settings, True) if paged else None
    columns = 100 if export is not None else None
    screen = StringIO() if paged or export is not None else sys.stdout
    style = Style(color, columns, plain=export is None and (settings.plain_output or not paged), whole=full)
    console = build.open_replay(settings, screen, style)
    _show_events(console, settings.state_dir, run, step)
    if step is None:
        console.report(log_path(settings.state_dir, run))
    if isinstance(screen, StringIO) and export is not None:
        write_text(Path(export), f"# Run {run}\n\n{in_block(screen.getvalue().strip())}\n")
        echo(f"Written to {export}.", err=True)
    elif isinstance(screen, StringIO):
        page_out(screen.getvalue())


@click.command("report")
@click.argument("run", required=False, shell_complete=run_ids_here)
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Default: RUN.html, or DIR.html.")
@click.option("--compare", metavar="RUN", help="Show another run beside it, from the step at which they differ.")
@click.option("--fleet", metavar="DIR", type=FLEET_FOLDER, help="Report this fleet: its table, and a page per run.")
@click.option("--team", metavar="RUN", help="Report a run of a team: its roles as lanes, round by round.")
@click.pass_context
def report(
    ctx: click.Context, run: str | None, output: Path | None, compare: str | None, fleet: Path | None, team: str | None
) -> None:
    """Write RUN, from its log, as one HTML file that opens from disk and loads nothing.

    The report has the goals with their evidence, a timeline, the files, each step with its diff, result and prompt,
    tokens and cost over time, and a search. RUN is any unique prefix of an id; default: the newest. Long texts are cut.
    """
    from autoagent.web.report_files import write_fleet_report, write_run_report

    if sum(map(bool, (fleet, run or compare, team))) > 1:
        raise click.UsageError("Give at most one of: a RUN, optionally with --compare, --fleet DIR, --team RUN.")
    enforce_inside(output)
    if fleet:
        message = write_fleet_report(fleet, output)
    else:
        state_dir = Session.read(ctx.obj).settings.state_dir
        run = None if team else earlier_runs.named_run(state_dir, run)
        message = write_run_report(state_dir, output, run, compare=compare, team=team)
    echo(message, err=True)


def _show_events(console: Console, state_dir: Path, run: str, step: int | None, *, paced: bool = False) -> None:
    """Show a run, at its own speed if `paced`, or one step of its own agent, starting from a checkpoint if possible.

    Raises StateError if the run has no such step.
    """
    saved = None if step is None else load(log_path(state_dir, run), checkpoint_key(os.environ), step)
    if saved is not None:
        for name, fold in console.folds.items():
            saved.restore(name, fold)
        events = read(state_dir, run, until=step, begin=(saved.position.size, saved.position.events))
    else:
        events = read(state_dir, run) if step is None else summary_events(state_dir, run, step)
    last = None
    for event in events:
        if step is not None and (event.step != step or event.agent or event.seq < 0 or isinstance(event, RunStarted)):
            console.pass_over(event)
            continue
        if paced and last is not None:
            time.sleep(min(max(0.0, event.t - last), MAX_PAUSE_SECONDS))
        last = event.t
        console.show(event)
    if step is not None and console.stats.step < step:
        steps = counted(console.stats.step, "step")
        raise StateError(f"The run {console.stats.run} has {steps}, and no step {step}.")


MAX_PAUSE_SECONDS = 3.0  # even if the model or the user took longer


@click.command("replay")
@click.argument("run", required=False, shell_complete=run_ids_here)
@click.option("--fast", is_flag=True, help="Without pauses.")
@_step_option
@_full_option
@click.option("--verify", "verify", is_flag=True, help="Check that the log explains every prompt that was sent.")
@click.pass_context
def replay(ctx: click.Context, run: str | None, fast: bool, step: int | None, full: bool, verify: bool) -> None:
    """Replay RUN step by step, at its own speed with long pauses cut short. No command is run, and no model is asked.

    RUN is the newest by default. With --verify, show nothing: derive each prompt from the events before it and compare
    its sha256 with the prompt that was sent. Exit 1 and name the first step that differs.
    """
    settings = Session.read(ctx.obj).settings
    run = earlier_runs.named_run(settings.state_dir, run)
    if verify:
        ctx.exit(_verify(settings.state_dir, run))
    at_terminal = sys.stdout.isatty()
    color, plain = build.palette(settings, at_terminal), settings.plain_output or not at_terminal
    console = build.open_replay(settings, sys.stdout, Style(color, plain=plain, whole=full))
    _show_events(console, settings.state_dir, run, step, paced=not fast)
    if step is None:
        console.report(log_path(settings.state_dir, run))


def _verify(state_dir: Path, run: str) -> int:
    from autoagent.session.prompt_replay import verify_prompts

    prompts = list(verify_prompts(read(state_dir, run)))
    differing = [prompted for prompted, is_same in prompts if not is_same]
    if not differing:
        echo(f"{counted(len(prompts), 'prompt')} of {run} derived from its log: each matches the prompt that was sent.")
        return 0
    first, total = differing[0], counted(len(prompts), "prompt")
    whose = f" (agent {first.agent})" if first.agent else ""
    echo(f"{len(differing):,} of {total} in {run} differ; the first is at step {first.step}{whose}.")
    starts = read(state_dir, run, (RunStarted, Resumed))
    if others := sorted({event.version for event in starts if isinstance(event, RunStarted)} - {__version__}):
        echo(f"The run was made by version {', '.join(others)}, and this is {__version__}: that may be the reason.")
    return 1
