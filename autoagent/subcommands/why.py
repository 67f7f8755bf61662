"""Define `autoagent why`: the memories in a step's prompt, and the model's answer without some of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import click

from autoagent.core.commands import Call
from autoagent.core.errors import ReplyError
from autoagent.core.events import Thought
from autoagent.core.memory import LeftOut, RetrievedMemory, memory_name, plain_sources
from autoagent.core.model import Thoughts
from autoagent.log.reader import find_run, read
from autoagent.session import build
from autoagent.session.earlier_runs import session_of_run
from autoagent.session.prompt_replay import PROMPT_EVENTS, BuiltPrompt, TracedStep, prompt_of_step, trace
from autoagent.session.session import Session
from autoagent.subcommands.flags import merge_flags, run_ids_here
from autoagent.terminal.output import echo, echo_json, minute, on_one_line
from autoagent.text.figures import counted

ReplyParts = Mapping[str, Any]
"""A reply for comparison: its thoughts by name and `command`, or `unusable` with the reason."""


@click.command("why")
@click.argument("run", shell_complete=run_ids_here)
@click.argument("step", type=click.IntRange(min=1))
@click.option("--without", multiple=True, metavar="mem:ID", help="Ask the model again without this memory; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="One object with everything.")
@click.pass_context
def why(ctx: click.Context, run: str, step: int, without: tuple[str, ...], as_json: bool) -> None:
    """Show which memories fed the prompt of STEP in RUN, with score and level, and which were left out and why.

    With --without, rebuild the step's prompt from the log without that memory, send it to the model of the run, and
    show its reply beside the recorded one. Nothing is executed or recorded. An endpoint charges for the call.
    """
    session = Session.read(merge_flags(ctx.obj or {}))
    state_dir = session.settings.state_dir
    run = find_run(state_dir, run)
    built = prompt_of_step(state_dir, run, step)
    ids = {_id(name) for name in without}
    if unknown := ids - {memory.id for memory in built.shown}:
        names = ", ".join(f"mem:{memory_name(memory.id)}" for memory in built.shown) or "none"
        raise click.UsageError(f"mem:{memory_name(min(unknown))} is not in the prompt of step {step} (it has {names}).")
    report: dict[str, Any] = {
        "run": run,
        "step": step,
        "query": built.query,
        "prompt": {
            "sha256": built.prompted.sha256,
            "tokens": built.prompted.tokens,
            "rebuilt": built.prompt().sha256 == built.prompted.sha256,
        },
        "memories": [dataclasses.asdict(memory) for memory in built.shown],
        "gate": built.gate,
        "left_out": [dataclasses.asdict(candidate) for candidate in built.left_out],
    }
    if not as_json:
        _print_report(report, built)
    if ids:
        traced = trace(read(state_dir, run, PROMPT_EVENTS, until=step), step)
        report["without"] = _ask_again(session, traced, ids)
        if not as_json:
            _print_comparison(report["without"])
    if as_json:
        echo_json(report)


def _id(name: str) -> int:
    """Parse `mem:12` or `12`. `mem:user:3`, in the user's own memory, has the id -3."""
    if not (match := re.fullmatch(r"(?:mem:)?(user:)?(\d{1,18})", name)):
        raise click.UsageError(f"--without {name}: a memory is named mem:ID, as `autoagent why RUN STEP` shows it.")
    return -int(match[2]) if match[1] else int(match[2])


