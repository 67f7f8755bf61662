"""Run authorized commands, snapshot the workspace around each, record its result, and check the goals."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace

from autoagent.agent.authorize import Authorization
from autoagent.agent.progress import refer_to
from autoagent.agent.state import Events, State
from autoagent.core.commands import Call, Proof, Proposal, Result, ResultMeta
from autoagent.core.errors import CommandError, StateError, StopRun
from autoagent.core.events import Event, Returned, Snapshot, Started, SystemNotice
from autoagent.core.services import SAME_HOST_ONLY, BackgroundProcess
from autoagent.core.task import GoalVerdict, Outcome, Status
from autoagent.workspace.gate import Workspace

MAY_HAVE_RUN = (
    "The program ended while this command ran: it may have run, wholly or in part. Look before you repeat it."
)
_HINT = (
    "If a goal cannot be met, finish with its number in `unmet` and say why. If you are sure that it is met, finish "
    "again: the run then ends as not verified."
)
_HINT_GUIDED = "Do what is missing, then finish. If it cannot be done, finish with its number in `unmet`."

Judge = Callable[[Sequence[int], Workspace, str], Generator[Event, None, tuple[GoalVerdict, ...]]]
"""Judge these goals (from 0) by the workspace and the agent's answer; see Verification."""


class Execution:
    """Run authorized calls, record their results, and decide whether they may end the run.

    Goals without a check are not verified if `judge` is None.
    """

    def __init__(self, state: State, user: Authorization, judge: Judge | None = None) -> None:
        self._state = state
        self._registry = state.tools.registry
        self._context = replace(
            state.tools.context,
            pause=self._pause,
            ask=self._ask,
            has_room=state.history.has_room,
            returned=lambda step: state.log.returned(step, state.key),
        )
        self._snapshots = state.tools.snapshots
        self._clock = state.policy.clock
        self._user = user
        self._had_programs = False  # in the background, after the last command
        self._judge = judge
        self._accepts_claims = state.policy.accept_claims or bool(state.key)  # a worker answers to its starter

    def run(self, proposal: Proposal) -> Generator[Event, None, ResultMeta]:
        """Run the command and return its result's metadata."""
        state, call = self._state, proposal.call
        effects, may_change = proposal.spec.effects, proposal.risk != "read"
        whole = effects is None or effects.runs_programs or bool(self._running_programs())
        if may_change or (effects is not None and effects.tells_agents):  # the agents' changes belong to this step
            by_hand = not (self._had_programs or state.key)
            yield from self.snapshot(passing=True, whole=whole, by_hand=by_hand)
        tree_before = state.work.tree
        yield state.record(Started(call=call), passing=not may_change)  # a read lost in a power cut is simply repeated
        started_at, is_interrupted = self._clock(), False
        labels = state.guard.observe(call)
        workspace = self._context.workspace.with_observer(labels, proposal.guarded)
        SAME_HOST_ONLY.set(bool(proposal.warning))
        try:
            with self._user.interruptible():
                context = replace(self._context, workspace=workspace, shown=proposal.preview, call=call.id)
                result = self._registry.execute(call, context)
        except KeyboardInterrupt:
            is_interrupted = True
            result = Result(call.id, False, "Interrupted by the user; it may have run in part.")
        except StopRun:  # a signal or a limit; the model calls of the command still cost money
            yield from state.charge(call.name, self._context.take_usage())
            raise
        if not is_interrupted and result.meta.finished is None:
            result = state.tools.part.result(call, result)
        workspace.guarded_files.accept(proposal.guarded)
        self._had_programs = bool(self._running_programs())
        result = yield from self._prepare_for_model(call, result, workspace)
        seconds = self._clock() - started_at
        if may_change:
            yield from self.snapshot(passing=True, whole=whole)
            result = self._add_changes(proposal, result, tree_before)
        result = state.guard.label(call, result, labels)
        data = result.meta.to_json()
        yield state.record(Returned(call_id=call.id, ok=result.ok, text=result.text, data=data, seconds=seconds))
        yield from state.charge(call.name, self._context.take_usage())
        if state.work.has_stale_checks and not is_interrupted:
            yield from self._check_goals()
            if state.work.tree:  # checks are programs too: the user did not change these files
                yield from self.snapshot()
        if is_interrupted:
            yield from self._user.interrupted()
        return (yield from self.end_if_written(result.ok and not is_interrupted, result.meta))

    def end_if_written(self, ok: bool, meta: ResultMeta) -> Generator[Event, None, ResultMeta]:
        """Return the metadata, which ends the run once the file of a one-file task is written and its checks pass."""
        state = self._state
        file, goals = state.start.task.file, state.start.task.goals
        if not (file and ok):
            return meta
        if any(goal.check and number not in state.work.met for number, goal in enumerate(goals)):
            yield from self._check_goals()
        are_met = all(state.work.met.get(number) for number, goal in enumerate(goals) if goal.check)
        return replace(meta, finished=f"{file} is written.") if are_met else meta

    def record_crash(self, call: Call) -> Events:
        """Record a call interrupted by a crash, with the file changes since its start.

        Its result is unknown, unless its command can determine it afterwards.
        """
        state, tree_before, changed_paths = self._state, self._state.work.tree_before, []
        if self._snapshots is not None and tree_before:
            yield from self.snapshot(passing=True)
            with suppress(StateError):  # the user has deleted the snapshots since
                changed_paths = self._snapshots.changed(tree_before, state.work.tree)
        if executables := [path for path in changed_paths if self._context.workspace.guarded_files.runs_later(path)]:
            names = ", ".join(executables)
            text = f"Look at {names}: a command that was cut off may have written what runs as you later."
            yield state.record(SystemNotice(text=text))
        result = Result(call.id, False, MAY_HAVE_RUN, state.guard.label_crash(call, changed_paths))
        is_known = is_interrupted = False
        try:
            with self._user.interruptible():
                recovered = self._registry.after_crash(call, self._context)
        except KeyboardInterrupt:
            recovered, is_interrupted = None, True
        if recovered is not None:
            meta = replace(recovered.meta, changed=result.meta.changed, tainted_by=result.meta.tainted_by)
            result = replace(recovered, meta=meta)
            is_known = not changed_paths  # the user may have changed these files since
        data = result.meta.to_json()
        yield state.record(Returned(call_id=call.id, ok=result.ok, text=result.text, data=data, known=is_known))
        if is_interrupted:
            yield from self._user.interrupted()

    def snapshot(self, *, passing: bool = False, whole: bool = True, by_hand: bool = False) -> Events:
        """Snapshot the workspace if it has changed since the last snapshot, perhaps `by_hand`.

        With `passing`, the event is not synced to disk, since a synced one follows at once. For `whole` see
        Snapshots.take.
        """
        old_tree = self._state.work.tree
        if self._snapshots is not None and (tree := self._snapshots.take(whole=whole)) != old_tree:
            yield self._state.record(Snapshot(tree=tree, by_hand=by_hand and bool(old_tree)), passing=passing)

    def edited_files(self) -> tuple[str, ...]:
        """Return the files that the run has made and that have changed since its last snapshot."""
        tree, own_files = self._state.work.tree, self._state.guard.own_files
        if self._snapshots is not None and tree and own_files:
            with suppress(StateError):  # the user has deleted the snapshots
                changed_paths = self._snapshots.changed(tree, self._snapshots.take())
                return tuple(path for path in changed_paths if path in own_files)
        return ()

    def close(self) -> Events:
        """If snapshots are kept, stop background programs and snapshot the workspace as they left it."""
        if self._snapshots is None or not self._state.work.tree:
            return
        for program in self._running_programs():
            self._context.sandbox.stop(program.pid)
        if lines := self._context.workspace.guarded_files.take_report():
            yield self._state.record(SystemNotice(text="\n".join(lines)))
        with suppress(StateError):  # the end is recorded anyway, and undo names the differences
            yield from self.snapshot()

    def _running_programs(self) -> list[BackgroundProcess]:
        with suppress(CommandError):  # without a sandbox
            return [program for program in self._context.sandbox.programs() if program.exit is None]
        return []

    # Results for the model -----------------------------------------------------------------------------------------

    def _prepare_for_model(self, call: Call, result: Result, workspace: Workspace) -> Generator[Event, None, Result]:
        """Return the masked result, why the run may not end yet, or a reference to an equal earlier result."""
        state, logged_call = self._state, self._state.logged(call)
        if (text := state.log.masked(result.text)) != result.text or logged_call is not call:
            result = replace(result, text=text, meta=replace(result.meta, masked=True))
        if result.meta.finished is not None:  # the reason goes into the memory as well
            finished = state.log.masked(result.meta.finished)
            result = replace(result, meta=replace(result.meta, finished=finished))
            return (yield from self._decide_end(result, workspace))
        if (earlier := state.loop_guard.earlier_read(logged_call, result.text)) and state.history.shows(earlier.step):
            return Result(
                call.id, result.ok, refer_to(earlier, state.work.failing(state.guard.quote)), ResultMeta(repeat=True)
            )
        return result

    def _add_changes(self, proposal: Proposal, result: Result, before: str) -> Result:
        """Add the paths changed since the snapshot `before` to the result."""
        if self._snapshots is None or not (changed := self._snapshots.changed(before, self._state.work.tree)):
            return result
        if proposal.risk != "write":  # programs do not sync, but a recorded step must survive
            self._context.workspace.sync(changed)
        byproducts = self._snapshots.byproducts(changed)
        return replace(result, meta=replace(result.meta, changed=tuple(changed), byproducts=byproducts))

    def _check_goals(self) -> Generator[Event, None, bool]:
        """Run the goals' checks and report changes. Return False if Ctrl-C interrupted them."""
        state, context = self._state, self._context
        try:
            with self._user.interruptible():
                checks = state.work.check(
                    lambda check: context.sandbox.run(["/bin/sh", "-c", check]), lambda: state.guard.output_labels
                )
                outcomes = list(checks)
        except KeyboardInterrupt:
            yield from self._user.interrupted()
            return False
        for outcome in outcomes:
            notice = state.work.change_notice(outcome, state.guard.quote)
            yield state.record(outcome)
            if notice:
                yield state.record(SystemNotice(text=notice))
        return True

    # The end of the run --------------------------------------------------------------------------------------------

    def _decide_end(self, result: Result, workspace: Workspace) -> Generator[Event, None, Result]:
        """Return the result with each goal's status, or the reason why the run may not end yet.

        The agent is warned once that a goal seems unmet; its next attempt ends the run. A failing check prevents the
        end unless the agent gives up the goal.
        """
        state, meta, goals = self._state, result.meta, self._state.start.task.goals
        abandoned_goals = {number - 1 for number in meta.given_up if 0 < number <= len(goals)}
        if not (yield from self._check_goals()):
            return _reject_end(
                result, "Not ended yet: the user interrupted the checks of the goals, so nobody knows if they pass."
            )
        if failing := state.work.unmet(state.guard.quote, abandoned_goals):
            return _reject_end(result, failing)
        proofs: dict[int, Proof] = {n: "checked" if state.work.met.get(n) else "claimed" for n in range(len(goals))}
        proofs |= dict.fromkeys(abandoned_goals, "unmet")
        verdicts: tuple[GoalVerdict, ...] = ()
        if self._judge and (unproven_goals := [n for n, proof in proofs.items() if proof == "claimed"]):
            was_warned = state.work.was_warned
            verdicts = yield from self._judge(unproven_goals, workspace, meta.finished or "")
            proofs |= {v.goal: "shown" for v in verdicts if v.finding == "met" and v.goal in unproven_goals}
            objections = [verdict for verdict in verdicts if verdict.finding == "not met"]
            if objections and not was_warned:
                return _reject_end(result, self._list_unmet(objections))
        claimed_goals = [number for number, proof in proofs.items() if proof == "claimed"]
        if claimed_goals and not self._accepts_claims:
            answer = self._user.accept(self._list_claims(claimed_goals, verdicts))
            if answer.reason:
                yield from state.add_feedback(answer.reason)
                return _reject_end(result, "Not ended yet: the user has something to say.")
            if answer.allowed:
                proofs |= dict.fromkeys(claimed_goals, "accepted")
        return replace(result, meta=replace(meta, goals=tuple(proofs[number] for number in range(len(goals)))))

    def outcome(self, meta: ResultMeta) -> Outcome:
        """Return the outcome for a result that ends the run."""
        assert meta.finished is not None
        status = Status.FINISHED
        if "unmet" in meta.goals:
            status = Status.UNMET
        elif "claimed" in meta.goals and not self._accepts_claims:
            status = Status.UNVERIFIED
        return Outcome(status, meta.finished, meta.goals)

    def _list_unmet(self, objections: Sequence[GoalVerdict]) -> str:
        """List the goals that seem unmet. The reasons are quoted, as they may contain text from outside."""
        quote = self._state.guard.quote
        goals, style = self._state.start.task.goals, self._state.start.style
        if style.reasons:
            lines = [
                f"Goal {v.goal + 1} ({goals[v.goal].text}) seems not met: {quote(v.why) or 'no reason given'}"
                for v in objections
            ]
        else:  # without a verdict per goal, the fault concerns the work as a whole
            lines = list(dict.fromkeys(quote(v.why) for v in objections))
        hint = _HINT_GUIDED if style.guided else _HINT
        return "\n".join(["Not ended yet. A check of your work found:", *lines, hint])

    def _list_claims(self, claimed_goals: Sequence[int], verdicts: Sequence[GoalVerdict]) -> str:
        """List the unproven goals for the user, grouped by the verifier's finding, and the changed files."""
        goals = self._state.start.task.goals
        findings = {verdict.goal: f"{verdict.finding}: {verdict.why}" for verdict in verdicts}
        by_finding: dict[str, list[str]] = {}
        for n in claimed_goals:
            by_finding.setdefault(findings.get(n, "not verified"), []).append(f"Goal {n + 1}: {goals[n].text}")
        lines = [line for finding, goal_lines in by_finding.items() for line in (*goal_lines, f"  {finding}")]
        paths = self._state.work.changed
        return "\n".join([*lines, f"Files changed: {', '.join(paths)}" if paths else "No file was changed."])

    # Services for commands -----------------------------------------------------------------------------------------

    def _pause(self, seconds: float) -> None:
        """Wait within a command. Raises StopRun if the run's time is up."""
        self._state.budget.check_time(self._clock())
        self._state.tools.context.pause(seconds)

    def _ask(self, question: str, timeout: float | None) -> str:
        with self._state.budget.time.idle():
            return self._state.tools.context.ask(question, timeout)


def _reject_end(result: Result, reason: str) -> Result:
    return Result(result.call_id, False, reason, ResultMeta(put_off=True))
