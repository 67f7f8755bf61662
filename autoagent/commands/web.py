"""Search the web, read pages and fetch files.

All results come from outside, and `ResultMeta.untrusted` says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, BinaryIO
from urllib.parse import unquote, urlsplit

from autoagent import documents
from autoagent.commands.context import Context
from autoagent.commands.registry import Command, CommandOutput, command
from autoagent.core.commands import Effects, ResultMeta
from autoagent.core.errors import CommandError, ContextOverflow, ModelError, StateError
from autoagent.core.services import SearchResults, WebPage
from autoagent.documents import DOCUMENT_LIMIT, DocumentText
from autoagent.network.addresses import parse
from autoagent.settings import Settings
from autoagent.text.figures import counted
from autoagent.text.quoting import EXPLANATION, mark_untrusted

MAX_WHOLE_CHARACTERS = 6_000  # a longer page is summarised
MAX_PARTS = 20  # of a long page, to be summarised
MAX_PAGE_LINKS = 30  # below the text of a page
MAX_LISTED_LINKS = 300
MAX_HITS = 25
MAX_PART_CHARACTERS = 8_000  # about 2,000 tokens of English, and at most 8,000 of anything
MIN_HALVED_CHARACTERS = 500  # smaller parts are not halved again
MAX_SUMMARY_CHARACTERS = 2_500  # so that at least three summaries make a part

_DIGEST = "Say in short what this text holds that matters for the question. Keep names, numbers and dates as they are."
_MERGE = "These notes are on the parts of one text. Merge them into one answer to the question, in short."

_PROGRESS_SECONDS = 0.5  # between two progress lines

Url = Annotated[str, "https address of the page", "url"]
Question = Annotated[str, "what to find out from the page", "text"]
Query = Annotated[str, "words to search for", "text"]
Count = Annotated[int, f"how many results, at most {MAX_HITS}"]
GoogleCount = Annotated[int, "how many results, at most 10"]

_WEB_EFFECTS = Effects(from_outside=True)
_NO_DOWNLOADS = "downloads are switched off (--allow-downloads allows them)"


# Search ------------------------------------------------------------------------------------------------------------


def _google_off_reason(settings: Settings) -> str:
    if settings.google_api_key and settings.google_engine:
        return ""
    return "it needs GOOGLE_API_KEY and GOOGLE_CUSTOM_SEARCH_ENGINE_ID; web_search needs neither"


_search_command = partial(command, risk="network", effects=_WEB_EFFECTS, autogpt=("google_search", "web_search"))


@_search_command("web_search", "Search the web", aliases=["search"])
def web_search(context: Context, query: Query, num_results: Count = 8) -> CommandOutput:
    return _search(context.web.search, query, num_results)


@_search_command("google", "Search with Google", available=_google_off_reason, stand_in="web_search")
def google(context: Context, query: Query, num_results: GoogleCount = 8) -> CommandOutput:
    return _search(context.web.google, query, num_results)


def _search(engine: Callable[[str, int], SearchResults], query: str, count: int) -> CommandOutput:
    if not query.strip():
        raise CommandError("The query is empty; give words to search for.")
    results = engine(query.strip(), max(1, min(count, MAX_HITS)))
    meta = ResultMeta(untrusted=f"results of {results.engine}", details={"engine": results.engine})
    if not results.hits:
        return CommandOutput(f"Nothing was found for {query!r} ({results.engine}); try other or fewer words.", meta)
    lines = [f"Results for {query!r} ({results.engine}):"]
    for number, hit in enumerate(results.hits, 1):
        lines += [f"{number}. {hit.title or hit.url}", f"   {hit.url}", *([f"   {hit.text}"] if hit.text else [])]
    lines.append("[to read one of these pages: browse_website with its url]")
    return CommandOutput("\n".join(lines), meta)


# Pages -------------------------------------------------------------------------------------------------------------


_page_command = partial(
    command, risk="network", effects=_WEB_EFFECTS, autogpt=("web_selenium", "web_playwright", "web_requests")
)


@_page_command("browse_website", "Read a web page")
def browse_website(context: Context, url: Url, question: Question) -> CommandOutput:
    page, reading = _read(context, url)
    text, parts, notes = reading.text, split(context.mask(reading.text)), []
    try:
        for part in parts[:MAX_PARTS]:
            context.memory.add(part, kind="page", source=context.mask(page.url), trusted=False, run=context.run)
    except (ModelError, StateError) as error:
        notes.append(f"not kept in the memory: {error}")
    if parts and len(text) > MAX_WHOLE_CHARACTERS:
        text, note = _summary(context, page.url, parts, question)
        notes.append(note)
    return _output(page, reading, text, notes, links=MAX_PAGE_LINKS)


@_page_command("get_text_summary", "Summarise a web page", rare=True)
def get_text_summary(context: Context, url: Url, question: Question) -> CommandOutput:
    page, reading = _read(context, url)
    parts = split(reading.text)
    text, note = _summary(context, page.url, parts, question) if parts else ("", "there is nothing to summarise")
    return _output(page, reading, text, [note], links=0)


@_page_command("get_hyperlinks", "List the links of a web page", rare=True)
def get_hyperlinks(context: Context, url: Url) -> CommandOutput:
    page, reading = _read(context, url)
    return _output(page, reading, "" if reading.links else "There are no links on it.", [], links=MAX_LISTED_LINKS)


def _read(context: Context, url: str) -> tuple[WebPage, DocumentText]:
    """Fetch a page, or a document, and read it. Raises CommandError, also if it is not text."""
    page = context.web.render(url, limit=DOCUMENT_LIMIT)
    kind = documents.kind_of(page.body, page.media_type, unquote(urlsplit(page.url).path))
    if kind is None:
        media_type = page.media_type or "of a type that its server does not tell"
        raise CommandError(f"{page.url} is {media_type}, which cannot be read as text.")
    if page.cut and kind not in ("html", "text"):
        raise CommandError(f"{page.url} is larger than {DOCUMENT_LIMIT:,} bytes, too large to be read.")
    return page, documents.read(page.url, page.body, kind, url=page.url, charset=page.charset)


def _summary(context: Context, url: str, parts: list[str], question: str) -> tuple[str, str]:
    """Summarise the parts against the question. Return the summary and a note on its coverage."""
    first_parts, summaries = parts[:MAX_PARTS], []
    try:
        for number, part in enumerate(first_parts, 1):
            context.progress(f"{url}: part {number} of {len(first_parts)}")
            summaries.append(_answer(context, _DIGEST, part, question, url))
        while len(summaries) > 1:
            context.progress(f"{url}: merging {len(summaries)} summaries")
            summaries = [_answer(context, _MERGE, group, question, url) for group in _groups(summaries)]
    except ModelError as error:  # the run can continue without this summary
        raise CommandError(f"{url} could not be summarised: {error}") from error
    count = len(first_parts)
    if count < len(parts):
        return summaries[0], f"a summary of the first {count} of {len(parts)} parts; the others were not read"
    return summaries[0], f"a summary of {counted(count, 'part')}"


def split(text: str, size: int = MAX_PART_CHARACTERS) -> list[str]:
    """Split the text into parts of at most `size` characters, preferably at a paragraph, line, sentence or word."""
    parts, start = [], 0
    while len(text) - start > size:
        earliest, latest = start + size // 2, start + size
        ends = (text.rfind(mark, earliest, latest) for mark in ("\n\n", "\n", ". ", " "))
        end = next((position + 1 for position in ends if position >= 0), latest)
        parts.append(text[start:end].strip())
        start = end
    return [part for part in (*parts, text[start:].strip()) if part]


def _answer(context: Context, task: str, text: str, question: str, url: str) -> str:
    """Ask the model about a text, in halves if it does not fit."""
    marked = mark_untrusted(text, url, run=context.run)
    prompt = f"{task}\n{EXPLANATION}\n\n{marked}\n\nThe question: {question}\nThe answer:"
    try:
        return context.summarise(prompt).strip()[:MAX_SUMMARY_CHARACTERS]
    except ContextOverflow:
        if len(text) <= MIN_HALVED_CHARACTERS:
            raise
    halves = split(text, len(text) // 2 + 1)
    return "\n".join(_answer(context, task, half, question, url) for half in halves)[:MAX_SUMMARY_CHARACTERS]


def _groups(summaries: list[str]) -> Iterator[str]:
    """Join the summaries in order into texts the size of a part. Several fit into each, so that merging ends."""
    group: list[str] = []
    for summary in summaries:
        if group and sum(map(len, group)) + len(summary) > MAX_PART_CHARACTERS:
            yield "\n\n".join(group)
            group = []
        group.append(summary)
    yield "\n\n".join(group)


def _output(page: WebPage, reading: DocumentText, text: str, notes: list[str], *, links: int) -> CommandOutput:
    lines = [page.url, *([f"Title: {reading.title}"] if reading.title else []), "", text]
    if not reading.text:
        lines.append("There is no text on it; it may need a browser to show (--browser-name chromium).")
    if first_links := reading.links[:links]:
        lines += ["", "Links:", *(f"- {link.text or 'without words'}: {link.url}" for link in first_links)]
        if reading.link_count > len(first_links):
            lines.append(f"[the first {len(first_links)} of {reading.link_count:,} links]")
    cut_note = f"only its first {len(page.body):,} bytes were fetched" if page.cut else ""
    lines += [f"[{note}]" for note in (cut_note, reading.note, *notes) if note]
    return CommandOutput("\n".join(lines), ResultMeta(untrusted=page.url, details={"links": reading.link_count}))


# Files -------------------------------------------------------------------------------------------------------------


def _preview_download(context: Context, url: str, filename: str) -> str:
    address, where = parse(url), _target(context, filename)
    suffix = " in its place" if context.workspace.find(where) else ""
    return f"Fetches {address.url} and writes it to {where}{suffix}."


@command(
    "download_file",
    "Download a file",
    risk="network",
    available=lambda settings: "" if settings.allow_downloads else _NO_DOWNLOADS,
    preview=_preview_download,
    repeatable=True,
    effects=_WEB_EFFECTS,
    autogpt=["file_operations"],
)
def download_file(
    context: Context,
    url: Annotated[str, "https address of the file", "url"],
    filename: Annotated[str, "path relative to the workspace", "path"],
) -> CommandOutput:
    address, where = parse(url), _target(context, filename)
    parts, last_report = [], time.monotonic()

    @contextmanager
    def part(version: str) -> Iterator[BinaryIO]:
        is_guarded = context.workspace.guarded_files.is_guarded(where)  # then its folder may be, too
        parts.append(f"{PurePosixPath(where).name if is_guarded else where}.{version}.part")
        with context.workspace.opened(parts[-1]) as file:
            yield file

    def report(byte_count: int, total: int | None) -> None:
        nonlocal last_report
        if (now := time.monotonic()) - last_report >= _PROGRESS_SECONDS:
            last_report = now
            of_total = f" of {total / 1e6:,.1f}" if total else ""
            context.progress(f"{where}: {byte_count / 1e6:,.1f}{of_total} MB")

    try:
        size = context.web.download(address.url, part, progress=report)
    except CommandError as error:
        if any(_keep_unless_empty(context, path) for path in parts):
            raise CommandError(f"{error} What came so far is kept; the same call goes on from there.") from error
        raise
    context.workspace.rename(parts[0], where)
    text = f"Downloaded {address.url} to {where} ({size:,} bytes)."
    return CommandOutput(text, ResultMeta(changed=(where,), untrusted=address.url))


def _target(context: Context, filename: str) -> str:
    entry = context.workspace.find(filename)
    if entry is not None and entry.kind != "file":
        raise CommandError(f"{filename} is not a file that could be replaced; choose another name.")
    return context.workspace.display(filename, of_file=True)


def _keep_unless_empty(context: Context, path: str) -> bool:
    """Return whether a partial download can be resumed. Delete an empty file."""
    entry = context.workspace.find(path)
    if entry is not None and not entry.size:
        context.workspace.delete(path)
    return entry is not None and entry.size > 0


COMMANDS: tuple[Command, ...] = (web_search, google, browse_website, get_hyperlinks, get_text_summary, download_file)
