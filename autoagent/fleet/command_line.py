"""Build the command `autoagent fleet` from the flags of a run and the ways to start and resume a fleet."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from autoagent.core.errors import StateError
from autoagent.fleet.record import LOCK_FILE, check_made_here, holder_of, read_record
from autoagent.fleet.results import as_csv, difference, result_rows, summary, summary_line
from autoagent.fleet.task_list import MAX_BYTES
from autoagent.terminal.output import echo, echo_json
from autoagent.text.text_file import write_text

Flags = Mapping[str, Any]
EXIT_UNFINISHED = 9
EXIT_CODES_HELP = "Exit codes: 0 if all runs finished, else 9."
FLEET_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
folder_argument = click.argument("folder", metavar="DIR", type=FLEET_FOLDER)


def limit_flags(function: Any) -> Any:
    """Add the options that limit all runs together."""
    memory = "One memory for all runs of the fleet, at redis://... or postgresql://...; or - to use MEMORY_URL."
    retries = "Retries of a run that fails, or loses its worker before another command is done. Default: 2."
    for name, kind, text in (
        ("memory-url", str, memory),
        ("address", str, "Address of the Ray cluster: auto, HOST:PORT or ray://HOST:PORT. Default: auto."),
        ("engine", click.Choice(("local", "ray")), "Where to execute runs: here, or on a Ray cluster. Default: local."),
        ("tpm", click.IntRange(min=0), "Tokens per minute, of all runs together."),
        ("rpm", click.FloatRange(min=0), "Requests per minute to endpoints, of all runs together."),
        ("retries", click.IntRange(min=0), retries),
        ("parallel", click.IntRange(min=1), "Runs at the same time. Default: 2."),
    ):
        metavar = {"address": "ADDRESS", "engine": None, "memory-url": "URL"}.get(name, "N")
        function = click.option(f"--{name}", type=kind, metavar=metavar, help=text)(function)
    return function


class FleetGroup(click.Group):
    """Group the subcommands. `run` need not be named: the first argument may be the task file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names_command = not args or args[0] in (*self.commands, "-h", "--help")
        return super().parse_args(ctx, args if names_command else ["run", *args])


def run_fleet(ctx: click.Context, tasks: Path | bytes | None, out: Path | None, flags: dict[str, Any]) -> None:
    """Lead a fleet to its end, and exit."""
    from autoagent.fleet.fleet_run import Fleet

    as_json = bool(flags.pop("json_output", False))
    with Fleet(tasks, out=out or "", json=as_json, events=as_json, **flags) as fleet:
        for _ in fleet:
            pass
    ctx.exit(0 if all(row.finished for row in fleet.state.rows.values()) else EXIT_UNFINISHED)


def fleet_group(
    run_flags: Callable[[Any], Any],
    collect_flags: Callable[..., dict[str, Any]],
    start: Callable[[Flags], int],
    resume: Callable[[Flags, str], int],
    start_team: Callable[..., int],
) -> click.Group:
    """Return the command. Its runs accept `run_flags`, and `collect_flags` merges those that were given."""

    @click.group("fleet", cls=FleetGroup, subcommand_metavar="FILE | COMMAND ...")
    def fleet() -> None:
        """Run the tasks of FILE, many at a time, under one budget: `autoagent fleet FILE` (see `fleet run --help`)."""

    worker = worker_command(start, resume, start_team)
    for command in (*leading_commands(run_flags, collect_flags), status, stop, results, diff, worker):
        fleet.add_command(command)
    return fleet


def leading_commands(
    run_flags: Callable[[Any], Any], collect_flags: Callable[..., dict[str, Any]]
) -> tuple[click.Command, ...]:
    """Return the subcommands that lead a fleet."""

    @click.command("run", epilog=EXIT_CODES_HELP)
    @click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
    @click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Default: a new folder.")
    @limit_flags
    @run_flags
    @click.pass_context
    def run(ctx: click.Context, /, file: Path, out: Path | None, **given: Any) -> None:
        """Run the tasks of FILE under one budget, many at a time. FILE is YAML, .jsonl, .csv, or - for standard input.

        Each has its own workspace, state folder and log under DIR/ID. Ctrl-C starts no new runs and lets running ones
        end at their next call; a second Ctrl-C ends them at once. `autoagent fleet resume DIR` continues.
        """
        tasks = sys.stdin.buffer.read(MAX_BYTES + 1) if str(file) == "-" else file
        run_fleet(ctx, tasks, out, collect_flags(ctx.obj or {}, given))

    @click.command("resume", epilog=EXIT_CODES_HELP)
    @folder_argument
    @limit_flags
    @run_flags
    @click.pass_context
    def resume(ctx: click.Context, /, folder: Path, **given: Any) -> None:
        """Continue the unfinished runs in DIR, each at its exact step.

        To run without asking, give -c again. Limits given here replace the fleet's.
        """
        run_fleet(ctx, None, folder, collect_flags(ctx.obj or {}, given))

    return run, resume


