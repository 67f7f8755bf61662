"""The few stand-ins that tests use in place of a model and a person. Everything else in a test is the real thing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Self, Unpack

from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.core.commands import Call, CommandSpec, Proposal, Result, Verdict
from autoagent.core.events import Event, RunStarted
from autoagent.core.model import FULL, Asking, Completion, Message, Price, PromptStyle, Usage
from autoagent.core.protocols import RequestOptions
from autoagent.core.task import Task
from autoagent.scenarios.scripted_endpoint import all_met

Said = str | Completion | BaseException


def say(name: str, text: str = "", /, **args: Any) -> str:
    """A reply in the response format: one thought, one command."""
    thoughts = {"text": text or f"I will use {name}.", "reasoning": "", "plan": "", "criticism": "", "speak": ""}
    return json.dumps({"thoughts": thoughts, "command": {"name": name, "args": args}})


def started(kind: Any = RunStarted, /, **fields: Any) -> Any:
    """The start of a run, or of another process of it, with these fields."""
    usual = {
        "version": "", "task": Task("Scribe", "a writer", ()), "model": "m", "window": 8192, "reply_tokens": 1024,
        "system": "", "system_tokens": 0, "asking": "text", "commands": (), "workspace": "w",
    }  # fmt: skip
    return kind(**{**usual, **fields})


def of_type(events: Iterable[Event], kind: type[Event]) -> list[Any]:
    """The events of this type."""
    return [event for event in events if isinstance(event, kind)]


def is_verification(system: str) -> bool:
    """Return whether a system message is that of a verifier."""
    return system.startswith("You check another agent's work.")


def judging(verdict: str, why: str = "The second line is missing.", evidence: str = "") -> Callable[[str], str]:
    """Return a verifier that gives every goal this verdict."""

    def judge(shown: str) -> str:
        numbers = re.findall(r"^(\d+)\. ", shown.partition("\n\n")[0], re.MULTILINE)
        goals = [{"n": int(n), "why": why, "verdict": verdict, "evidence": evidence} for n in numbers]
        return json.dumps({"goals": goals})

    return judge


class ScriptedModel:
    """Answers with a script: texts, completions, errors to raise; a function is asked for each answer.

    `prompts` holds what it was sent, `offered` the commands it could choose from, `specs` the whole of these.
    """

    name = "scripted"
    reasoning_room = 0

    def __init__(
        self,
        script: Iterable[Said] | Callable[[Sequence[Message]], Said],
        *,
        window: int = 8192,
        price: Price | None = None,
        asking: Asking = "text",
        style: PromptStyle = FULL,
        report: Callable[[Sequence[Message]], Usage] = lambda messages: Usage(0, 0, 0, 0.0),
    ) -> None:
        self.window = window
        self.price = price
        self.asking: Asking = asking
        self.prompts: list[tuple[Message, ...]] = []
        self.offered: list[list[str]] = []
        self.specs: list[dict[str, CommandSpec]] = []
        self.style = style
        self.verifications: list[tuple[Message, ...]] = []
        self.judges: Callable[[str], str] = all_met
        self._script = script if callable(script) else iter(script)
        self._report = report

    def take_usage(self) -> Usage:
        return Usage()

    def complete(self, messages: Sequence[Message], **asked: Unpack[RequestOptions]) -> Completion:
        if is_verification(messages[0].content):
            self.verifications.append(tuple(messages))
            return Completion(self.judges(messages[1].content), Usage())
        self.prompts.append(tuple(messages))
        commands = asked.get("commands", ())
        self.offered.append([spec.name for spec in commands])
        self.specs.append({spec.name: spec for spec in commands})
        said = self._script(messages) if callable(self._script) else next(self._script)
        if isinstance(said, BaseException):
            raise said
        return said if isinstance(said, Completion) else Completion(said, self._report(messages))


class Allow:
    """An authorizer that allows everything and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Proposal] = []

    def decide(self, proposal: Proposal) -> Verdict:
        self.asked.append(proposal)
        return Verdict(True, "test")

    def interrupted(self) -> str:
        return ""

    def waits_on(self, reason: str) -> bool:
        return False

    def accepts(self, claims: str) -> Verdict:
        return Verdict(False, "nobody")


class CtrlC(Allow):
    """An authorizer whose user says this after each Ctrl-C."""

    def __init__(self, feedback: str) -> None:
        super().__init__()
        self._feedback = feedback

    def interrupted(self) -> str:
        return self._feedback


def ctrl_c_at(number: int) -> Callable[[], AbstractContextManager[None]]:
    """Return an `interruptible` whose block of this number (from 1) is interrupted as it begins."""
    entered = count(1)

    @contextmanager
    def interruptible() -> Iterator[None]:
        if next(entered) == number:
            raise KeyboardInterrupt
        yield

    return interruptible


class Answers(Allow):
    """An authorizer with scripted verdicts; errors among them are raised."""

    def __init__(self, verdicts: Iterable[Verdict | BaseException]) -> None:
        super().__init__()
        self._verdicts = iter(verdicts)

    def decide(self, proposal: Proposal) -> Verdict:
        self.asked.append(proposal)
        verdict = next(self._verdicts)
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict


class Silent:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.streamed = ""
        self.waits: list[tuple[str, float]] = []
        self.works: list[tuple[str, float]] = []
        self.proposals: list[Proposal] = []

    def text(self, delta: str) -> None:
        self.streamed += delta

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        self.waits.append((reason, seconds))

    def check_time_left(self) -> float:
        return float("inf")

    def working(self, what: str, seconds: float) -> None:
        self.works.append((what, seconds))

    def proposed(self, proposal: Proposal) -> None:
        self.proposals.append(proposal)


class Heard(Silent):
    """What a model tells while it works: it proposes nothing."""

    def proposed(self, proposal: Proposal) -> None:
        raise AssertionError("a model proposes nothing")


@dataclass(frozen=True)
class Commands:
    """Commands in their context, proposed and run as the loop does."""

    context: Context
    registry: Registry

    @property
    def root(self) -> Path:
        return self.context.workspace.root

    def call(self, name: str, /, **args: Any) -> Call:
        return self.registry.check(Call("1", name, args))

    def propose(self, name: str, /, **args: Any) -> Proposal:
        return self.registry.propose(self.call(name, **args), self.context)

    def preview(self, name: str, /, **args: Any) -> str:
        return self.propose(name, **args).preview

    def run(self, name: str, /, **args: Any) -> Result:
        return self.registry.execute(self.call(name, **args), self.context)

    def having(self, **context: Any) -> Self:
        """The same with other parts of the context."""
        return replace(self, context=replace(self.context, **context))

    def text(self, name: str, /, **args: Any) -> str:
        result = self.run(name, **args)
        assert result.ok, result.text
        return result.text

    def refusal(self, name: str, /, **args: Any) -> str:
        result = self.run(name, **args)
        assert not result.ok, result.text
        return result.text


def nobody_asked(question: str, timeout: float | None) -> str:
    """For commands of which none asks the user."""
    raise AssertionError(f"the user was asked: {question}")
