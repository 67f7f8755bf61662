"""Run extensions' hooks around model, verdict, command, memory and screen.

A failing hook is reported once and skipped, but a failing hook that decides refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from autoagent.core.commands import Call, Proposal, Result, Verdict
from autoagent.core.events import Event
from autoagent.core.frozen import dataclass
from autoagent.core.memory import RecallHooks, Reranker, RetrievedMemory
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Authorizer, Memory, Model
from autoagent.registry.plugins import extensions
from autoagent.registry.registrations import HOST_HOOKS
from autoagent.safety.approval import AuthorizerWrapper
from autoagent.terminal.output import echo

if TYPE_CHECKING:
    from autoagent.commands.registry import Registry

_HOST = "host program"  # extensions' names contain " of "


def hooks(place: str) -> Sequence[tuple[str, Callable[..., Any]]]:
    """Return the hooks of a place with their owners' names: that of a host program, then those of extensions."""
    named_hooks = [(_HOST, HOST_HOOKS[place])] if place in HOST_HOOKS else []
    for extension in extensions():
        named_hooks += [(extension.plugin.description, hook) for hook in extension.registrations.hooks.get(place, ())]
    return named_hooks


def report_extensions(say: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Report the extensions of the run with their hooks, and those that cannot be used."""
    for extension in extensions():
        if extension.problem:
            warn(extension.problem)
        elif extension.registrations.hook_names:
            hooks = ", ".join(extension.registrations.hook_names)
            say(f"The extension {extension.plugin.description} takes part: {hooks}.")


def hooked_authorizer(authorizer: Authorizer) -> Authorizer:
    """Return the authorizer, preceded by the extensions' authorizers and wrapped in their hooks."""
    for name, decide in reversed(hooks("decide")):
        authorizer = HookedAuthorizer(authorizer, partial(ask_extension_first, name, decide))
    for name, hook in reversed(hooks("authorize")):
        authorizer = HookedAuthorizer(authorizer, partial(_authorize_hooked, name, hook))
    return authorizer


def hooked_registry(registry: Registry) -> Registry:
    """Return the registry with its commands wrapped in the hooks."""
    for name, hook in reversed(hooks("execute")):
        registry = registry.wrapped_by(partial(_execute_hooked, name, hook))
    return registry


def hooked_memory(memory: Memory) -> Memory:
    """Return the memory with its `add` wrapped in the hooks."""
    for name, hook in reversed(hooks("store")):
        memory = cast(Memory, _HookedMemory(memory, name, hook))
    return memory


def recall_hooks(sign: int = 1) -> RecallHooks:
    """Return the hooks that take part in the recalls of a memory. With `sign` -1, they see negative ids."""

    def signed(memories: Sequence[RetrievedMemory]) -> list[RetrievedMemory]:
        return [replace(memory, id=sign * memory.id) for memory in memories]

    def values(
        place: str, name: str, hook: Callable[..., Mapping[int, float]], query: str, given: Any
    ) -> dict[int, float]:
        memories = (lambda: signed(given())) if callable(given) else signed(given)
        numbers = _call_or_none(
            name, place, lambda: {sign * int(id): float(value) for id, value in hook(query, memories).items()}
        )
        return {id: value for id, value in (numbers or {}).items() if id > 0 and math.isfinite(value)}

    def order(name: str, hook: Reranker, query: str, memories: Sequence[RetrievedMemory]) -> list[int]:
        return _call_or_none(name, "rerank", lambda: [sign * int(id) for id in hook(query, signed(memories))]) or []

    return RecallHooks(
        [partial(values, "retrieve", *hook) for hook in hooks("retrieve")],
        [partial(values, "gate", *hook) for hook in hooks("gate")],
        [partial(order, *hook) for hook in hooks("rerank")],
    )


def notify_memory_hooks(place: str, ids: Sequence[int], *dream: str) -> None:
    """Call the hooks after a `forget` or a `sleep`."""
    for name, hook in hooks(place):
        _call_or_none(name, place, partial(hook, tuple(ids), *dream))


def notify_listeners(event: Event) -> None:
    """Pass an event to every listener."""
    for name, listener in hooks("listen"):
        _call_or_none(name, "listener", partial(listener, event))


def render(event: Event) -> str | None:
    """Return an extension's rendering of an event, or None."""
    for extension in extensions():
        if (render := extension.registrations.renderers.get(event.type)) is not None:
            text = _call_or_none(extension.plugin.description, "renderer", partial(render, event))
            if text is not None:
                return str(text)
    return None


@dataclass(frozen=True, slots=True)
class HookedModel:
    """Ask a model with the hooks around its turn, looked up at each turn. Satisfies Model."""

    _model: Model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def complete(self, messages: Sequence[Message], **kwargs: Any) -> Completion:
        ask = partial(self._model.complete, messages, **kwargs)
        for name, hook in reversed(hooks("think")):
            ask = partial(_think_hooked, name, hook, tuple(messages), ask)
        return ask()


def _think_hooked(
    name: str, hook: Callable[..., Any], messages: tuple[Message, ...], ask: Callable[[], Completion]
) -> Completion:
    inner: _CallOnce[Completion] = _CallOnce(ask)
    completion = call_hook(name, "think", lambda: hook(messages, inner), inner)
    return completion if isinstance(completion, Completion) else inner()


class HookedAuthorizer(AuthorizerWrapper):
    """Decide by a function of the proposal and of the wrapped authorizer's decision. Its errors propagate."""

    def __init__(self, inner: Authorizer, decide: Callable[[Proposal, Callable[[], Verdict]], Verdict]) -> None:
        super().__init__(inner)
        self._decide = decide

    def decide(self, proposal: Proposal) -> Verdict:
        return self._decide(proposal, partial(self._inner.decide, proposal))


def ask_extension_first(
    name: str, decide: Callable[..., Any], proposal: Proposal, otherwise: Callable[[], Verdict]
) -> Verdict:
    """Ask an extension's authorizer first.

    It may answer for the user, except that only the user may allow a call with a warning.
    """
    verdict = decide(proposal)
    if isinstance(verdict, Verdict) and not (verdict.allowed and proposal.warning):
        return _plain_verdict(name, verdict)
    return otherwise()


def _authorize_hooked(name: str, hook: Callable[..., Any], proposal: Proposal, ask: Callable[[], Verdict]) -> Verdict:
    """Let a hook refuse an allowed call."""
    inner: _CallOnce[Verdict] = _CallOnce(ask)
    verdict = hook(proposal, inner)
    refuses = isinstance(verdict, Verdict) and not verdict.allowed and verdict.args is None
    return _plain_verdict(name, verdict) if refuses and (inner.value is None or inner.value.allowed) else inner()


def extension_source(name: str) -> str:
    """Return an extension's name as a source and decider. No other name has this prefix."""
    return f"the extension {name}"


def _plain_verdict(name: str, verdict: Verdict) -> Verdict:
    """Reduce an extension's verdict to yes or no, since only the user may edit a call or change the run."""
    return Verdict(verdict.allowed, extension_source(name), verdict.reason)


@dataclass(frozen=True, slots=True)
class _HookedMemory:
    _memory: Memory
    _name: str
    _hook: Callable[..., Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def __len__(self) -> int:
        return len(self._memory)

    def add(self, text: str, **kwargs: Any) -> int | None:
        calls: list[_CallOnce[int | None]] = []

        def inner(new_text: str) -> int | None:
            calls.append(_CallOnce(partial(self._memory.add, str(new_text), **kwargs)))
            return calls[-1]()

        def fallback() -> int | None:
            return calls[-1]() if calls else self._memory.add(text, **kwargs)

        memory_id = call_hook(self._name, "store", lambda: self._hook(text, inner), fallback)
        return memory_id if memory_id is None or isinstance(memory_id, int) else fallback()


def _execute_hooked(name: str, hook: Callable[..., Any], call: Call, run: Callable[[], Result]) -> Result:
    """Run a command with a hook around it. The result keeps its labels."""
    inner: _CallOnce[Result] = _CallOnce(run)
    result = call_hook(name, "execute", lambda: hook(call, inner), inner)
    if not isinstance(result, Result):
        return inner()
    original = inner.value
    if original is not None and result.text == original.text:
        return replace(original, ok=result.ok and original.ok)
    meta = original.meta if original is not None else replace(result.meta, finished=None)
    labels = replace(meta, untrusted=meta.untrusted or extension_source(name), private=True)
    return Result(call.id, result.ok and (original is None or original.ok), str(result.text), labels)


Value = TypeVar("Value")


class _CallOnce(Generic[Value]):
    """Call a function once, and return or raise the same result afterwards."""

    def __init__(self, function: Callable[[], Value]) -> None:
        self._function = function
        self.value: Value | None = None  # until it has returned
        self._error: BaseException | None = None

    def __call__(self) -> Value:
        if self._error is not None:
            raise self._error
        if self.value is None:
            try:
                self.value = self._function()
            except BaseException as error:  # raised at the next call, too, since a hook may have swallowed it
                self._error = error
                raise
        return self.value


Errors = tuple[type[Exception], ...]


def call_hook(
    name: str, place: str, hook: Callable[[], Value], fallback: Callable[[], Value], *, raises: Errors = ()
) -> Value:
    """Call a hook, or `fallback` if it fails. The errors in `raises` propagate, and so do those of `fallback`."""
    try:
        return hook()
    except raises:
        raise
    except Exception as error:  # foreign code; the run goes on without it
        value = fallback()  # raises the error of a wrapped function again, which is not to be reported as the hook's
        _report_once(name, place, type(error).__name__)
        return value


def _call_or_none(name: str, place: str, hook: Callable[[], Value]) -> Value | None:
    """Call a hook that wraps nothing. Return None if it fails in any way."""
    return call_hook(name, place, hook, lambda: None)


@cache
def _report_once(name: str, place: str, problem: str) -> None:
    owner = name if name == _HOST else f"extension {name}"
    echo(f"autoagent: The {owner} fails ({place}: {problem}); the run goes on without it here.", err=True)
