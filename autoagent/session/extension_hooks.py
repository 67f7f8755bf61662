"""The hooks of extensions, where they belong: around the model, the verdict, the command and the memory, and on screen.

A hook that fails is named once and passed over. One that decides refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from autoagent.core.commands import Call, Proposal, Result, Verdict
from autoagent.core.errors import AutoagentError
from autoagent.core.events import Event
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Authorizer, Memory, Model
from autoagent.registry.plugins import extensions
from autoagent.registry.registrations import GUESTS
from autoagent.safety.approval import AuthorizerWrapper
from autoagent.terminal.output import echo

if TYPE_CHECKING:
    from autoagent.commands.registry import Registry

Hooks = Sequence[tuple[str, Callable[..., Any]]]
"""Hooks, each with what its extension is called."""


def hooks(place: str) -> Hooks:
    """Return the hooks of a place, in the order of the extensions."""
    own = [("guest", GUESTS[place])] if place in GUESTS else []
    return [*own, *((one.plugin.called, hook) for one in extensions() for hook in one.added.hooks.get(place, ()))]


def tell_extensions(say: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Report the extensions of the run with their parts, and those that cannot be used."""
    for one in extensions():
        if one.problem:
            warn(one.problem)
        elif one.added.reaches:
            say(f"The extension {one.plugin.called} takes part: {', '.join(one.added.reaches)}.")


def hooked_model(model: Model) -> Model:
    """Return the model with the hooks around its turn. They are looked for at the first one, as that takes time which
    the first question does not have.
    """
    return cast(Model, _HookedModel(metered(model)))


def metered(model: Model) -> Model:
    """Return the model as a program that takes part in this process wraps it."""
    return cast(Model, GUESTS["model"](model)) if "model" in GUESTS else model


def hooked_authorizer(authorizer: Authorizer) -> Authorizer:
    """Return the authorizer with those of extensions before it, and their hooks around it."""
    deciding, around = hooks("decide"), hooks("authorize")
    return _HookedAuthorizer(authorizer, deciding, around) if deciding or around else authorizer


def hooked_registry(registry: Registry) -> Registry:
    """Return the registry with the hooks around its commands."""
    for name, hook in hooks("execute"):
        registry = registry.around(partial(_executed, name, hook))
    return registry


def hooked_memory(memory: Memory) -> Memory:
    """Return the memory with the hooks around its storing."""
    around = hooks("store")
    return cast(Memory, _HookedMemory(memory, around)) if around else memory


def heard(event: Event) -> None:
    """Let every listener hear an event."""
    for name, hear in hooks("listen"):
        try:
            hear(event)
        except Exception as error:  # the code of others; the run goes on
            _told(name, "listener", type(error).__name__)


def rendered(event: Event) -> str | None:
    """Return the text that an extension shows for an event, or None where none does."""
    for one in extensions():
        if (render := one.added.renderers.get(event.type)) is not None:
            try:
                text = render(event)
            except Exception as error:  # the code of others; it is shown as ever
                _told(one.plugin.called, "renderer", type(error).__name__)
            else:
                if text is not None:
                    return str(text)
    return None


