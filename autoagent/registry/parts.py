"""Define the hooks of extensions in a folder and in a run; see docs/extending.md."""

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
    """A value set by a folder, ignored until the user trusts it."""

    file: str
    line: int = 0  # 0 if the value has no line
    name: str  # the name of the value in that file
    value: str
    about: str  # the purpose of the value
    setting: str = ""  # the setting that the value affects, or ''
    secret: bool = False
    never: bool = False  # not even a trusted folder may set it
    additive: bool = False  # a run can proceed without it if nobody can be asked

    @property
    def location(self) -> str:
        """Return where the value stands: `.env:2 OPENAI_BASE_URL`."""
        return f"{self.file}:{self.line} {self.name}" if self.line else f"{self.file} {self.name}".strip()

    @property
    def mark(self) -> str:
        """Return the digest of the file, name and value, independent of the line."""
        return hashlib.sha256(json.dumps([self.file, self.name, self.value]).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Describe the current folder to extensions."""

    folder: Path
    setting: Callable[[str], Any]  # returns a setting by its name
    trusts: Callable[[UntrustedValue], bool]  # returns whether the user trusts the folder with this value as it is now
    variable: Callable[[str], str | None]  # returns a variable, of `.env` before the environment, or None if not set
    specs: Callable[[], Sequence[CommandSpec]]  # returns all declared commands, except those added by a run
    is_named: Callable[[str], bool]  # returns whether the user has named the file or folder of a setting
    user_state: Path  # the folder of the user's state, shared by all folders
    user_config: Path  # the folder of the user's settings
    is_scenario: bool  # whether a scenario, perhaps written by somebody else, is played in the folder


def runs_alone(spec: CommandSpec) -> bool:
    """Return whether a part of a run may run the command on its own: it stays in the workspace and can be undone."""
    return spec.category == "files" and spec.risk in ("read", "write")


class FolderPart(Protocol):
    """Define an extension's hooks in a folder, called whenever settings are loaded. A module can implement them.

    If a hook fails, the program does not start, as it cannot know what to ask about or to protect.
    """

    def asks(self, place: Place) -> Iterable[UntrustedValue]:
        """Yield the folder's values that apply only once the user trusts them. The program asks."""

    def hides(self, place: Place) -> Iterable[Path]:
        """Yield the files and folders that no command may access."""

    def guards(self, place: Place) -> Iterable[str]:
        """Yield patterns for workspace files that only the user may allow to be written."""

    def needs(self, place: Place) -> Iterable[Any]:
        """Yield the Extras that the folder needs, so that `doctor` can report missing ones. A part may lack it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOpening:
    """The arguments for opening a part of a run: the folder, the flags, and how to notify and warn the user."""

    place: Place
    flags: Mapping[str, Any]
    say: Callable[[str], None]
    warn: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedCommand:
    """A command of an offer."""

    command: Any
    name: str  # the name of the command at the source
    told: str  # the source's whole description; a command with another description is another command
    remark: str = ""  # for the user only, and not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Offer commands of a source outside the program. The agent gets those that the user has allowed unchanged.

    The commands count as undeclared, whatever they declare, and are named `source__command`. In a scenario, nothing is
    offered.
    """

    source: str  # the name of the source, as shown to the user, such as `MCP server shop`
    written: str  # distinguishes the source from others of the same name
    file: Path  # the file that lists the source
    folder: Path  # the folder in which the commands are allowed
    allowed_by: str  # the command line by which the user allows them later
    commands: Sequence[OfferedCommand]


@dataclass(frozen=True, slots=True)
class PromptParts:
    """The parts of a prompt that extensions may change. Once a run has started, its goals stay the same."""

    name: str
    role: str
    goals: tuple[str, ...]
    constraints: tuple[str, ...]
    resources: tuple[str, ...]
    best_practices: tuple[str, ...]


class RunPart:
    """Define an extension's hooks in a run. Override the methods you need. By default, they change nothing.

    A method that raises is reported once and skipped. If `decide` raises, the call is refused.
    """

    @property
    def replaces_model(self) -> bool:
        """Return whether `model` answers in place of the model, which then need not be chosen."""
        return False

    def commands(self, say: Callable[[str], None], warn: Callable[[str], None]) -> Sequence[Any]:
        """Return commands to offer in this run, before the model is opened."""
        return ()

    def offers(self, say: Callable[[str], None], warn: Callable[[str], None]) -> Sequence[Offer]:
        """Return offers of commands whose texts come from outside. The program asks the user about each."""
        return ()

    def model(self, opened: Callable[[], Model]) -> Model:
        """Return the model to use: `opened()`, or another."""
        return opened()

    def embedder(self) -> Embedder | None:
        """Return the memory's embedder, or None for the default."""
        return None

    def shape(self, prompt: PromptParts) -> tuple[PromptParts, Sequence[Any]]:
        """Return the parts of the prompt after changes, and further commands to offer."""
        return prompt, ()

    def begin(self, complete: Callable[[str], str], run: Callable[[str, Mapping[str, Any]], str]) -> None:
        """Store the services that the part may use during the run.

        `complete` asks the model. `run` runs a command by name and returns its text, if it stays in the workspace and
        can be undone. Both raise CommandError.
        """

    def planning(self, messages: Sequence[Message]) -> Sequence[tuple[str, str]]:
        """Return messages for the model before it is asked, with their senders. They count as untrusted and private."""
        return ()

    def reply(self, completion: Completion) -> Completion:
        """Return the model's reply, possibly changed."""
        return completion

    def call(self, call: Call) -> Call:
        """Return the call to propose instead of this one."""
        return call

    def decide(self, proposal: Proposal) -> Verdict | None:
        """Answer before the user is asked. None, or an allowance despite a warning, leaves the answer to the user.

        Log and screen name the extension as the decider, whatever the verdict says.
        """
        return None

    def answer(self, question: str) -> str:
        """Answer a command's question for the user, or return ''."""
        return ""

    def result(self, call: Call, result: Result) -> Result:
        """Return the result of a command, possibly with another text. Its labels stay.

        A changed text counts as untrusted and private, from the extension and from the sources in its label.
        """
        return result

    def hear(self, event: Event) -> None:
        """Receive an event of the run's own agent once it is logged."""


NO_PART = RunPart()
