"""Define `autoagent memory`: inspect and change the long-term memory, and move it between backends."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoagent.core.errors import SettingsError, StateError
from autoagent.core.memory import USER, RetrievedMemory, plain_sources
from autoagent.core.model import MAX_CORE_TOKENS
from autoagent.session.consent import save_consent
from autoagent.session.memories import lazy_embedder, open_memory_for_subcommand, print_message, user_memory
from autoagent.session.permissions import enforce_inside
from autoagent.session.session import Session
from autoagent.settings import Settings
from autoagent.subcommands.flags import flags
from autoagent.terminal.output import Column, Columns, echo, echo_json, echo_list, minute, on_one_line
from autoagent.text.figures import counted, precision_of
from autoagent.text.text_file import read_text

if TYPE_CHECKING:  # numpy and sqlite3 are imported only when a memory is opened
    from autoagent.core.protocols import Embedder
    from autoagent.memory.living_memory import LivingMemory
    from autoagent.memory.transfer import Counts

MAX_FORECASTS = 50  # memories shown in a forecast
DREAM_TOKENS = 600
_OF_USER = "autoagent.memory.of_user"


_file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_MAX_ROWS = 2**31  # SQLite refuses numbers above 2**63
_json_option = click.option("--json", "as_json", is_flag=True, help="A list of objects with the whole texts.")


@click.group("memory")
@click.option("--user", "of_user", is_flag=True, help="Use your own memory, which the runs in all your folders recall.")
@click.pass_context
def memory(ctx: click.Context, of_user: bool) -> None:
    """The long-term memory of this state folder. With --user your own memory."""
    ctx.meta[_OF_USER] = of_user


def _open_memory(
    ctx: click.Context, settings: Settings, embedder: Embedder | None = None
) -> AbstractContextManager[LivingMemory]:
    if not ctx.meta[_OF_USER]:
        return open_memory_for_subcommand(settings, embedder)
    memory_of_user = user_memory(settings)
    if embedder:
        memory_of_user = dataclasses.replace(memory_of_user, embedder=embedder)
    return memory_of_user.open(print_message)


def _embedder(ctx: click.Context, settings: Settings) -> Embedder:
    """Return the embedder of the memory. That of the user's own memory always runs on this machine."""
    return user_memory(settings).embedder if ctx.meta[_OF_USER] else lazy_embedder(settings)


class _Time(click.DateTime):
    """Convert a date or time to seconds since the epoch: the start of that day or minute, or its `end`."""

    def __init__(self, *, end: bool = False) -> None:
        super().__init__(("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"))
        self._end = end

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return (
                super().convert(value, param, ctx) + (precision_of(value) if self._end else timedelta())
            ).timestamp()
        except (OverflowError, ValueError):
            self.fail(f"{value} is out of range.", param, ctx)


_filter_options = flags(
    (
        click.option("--kind", metavar="KIND", help="Only this kind: note, fact, feedback, step, user, page."),
        click.option("--run", metavar="RUN", help="Only those of this run (any unique prefix of its id)."),
        click.option("--source", metavar="TEXT", help="Only those whose source contains TEXT."),
        click.option("--before", type=_Time(), metavar="TIME", help="Only those before TIME (2026-11-22)."),
        click.option("--since", type=_Time(), metavar="TIME", help="Only those since TIME."),
        click.option(
            "--until", type=_Time(end=True), metavar="TIME", help="Only those until TIME; a date includes its day."
        ),
    )
)


def _matching(filters: Mapping[str, Any]) -> Callable[[RetrievedMemory], bool]:
    """Return a predicate for the memories that pass the filters. Raises click.UsageError for an empty one."""
    for name in ("kind", "run", "source"):
        if filters[name] == "":  # such as an unset variable in a script: it would match every memory
            raise click.UsageError(f"--{name} is empty.")
    ends = [filters[name] for name in ("before", "until") if filters[name] is not None]
    return lambda memory: (
        filters["kind"] in (None, memory.kind)
        and memory.run.startswith(filters["run"] or "")
        and (filters["source"] or "") in plain_sources(memory.source)
        and all(memory.made < end for end in ends)
        and (filters["since"] is None or memory.made >= filters["since"])
    )


