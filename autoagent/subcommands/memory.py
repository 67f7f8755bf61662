"""`autoagent memory`: look into the long-term memory, add to it, forget from it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autoagent.errors import SettingsError, StateError
from autoagent.messages import Recollection
from autoagent.printable import escape, shorten
from autoagent.settings import Settings, load

if TYPE_CHECKING:  # numpy and sqlite3 wait until a memory is opened
    from autoagent.memory.none import NoMemory
    from autoagent.memory.store import LocalMemory
    from autoagent.protocols import Embedder

SHOWN = 300  # characters of a text in a list

as_json = click.option("--json", "as_json", is_flag=True, help="A list of objects with the whole texts.")


def _say(line: str) -> None:
    click.echo(line, err=True)


def open_memory(settings: Settings, listen: Callable[[str], None] = _say) -> LocalMemory | NoMemory:
    """The memory that the settings name; the caller closes it. Raises SettingsError, StateError."""
    if settings.memory_backend == "none":
        from autoagent.memory.none import NoMemory

        return NoMemory()
    from autoagent.memory.late import LateEmbedder
    from autoagent.memory.store import LocalMemory

    name = settings.memory_index
    if name and not re.fullmatch(r"\w[\w.-]{0,63}", name):
        raise SettingsError(f"MEMORY_INDEX is {name!r}; a name is made of letters, digits, '_', '-' and '.'.")
    folder = settings.state_dir / "memory"
    return LocalMemory(folder / name if name else folder, LateEmbedder(lambda: _embedder(settings)), listen=listen)


def embeds_remotely(settings: Settings) -> bool:
    """Whether the endpoint embeds: OpenAI's own does, another one where EMBEDDING_MODEL names its model.

    Nothing leaves the machine for the sake of the memory where the model that thinks is no endpoint's.
    """
    if settings.model.partition(":")[0] in ("local", "human", "demo", "replay"):
        return False
    named = settings.embedding_model != Settings().embedding_model
    return named if settings.openai_base_url else bool(settings.openai_api_key)


def _embedder(settings: Settings) -> Embedder:
    """The endpoint's, or this machine's own."""
    if not embeds_remotely(settings):
        from autoagent.memory.embed import embedded

        return embedded()
    from autoagent.models.embeddings import OpenAIEmbedder
    from autoagent.models.endpoint import Endpoint
    from autoagent.tokens import counter

    endpoint = Endpoint(
        api_key=settings.openai_api_key,
        base_url=settings.openai_base_url or None,
        organization=settings.openai_organization or None,
    )
    return OpenAIEmbedder(model=settings.embedding_model, endpoint=endpoint, count=counter(settings.embedding_model))


@contextmanager
def _opened(ctx: click.Context) -> Iterator[LocalMemory]:
    from autoagent.memory.none import NoMemory

    memory = open_memory(load(ctx.obj or {}, os.environ, Path.cwd()).settings)
    if isinstance(memory, NoMemory):
        raise SettingsError("The memory is switched off (MEMORY_BACKEND=none); set it to local to use it.")
    with memory:
        yield memory


@click.group("memory")
def memory() -> None:
    """The long-term memory in this state folder."""


@memory.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="At most N.")
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the N newest.")
@as_json
@click.pass_context
def list_memories(ctx: click.Context, limit: int, offset: int, as_json: bool) -> None:
    """List the memories, the newest first."""
    with _opened(ctx) as store:
        memories, count = store.listed(limit, offset), len(store)
    if as_json:
        _print_json([_object(memory) for memory in memories])
        return
    for memory in memories:
        click.echo(_line(memory))
    if len(memories) < count:
        click.echo(f"{len(memories)} of {count} memories; --limit and --offset show others.", err=True)
    elif not memories:
        click.echo("The memory is empty.", err=True)


@memory.command("search")
@click.argument("query")
@click.option("-k", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="At most N.")
@as_json
@click.pass_context
def search(ctx: click.Context, query: str, k: int, as_json: bool) -> None:
    """Show the memories nearest to QUERY, each with its cosine."""
    with _opened(ctx) as store:
        found = store.recall(query, k)
    if as_json:
        _print_json([{"score": round(memory.score, 4), **_object(memory)} for memory in found])
        return
    for memory in found:
        click.echo(f"{memory.score:.2f}  {_line(memory)}")
    if not found:
        click.echo("No memory fits.", err=True)


@memory.command("add")
@click.argument("text")
@click.pass_context
def add(ctx: click.Context, text: str) -> None:
    """Remember TEXT."""
    with _opened(ctx) as store:
        id = store.add(text, source="user")
    if id is None:
        raise click.UsageError("TEXT is empty.")
    click.echo(f"Remembered as {id}.")


@memory.command("forget")
@click.argument("id", type=int)
@click.pass_context
def forget(ctx: click.Context, id: int) -> None:
    """Delete the memory with this ID."""
    with _opened(ctx) as store:
        found = store.forget(id)
    if not found:
        raise StateError(f"There is no memory {id}; `autoagent memory list` shows which there are.")
    click.echo(f"Forgot {id}.")


@memory.command("stats")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@click.pass_context
def stats(ctx: click.Context, as_json: bool) -> None:
    """Show how large the memory is, where it is, and who embeds it."""
    with _opened(ctx) as store:
        stats = store.stats()
    if as_json:
        _print_json(dataclasses.asdict(stats))
        return
    embedder = f"{stats.embedder}, {stats.dim} values" if stats.embedder else "none yet"
    rows = (("memories", stats.count), ("bytes", f"{stats.bytes:,}"), ("embedder", embedder), ("folder", stats.folder))
    for name, value in rows:
        click.echo(f"{name:9} {value}")


def _line(memory: Recollection) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(memory.t))
    origin = escape(f"{memory.kind} from {memory.source}" if memory.source else memory.kind)
    text = shorten(escape(" ".join(memory.text.split())), SHOWN)
    return f"{memory.id}  {when}  {origin}{'' if memory.trusted else ' (untrusted)'}: {text}"


def _object(memory: Recollection) -> dict[str, Any]:
    fields = dataclasses.asdict(memory)
    del fields["score"]  # only a search has one
    return fields


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
