"""Authorize proposals, and let the user give feedback after Ctrl-C."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches

from autoagent.agent.progress import refusal
from autoagent.agent.state import Events, State
from autoagent.core.commands import Call, Change, Proposal, Verdict
from autoagent.core.errors import CommandError, ReplyError, StateError, StopRun
from autoagent.core.events import Decided, Event, Proposed
from autoagent.core.protocols import Listener
from autoagent.core.task import Outcome, Status
from autoagent.text.sanitize import shorten

_EARLIER_PREFIX = "earlier: "  # before the name of who allowed an end that was rejected; nobody is asked twice
_MAX_COMPARED_BYTES = 20_000  # from the beginning of a file about to be overwritten
MAX_PREVIEW_CHARACTERS = 100_000  # in the log


def lines_lost(before: str, after: str) -> int:
    """Return how many lines of a file its new text omits, or 0 if they are few or only changed."""
    old, new = (
        [line.strip() for line in text[:_MAX_COMPARED_BYTES].splitlines() if line.strip()] for text in (before, after)
    )
    lost_count = sum(line not in new and not get_close_matches(line, new, n=1) for line in old)
    return lost_count if lost_count > max(1, len(old) / 2) else 0


class Authorization:
    """Ask before a call runs. Time spent waiting for a person is not working time."""

    def __init__(self, state: State, listener: Listener) -> None:
        self._state = state
        self._authorizer = state.policy.authorizer
        self._listener = listener
        self.interruptible = state.policy.interruptible
        self._warned_paths: set[str] = set()  # user files that a small model wanted to delete
        self._has_insisted = False  # whether the model has proposed such a deletion again

    def authorize(self, call: Call) -> Generator[Event, None, Proposal | None]:
        """Return the proposal to run, with arguments the user may have changed, or None if it is refused."""
        state, proposal = self._state, self._propose(call)
        earlier = state.loop_guard.earlier_call(replace(proposal, call=state.logged(call)))
        reason = refusal(earlier, state.work.failing(state.guard.quote)) if earlier else ""
        with suppress(CommandError):  # such as a path outside of the workspace: the command will fail and say why
            reason = reason or self._reckless_write(proposal)
        if reason:
            yield state.record(Decided(call_id=call.id, allowed=False, by="loop guard", reason=reason))
            return None
        original_call = call
        verdict = yield from self._decide(proposal)
        while verdict.args is not None or (verdict.change is not None and not verdict.reason):
            if verdict.change is not None:
                yield from self._apply_change(verdict.change)
            try:
                if verdict.args is not None:
                    call = state.tools.registry.check(replace(call, args=verdict.args))
                shown_proposal = proposal = self._propose(call)
            except ReplyError as error:
                shown_proposal = replace(proposal, preview=f"Not changed: {error}")
            verdict = yield from self._decide(shown_proposal)
        is_by_user = verdict.by == "user"
        yield state.record(
            Decided(
                call_id=call.id,
                allowed=verdict.allowed,
                by=verdict.by,
                reason="" if is_by_user else verdict.reason,
                args=None if call is original_call else call.args,
                elsewhere=verdict.elsewhere,
            )
        )
        if verdict.change is not None:
            yield from self._apply_change(verdict.change)
        if is_by_user and verdict.reason:
            yield from state.add_feedback(verdict.reason)
        return proposal if verdict.allowed else None

    def _reckless_write(self, proposal: Proposal) -> str:
        """Return why a small model may not overwrite or delete this file, or '' if it may.

        Small models send an addition in place of the whole file, and delete a file to remove some of its lines.
        Deleting is refused once per file, until the model insists once.
        """
        state, effects = self._state, proposal.spec.effects
        if not state.start.style.guided or effects is None:
            return ""
        if proposal.risk == "irreversible" and any(p.meaning == "entry" for p in proposal.spec.parameters):
            path = state.tools.context.workspace.display(str(next(iter(proposal.call.args.values()))))
            self._has_insisted = self._has_insisted or path in self._warned_paths
            if self._has_insisted or self._is_created_by_run(path):
                return ""
            self._warned_paths.add(path)
            return (
                f"{proposal.call.name} takes away all of {path}, which was there before you began. To take out some of "
                "its lines, use edit_file. If the whole file is to go, delete it again."
            )
        if not effects.writes_whole:
            return ""
        path_arg, text = map(str, list(proposal.call.args.values())[:2])
        workspace = state.tools.context.workspace
        path, size = workspace.display(path_arg), workspace.size(path_arg)
        if not size or self._is_created_by_run(path):
            return ""
        if path not in state.work.known_paths:
            return f"{path} is there already, and you have not read it. Read it first, or write to another file."
        lost_count = lines_lost(workspace.read(path, _MAX_COMPARED_BYTES).decode("utf-8", "replace"), text)
        if size > _MAX_COMPARED_BYTES or not lost_count:
            return ""
        return (
            f"{lost_count} lines of {path} are not in your text: they would be lost. To keep them, use edit_file or "
            "append_to_file. To replace the whole file, delete it first."
        )

    def _is_created_by_run(self, path: str) -> bool:
        """Return whether the run created this file, or True if the snapshots are gone."""
        work, snapshots = self._state.work, self._state.tools.snapshots
        with suppress(StateError):  # the user has deleted the snapshots since
            return path in work.changed and (snapshots is None or snapshots.read(work.base, path) is None)
        return True

    def interrupted(self) -> Events:
        """Drop approvals given in advance, and ask the user how to go on after Ctrl-C."""
        with self._waiting_for_user():
            feedback = self._authorizer.interrupted()
        if feedback:
            yield from self._state.add_feedback(feedback)

    def should_wait(self, reason: str) -> bool:
        """Return whether the user wants to keep trying a model that does not answer."""
        with self._waiting_for_user():
            return self._authorizer.waits_on(reason)

    def accept(self, claims: str) -> Verdict:
        """Return the user's verdict on goals that nobody could verify."""
        with self._waiting_for_user():
            return self._authorizer.accepts(claims)

    def _apply_change(self, change: Change) -> Events:
        """Apply the user's change and yield the events it records."""
        events: list[Event] = []

        def record(event: Event) -> Event:
            events.append(self._state.record(event))
            return events[-1]

        change(record)
        yield from events

    def _propose(self, call: Call) -> Proposal:
        """Build the proposal for a checked call, with its preview, risk and warnings."""
        tools = self._state.tools
        proposal = self._state.guard.examine(tools.registry.propose(call, tools.context))
        if not proposal.guarded:
            return proposal
        places = ", ".join(proposal.guarded)
        warning = f"{places} would run as you later, without a question: git, an editor, a shell or a server does so."
        return replace(proposal, warning=f"{warning} {proposal.warning}".strip())

    def _decide(self, proposal: Proposal) -> Generator[Event, None, Verdict]:
        logged_call = self._state.logged(proposal.call)
        event = Proposed(
            call=logged_call,
            preview=shorten(proposal.preview, MAX_PREVIEW_CHARACTERS),
            warning=proposal.warning,
            masked=logged_call is not proposal.call,
            risk=proposal.risk,
        )
        while True:
            yield self._state.record(event)
            self._listener.proposed(proposal)
            if (allowed_by := self._state.work.allowed_by(proposal.call)) and not proposal.warning:
                return Verdict(True, f"{_EARLIER_PREFIX}{allowed_by.removeprefix(_EARLIER_PREFIX)}")
            try:
                with self.interruptible(), self._state.budget.time.idle():
                    return self._authorizer.decide(proposal)
            except KeyboardInterrupt:  # pressed before the question was shown
                yield from self.interrupted()

    @contextmanager
    def _waiting_for_user(self) -> Iterator[None]:
        """Stop the working time while the user is asked. Ctrl-C ends the run."""
        try:
            with self.interruptible(), self._state.budget.time.idle():
                yield
        except KeyboardInterrupt:
            raise StopRun(Outcome(Status.INTERRUPTED, "Ended by Ctrl-C.")) from None
