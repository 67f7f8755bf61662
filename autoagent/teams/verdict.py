"""Judge a team's work: as with any run, a check, a verifier or the user confirms the end."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from autoagent.agent.authorize import Authorization
from autoagent.agent.side_call import SideCall
from autoagent.agent.state import State
from autoagent.agent.verify import Verification
from autoagent.core.commands import Proof
from autoagent.core.events import Event, Returned, Snapshot, Started
from autoagent.core.task import Outcome, Status
from autoagent.subagents.subagent_state import SubAgentState
from autoagent.teams.message import REQUIREMENT, Message

if TYPE_CHECKING:
    from autoagent.session.drive import OpenedRun


def newest_work(events: Iterable[Event]) -> list[SubAgentState]:
    """Return each role's agents in the last round in which it had any."""
    states: dict[str, SubAgentState] = {}
    for event in events:
        if event.agent.count(".") == 2:  # the key of an agent is `role.round.agent`
            states.setdefault(event.agent, SubAgentState(event.agent)).add(event)
    newest: dict[str, tuple[int, list[SubAgentState]]] = {}
    for key, state in states.items():
        role, number, _ = key.split(".")
        last_round, agents = newest.get(role, (0, []))
        newest[role] = (int(number), [state]) if int(number) > last_round else (last_round, [*agents, state])
    return [state for _, agents in newest.values() for state in agents]


def team_state(run: OpenedRun, step: int) -> State:
    """Return a state with the work of all agents, as if a single agent had done it."""
    state = State(run.plan.start, run.tools, run.policy, run.log)
    state.step = step
    starts: dict[str, Event] = {}  # by agent, as commands of several agents overlap
    for event in run.log.events():
        match event:
            case Snapshot(apart=False):
                state.work.add(event)
            case Started():
                starts[event.agent] = event
            case Returned() if event.agent in starts:
                state.work.add(starts.pop(event.agent))
                state.work.add(event)
    return state


def verdict(
    run: OpenedRun, step: int, answer: str, reason: str, *, is_planned: bool, may_object: bool
) -> Generator[Event, None, tuple[Outcome, Message | None]]:
    """Yield the events of a judgement. Return the outcome, and a message on missing work if the team should continue.

    `answer` is the team's last message. An end that `is_planned` needs no verdict, unless an agent of a role has not
    done its work. If the verifier `may_object`, its objection sends the team back to work.
    """
    start, tools, policy = run.plan.start, run.tools, run.policy
    newest = newest_work(run.log.events())
    if unfinished := [state for state in newest if state.outcome is None or state.outcome.status != Status.FINISHED]:
        reasons = [f"{state.task.name}: {state.outcome.reason if state.outcome else 'cut off'}" for state in unfinished]
        return Outcome(Status.UNMET, f"{reason} Not done: {'; '.join(reasons)}", ("unmet",)), None
    if is_planned or not start.task.goals:
        return Outcome(Status.FINISHED, reason), None
    goals = [(state, number) for state in newest for number, goal in enumerate(state.task.goals) if goal.check]
    if goals and all((check := state.checks.get(number)) and check.met for state, number in goals):
        return Outcome(Status.FINISHED, reason, ("checked",)), None
    state = team_state(run, step)
    if tools.snapshots is not None and (tree := tools.snapshots.take()) != state.work.tree:
        yield state.record(Snapshot(tree=tree))
    finding = "not verified"
    proof: Proof = "claimed"
    if policy.verifier is not None:
        call = SideCall(state, policy.verifier, run.plan.console)
        [goal_verdict] = yield from Verification(state, call).judge([0], tools.context.workspace, answer)
        finding = f"{goal_verdict.finding}: {goal_verdict.why}"
        if goal_verdict.finding == "not met" and may_object:
            objection = f"The work is not done yet. A check of it found: {state.guard.quote(goal_verdict.why)}"
            return Outcome(Status.UNVERIFIED, objection), Message(objection, "Verifier", REQUIREMENT, "Verifier")
        proof = "shown" if goal_verdict.finding == "met" else "claimed"
    if proof == "claimed" and not policy.accept_claims:
        changed = ", ".join(state.work.changed)
        files = f"Files changed: {changed}" if changed else "No file was changed."
        claims = f"{start.task.goals[0].text}\n  {finding}\n{files}"
        answer_of_user = Authorization(state, run.plan.console).accept(claims)
        if not answer_of_user.allowed:
            outcome = Outcome(Status.UNVERIFIED, f"{reason} The work is {finding}", ("claimed",))
            return outcome, Message(answer_of_user.reason, "Human", REQUIREMENT) if answer_of_user.reason else None
        proof = "accepted"
    return Outcome(Status.FINISHED, reason, (proof,)), None