@click.command("status")
@folder_argument
@click.option("--json", "as_json", is_flag=True, help="An object: summary, head (its process id or 0), runs.")
def status(folder: Path, as_json: bool) -> None:
    """Show the state of the fleet in DIR, running or not."""
    state, head = read_record(folder), holder_of(folder / LOCK_FILE)
    figures = summary(state.rows.values())
    if as_json:
        echo_json({"summary": figures, "head": head, "runs": result_rows(state)})
        return
    for row in state.rows.values():
        if row.state == "running" or (row.state == "done" and not row.finished):
            status_word = "interrupted" if row.state == "running" and not head else row.current_status
            echo(f"{row.job.id}  {status_word}  {row.reason}".rstrip())
    echo(summary_line(figures))
    echo(f"Process {head} is running it." if head else "No process is running it now.")


@click.command("stop")
@folder_argument
@click.option("--now", is_flag=True, help="At once, not at each run's next call.")
def stop(folder: Path, now: bool) -> None:
    """Stop the fleet in DIR. No new run starts, and running ones end at their next call."""
    check_made_here(read_record(folder))
    if not (head := holder_of(folder / LOCK_FILE)):
        raise StateError(f"{folder}: no process is running this fleet.")
    for _ in range(2 if now else 1):
        os.kill(head, signal.SIGTERM)
        time.sleep(0.1)  # simultaneous signals may be merged
    echo(f"Process {head} was told to stop.")


@click.command("results", epilog=EXIT_CODES_HELP)
@folder_argument
@click.option("--json", "as_json", is_flag=True, help="An object: summary, runs.")
@click.option("--csv", "csv_file", metavar="FILE", help="Write one row per run to FILE (- for standard output).")
@click.pass_context
def results(ctx: click.Context, folder: Path, as_json: bool, csv_file: str | None) -> None:
    """Show how each run in DIR ended, with its evidence and cost."""
    state = read_record(folder)
    rows, totals = result_rows(state), summary(state.rows.values())
    if as_json:
        echo_json({"summary": totals, "runs": rows})
    elif csv_file == "-":
        echo(as_csv(rows).rstrip("\n"))
    elif csv_file:
        write_text(Path(csv_file), as_csv(rows))
    else:
        for row in rows:
            evidence = " ".join(known or "-" for known in row["known"])
            figures = f"{row['steps']} steps  {row['tokens']:,} tokens  ${row['usd']:.4f}  {row['seconds']:.1f} s"
            echo(f"{row['id']}  {row['status']}  {evidence}  {figures}  {row['folder']}")
        echo(summary_line(totals))
    ctx.exit(0 if totals["finished"] == totals["runs"] else EXIT_UNFINISHED)


@click.command("diff")
@click.argument("a", type=FLEET_FOLDER)
@click.argument("b", type=FLEET_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="A list: id, a, b, and the change in steps, tokens, usd.")
def diff(a: Path, b: Path, as_json: bool) -> None:
    """Compare the results of the fleets in A and B, run by run."""
    first, second = ([*read_record(out).rows.values()] for out in (a, b))
    rows = difference(first, second)
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        if row["a"] != row["b"]:
            echo(f"{row['id']}  {row['a']} -> {row['b']}")
    echo(f"A: {summary_line(summary(first))}")
    echo(f"B: {summary_line(summary(second))}")


def worker_command(
    start: Callable[[Flags], int], resume: Callable[[Flags, str], int], start_team: Callable[..., int]
) -> click.Command:
    """Return the command that a head runs as a worker."""

    @click.command("worker", hidden=True)
    @click.argument("descriptor", type=int)
    @click.argument("folder", default="")
    @click.pass_context
    def worker(ctx: click.Context, descriptor: int, folder: str) -> None:
        """Run the orders of a fleet's head over an inherited socket. FOLDER is the run's local folder, if any."""
        from autoagent.fleet.fleet_worker import join_fleet

        with join_fleet(descriptor, folder) as order:
            flags = {**(ctx.obj or {}), **order["given"]}
            if order["run"]:
                code = resume(flags, order["run"])
            elif order["team"]:
                code = start_team(flags, Path(order["team"]), order["idea"] or None, None, None, human=False)
            else:
                code = start(flags)
        ctx.exit(code)

    return worker
