"""Define the records of services for the agent: programs, web pages, skills, and `autoagent doctor` findings."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from autoagent.core.frozen import dataclass

ONE_HOST = ContextVar("ONE_HOST", default=False)
"""Restrict a request to the host it names, because it was allowed despite a warning."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """Describe the end of a program: both output streams in order, shortened to head and tail of `total` bytes.

    Exactly one field says how it ended: its exit `status`, the `signal` that ended it (`SIGKILL`), or the exceeded
    `limit` (`120 s`, `2,048 MB of memory`). The others are None and ''. `put_back` has a line for each guarded file
    that it changed and that was restored.
    """

    output: bytes
    total: int
    status: int | None = None
    signal: str = ""
    limit: str = ""
    put_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """Describe a background program: its pid on the agent's machine, its description, and its output file.

    `output` is a workspace path. `exit` is None while it runs.
    """

    pid: int
    command: str
    output: str
    exit: ProcessExit | None = None


@dataclass(frozen=True, slots=True)
class WebPage:
    """Hold a fetched page: its final `url`, media type without parameters, and bytes.

    `cut`: it was longer than the limit. `charset` is declared by the server or the document, or ''.
    """

    url: str
    media_type: str
    body: bytes
    charset: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A result of a web search."""

    title: str
    url: str
    text: str


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of a web search, best first, and the engine that returned them."""

    engine: str
    hits: tuple[SearchHit, ...]


@dataclass(frozen=True, slots=True)
class Skill:
    """Describe a folder with a SKILL.md.

    Attributes:
        name, description: the part shown in every prompt.
        body: the text for the agent that loads the skill.
        place: the folder.
        files: its other files, relative to the folder, sorted.
        digest: the SHA-256 of the names and contents of all its files.
    """

    name: str
    description: str
    body: str
    place: Path
    files: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `mend` says how to fix it, or '' if it is fine."""

    check: str
    status: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""