def _are_given(filters: Mapping[str, Any]) -> bool:
    return any(value is not None for value in filters.values())


@memory.command("list")
@_filter_options
@click.option("--limit", type=click.IntRange(1, _MAX_ROWS), default=50, show_default=True, metavar="N",
              help="Show at most N.")  # fmt: skip
@click.option("--offset", type=click.IntRange(0, _MAX_ROWS), default=0, metavar="N", help="Skip the first N.")
@_json_option
@click.pass_context
def list_memories(ctx: click.Context, /, limit: int, offset: int, as_json: bool, **filters: Any) -> None:
    """List the memories, the most recently stored or used first."""
    with _open_memory(ctx, Session.read(ctx.obj).settings) as living:
        if _are_given(filters):
            matches = list(filter(_matching(filters), living.store.listed()))
            memories, count = matches[offset : offset + limit], len(matches)
        else:
            memories, count = living.store.listed(limit, offset), len(living)
    summary = f"{len(memories)} of {count} memories; --limit and --offset show others."
    empty_text = "No memory matches." if _are_given(filters) else "The memory is empty."
    echo_list(memories, as_json, _object, _line, summary if count else empty_text, _COLUMNS)
    if memories and len(memories) < count and not as_json:
        echo(summary, err=True)


@memory.command("search")
@click.argument("query")
@_filter_options
@click.option("-k", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Show at most N.")
@_json_option
@click.pass_context
def search(ctx: click.Context, /, query: str, k: int, as_json: bool, **filters: Any) -> None:
    """Show the memories that fit QUERY, with scores from 0 to 1.

    This counts as a recall by the agent and strengthens the memories shown.
    """
    if not query.strip():
        raise click.UsageError("QUERY is blank; `autoagent memory list` lists all.")
    with _open_memory(ctx, Session.read(ctx.obj).settings) as living:
        recall = living.recall(query, k, wanted=_matching(filters))
    if recall.problem:
        echo(f"Searched by words alone: {recall.problem}", err=True)
    echo_list(
        recall.memories,
        as_json,
        lambda memory: {"score": round(memory.score, 4), "evidence": memory.evidence, **_object(memory)},
        lambda memory: f"{memory.score:.2f}  {_line(memory)}",
        "No memory matches.",
        Columns((Column("SCORE", lambda memory: f"{memory.score:.2f}"), *_COLUMNS.columns), _COLUMNS.last),
    )


@memory.command("add")
@click.argument("text", required=False)
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE", help="Use the text of FILE."
)
@click.pass_context
def add(ctx: click.Context, text: str | None, file: Path | None) -> None:
    """Remember TEXT, or the text of a file. It does not fade."""
    kind = USER if ctx.meta[_OF_USER] else "note"
    if (text is None) == (file is None):
        raise click.UsageError("Give either TEXT or --file FILE.")
    with _open_memory(ctx, Session.open(ctx.obj).settings) as living:
        id = living.add(read_text(file) if file else text or "", kind=kind, source="user")
    if id is None:
        raise click.UsageError(f"{file or 'TEXT'} is empty.")
    echo(f"Remembered as {id}.")
    _print_superseded(living)


def _print_superseded(living: LivingMemory) -> None:
    """Print the memories that the one just added supersedes."""
    for old in living.superseded:
        echo(f"supersedes {old.id}: {on_one_line(old.text)}")


@memory.command("edit")
@click.argument("id", type=int)
@click.argument("text")
@click.pass_context
def edit(ctx: click.Context, id: int, text: str) -> None:
    """Replace the text of the memory with this ID. The memory gets a new ID and keeps its other fields."""
    if not text.strip():
        raise click.UsageError("TEXT is empty.")
    with _open_memory(ctx, Session.open(ctx.obj).settings) as living:
        new = living.edit(id, text)
    if new is None:
        raise _not_found(id)
    echo(f"Edited {id}; its new ID is {new}.")


