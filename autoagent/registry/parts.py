"""The parts that extensions take in a folder and in a run; docs/extending.md tells how to use them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from autoagent.core.frozen import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from autoagent.core.commands import Call, CommandSpec, Proposal, Result, Verdict
    from autoagent.core.events import Event
    from autoagent.core.model import Completion, Message
    from autoagent.core.protocols import Embedder, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrustedValue:
    """A value set by a folder, ignored until the user trusts it.

    `file` and `line` (0: none) are its place, `name` its name there, `about` its purpose, `setting` the setting it
    would set ('' for none). `never`: not even a trusted folder may set it. `additive`: a run can go without it if
    nobody can be asked.
    """

    file: str
    line: int = 0
    name: str
    value: str
    about: str
    setting: str = ""
    secret: bool = False
    never: bool = False
    additive: bool = False

    @property
    def called(self) -> str:
        """`.env:2 OPENAI_BASE_URL`."""
        return f"{self.file}:{self.line} {self.name}" if self.line else f"{self.file} {self.name}".strip()

    @property
    def mark(self) -> str:
        """The digest of the file, name and value, independent of the line."""
        return hashlib.sha256(json.dumps([self.file, self.name, self.value]).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder that the program is used in, as extensions see it.

    Attributes:
        setting: returns a setting by its name.
        trusts: returns whether the user trusts the folder with a value, as it is now.
        variable: returns a variable, of `.env` before the environment, or None if it is not set.
        specs: returns the declarations of all commands, but for those that come with a run.
        user_state: the folder of the user's own state, of all folders.
    """

    folder: Path
    setting: Callable[[str], Any]
    trusts: Callable[[UntrustedValue], bool]
    variable: Callable[[str], str | None]
    specs: Callable[[], Sequence[CommandSpec]]
    user_state: Path


def runs_alone(spec: CommandSpec) -> bool:
    """Return whether a part of a run may run the command by itself: it stays in the workspace, and can be undone."""
    return spec.category == "files" and spec.risk in ("read", "write")


class FolderPart(Protocol):
    """An extension's part in a folder, called whenever settings are loaded. A module can be one.

    If one fails, the program does not start: nobody would know what is to be asked about, or kept out of reach.
    """

    def asks(self, place: Place) -> Iterable[UntrustedValue]:
        """Yield the values of the folder that count once the user trusts it with them. He is asked by the program."""

    def hides(self, place: Place) -> Iterable[Path]:
        """Yield the files and folders that no command may reach."""

    def guards(self, place: Place) -> Iterable[str]:
        """Yield patterns for files of the workspace that only the user may allow to be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOpening:
    """The arguments for opening a part of a run: the place, the run's flags, and how to tell and warn the user."""

    place: Place
    flags: Mapping[str, Any]
    say: Callable[[str], None]
    warn: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PromptParts:
    """The parts of a prompt that extensions may change. The goals of a run that began stay as they are."""

    name: str
    role: str
    goals: tuple[str, ...]
    constraints: tuple[str, ...]
    resources: tuple[str, ...]
    best_practices: tuple[str, ...]


class RunPart:
    """An extension's part in one run. Override the methods with which it takes part: as they are, they change nothing.

    A method that raises is reported once and does without. If it is the one that decides, the call is refused.
    """

    @property
    def replaces_model(self) -> bool:
        """Whether `model` answers in place of the model, which then need not be chosen."""
        return False

    def commands(self, say: Callable[[str], None], warn: Callable[[str], None]) -> Sequence[Any]:
        """Return commands to offer in this run, before the model is opened."""
        return ()

    def model(self, opened: Callable[[], Model]) -> Model:
        """Return the model that thinks: `opened()`, or another one."""
        return opened()

    def embedder(self) -> Embedder | None:
        """Return the embedder of the memory, None for the usual one."""
        return None

    def shape(self, prompt: PromptParts) -> tuple[PromptParts, Sequence[Any]]:
        """Return the parts of the prompt as they are to be, and further commands to offer."""
        return prompt, ()

    def begin(self, complete: Callable[[str], str], run: Callable[[str, Mapping[str, Any]], str]) -> None:
        """Keep what the part may use while the run lasts.

        `complete` asks the model. `run` runs a command by name and returns its text: one that stays in the workspace
        and can be undone. Both raise CommandError.
        """

    def planning(self, messages: Sequence[Message]) -> Sequence[tuple[str, str]]:
        """Return messages for the model before it is asked, each with its sender. They count as text from outside."""
        return ()

    def reply(self, completion: Completion) -> Completion:
        """Return the reply of the model as it is to be understood."""
        return completion

    def call(self, call: Call) -> Call:
        """Return the call to propose in place of this one."""
        return call

    def decide(self, proposal: Proposal) -> Verdict | None:
        """Answer for the user before he is asked. None leaves it to him, and so does an allowance despite a warning.

        The name of the decider begins with `the plug-in`, or the extension's counts.
        """
        return None

    def answer(self, question: str) -> str:
        """Answer a command's question for the user, '' for no answer."""
        return ""

    def result(self, call: Call, result: Result) -> Result:
        """Return the result of a command with another text, which counts as text from outside. Its labels stay."""
        return result

    def hear(self, event: Event) -> None:
        """Hear an event of the run's own agent once it is in the log."""


NO_PART = RunPart()
