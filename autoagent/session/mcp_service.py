"""What other agents are served over MCP: the commands, and the long-term memory.

Each call of a command is a step of a run, authorized, guarded, undoable and in its log. Nobody can be asked here, as
the standard streams belong to the protocol: without `-c` only calls that a rule allows run; with it all do, except
those that the guard warns of, which need a rule.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autoagent.agent.authorize import Authorization
from autoagent.agent.budget import Budget
from autoagent.agent.execute import Execution
from autoagent.agent.progress import LoopGuard
from autoagent.agent.state import Events, Policy, State, Tools
from autoagent.commands import selection
from autoagent.commands.registry import Registry
from autoagent.core import command_schema
from autoagent.core.commands import Call, CommandSpec, Proposal, Verdict
from autoagent.core.errors import CommandError, ForUser, ModelError, ReplyError, StateError, StopRun
from autoagent.core.events import Decided, Ended, Event, Returned, RunStarted, Thought
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Completion, Thoughts, Usage
from autoagent.core.protocols import Model, Recorder
from autoagent.core.task import Goal, Outcome, Status, Task
from autoagent.core.tool_servers import ServerAnswer, ServerTool
from autoagent.safety.approval import Continuous, FailClosed, RuleAuthorizer
from autoagent.session import build
from autoagent.session.extension_hooks import hooked_authorizer, hooked_registry
from autoagent.session.plan import kept_settings, limits_of, said_settings
from autoagent.session.session import Session
from autoagent.settings import Settings
from autoagent.terminal.output import echo
from autoagent.text.quoting import EXPLANATION, marked

if TYPE_CHECKING:
    from autoagent.memory.living_memory import LivingMemory
    from autoagent.services.mcp.server import Loopback
    from autoagent.terminal.console import Console


WINDOW = 128_000  # tokens that another agent is taken to have, for how much one result may show
INSTRUCTIONS = (
    f"Commands of autoagent, which work in one folder. {EXPLANATION} A call that is refused was not run, and will be "
    "refused again: nobody is here to be asked."
)


class CommandService:
    """Carries out calls as steps of a run, which the console shows. Calls come from one thread."""

    def __init__(self, start: RunStarted, tools: Tools, policy: Policy, log: Recorder, console: Console) -> None:
        self._state = State(start, tools, policy, log)
        self._state.loop_guard = LoopGuard({})  # whoever calls decides what to repeat, and has no earlier step at hand
        self._registry = tools.registry
        self._user = Authorization(self._state, tools, policy, console)
        self._execution = Execution(self._state, tools, policy, self._user)
        self._show: Callable[[Event], None] = console.show

    def begin(self) -> None:
        """Record the start of the run."""
        self._show(self._state.record(self._state.start))

    def call(self, name: str, args: Mapping[str, Any]) -> ServerAnswer:
        """Authorize and run one call. Raises StopRun if a limit is reached or a signal ends the service."""
        state = self._state
        state.budget.check_command()
        state.step += 1
        try:
            call = self._registry.check(Call(str(state.step), name, args))
        except ReplyError as error:
            return ServerAnswer(str(error), failed=True)
        self._show(state.record(Thought(thoughts=Thoughts(), call=call, text="", usage=Usage())))
        answer = ServerAnswer("Refused.", failed=True)
        for event in self._events_of(call):
            self._show(event)
            if isinstance(event, Decided) and not event.allowed:
                answer = ServerAnswer(f"Refused, and not run: {event.reason}", failed=True)
            elif isinstance(event, Returned):
                answer = ServerAnswer(self._quoted(event), failed=not event.ok)
        return answer

    def end(self, outcome: Outcome) -> None:
        """End the programs that were started, and record the end."""
        for event in self._execution.close():
            self._show(event)
        self._show(self._state.record(Ended(status=outcome.status, reason=outcome.reason)))

    def _events_of(self, call: Call) -> Events:
        proposal = yield from self._user.authorize(call)
        if proposal is not None:
            yield from self._execution.run(proposal)

    def _quoted(self, event: Returned) -> str:
        """Return the result as the other agent is to see it: text from outside between marks."""
        source = event.meta.untrusted
        return marked(event.text, source, run=event.run, step=event.step) if source else event.text


class Unattended:
    """Refuses calls that no rule allows, as nobody can be asked."""

    def decide(self, proposal: Proposal) -> Verdict:
        """Refuse with advice."""
        reason = (
            f"{proposal.warning} Nobody can be asked here. Start `autoagent mcp serve` with --allow "
            f"{proposal.call.name} for this command, or with -c for all that the guard does not warn of."
        )
        return Verdict(False, "mcp serve", reason.strip())

    def interrupted(self) -> str:
        """End the service."""
        raise StopRun(Outcome(Status.INTERRUPTED, "Ended by Ctrl-C."))

    def accepts(self, claims: str) -> Verdict:
        """Accept nothing: nobody is there to ask."""
        return Verdict(False, "nobody")

    def waits_on(self, reason: str) -> bool:
        """Do not wait."""
        return False


class ModelWhenAsked:
    """The model for commands that ask one, opened on first use. Its errors fail the command."""

    def __init__(self, open_model: Callable[[], Model]) -> None:
        self._open = open_model
        self._model: Model | None = None

    def complete(self, *args: Any, **kwargs: Any) -> Completion:
        """Raises CommandError where the model cannot be opened or asked."""
        try:
            self._model = self._model or self._open()
            return self._model.complete(*args, **kwargs)
        except ForUser as error:
            raise CommandError(f"The model that this command asks cannot be used: {error}") from error

    def take_usage(self) -> Usage:
        """Return the usage besides completions since the last call."""
        return self._model.take_usage() if self._model else Usage()


def served_registry(settings: Settings) -> Registry:
    """Return the commands that can be served: those that need neither the user, nor a run, nor other agents.

    Raises SettingsError for a wanted name that is none.
    """
    registry = selection.choose(selection.available(settings), settings.commands, WINDOW)
    registry = hooked_registry(registry)
    return registry.only([spec.name for spec in registry.specs if _is_served(spec)], "it is of no use to another agent")


def _is_served(spec: CommandSpec) -> bool:
    effects = spec.effects
    return effects is None or not (
        effects.asks_user or effects.tells_agents or effects.ends_run or effects.pages_results
    )


def offer_of(spec: CommandSpec) -> ServerTool:
    """Return a command as it is served."""
    hints = {
        "reads only": spec.risk == "read",
        "destroys": spec.risk in ("irreversible", "run"),
        "reaches out": spec.risk not in ("read", "write"),
    }
    return ServerTool(name=spec.name, description=spec.label, schema=command_schema.arguments(spec), hints=hints)


def serve_commands(session: Session, console: Console, port: int | None = None) -> None:
    """Serve the commands on standard input and output until the client leaves, or over HTTP on a port.

    Raises ForUser if something cannot be opened, StopRun if a limit or a signal ends it.
    """
    from autoagent.log.event_log import EventLog
    from autoagent.safety.exfiltration_guard import ExfiltrationGuard
    from autoagent.safety.tainted_files import TaintedFiles
    from autoagent.services.mcp.server import serve
    from autoagent.session.restoring import open_snapshots
    from autoagent.session.services import MemoryParts, open_context
    from autoagent.terminal.signals import Interrupts
    from autoagent.workspace.lock import sole_writer

    settings = replace(session.settings, agents_at_once=0)  # there is nobody whose sub-agents they would be
    registry = served_registry(settings)
    start = _started(settings, registry, said_settings(session))
    workspace = build.workspace_of(start, settings)
    tainted = TaintedFiles(settings.state_dir / "taint.jsonl", workspace.root)
    guard = ExfiltrationGuard(tainted, selection.all_specs(), network=settings.sandbox_network)
    rulebook = build.rulebook_of(settings, workspace)
    guard.is_ruled = lambda call: rulebook.allows(call) is not None
    inner = Continuous() if settings.continuous else Unattended()
    parts = MemoryParts(trusted_only=build.recalls_trusted_only(settings, registry.specs))
    model: Any = ModelWhenAsked(lambda: build.open_model(settings, console))
    with (
        sole_writer(workspace.root, console.warn),
        open_context(settings, workspace, guard, model, model, parts, ask=_nobody, say=console.say) as context,
        EventLog.create(settings.state_dir, mask=build.mask_of(settings)) as log,
        Interrupts().installed() as interrupts,
    ):
        tools = Tools(registry, context, open_snapshots(settings.state_dir, workspace, console.warn))
        authorizer = FailClosed(hooked_authorizer(RuleAuthorizer(rulebook, inner)))
        budget = Budget(limits_of(settings, start.task))
        service = CommandService(start, tools, Policy(authorizer, guard, budget, interrupts.allowed), log, console)
        service.begin()
        outcome = Outcome(Status.FINISHED, "The client has left.")
        try:
            offers = [offer_of(spec) for spec in registry.specs]
            serve(
                "autoagent", INSTRUCTIONS, offers, service.call,
                interruptible=interrupts.allowed, http=place_of(settings, port),
            )  # fmt: skip
        except KeyboardInterrupt:
            outcome = Outcome(Status.INTERRUPTED, "Ended by Ctrl-C.")
        except StopRun as stop:
            outcome = stop.outcome
        service.end(outcome)
    if outcome.status != Status.FINISHED:
        raise StopRun(outcome)


def place_of(settings: Settings, port: int | None) -> Loopback | None:
    """Return where HTTP is served, None for standard input and output. Its token stays the same for a state folder.

    Raises StateError if the token cannot be kept.
    """
    from autoagent.services.mcp.server import Loopback

    if port is None:
        return None
    path = settings.state_dir / "mcp" / "token"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(secrets.token_urlsafe(32))
        token = path.read_text().strip()
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}.") from error
    if len(token) < 32:
        raise StateError(f"{path} holds no token; delete it.")
    return Loopback(port, token, lambda url: echo(f"{url}\nAuthorization: Bearer {token}"))


def _nobody(question: str, timeout: float | None) -> str:
    raise CommandError("Nobody can be asked here; decide yourself.")


def _started(settings: Settings, registry: Registry, said: Mapping[str, Any]) -> RunStarted:
    from autoagent import __version__

    return RunStarted(
        version=__version__,
        task=Task("MCP", "commands for other agents", (Goal("Run the commands that other agents call over MCP"),)),
        model="",
        window=WINDOW,
        reply_tokens=0,
        system="",
        system_tokens=0,
        asking="tools",
        commands=tuple(spec.name for spec in registry.specs),
        workspace=str(settings.workspace.absolute()),
        settings=kept_settings(settings, None, said),
    )


SOURCE = "an MCP client"
MOST = 100  # memories of one answer
MEMORY_INSTRUCTIONS = f"The long-term memory of autoagent, which lasts across runs and programs. {EXPLANATION}"

_COUNT = {"type": "integer", "description": f"how many, {MOST} at most", "minimum": 1, "maximum": MOST, "default": 10}
MEMORY_TOOLS = (
    ServerTool(
        name="search",
        description="Search the memory by meaning and by words; what is found grows firmer.",
        schema={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "what the memories are about"}, "count": _COUNT},
            "required": ["query"],
        },
        hints={"reads only": True, "reaches out": False},
    ),
    ServerTool(
        name="recent",
        description="List the memories that were stored or used last.",
        schema={"type": "object", "properties": {"count": _COUNT}},
        hints={"reads only": True, "reaches out": False},
    ),
    ServerTool(
        name="add",
        description="Remember a text.",
        schema={
            "type": "object",
            "properties": {"text": {"type": "string", "description": "what to remember, in full sentences"}},
            "required": ["text"],
        },
        hints={"reads only": False, "destroys": False, "reaches out": False},
    ),
    ServerTool(
        name="forget",
        description="Delete a memory for good.",
        schema={
            "type": "object",
            "properties": {"id": {"type": "integer", "description": "as search and recent give it"}},
            "required": ["id"],
        },
        hints={"reads only": False, "destroys": True, "reaches out": False},
    ),
)


class MemoryService:
    """Carries out the calls of another agent on the memory. Its additions count as text from outside.

    `mask` removes secrets before storing.
    """

    def __init__(self, memory: LivingMemory, mask: Callable[[str], str]) -> None:
        self._memory = memory
        self._mask = mask

    def call(self, tool: str, args: Mapping[str, Any]) -> ServerAnswer:
        """Carry out one call. Errors of the call or the memory are its answer."""
        try:
            return ServerAnswer(getattr(self, f"_{tool}")(**args))
        except (TypeError, ValueError) as error:
            return ServerAnswer(f"{tool} does not take these arguments: {error}", failed=True)
        except (ModelError, StateError) as error:
            return ServerAnswer(str(error), failed=True)

    def _search(self, query: str, count: int = 10) -> str:
        found = self._memory.recall(_text(query), _whole(count, MOST))
        return _listed(found.memories, "No memory fits.")

    def _recent(self, count: int = 10) -> str:
        return _listed(self._memory.store.listed(_whole(count, MOST)), "There are no memories yet.")

    def _add(self, text: str) -> str:
        id = self._memory.add(self._mask(_text(text)), source=SOURCE, trusted=False)
        if id is None:
            raise ValueError("the text is empty")
        return f"Remembered as {id}."

    def _forget(self, id: int) -> str:
        if not self._memory.forget(_whole(id)):
            raise ValueError(f"there is no memory {id}")
        return f"Forgot {id}."


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any, most: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TypeError(f"{value!r} is no whole number of 1 or more")
    return min(value, most) if most else value


def _listed(memories: Iterable[RetrievedMemory], none: str) -> str:
    return "\n\n".join(map(_shown, memories)) or none


def _shown(memory: RetrievedMemory) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(memory.t))
    text = memory.text if memory.trusted else marked(memory.text, memory.source, run=memory.run, step=memory.step)
    return f"[{memory.id}] {when}, {memory.kind}\n{text}"
