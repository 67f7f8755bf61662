"""Define records for programs, web pages, skills, and the findings of `autoagent doctor`."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from autoagent.core.frozen import dataclass

SAME_HOST_ONLY = ContextVar("SAME_HOST_ONLY", default=False)  # redirects may not leave the host


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The end of a program: by itself, by a signal, by a limit, or unknown if it could no longer be watched."""

    output: bytes  # both streams in order, shortened to head and tail
    total: int  # bytes of the whole output
    status: int | None = None
    signal: str = ""  # such as SIGKILL
    limit: str = ""  # the exceeded limit: `120 s`, `2,048 MB of memory`
    lost: str = ""  # why the program could no longer be watched
    put_back: tuple[str, ...] = ()  # a line for each guarded file that was restored afterwards


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """A background program."""

    pid: int  # on the agent's machine
    command: str
    output: str  # a workspace file
    exit: ProcessExit | None = None  # None while it runs


@dataclass(frozen=True, slots=True)
class WebPage:
    """A fetched page."""

    url: str  # after all redirects
    media_type: str  # without parameters
    body: bytes
    charset: str = ""  # as declared by the server or the document
    cut: bool = False  # the page was longer than the limit


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
    """A folder with a SKILL.md. Its name and description are shown in every prompt."""

    name: str
    description: str
    body: str  # for the agent that loads the skill
    place: Path  # its folder
    files: tuple[str, ...]  # the other files, relative to the folder, sorted
    digest: str  # the SHA-256 of the names and contents of all its files


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of `autoagent doctor`."""

    check: str
    status: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""  # how to fix it
