"""A scenario as records. Docs/scenarios.md describes the file it is written in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

RUN = "{run}"
"""Among the arguments of a session: the id of the run that an earlier one worked on last."""

CONFIG = ".config/autoagent/config.yaml"
"""Where the settings of a scenario are put: the user's configuration file below a home."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a text, to be found in it, as it is `written` at `place` (`file:line`)."""

    place: str
    written: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """An expectation of the file at `path`: its whole `content`, a `pattern` to be found in it, or `absent`."""

    place: str
    path: str
    content: str | None = None
    pattern: re.Pattern[str] | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected outcome of a session. The parts of the screen come in order, those of the prompts anywhere.

    `commands` and `events` (by type) are numbers of this session alone. None and missing ones may be any.
    """

    place: str
    code: int = 0
    screen: tuple[Part, ...] = ()
    not_on_screen: tuple[Part, ...] = ()
    prompt: tuple[Part, ...] = ()
    not_in_prompt: tuple[Part, ...] = ()
    files: tuple[ExpectedFile, ...] = ()
    commands: int | None = None
    events: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScenarioSession:
    """One process of the program: what it is started with, what the model replies, what is typed."""

    arguments: tuple[str, ...]
    terminal: bool
    replies: tuple[str, ...]
    answers: tuple[str, ...]
    expected: Expected


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file that exists beforehand, at `path`: with this content, or copied from `source`, which may be a folder."""

    path: str
    content: str = ""
    source: Path | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Sessions in one folder, one after another, within `seconds` in all.

    Paths are relative to that folder. `settings` are those of the user's configuration file.
    """

    path: Path
    about: str
    files: tuple[GivenFile, ...]
    settings: Mapping[str, str | list[str]]
    environment: Mapping[str, str]
    seconds: float
    sessions: tuple[ScenarioSession, ...]
