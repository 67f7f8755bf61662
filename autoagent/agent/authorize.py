"""Authorization: asks for a verdict on a proposal, and gives the user the word after Ctrl-C."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches

from autoagent.agent.progress import refusal
from autoagent.agent.state import Events, Policy, State, Tools
from autoagent.core.commands import Call, Change, Proposal, Verdict
from autoagent.core.errors import ReplyError, StateError, StopRun
from autoagent.core.events import Decided, Event, Proposed
from autoagent.core.protocols import Listener
from autoagent.core.task import Outcome, Status
from autoagent.text.sanitize import shorten

_EARLIER = "earlier: "  # before the name of who had allowed an end that was put off: nobody is asked a second time

_COMPARED = 20_000  # bytes of a file that is to be overwritten

LOGGED_PREVIEW = 100_000  # characters of what a call would change


class Authorization:
    """Asks before a call runs. Waiting for a person does not count as working time."""

    def __init__(self, state: State, tools: Tools, policy: Policy, listener: Listener) -> None:
        self._state = state
        self._tools = tools
        self._authorizer = policy.authorizer
        self._listener = listener
        self.interruptible = policy.interruptible
        self._told_of: set[str] = set()  # files of the user's that a small model wanted to delete
        self._insists = False  # it has deleted one of these

    def authorize(self, call: Call) -> Generator[Event, None, Proposal | None]:
        """Return the call to run, perhaps with arguments the user changed, or None if it may not run."""
        state, proposal = self._state, self._propose(call)
        if earlier := state.loop_guard.barred(replace(proposal, call=state.logged(call))):
            reason = refusal(earlier, state.failing())
            yield state.record(Decided(call_id=call.id, allowed=False, by="loop guard", reason=reason))
            return None
        if reason := self._blind(proposal):
            yield state.record(Decided(call_id=call.id, allowed=False, by="loop guard", reason=reason))
            return None
        asked = call
        verdict = yield from self._decide(proposal)
        while verdict.args is not None or (verdict.change is not None and not verdict.reason):
            if verdict.change is not None:
                yield from self._make(verdict.change)
            try:
                if verdict.args is not None:
                    call = self._tools.registry.check(replace(call, args=verdict.args))
                shown = proposal = self._propose(call)
            except ReplyError as error:
                shown = replace(proposal, preview=f"Not changed: {error}")
            verdict = yield from self._decide(shown)
        by_user = verdict.by == "user"
        yield state.record(
            Decided(
                call_id=call.id,
                allowed=verdict.allowed,
                by=verdict.by,
                reason="" if by_user else verdict.reason,
                args=None if call is asked else call.args,
                elsewhere=verdict.elsewhere,
            )
        )
        if verdict.change is not None:
            yield from self._make(verdict.change)
        if by_user and verdict.reason:
            yield from state.heard(verdict.reason)
        return proposal if verdict.allowed else None

    def _blind(self, proposal: Proposal) -> str:
        """Return why a small model may not overwrite this file: it has not read it, or would drop most of its lines.

        Small models give the text that is to be added for that of the whole file, and delete a file for its lines: of
        each they are told that it would be gone, until they delete one all the same.
        """
        effects, state = proposal.spec.effects, self._state
        if not state.start.style.guided or effects is None:
            return ""
        if proposal.risk == "irreversible" and any(p.meaning == "entry" for p in proposal.spec.parameters):
            path = self._tools.context.workspace.display(str(next(iter(proposal.call.args.values()))))
            self._insists = self._insists or path in self._told_of
            if self._insists or (path in state.work.changed and self._is_new(path)):
                return ""
            self._told_of.add(path)
            return (
                f"{proposal.call.name} takes away all of {path}, which was there before you began. To take out some of "
                "its lines, use edit_file. If the whole file is to go, delete it again."
            )
        if not effects.writes_whole:
            return ""
        named, text = map(str, list(proposal.call.args.values())[:2])
        workspace = self._tools.context.workspace
        path, size = workspace.display(named), workspace.size(named)
        if not size or (path in state.work.changed and self._is_new(path)):
            return ""
        if path not in state.work.handled:
            return f"{path} is there already, and you have not read it. Read it first, or write to another file."
        before, after = (workspace.read(path, _COMPARED).decode("utf-8", "replace"), text[:_COMPARED])
        there, new = ([line.strip() for line in content.splitlines() if line.strip()] for content in (before, after))
        lost = sum(line not in new and not get_close_matches(line, new, n=1) for line in there)
        if size > _COMPARED or lost < 2 or lost <= len(there) / 2:
            return ""
        return (
            f"{path} has {len(there)} lines, and {lost} of them are not in your text: they would be lost. To keep "
            "them, use edit_file or append_to_file. To replace the whole file, delete it first."
        )

    def _is_new(self, path: str) -> bool:
        """Return whether a file was not there when work on the goals began, as far as that is known."""
        with suppress(StateError):  # the user has deleted the snapshots since
            return self._tools.snapshots is None or self._tools.snapshots.read(self._state.work.base, path) is None
        return True

    def interrupted(self) -> Events:
        """After Ctrl-C, drop any approvals given in advance and ask the user."""
        with self._asking():
            feedback = self._authorizer.interrupted()
        if feedback:
            yield from self._state.heard(feedback)

    def waits_on(self, reason: str) -> bool:
        """Return whether the user wants a model that does not answer to be asked again."""
        with self._asking():
            return self._authorizer.waits_on(reason)

    def accepts(self, claims: str) -> Verdict:
        """Return the user's word on goals that nobody could verify."""
        with self._asking():
            return self._authorizer.accepts(claims)

    def _make(self, change: Change) -> Events:
        """Let the change of the user's happen, and yield what it records."""
        recorded: list[Event] = []

        def record(event: Event) -> Event:
            recorded.append(self._state.record(event))
            return recorded[-1]

        change(record)
        yield from recorded

    def _propose(self, call: Call) -> Proposal:
        """Return the proposal for a checked call: its preview, its risk, and any warnings."""
        proposal = self._state.guard.examine(self._tools.registry.propose(call, self._tools.context))
        if not proposal.guarded:
            return proposal
        places = ", ".join(proposal.guarded)
        warning = f"{places} would run as you later, without a question: git, an editor, a shell or a server does so."
        return replace(proposal, warning=f"{warning} {proposal.warning}".strip())

    def _decide(self, proposal: Proposal) -> Generator[Event, None, Verdict]:
        logged = self._state.logged(proposal.call)
        event = Proposed(
            call=logged,
            preview=shorten(proposal.preview, LOGGED_PREVIEW),
            warning=proposal.warning,
            masked=logged is not proposal.call,
            risk=proposal.risk,
        )
        while True:
            yield self._state.record(event)
            self._listener.proposed(proposal)
            if (by := self._state.work.allowed_by(proposal.call)) and not proposal.warning:
                return Verdict(True, f"{_EARLIER}{by.removeprefix(_EARLIER)}")
            try:
                with self.interruptible(), self._state.budget.time.idle():
                    return self._authorizer.decide(proposal)
            except KeyboardInterrupt:  # it came before there was a question
                yield from self.interrupted()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask in the block, which is not working time. Ctrl-C ends the run."""
        try:
            with self.interruptible(), self._state.budget.time.idle():
                yield
        except KeyboardInterrupt:
            raise StopRun(Outcome(Status.INTERRUPTED, "Ended by Ctrl-C.")) from None
