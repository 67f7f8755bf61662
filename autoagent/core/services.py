"""Define records for programs, web pages, skills, and the findings of `autoagent doctor`."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from autoagent.core.frozen import dataclass

SAME_HOST_ONLY = ContextVar("SAME_HOST_ONLY", default=False)  # redirects may not leave the host


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """Describe how a program ended: by itself, by a signal or a limit, or unknown, as it could no longer be watched."""

    output: bytes  # both streams in order, shortened to head and tail
    total: int  # bytes of the whole output
    status: int | None = None
    signal: str = ""  # such as SIGKILL
    limit: str = ""  # the exceeded limit: `120 s`, `2,048 MB of memory`
    lost: str = ""  # why it could no longer be watched
    put_back: tuple[str, ...] = ()  # a line for each guarded file restored after it


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """Describe a background program."""

    pid: int  # on the agent's machine
    command: str
    output: str  # a workspace file
    exit: ProcessExit | None = None  # None while it runs


@dataclass(frozen=True, slots=True)
class WebPage:
    """Hold a fetched page."""

    url: str  # after all redirects
    media_type: str  # without parameters
    body: bytes
    charset: str = ""  # as declared by the server or the document
    cut: bool = False  # it was longer than the limit


@dataclass(frozen=True, slots=True)
class SearchHit:
    """Hold a result of a web search."""

    title: str
    url: str
    text: str


@dataclass(frozen=True, slots=True)
class SearchResults:
    """Hold the results of a web search, best first, and the engine that returned them."""

    engine: str
    hits: tuple[SearchHit, ...]


@dataclass(frozen=True, slots=True)
class Skill:
    """Describe a folder with a SKILL.md. Its name and description are shown in every prompt."""

    name: str
    description: str
    body: str  # for the agent that loads the skill
    place: Path  # its folder
    files: tuple[str, ...]  # the other files, relative to the folder, sorted
    digest: str  # the SHA-256 of the names and contents of all its files


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold a line of `autoagent doctor`."""

    check: str
    status: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""  # how to fix it