@memory.group("core", invoke_without_command=True)
@_json_option
@click.pass_context
def core(ctx: click.Context, as_json: bool) -> None:
    """List the memories in every prompt: first pinned ones, then your own, your notes, your words to earlier runs."""
    if ctx.invoked_subcommand is not None:
        return
    from autoagent.prompt import core_fitting
    from autoagent.text.tokens import counter

    settings = Session.read(ctx.obj).settings
    with _open_memory(ctx, settings) as living:
        memories = living.core()
    echo_list(
        memories, as_json, _object, _line, "The core is empty; `autoagent memory core add TEXT` adds to it.", _COLUMNS
    )
    count = core_fitting(memories, MAX_CORE_TOKENS, counter(settings.model or settings.smart_llm), time.time())
    if count < len(memories) and not as_json:
        echo(f"Prompts show the first {count} of {len(memories)}; there is no room for the others.", err=True)


_public_option = click.option(
    "--public", is_flag=True, help="Treat it like a goal: runs that show it do not count as holding private data."
)


@core.command("add")
@click.argument("text", metavar="TEXT|ID")
@_public_option
@click.pass_context
def core_add(ctx: click.Context, text: str, public: bool) -> None:
    """Pin TEXT, or the memory with this ID, so that every prompt shows it."""
    kind = USER if ctx.meta[_OF_USER] else "note"
    with _open_memory(ctx, Session.open(ctx.obj).settings) as living:
        id = int(text) if text.isdecimal() else living.add(text, kind=kind, source="user")
        if id is None:
            raise click.UsageError("TEXT is empty.")
        if not living.keep_in_core(id, kept=True, public=public):
            raise _not_found(id)
    echo(f"Saved as {id}; every prompt shows it.")
    _print_superseded(living)


def _add_id_command(group: click.Group, name: str, text: str, act: Callable[..., bool], done: str) -> click.Command:
    """Add a command that acts on the memory with an ID. `act` returns False if there is none."""

    @group.command(name, help=text)
    @click.argument("id", type=int)
    @click.pass_context
    def command(ctx: click.Context, /, id: int, **flags: bool) -> None:
        with _open_memory(ctx, Session.open(ctx.obj).settings) as living:
            if not act(living, id, **flags):
                raise _not_found(id, trash=name == "restore")
        echo(done.format(id))

    return command


_ONE = "the memory with this ID"
_public_option(
    _add_id_command(
        memory, "pin", f"Pin {_ONE}, of any kind: it never fades.", lambda m, id, public: m.pin(id, public=public),
        "Pinned {}.",
    )
)  # fmt: skip
_add_id_command(
    memory, "unpin", f"Let {_ONE} fade like others of its kind.", lambda m, id: m.pin(id, pinned=False), "Unpinned {}."
)
_add_id_command(memory, "restore", f"Take {_ONE} out of the trash.", lambda m, id: m.restore(id), "Restored {}.")
_add_id_command(
    core, "drop", f"Take {_ONE} out of the core. It stays in the memory, unpinned.",
    lambda m, id: m.keep_in_core(id, kept=False), "Removed from the core: {} is now recalled like other memories.",
)  # fmt: skip


@memory.command("forget")
@click.argument("id", type=int, required=False)
@_filter_options
@click.pass_context
def forget(ctx: click.Context, /, id: int | None, **filters: Any) -> None:
    """Delete a memory by ID, or all that match the options, for good. Pinned memories are only deleted by ID."""
    if (id is None) != _are_given(filters):
        raise click.UsageError("Give either an ID, or options that select memories.")
    with _open_memory(ctx, Session.open(ctx.obj).settings) as living:
        if id is None:
            matches = list(filter(_matching(filters), living.store.listed()))
            runs = {memory.run.partition(":")[0] for memory in matches}
            if filters["run"] and len(runs) > 1:
                raise click.UsageError(f"--run {filters['run']} matches {len(runs)} runs; give more of the id.")
            ids = [memory.id for memory in matches if not memory.pinned]
            echo(f"Forgot {counted(sum(map(living.forget, ids)), 'memory')}.")
            return
        if not living.forget(id):
            raise _not_found(id)
    echo(f"Forgot {id}.")


def _not_found(id: int, *, trash: bool = False) -> StateError:
    if trash:
        return StateError(f"There is no memory {id} in the trash; `autoagent memory trash` lists them.")
    return StateError(f"There is no memory {id}; `autoagent memory list` lists them.")


