"""Combine the parts that extensions take in a run, and describe the folder for their subcommands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autoagent.core.commands import Call, Result
from autoagent.core.errors import AutoagentError, CommandError
from autoagent.core.events import Event
from autoagent.core.frozen import dataclass
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Authorizer, Embedder, Model
from autoagent.registry.parts import NO_PART, Place, PromptParts, RunOpening, RunPart, runs_alone
from autoagent.registry.plugins import plugins
from autoagent.safety.approval import FailClosedAuthorizer
from autoagent.session.extension_hooks import HookedAuthorizer, ask_extension_first, call_hook, extension_source
from autoagent.session.offers import allowed_commands
from autoagent.session.session import Session
from autoagent.session.session import claimed_state as claimed_state_of
from autoagent.text.quoting import defuse
from autoagent.text.sanitize import escape, shorten

if TYPE_CHECKING:
    from autoagent.commands.context import Context
    from autoagent.commands.registry import Registry


def opened_place(flags: Mapping[str, Any] | None) -> Place:
    """Return the current folder for a subcommand that acts. Ask the user first whether to trust it."""
    return Session.open(flags).place


def read_place(flags: Mapping[str, Any] | None) -> Place:
    """Return the current folder for a read-only subcommand, and report untrusted values."""
    return Session.read(flags).place


def claimed_state(place: Place) -> AbstractContextManager[None]:
    """Create the state folder before anything is written into it; see session.claimed_state."""
    return claimed_state_of(place.setting("state_dir"))


@dataclass(frozen=True)
class RunParts(RunPart):
    """Combine the parts of all extensions, each with the name of its extension."""

    _parts: Sequence[tuple[str, RunPart]]
    _place: Place
    _warn: Callable[[str], None]

    @property
    def replaces_model(self) -> bool:
        return any(part.replaces_model for _, part in self._parts)

    @property
    def steps(self) -> RunPart:
        """Return the combined part that takes part in each step, or NO_PART."""
        methods = ("planning", "reply", "call", "result")
        return self if any(True for method in methods for _ in self._parts_with(method)) else NO_PART

    def commands(self, say: Callable[[str], None], warn: Callable[[str], None]) -> Sequence[Any]:
        commands: list[Any] = []
        if not self._place.is_scenario:
            for name, part in self._parts_with("offers"):
                for offer in _call_part(name, part.offers, say, warn) or ():
                    allow = partial(allowed_commands, self._place, offer, warn)
                    commands += call_hook(name, "offers", allow, list, raises=(AutoagentError,))
        for name, part in self._parts_with("commands"):
            commands += self._without_taken_names(name, "commands", _call_part(name, part.commands, say, warn) or ())
        return commands

    def _without_taken_names(self, name: str, method: str, commands: Iterable[Any]) -> Sequence[Any]:
        """Return an extension's commands, and report those that are left out because their name is taken."""
        from autoagent.commands.selection import NAME_TAKEN, with_free_names

        taken = {used_name for spec in self._place.specs() for used_name in (spec.name, *spec.aliases)}
        select = partial(with_free_names, commands, taken)
        free, left_out = call_hook(name, method, select, lambda: ((), ()), raises=(AutoagentError,))
        if left_out:
            self._warn(f"The extension {name} adds {', '.join(left_out)}, which is left out: {NAME_TAKEN}.")
        return free

    def model(self, opened: Callable[[], Model]) -> Model:
        """Return the model of the first part that replaces it."""
        return next((part.model(opened) for _, part in self._parts if part.replaces_model), None) or opened()

    def embedder(self) -> Embedder | None:
        embedders = (_call_part(name, part.embedder) for name, part in self._parts_with("embedder"))
        return next(filter(None, embedders), None)

    def shape(self, prompt: PromptParts) -> tuple[PromptParts, Sequence[Any]]:
        commands: list[Any] = []
        for name, part in self._parts_with("shape"):
            prompt, added = _call_part(name, part.shape, prompt) or (prompt, ())
            commands += self._without_taken_names(name, "shape", added)
        return prompt, commands

    def attach(self, context: Context, registry: Registry) -> None:
        """Give the parts access to the run's model, and to commands that stay in the workspace."""

        def run(name: str, args: Mapping[str, Any]) -> str:
            call = registry.check(Call("plug-in", name, args))
            if not runs_alone(registry.spec(call.name)):
                raise CommandError(f"A plug-in may not run {call.name} by itself; the agent may be asked for it.")
            result = registry.execute(call, context)
            if not result.ok:
                raise CommandError(result.text)
            return result.text

        for name, part in self._parts_with("begin"):
            _call_part(name, part.begin, context.complete, run)

    def planning(self, messages: Sequence[Message]) -> Sequence[tuple[str, str]]:
        return [
            (_source(sender, name), text)
            for name, part in self._parts_with("planning")
            for sender, text in _call_part(name, part.planning, messages) or ()
        ]

    def reply(self, completion: Completion) -> Completion:
        for name, part in self._parts_with("reply"):
            completion = _call_part(name, part.reply, completion) or completion
        return completion

    def call(self, call: Call) -> Call:
        for name, part in self._parts_with("call"):
            call = replace(_call_part(name, part.call, call) or call, id=call.id)
        return call

    def result(self, call: Call, result: Result) -> Result:
        for name, part in self._parts_with("result"):
            new_result = _call_part(name, part.result, call, result) or result
            if new_result.text != result.text:
                source = result.meta.untrusted or _source(new_result.meta.untrusted, name)
                meta = replace(result.meta, untrusted=source, private=True)  # the extension may have read anything
                result = replace(result, text=str(new_result.text), meta=meta)
        return result

    def authorizer(self, asked: Authorizer) -> Authorizer:
        """Return the authorizer, preceded by the parts that answer for the user."""
        for name, part in reversed(list(self._parts_with("decide"))):
            asked = FailClosedAuthorizer(HookedAuthorizer(asked, partial(ask_extension_first, name, part.decide)))
        return asked

    def asked(self, ask: Callable[[str, float | None], str]) -> Callable[[str, float | None], str]:
        """Return a function that asks the parts first, then the user."""

        def answer(question: str, timeout: float | None) -> str:
            answers = (_call_part(name, part.answer, question) for name, part in self._parts_with("answer"))
            return next(filter(None, answers), "") or ask(question, timeout)

        return answer

    def hear(self, event: Event) -> None:
        for name, part in self._parts_with("hear"):
            _call_part(name, part.hear, event)

    def _parts_with(self, method: str) -> Iterator[tuple[str, RunPart]]:
        """Yield the parts that override a method."""
        for name, part in self._parts:
            if getattr(type(part), method) is not getattr(RunPart, method):
                yield name, part