class _HookedModel:
    """A model in which hooks stand around each completion."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def complete(self, messages: Sequence[Message], **kwargs: Any) -> Completion:
        def ask(left: Hooks) -> Completion:
            if not left:
                return self._model.complete(messages, **kwargs)
            (name, hook), *rest = left
            inner: _Once[Completion] = _Once(lambda: ask(rest))
            found = passed_over(name, "think", lambda: hook(tuple(messages), inner), inner)
            return found if isinstance(found, Completion) else inner()

        return ask(hooks("think"))


class _HookedAuthorizer(AuthorizerWrapper):
    """Asks the authorizers of extensions first, and lets hooks refuse an allowed call. Their errors propagate."""

    def __init__(self, inner: Authorizer, deciding: Hooks, around: Hooks) -> None:
        super().__init__(inner)
        self._deciding = deciding
        self._around = around

    def decide(self, proposal: Proposal) -> Verdict:
        def decided(left: Hooks) -> Verdict:
            if not left:
                return self._decided(proposal)
            (name, hook), *rest = left
            inner: _Once[Verdict] = _Once(lambda: decided(rest))
            verdict = hook(proposal, inner)
            refuses = isinstance(verdict, Verdict) and not verdict.allowed and verdict.args is None
            if refuses and (inner.value is None or inner.value.allowed):
                return _own(cast(Verdict, verdict), name)
            return inner()

        return decided(self._around)

    def _decided(self, proposal: Proposal) -> Verdict:
        for name, decide in self._deciding:
            verdict = decide(proposal)
            if isinstance(verdict, Verdict) and not (verdict.allowed and proposal.warning):
                return _own(verdict, name)
        return self._inner.decide(proposal)


def _own(verdict: Verdict, name: str) -> Verdict:
    """Reduce an extension's verdict to yes or no. Only the user edits a call, changes the run and answers."""
    return Verdict(verdict.allowed, name, verdict.reason)


class _HookedMemory:
    """A memory with hooks around its storing."""

    def __init__(self, memory: Memory, around: Hooks) -> None:
        self._memory = memory
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def __len__(self) -> int:
        return len(self._memory)

    def add(self, text: str, **kwargs: Any) -> int | None:
        def keep(left: Hooks, kept: str) -> int | None:
            if not left:
                return self._memory.add(kept, **kwargs)
            (name, hook), *rest = left
            done: list[int | None] = []

            def inner(changed: str) -> int | None:
                done.append(keep(rest, str(changed)))
                return done[-1]

            def instead() -> int | None:
                return done[-1] if done else keep(rest, kept)

            found = passed_over(name, "store", lambda: hook(kept, inner), instead)
            return found if found is None or isinstance(found, int) else instead()

        return keep(self._around, text)


def _executed(name: str, hook: Callable[..., Any], call: Call, run: Callable[[], Result]) -> Result:
    """Run a command with a hook around it. The labels of the result stay."""
    inner: _Once[Result] = _Once(run)
    found = passed_over(name, "execute", lambda: hook(call, inner), inner)
    if not isinstance(found, Result):
        return inner()
    known = inner.value
    if known is not None and found.text == known.text:
        return replace(known, ok=found.ok and known.ok)
    meta = known.meta if known is not None else replace(found.meta, finished=None)
    changed = replace(meta, untrusted=meta.untrusted or f"the extension {name}", private=True)
    return Result(call.id, found.ok and (known is None or known.ok), str(found.text), changed)


Value = TypeVar("Value")


class _Once(Generic[Value]):
    """Calls a function once, and returns or raises the same afterwards.

    `value` is its result, or None if it has not returned.
    """

    def __init__(self, do: Callable[[], Value]) -> None:
        self._do = do
        self.value: Value | None = None
        self._raised: BaseException | None = None

    def __call__(self) -> Value:
        if self._raised is not None:
            raise self._raised
        if self.value is None:
            try:
                self.value = self._do()
            except BaseException as error:  # raised again, as a hook may have kept it from whoever it is for
                self._raised = error
                raise
        return self.value


def passed_over(name: str, place: str, hook: Callable[[], Any], instead: Callable[[], Any]) -> Any:
    """Call a hook, or do without it if it fails. Errors of the wrapped function propagate."""
    try:
        return hook()
    except (AutoagentError, OSError, KeyboardInterrupt):
        raise
    except Exception as error:  # the code of others; the run goes on without it
        _told(name, place, type(error).__name__)
        return instead()


@cache
def _told(name: str, place: str, problem: str) -> None:
    """Report the failure of a hook, once."""
    why = f"{place}: {problem}"
    echo(f"autoagent: The extension {name} fails ({why}); the run goes on without it here.", err=True)