@memory.command("sleep")
@click.option("-n", "n", type=click.IntRange(min=1), metavar="N", help="Let N random memories fade.")
@click.option("--dry-run", is_flag=True, help="Only predict which memories will be forgotten and when.")
@click.option("--consolidate", is_flag=True, help="First merge near-duplicates.")
@click.option("--json", "as_json", is_flag=True, help="One object; with --dry-run a list of them.")
@click.pass_context
def sleep(ctx: click.Context, n: int | None, dry_run: bool, consolidate: bool, as_json: bool) -> None:
    """Let unused memories fade, and dream of those that are forgotten."""
    if dry_run and consolidate:
        raise click.UsageError("--dry-run and --consolidate cannot be used together.")
    settings = Session.open(ctx.obj).settings
    with _open_memory(ctx, settings) as living:
        if dry_run:
            _print_forecast(living, n, as_json)
            return
        merged = living.consolidate() if consolidate else []
        dream = living.sleep(n, lambda prompt: _ask_model(settings, prompt))
    if as_json:
        groups = [{"kept": group.kept.id, "merged": [m.id for m in group.others]} for group in merged]
        echo_json({**dataclasses.asdict(dream), "merged": groups})
        return
    for group in merged:
        echo(f"Merged {', '.join(str(memory.id) for memory in group.others)} into {group.kept.id}.")
    echo(f"Forgot {counted(len(dream.forgotten), 'memory')}; {len(dream.fallen)} fell a level.")
    if dream.problem:
        echo(f"No dream was made: {dream.problem}", err=True)
    elif dream.text:
        echo(dream.text)


def _ask_model(settings: Settings, prompt: str) -> str:
    """Return the answer of the main model, opened only when needed, since most sleeps need none."""
    from autoagent.core.model import Message
    from autoagent.session.build import open_console, open_model

    model = open_model(settings, open_console(settings, json=True))
    return model.complete([Message("user", prompt)], max_tokens=DREAM_TOKENS).text


def _print_forecast(living: LivingMemory, n: int | None, as_json: bool) -> None:
    forecasts = living.forecast(n)
    if as_json:
        echo_json([{**_object(f.memory), "now": f.now, "sleeps": f.sleeps, "at": f.at} for f in forecasts])
        return
    for forecast in forecasts[:MAX_FORECASTS]:
        when = "now" if forecast.now else f"from {minute(forecast.at)}"
        echo(f"{when}, in about {counted(forecast.sleeps, 'sleep')}  {_line(forecast.memory)}")
    count = sum(forecast.now for forecast in forecasts)
    more = f" The first {MAX_FORECASTS} are shown; --json lists all." if len(forecasts) > MAX_FORECASTS else ""
    echo(f"{count} of {len(living)} memories will be forgotten at the next sleep.{more}", err=True)


@memory.command("trash")
@_json_option
@click.pass_context
def trash(ctx: click.Context, as_json: bool) -> None:
    """List the forgotten memories that can still be restored."""
    with _open_memory(ctx, Session.read(ctx.obj).settings) as living:
        memories = living.store.listed(trash=True)
    if not as_json:
        memories = [dataclasses.replace(memory, stored=memory.t) for memory in memories]
    echo_list(memories, as_json, _object, _line, "The trash is empty.", _COLUMNS)


@memory.command("dreams")
@_json_option
@click.pass_context
def dreams(ctx: click.Context, as_json: bool) -> None:
    """List the dreams, newest last."""
    with _open_memory(ctx, Session.read(ctx.obj).settings) as living:
        dream_list = living.journal.dreams() if living.journal else []
    echo_list(
        dream_list,
        as_json,
        dataclasses.asdict,
        lambda dream: f"{minute(dream.t)}  {len(dream.forgotten)} forgotten: {dream.text or dream.problem}",
        "There are no dreams yet.",
    )


@memory.command("allow")
@click.option("--no", "revoke", is_flag=True, help="Revoke it: agents are refused, or ask again.")
@click.pass_context
def allow(ctx: click.Context, revoke: bool) -> None:
    """Let agents add to your own memory from now on (with --user), by memory_add with about_user."""
    if not ctx.meta[_OF_USER]:
        raise click.UsageError("Agents may always add to a folder's memory; use this with --user.")
    save_consent(user_memory(Session.read(ctx.obj).settings).folder, given=not revoke)
    echo("Agents may not add to your own memory." if revoke else "Agents may add to your own memory.")