def _call_part(name: str, method: Callable[..., Any], *args: Any) -> Any:
    """Call a method of a part. If it fails, report that once and return None."""
    return call_hook(name, method.__name__, partial(method, *args), lambda: None, raises=(AutoagentError,))


def _source(label: str, extension: str) -> str:
    """Return the source of a text: the extension, with its own label."""
    part = shorten(" ".join(escape(defuse(label)).split()), 80)
    return f"{extension_source(extension)}: {part}" if part else extension_source(extension)


@contextmanager
def open_run_parts(session: Session, say: Callable[[str], None], warn: Callable[[str], None]) -> Iterator[RunParts]:
    """Open and close the extensions' parts of a run. Report those that fail, but raise their errors for the user."""
    opening = RunOpening(place=session.place, flags=session.flags, say=say, warn=warn)
    parts: list[tuple[str, RunPart]] = []
    with ExitStack() as stack:
        for plugin in plugins("runs"):
            try:
                part = stack.enter_context(plugin.load()(opening))
            except AutoagentError:
                raise
            except Exception as error:  # foreign code; the run goes on without it
                warn(str(plugin.refuse(f"cannot take part: {type(error).__name__}: {error}")))
                continue
            if isinstance(part, RunPart):
                parts.append((plugin.description, part))
        yield RunParts(parts, session.place, warn)
