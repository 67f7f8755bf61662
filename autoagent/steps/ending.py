"""The end of a run: the agent asks for it, the checks of the goals and a verifier decide how true it is."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from autoagent.core.commands import Proof, Result, ResultMeta, Verdict
from autoagent.core.events import Event
from autoagent.core.outcome import Outcome, Status
from autoagent.core.verdicts import GoalVerdict
from autoagent.steps.run_state import Policy, RunState
from autoagent.workspace.gate import Workspace

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
        self, state: RunState, policy: Policy, check: CheckGoals, judge: Judge | None, ask: Callable[[str], Verdict]
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
        if failing := self._state.goals.unmet(self._state.guard.quote, given_up):
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
        return "checked" if self._state.goals.met.get(number) else "claimed"

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
        """Show the user the goals that are only claimed, with the verifier's findings and the files changed."""
        goals = self._state.start.task.goals
        said = {verdict.goal: f"{verdict.finding}: {verdict.why}" for verdict in verdicts}
        lines = [f"Goal {n + 1}: {goals[n].text}\n  {said.get(n, 'not verified')}" for n in claimed]
        changed = self._state.work.changed
        return "\n".join([*lines, f"Files changed: {', '.join(changed)}" if changed else "No file was changed."])


def _put_off(result: Result, why: str) -> Result:
    return Result(result.call_id, False, why, ResultMeta(put_off=True))
