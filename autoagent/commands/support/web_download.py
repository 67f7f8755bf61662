"""The command that fetches a file from the web into the workspace; the others of the web are in `web`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, BinaryIO

from autoagent.commands.context import Context
from autoagent.commands.registry import CommandOutput, command
from autoagent.config.settings import Settings
from autoagent.core.commands import Effects, ResultMeta
from autoagent.core.errors import CommandError
from autoagent.network.addresses import parse

_SHOW_EVERY = 0.5  # seconds between two lines of progress


def _available(settings: Settings) -> str:
    return "" if settings.allow_downloads else "downloads are switched off (--allow-downloads allows them)"


def _preview(context: Context, url: str, filename: str) -> str:
    address, where = parse(url), _target(context, filename)
    instead = " in its place" if context.workspace.find(where) else ""
    return f"Fetches {address.url} and writes it to {where}{instead}."


@command(
    "download_file",
    "Download a file",
    risk="network",
    available=_available,
    preview=_preview,
    repeatable=True,
    category="web",
    effects=Effects(from_outside=True),
    keywords=["download"],
    autogpt=["file_operations"],
)
def download_file(
    context: Context,
    url: Annotated[str, "https address of the file", "url"],
    filename: Annotated[str, "path relative to the workspace", "path"],
) -> CommandOutput:
    address, where = parse(url), _target(context, filename)
    parts = []

    @contextmanager
    def part(version: str) -> Iterator[BinaryIO]:
        parts.append(f"{where}.{version}.part")
        with context.workspace.opened(parts[-1]) as file:
            yield file

    try:
        size = context.web.download(address.url, part, progress=_teller(context, where))
    except CommandError as error:
        if any(_is_kept(context, path) for path in parts):
            raise CommandError(f"{error} What came so far is kept; the same call goes on from there.") from error
        raise
    context.workspace.rename(parts[0], where)
    text = f"Downloaded {address.url} to {where} ({size:,} bytes)."
    return CommandOutput(text, ResultMeta(changed=(where,), untrusted=address.url))


def _target(context: Context, filename: str) -> str:
    """The file to be written, as a plain path."""
    found = context.workspace.find(filename)
    if found is not None and found.kind != "file":
        raise CommandError(f"{filename} is not a file that could be replaced; choose another name.")
    return context.workspace.display(filename, of_file=True)


def _is_kept(context: Context, path: str) -> bool:
    """Whether the part of a broken download can be used again; an empty one is deleted."""
    found = context.workspace.find(path)
    if found is not None and not found.size:
        context.workspace.delete(path)
    return found is not None and found.size > 0


def _teller(context: Context, name: str) -> Callable[[int, int | None], None]:
    """Shows how far the download is, now and then."""
    shown = time.monotonic()

    def tell(done: int, total: int | None) -> None:
        nonlocal shown
        if (now := time.monotonic()) - shown >= _SHOW_EVERY:
            shown = now
            of_all = f" of {total / 1e6:,.1f}" if total else ""
            context.progress(f"{name}: {done / 1e6:,.1f}{of_all} MB")

    return tell