@memory.command("stats")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@click.pass_context
def stats(ctx: click.Context, as_json: bool) -> None:
    """Show the size, location and embedder of the memory."""
    with _open_memory(ctx, Session.read(ctx.obj).settings) as living:
        stats = living.store.stats()
    if as_json:
        echo_json(dataclasses.asdict(stats))
        return
    embedder = f"{stats.embedder}, {stats.dim} values" if stats.embedder else "none yet"
    echo(f"memories  {stats.count}\nbytes     {stats.bytes:,}\nembedder  {embedder}\nplace     {stats.place}")


@memory.command("export")
@_file_argument
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.pass_context
def export_memory(ctx: click.Context, file: Path, overwrite: bool) -> None:
    """Write the memory to FILE, for `memory import` of any backend. It is JSON Lines; vectors go to FILE.npy."""
    from autoagent.memory import transfer

    enforce_inside(file)
    existing = next((path for path in (file, transfer.vectors_path(file)) if path.exists()), None)
    if existing and not overwrite:
        raise SettingsError(f"{existing} exists; choose another FILE, or add --overwrite.")
    settings = Session.read(ctx.obj).settings
    embedder = _embedder(ctx, settings)
    with _open_memory(ctx, settings, embedder) as living:
        counts = transfer.export(living.store, embedder, living.journal, file, print_message)
    echo(f"Exported {_summarize(counts)} to {file}; {counts.vectors} with vectors beside it.")


@memory.command("import")
@_file_argument
@click.option("--trusted", is_flag=True, help="FILE is your own export: keep its trusted memories trusted.")
@click.pass_context
def import_memory(ctx: click.Context, file: Path, trusted: bool) -> None:
    """Add the memories of FILE, written by `autoagent memory export`. Existing memories are kept.

    Without --trusted, new memories count as text from outside, since anybody may have written FILE.
    """
    from autoagent.memory import transfer

    settings = Session.open(ctx.obj).settings
    exported = transfer.read(file, print_message)
    if ctx.meta[_OF_USER]:
        if not trusted:
            raise click.UsageError(
                "Text from outside never goes into your own memory; add --trusted for your own export."
            )
        exported = transfer.without_untrusted(exported)
    embedder = _embedder(ctx, settings)
    if exported.vectors is not None:
        embedder = transfer.ImportedVectors(embedder, exported.vectors)
    with _open_memory(ctx, settings, embedder) as living:
        counts = transfer.import_into(living.store, living.journal, exported, trusted=trusted)
        total = len(living)
    echo(f"Imported {_summarize(counts)} that were new; the memory now has {total:,}.")
    if counts.doubted:
        print_message(
            f"{counts.doubted} marked trusted in FILE count as text from outside. If it is your own export, forget "
            "them here and import it again with --trusted."
        )


def _summarize(counts: Counts) -> str:
    return f"{counted(counts.memories, 'memory')}, {counts.trash} in the trash and {counted(counts.dreams, 'dream')}"


def _line(memory: RetrievedMemory) -> str:
    origin = f"{memory.kind} from {memory.source}" if memory.source else memory.kind
    mark = "" if memory.trusted else " (untrusted)"
    return f"{memory.id}  {minute(memory.made)}  {_level(memory)}  {origin}{mark}: {on_one_line(memory.text)}"


def _level(memory: RetrievedMemory) -> str:
    return "pinned" if memory.pinned else f"level {memory.level}"


_COLUMNS: Columns[RetrievedMemory] = Columns(
    (
        Column("ID", lambda memory: str(memory.id), right=True),
        Column("TIME", lambda memory: minute(memory.made), spare=3),
        Column("LEVEL", _level, spare=1),
        Column("KIND", lambda memory: memory.kind, spare=2),
        Column("FROM", lambda memory: memory.source, spare=4),
    ),
    Column("TEXT", lambda memory: f"{'' if memory.trusted else '(untrusted) '}{memory.text}"),
)


def _object(memory: RetrievedMemory) -> dict[str, Any]:
    fields = {**dataclasses.asdict(memory), "stored": memory.made}
    del fields["score"], fields["evidence"]  # only a search returns these
    return fields