def _ask_again(session: Session, traced: TracedStep, ids: set[int]) -> dict[str, Any]:
    """Send the prompt without these memories to the run's model. Raises like the model."""
    from autoagent.reply.parser import parse

    settings = session_of_run(traced.sources.start, session).settings
    model = build.open_model(settings, build.open_console(settings, json=True), traced.answered)
    completion = model.complete(
        traced.prompt(ids).messages, commands=traced.offered, max_tokens=traced.sources.history.reply_tokens
    )
    try:
        reply = parse(completion, traced.registry.check, call_id=str(traced.prompted.step))
        now = _parts_of(reply.thoughts, reply.call)
    except ReplyError as error:
        now = {"unusable": str(error)}
    recorded: ReplyParts = {"unusable": "no reply is in the log"}
    if isinstance(traced.reply, Thought):
        recorded = _parts_of(traced.reply.thoughts, traced.reply.call)
    elif traced.reply is not None:
        recorded = {"unusable": traced.reply.problem}
    return {
        "memories": sorted(ids),
        "model": model.name,
        "temperature": settings.temperature,
        "usage": dataclasses.asdict(completion.usage),
        "recorded": recorded,
        "now": now,
        "changed": [part for part in dict.fromkeys((*recorded, *now)) if recorded.get(part) != now.get(part)],
    }


def _parts_of(thoughts: Thoughts, call: Call) -> ReplyParts:
    return {**dataclasses.asdict(thoughts), "command": {"name": call.name, "args": dict(call.args)}}


def _print_report(report: Mapping[str, Any], built: BuiltPrompt) -> None:
    echo(f"Step {report['step']} of {report['run']}: {counted(len(built.shown), 'memory')} in its prompt.")
    if report["query"]:
        echo(f"Recalled by: {on_one_line(report['query'])}")
    core_ids = {memory.id for memory in built.sources.history.core}
    for memory in built.shown:
        in_core = memory.id in core_ids
        name = f"mem:{memory_name(memory.id)}  in every prompt" if in_core else _format_score(memory, built.gate)
        source, newer = plain_sources(memory.source), memory.superseded_by
        origin = f"{memory.kind} from {source}" if source else memory.kind
        notes = "" if memory.trusted else " (untrusted)"
        notes += "" if newer is None else f"  superseded by mem:{memory_name(newer)}"
        echo(f"  {name}  level {memory.level}  {minute(memory.made)}  {origin}{notes}")
        echo(f"      {on_one_line(memory.text)}")
    if built.left_out:
        echo("Left out:")
    for candidate in built.left_out:
        echo(f"  {_format_score(candidate, built.gate)}  {candidate.reason}")
    if not report["prompt"]["rebuilt"]:
        echo(
            "The prompt cannot be rebuilt exactly as it was sent (its sha256 differs): the program or the time "
            "zone has changed.",
            err=True,
        )


def _format_score(memory: RetrievedMemory | LeftOut, gate: float) -> str:
    """Name a memory with its score, and its evidence compared with the gate."""
    evidence = f"  evidence {memory.evidence:.2f} of {gate:g}" if memory.evidence and gate else ""
    return f"mem:{memory_name(memory.id)}  score {memory.score:.4f}{evidence}"


def _print_comparison(again: Mapping[str, Any]) -> None:
    """Print the two replies part by part, with identical parts only once."""
    without = " and ".join(f"mem:{memory_name(id)}" for id in again["memories"])
    usage, cost = again["usage"], again["usage"]["cost"]
    expense = f"{usage['prompt'] + usage['completion']} tokens, {'cost ?' if cost is None else f'${cost:.4f}'}"
    echo(f"\nWithout {without}, asked again of {again['model']} ({expense}):")
    if again["temperature"]:
        echo(f"The temperature is {again['temperature']:g}: a difference may be chance.")
    recorded, now = again["recorded"], again["now"]
    for part in dict.fromkeys((*recorded, *now)):
        recorded_text, now_text = _format_part(recorded.get(part)), _format_part(now.get(part))
        if part in again["changed"]:
            echo(f"  {part}: changed\n    recorded: {recorded_text}\n    now:      {now_text}")
        elif recorded_text:
            echo(f"  {part}: the same\n    {recorded_text}")


def _format_part(value: Any) -> str:
    if isinstance(value, Mapping):
        value = str(Call("", value["name"], value["args"]))
    return on_one_line(value or "")
