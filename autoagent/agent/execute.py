"""The execution of a command: snapshots around it, its result as the model is shown it, the goals checked after it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace

from autoagent.agent.authorize import Authorization
from autoagent.agent.progress import shown_before
from autoagent.agent.state import Events, Policy, State, Tools
from autoagent.commands.context import Context
from autoagent.core.commands import Call, Proof, Proposal, Result, ResultMeta, Verdict
from autoagent.core.errors import CommandError, StateError
from autoagent.core.events import Event, Returned, Snapshot, Started, SystemNotice
from autoagent.core.services import ONE_HOST, BackgroundProcess
from autoagent.core.task import GoalVerdict, Outcome, Status
from autoagent.workspace.gate import Workspace

MAY_HAVE_RUN = (
    "The program ended while this command ran: it may have run, wholly or in part. Look before you repeat it."
)


class Execution:
    """Runs authorized calls and records their results."""

    def __init__(
        self, state: State, tools: Tools, policy: Policy, user: Authorization, judge: Judge | None = None
    ) -> None:
        self._state = state
        self._registry = tools.registry
        self._context = replace(tools.context, pause=self._pause, ask=self._ask)
        self._let_pass, self._ask_user = tools.context.pause, tools.context.ask
        self._snapshots = tools.snapshots
        self._part = tools.part
        self._clock = policy.clock
        self._user = user
        self.ending = Ending(state, policy, self._check_goals, judge, user.accepts)

    def run(self, proposal: Proposal) -> Generator[Event, None, ResultMeta]:
        """Run the command."""
        state, call = self._state, proposal.call
        effects, changing = proposal.spec.effects, proposal.risk != "read"
        whole = effects is None or effects.runs_programs or bool(self._running())
        if changing:
            yield from self.snapshot(passing=True, whole=whole)
        before = state.work.tree
        yield state.record(Started(call=call), passing=not changing)  # a look lost in a power cut is repeated
        began, interrupted = self._clock(), False
        seen = state.guard.observe(call)
        workspace = self._context.workspace.observed(seen, proposal.guarded)
        ONE_HOST.set(bool(proposal.warning))
        try:
            with self._user.interruptible():
                result = self._registry.execute(call, self._context_of(proposal, workspace))
        except KeyboardInterrupt:
            interrupted = True
            result = Result(call.id, False, "Interrupted by the user; it may have run in part.")
        if not interrupted and result.meta.finished is None:
            result = self._part.result(call, result)
        workspace.watch.accept(proposal.guarded)
        result = yield from self._as_shown(call, result, workspace)
        seconds = self._clock() - began
        if changing:
            yield from self.snapshot(passing=True, whole=whole)
            result = self._with_changes(proposal, result, before)
        result = state.guard.label(call, result, seen)
        data = result.meta.to_json()
        yield state.record(Returned(call_id=call.id, ok=result.ok, text=result.text, data=data, seconds=seconds))
        yield from state.charge(call.name, self._context.take_usage())
        if state.work.stale and not interrupted:
            yield from self._check_goals()
            if state.work.tree:  # checks are programs too: what they leave was not changed by hand
                yield from self.snapshot()
        if interrupted:
            yield from self._user.interrupted()
        return (yield from self.ended(result.ok and not interrupted, result.meta))

    def ended(self, ok: bool, meta: ResultMeta) -> Generator[Event, None, ResultMeta]:
        """Return the metadata of a result. Once the one file of the task is written and right, the end with it."""
        state = self._state
        file, goals = state.start.task.file, state.start.task.goals
        if not (file and ok):
            return meta
        if any(goal.check and number not in state.work.met for number, goal in enumerate(goals)):
            yield from self._check_goals()
        met = all(state.work.met.get(number) for number, goal in enumerate(goals) if goal.check)
        return replace(meta, finished=f"{file} is written.") if met else meta

    def cut_off(self, call: Call) -> Events:
        """Record a call that was running when the program ended: its result is unknown, its file changes are seen."""
        state, before, changed = self._state, self._state.work.before, []
        if self._snapshots is not None and before:
            yield from self.snapshot(passing=True)
            with suppress(StateError):  # the user has deleted the snapshots since
                changed = self._snapshots.changed(before, state.work.tree)
        if planted := [path for path in changed if self._context.workspace.watch.names.runs_later(path)]:
            text = f"Look at {', '.join(planted)}: a command that was cut off may have written what runs as you later."
            yield state.record(SystemNotice(text=text))
        data = state.guard.cut_off(call, changed).to_json()
        yield state.record(Returned(call_id=call.id, ok=False, text=MAY_HAVE_RUN, data=data, known=False))

    def snapshot(self, *, passing: bool = False, whole: bool = True) -> Events:
        """Snapshot the workspace if it has changed since the last snapshot.

        `passing`: a synced event follows at once, so that this one need not be synced. `whole` as in Snapshots.
        """
        if self._snapshots is not None and (tree := self._snapshots.take(whole=whole)) != self._state.work.tree:
            yield self._state.record(Snapshot(tree=tree), passing=passing)

    def close(self) -> Events:
        """End the programs that were started and keep the workspace as they leave it, if snapshots are kept."""
        if self._snapshots is None or not self._state.work.tree:
            return
        for program in self._running():
            self._context.sandbox.stop(program.pid)
        if lines := self._context.workspace.watch.taken():
            yield self._state.record(SystemNotice(text="\n".join(lines)))
        with suppress(StateError):  # the end is recorded anyway, and undo names what differs
            yield from self.snapshot()

    def _running(self) -> list[BackgroundProcess]:
        with suppress(CommandError):  # there is no sandbox
            return [program for program in self._context.sandbox.programs() if program.exit is None]
        return []

    # What the model is shown ---------------------------------------------------------------------------------------

    def _as_shown(self, call: Call, result: Result, workspace: Workspace) -> Generator[Event, None, Result]:
        """Return the result without secrets, or in its place why
        the run may not end yet or which step showed the same.
        """
        state, logged = self._state, self._state.logged(call)
        if (text := state.log.masked(result.text)) != result.text or logged is not call:
            result = replace(result, text=text, meta=replace(result.meta, masked=True))
        if result.meta.finished is not None:
            return (yield from self.ending.decide(result, workspace))
        if (earlier := state.loop_guard.same(logged, result.text)) and state.history.shows(earlier.step):
            return Result(call.id, result.ok, shown_before(earlier, state.failing()), ResultMeta(repeat=True))
        return result

    def _with_changes(self, proposal: Proposal, result: Result, before: str) -> Result:
        """Return the result with the paths that have changed since the snapshot `before`."""
        if self._snapshots is None or not (changed := self._snapshots.changed(before, self._state.work.tree)):
            return result
        if proposal.risk != "write":  # programs do not sync, and what a step is recorded to have done must survive
            self._context.workspace.sync(changed)
        byproducts = self._snapshots.byproducts(changed)
        return replace(result, meta=replace(result.meta, changed=tuple(changed), byproducts=byproducts))

    def _check_goals(self) -> Generator[Event, None, bool]:
        """Run the checks of the goals and report changes to model and user, or False if Ctrl-C interrupted them."""
        state = self._state
        try:
            with self._user.interruptible():
                outcomes = list(
                    state.work.check(
                        lambda check: self._context.sandbox.run(["/bin/sh", "-c", check]), lambda: state.guard.printed
                    )
                )
        except KeyboardInterrupt:
            yield from self._user.interrupted()
            return False
        for outcome in outcomes:
            notice = state.work.change_notice(outcome, state.guard.quote)
            yield state.record(outcome)
            if notice:
                yield state.record(SystemNotice(text=notice))
        return True

    # What a command may use ----------------------------------------------------------------------------------------

    def _context_of(self, proposal: Proposal, workspace: Workspace) -> Context:
        return replace(
            self._context,
            workspace=workspace,
            shown=proposal.preview,
            call=proposal.call.id,
            has_room=self._state.history.has_room,
            returned=lambda step: self._state.log.returned(step, self._state.key),
        )

    def _pause(self, seconds: float) -> None:
        """Let time pass in a command that waits. Raises StopRun if the run's time is up."""
        self._state.budget.check_time(self._clock())
        self._let_pass(seconds)

    def _ask(self, question: str, timeout: float | None) -> str:
        with self._state.budget.time.idle():
            return self._ask_user(question, timeout)


