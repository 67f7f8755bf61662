"""The model's turn: the prompt of a step, within the window and the limits, and the reply to it."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import islice

from autoagent.core.commands import CommandSpec
from autoagent.core.errors import CommandError, ContextOverflow, Unreachable
from autoagent.core.events import AgentMessage, Event, Prompted, Retried
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Completion, Message, Usage
from autoagent.core.protocols import Listener, Model
from autoagent.models.watch import Watch
from autoagent.prompt import Prompt
from autoagent.runs.budget import estimated_cost
from autoagent.steps.authorization import Authorization
from autoagent.steps.run_state import Events, Policy, RunState, Tools
from autoagent.steps.step_prompt import Moment, build_step_prompt
from autoagent.workspace.gate import NOT_ENTERED, shown

SHORTENINGS = 4  # of the history in one step, when the endpoint says that the prompt does not fit
FILES_SHOWN = 20  # names of files and folders that a small model is told of in each prompt
FILES_WALKED = 100  # of which they are taken
CUT_SHORT = "replies that were cut short"


class ModelTurn:
    """Asks the model. `setup_usage` is what it was paid before the run began."""

    def __init__(
        self,
        state: RunState,
        model: Model,
        tools: Tools,
        policy: Policy,
        user: Authorization,
        listener: Listener,
        setup_usage: Usage,
    ) -> None:
        self._state = state
        self._model = model
        self._registry = tools.registry
        self._workspace = tools.context.workspace
        self._names: tuple[str, ...] = ()  # of what lies in the workspace, for a small model
        self._hooks = tools.hooks
        self._clock = policy.clock
        self._user = user
        self._listener = listener
        self._pending_usage = setup_usage  # paid, and not yet in the log

    def ask(self, memories: tuple[RetrievedMemory, ...]) -> Generator[Event, None, Completion]:
        """Ask the model with all that fits; cut the history further if the endpoint finds the prompt too long."""
        state, shortened = self._state, 0
        shown = [Message("system", state.start.system), *state.history.messages]
        for sender, text in self._hooks.planning(shown):
            yield state.record(AgentMessage(sender=sender, text=text, data={"untrusted": sender}))
        while True:
            prompt = yield from self._prompt(memories)
            try:
                with self._user.interruptible():
                    completion = self._complete(prompt)
                break
            except KeyboardInterrupt:
                yield from self._user.interrupted()
            except Unreachable as error:
                yield from self.charge()
                if not self._user.waits_on(str(error)):
                    raise
                yield state.record(Retried(reason=f"The user waits on: {error}"))
            except ContextOverflow as error:
                if shortened == SHORTENINGS:
                    raise
                shortened += 1
                yield state.record(Retried(reason=f"{str(error).rstrip('.')}; the history is cut", shortened=True))
        for reason in completion.retries:
            yield state.record(Retried(reason=reason))
        yield from self.charge()
        return completion

    def charge(self, purpose: str = CUT_SHORT) -> Events:
        """Record what was paid beside the completions."""
        pending, self._pending_usage = self._pending_usage + self._model.take_usage(), Usage()
        yield from self._state.charge(purpose, pending)

    def _prompt(self, memories: tuple[RetrievedMemory, ...]) -> Generator[Event, None, Prompt]:
        """Build the prompt of this step, within the window and the budget, and announce it in the log."""
        state, now = self._state, self._clock()
        left = state.budget.left(now)
        zone = time.localtime(now).tm_gmtoff
        files = self._look_around() if state.start.asking == "brief" else ""
        moment = Moment(now, zone, left, files)
        prompt = build_step_prompt(state.start, state.history, memories, moment, count=state.count)
        expected, reply_tokens = self._expected(prompt)
        price = self._model.price
        state.budget.check(expected, reply_tokens, price, now)
        yield state.record(
            Prompted(
                sha256=prompt.sha256,
                tokens=prompt.tokens,
                messages=len(prompt.messages),
                at=now,
                estimate=estimated_cost(expected, reply_tokens, price),
                left=left,
                zone=zone,
                files=files,
            )
        )
        return prompt

    def _look_around(self) -> str:
        """Return the line of what lies in the workspace, and note the names that arguments may take.

        Names from outside are left to the commands that list them.
        """
        try:
            entries = list(islice(self._workspace.walk(".", NOT_ENTERED), FILES_WALKED + 1))
        except CommandError:  # the commands that need the folder say what is wrong with it
            self._names = ()
            return ""
        self._names = tuple(entry.path for entry in entries) if len(entries) <= FILES_WALKED else ()
        own = [entry for entry in entries if not self._state.guard.source_of(entry.path)]
        if not own:
            return "In the workspace: nothing yet."
        names = [shown(f"{entry.path}/" if entry.kind == "folder" else entry.path) for entry in own]
        more = ", and more" if len(names) > FILES_SHOWN else ""
        return f"In the workspace: {', '.join(names[:FILES_SHOWN])}{more}."

    @property
    def _offered(self) -> list[CommandSpec]:
        """The commands to offer now; a small model can name only files that are there where a file has to be."""
        offered = self._state.loop_guard.offered(self._registry.specs)
        return [_bound(spec, self._names) for spec in offered] if self._names else offered

    def _expected(self, prompt: Prompt) -> tuple[int, int]:
        """Estimate, in tokens as the endpoint counts them, the prompt and the reply to it."""
        history = self._state.history
        most = history.reply_tokens + self._model.reasoning_room
        return int(prompt.tokens * history.scale), min(most, self._state.budget.expected_reply)

    def _complete(self, prompt: Prompt) -> Completion:
        """Ask the model within what the limits leave; a retry that would pass them ends the run."""
        budget = self._state.budget
        sent, reply = self._expected(prompt)

        def before_retry() -> None:
            self._pending_usage += self._model.take_usage()
            budget.check_size(
                self._pending_usage.prompt + sent, self._pending_usage.completion + reply, self._model.price
            )

        return self._model.complete(
            prompt.messages,
            commands=self._offered,
            max_tokens=self._state.history.reply_tokens,
            at_most=budget.allowance(sent, self._model.price),
            listener=Watch(self._listener, lambda: budget.check_time(self._clock()), before_retry),
        )


def _bound(spec: CommandSpec, names: Sequence[str]) -> CommandSpec:
    """Return the command with these as the only values of arguments that name what is there already."""
    parameters = tuple(replace(p, choices=tuple(names)) if p.existing else p for p in spec.parameters)
    return spec if parameters == spec.parameters else replace(spec, parameters=parameters)
