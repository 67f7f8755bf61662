"""The parts of extensions in a run, as one part, and the folder for their subcommands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autoagent.core.commands import Call, Proposal, Result, Verdict
from autoagent.core.errors import AutoagentError, CommandError
from autoagent.core.events import Event
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Authorizer, Embedder, Model
from autoagent.registry.parts import NO_PART, Place, PromptParts, RunOpening, RunPart, runs_alone
from autoagent.registry.plugins import plugins
from autoagent.safety.approval import AuthorizerWrapper, FailClosed
from autoagent.session.extension_hooks import passed_over
from autoagent.session.session import Session
from autoagent.session.session import claimed_state as claimed_state_of

if TYPE_CHECKING:
    from autoagent.commands.context import Context
    from autoagent.commands.registry import Registry


def read_place(flags: Mapping[str, Any] | None) -> Place:
    """Return the current folder for a subcommand that only reads. Report the values left out until it is trusted."""
    return Session.read(flags).place


def claimed_state(place: Place) -> AbstractContextManager[None]:
    """Make the state folder of a place before anything is written into it; see session.claimed_state."""
    return claimed_state_of(place.setting("state_dir"))


class RunParts(RunPart):
    """The parts of all extensions, each with the name of its extension."""

    def __init__(self, parts: Sequence[tuple[str, RunPart]] = ()) -> None:
        self._parts = parts

    @property
    def replaces_model(self) -> bool:
        return any(part.replaces_model for _, part in self._parts)

    @property
    def steps(self) -> RunPart:
        """The part of each step, NO_PART if there is none."""
        return self if self._parts else NO_PART

    def commands(self, say: Callable[[str], None], warn: Callable[[str], None]) -> Sequence[Any]:
        return [one for name, part in self._of("commands") for one in _asked(name, part.commands, say, warn) or ()]

    def model(self, opened: Callable[[], Model]) -> Model:
        """Return the model of the first part that has another one."""
        return next((part.model(opened) for _, part in self._parts if part.replaces_model), None) or opened()

    def embedder(self) -> Embedder | None:
        return next(filter(None, (_asked(name, part.embedder) for name, part in self._of("embedder"))), None)

    def shape(self, prompt: PromptParts) -> tuple[PromptParts, Sequence[Any]]:
        commands: list[Any] = []
        for name, part in self._of("shape"):
            prompt, added = _asked(name, part.shape, prompt) or (prompt, ())
            commands += added
        return prompt, commands

    def attach(self, context: Context, registry: Registry) -> None:
        """Let the parts use the run's model, and the commands that stay in the workspace."""

        def run(name: str, args: Mapping[str, Any]) -> str:
            call = registry.check(Call("plug-in", name, args))
            if not runs_alone(registry.spec(call.name)):
                raise CommandError(f"A plug-in may not run {call.name} by itself; the agent may be asked for it.")
            result = registry.execute(call, context)
            if not result.ok:
                raise CommandError(result.text)
            return result.text

        for name, part in self._of("begin"):
            _asked(name, part.begin, context.complete, run)

    def planning(self, messages: Sequence[Message]) -> Sequence[tuple[str, str]]:
        return [
            (_source(sender, name), text)
            for name, part in self._of("planning")
            for sender, text in _asked(name, part.planning, messages) or ()
        ]

    def reply(self, completion: Completion) -> Completion:
        for name, part in self._of("reply"):
            completion = _asked(name, part.reply, completion) or completion
        return completion

    def call(self, call: Call) -> Call:
        for name, part in self._of("call"):
            call = replace(_asked(name, part.call, call) or call, id=call.id)
        return call

    def result(self, call: Call, result: Result) -> Result:
        for name, part in self._of("result"):
            found = _asked(name, part.result, call, result) or result
            if found.text != result.text:
                source = result.meta.untrusted or _source(found.meta.untrusted, name)
                result = replace(result, text=found.text, meta=replace(result.meta, untrusted=source))
        return result

    def authorizer(self, asked: Authorizer) -> Authorizer:
        """Return the authorizer with the parts that answer for the user before it."""
        deciding = list(self._of("decide"))
        return FailClosed(_PartsDecide(asked, deciding)) if deciding else asked

    def asked(self, ask: Callable[[str, float | None], str]) -> Callable[[str, float | None], str]:
        """Return the function with which a command asks the user: a part that answers for the user, before."""

        def answer(question: str, timeout: float | None) -> str:
            found = (_asked(name, part.answer, question) for name, part in self._of("answer"))
            return next(filter(None, found), "") or ask(question, timeout)

        return answer

    def hear(self, event: Event) -> None:
        for name, part in self._of("hear"):
            _asked(name, part.hear, event)

    def _of(self, method: str) -> Iterator[tuple[str, RunPart]]:
        """Yield the parts that have a method of their own."""
        for name, part in self._parts:
            if getattr(type(part), method) is not getattr(RunPart, method):
                yield name, part


def _asked(name: str, method: Callable[..., Any], *args: Any) -> Any:
    """Call a method of a part. None, and one report, if it fails."""
    return passed_over(name, method.__name__, partial(method, *args), lambda: None)


def _source(named: str, extension: str) -> str:
    """Return the source of a text: the plug-in that an extension names, else the extension. It never is the user."""
    return named if named.startswith("the plug-in ") else f"the extension {extension}"


class _PartsDecide(AuthorizerWrapper):
    """Lets parts answer for the user where one call needs nothing but a yes. The guard's warnings are for the user."""

    def __init__(self, inner: Authorizer, parts: Sequence[tuple[str, RunPart]]) -> None:
        super().__init__(inner)
        self._parts = parts

    def decide(self, proposal: Proposal) -> Verdict:
        for name, part in self._parts:
            verdict = part.decide(proposal)
            if isinstance(verdict, Verdict) and not (verdict.allowed and proposal.warning):
                return Verdict(verdict.allowed, _source(verdict.by, name), verdict.reason)
        return super().decide(proposal)


@contextmanager
def opened_run_parts(session: Session, say: Callable[[str], None], warn: Callable[[str], None]) -> Iterator[RunParts]:
    """Open the extensions' parts of a run, and close them. Report those that fail.

    Raises what they raise for the user, such as SettingsError.
    """
    opening = RunOpening(place=session.place, flags=session.flags, say=say, warn=warn)
    parts: list[tuple[str, RunPart]] = []
    with ExitStack() as stack:
        for plugin in plugins("runs"):
            try:
                part = stack.enter_context(plugin.load()(opening))
            except AutoagentError:
                raise
            except Exception as error:  # the code of others; the run goes on without it
                warn(str(plugin.refuse(f"cannot take part: {type(error).__name__}: {error}")))
                continue
            if isinstance(part, RunPart):
                parts.append((plugin.called, part))
        yield RunParts(parts)