_WAY_OUT = (
    "If a goal cannot be met, finish with its number in `unmet` and say why. If you are sure that it is met, finish "
    "again: the run then ends as not verified."
)
_WAY_OUT_GUIDED = "Do what is missing, then finish. If it cannot be done, finish with its number in `unmet`."

CheckGoals = Callable[[], Generator[Event, None, bool]]
"""Runs the checks of the goals; returns False if Ctrl-C cut them short."""

Judge = Callable[[Sequence[int], Workspace, str], Generator[Event, None, tuple[GoalVerdict, ...]]]
"""Judges these goals, counted from 0, by the workspace and by what the agent says to the user; see Verification."""


class Ending:
    """Decides whether a command may end the run.

    `judge` is None if nothing is verified. `ask` asks the user about unverified goals.
    """

    def __init__(
        self, state: State, policy: Policy, check: CheckGoals, judge: Judge | None, ask: Callable[[str], Verdict]
    ) -> None:
        self._state = state
        self._accepts_claims = policy.accept_claims or bool(state.key)  # a worker answers to whoever started it
        self._check = check
        self._judge = judge
        self._ask = ask

    def decide(self, result: Result, workspace: Workspace) -> Generator[Event, None, Result]:
        """Return the result with the status of each goal, or the reason why the run may not end yet.

        The agent is told once that a goal seems unmet. The next time, the run ends with the goals as they are. A
        failing check always prevents the end, unless the agent gives the goal up.
        """
        meta, goals = result.meta, self._state.start.task.goals
        given_up = {number - 1 for number in meta.given_up if 0 < number <= len(goals)}
        if not (yield from self._check()):
            return _put_off(
                result, "Not ended yet: the user interrupted the checks of the goals, so nobody knows if they pass."
            )
        if failing := self._state.work.unmet(self._state.guard.quote, given_up):
            return _put_off(result, failing)
        standing = {number: self._standing(number, given_up) for number in range(len(goals))}
        verdicts: tuple[GoalVerdict, ...] = ()
        if self._judge and (open_ones := [n for n, proof in standing.items() if proof == "claimed"]):
            told = self._state.work.told
            verdicts = yield from self._judge(open_ones, workspace, meta.finished or "")
            standing |= {one.goal: "shown" for one in verdicts if one.finding == "met" and one.goal in open_ones}
            unmet = [verdict for verdict in verdicts if verdict.finding == "not met"]
            if unmet and not told:
                return _put_off(result, self._told(unmet))
        claimed = [number for number, proof in standing.items() if proof == "claimed"]
        if claimed and not self._accepts_claims:
            answer = self._ask(self._claims(claimed, verdicts))
            if answer.reason:
                yield from self._state.heard(answer.reason)
                return _put_off(result, "Not ended yet: the user has something to say.")
            if answer.allowed:
                standing |= dict.fromkeys(claimed, "accepted")
        return replace(result, meta=replace(meta, goals=tuple(standing[number] for number in range(len(goals)))))

    def outcome(self, meta: ResultMeta) -> Outcome:
        """Return how the run ends by a result that ends it."""
        assert meta.finished is not None
        status = Status.FINISHED
        if "unmet" in meta.goals:
            status = Status.UNMET
        elif "claimed" in meta.goals and not self._accepts_claims:
            status = Status.UNVERIFIED
        return Outcome(status, meta.finished, meta.goals)

    def _standing(self, number: int, given_up: set[int]) -> Proof:
        if number in given_up:
            return "unmet"
        return "checked" if self._state.work.met.get(number) else "claimed"

    def _told(self, unmet: Sequence[GoalVerdict]) -> str:
        """Tell the agent which goals seem unmet. Quotes of files and programs may come from outside."""
        quote = self._state.guard.quote
        goals, style = self._state.start.task.goals, self._state.start.style
        lines = [
            f"Goal {one.goal + 1} ({goals[one.goal].text}) seems not met: {quote(one.why) or 'no reason given'}"
            for one in unmet
        ]
        if not style.reasons:  # nobody has judged the goals one by one: it is a fault of the whole work
            lines = list(dict.fromkeys(quote(one.why) for one in unmet))
        way_out = _WAY_OUT_GUIDED if style.guided else _WAY_OUT
        return "\n".join(["Not ended yet. A check of your work found:", *lines, way_out])

    def _claims(self, claimed: Sequence[int], verdicts: Sequence[GoalVerdict]) -> str:
        """Show the user the goals that are only claimed, each finding of the verifier once, and the changed files."""
        goals = self._state.start.task.goals
        found = {verdict.goal: f"{verdict.finding}: {verdict.why}" for verdict in verdicts}
        alike: dict[str, list[str]] = {}
        for n in claimed:
            alike.setdefault(found.get(n, "not verified"), []).append(f"Goal {n + 1}: {goals[n].text}")
        lines = [line for finding, named in alike.items() for line in (*named, f"  {finding}")]
        changed = self._state.work.changed
        return "\n".join([*lines, f"Files changed: {', '.join(changed)}" if changed else "No file was changed."])


def _put_off(result: Result, why: str) -> Result:
    return Result(result.call_id, False, why, ResultMeta(put_off=True))
