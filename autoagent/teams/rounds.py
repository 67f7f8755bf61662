"""Run a team, round by round.

In a round, every role reads the messages published before it. The roles act in parallel, each in its own thread. Their
messages are published when the round ends, in hiring order, so the result does not depend on their speed. The team's
remaining budget is divided equally among the acting roles, and unspent money returns to it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from autoagent.agent.budget import Budget, RunLimits
from autoagent.core import events
from autoagent.core.errors import ForModel, ForUser, NoMoneyException, SettingsError, SetupError, StateError, StopRun
from autoagent.core.memory import Origin
from autoagent.core.task import Outcome, Status, Task
from autoagent.subagents.worker import POLL_SECONDS, RunningWorker
from autoagent.teams.copies import Copies, MergeResult, paths_conflict
from autoagent.teams.member import AssignedTurn, Member, event_of
from autoagent.teams.memory import Memory
from autoagent.teams.message import CONFLICT, END, Message, addresses_of
from autoagent.teams.role import Environment

if TYPE_CHECKING:
    from autoagent.session.drive import OpenedRun


@dataclass(slots=True)
class _OpenRound:
    """The unfinished round: its acting roles, and what each did in an earlier process."""

    acting_keys: tuple[str, ...]
    answers: dict[str, deque[events.Answered]] = field(default_factory=dict)
    messages: dict[str, dict[str, Message]] = field(default_factory=dict)
    finished_keys: set[str] = field(default_factory=set)


class TeamRun:
    """Run the rounds of a team. `until` is the last round of this process.

    `outcome` tells how the run ended, and `rounds_over` whether it ended with its last round while there still was
    news. `error` is an exception raised by a role's Python function.
    """

    def __init__(self, env: Environment, run: OpenedRun, *, until: int) -> None:
        self.outcome: Outcome | None = None
        self.rounds_over = False
        self.error: Exception | None = None
        self._env = env
        self._run, self._start, self._log, self._budget = run, run.plan.start, run.log, run.budget
        self._copies = Copies(run)
        self._until = until
        self._open_round: _OpenRound | None = None
        self._end_message: Message | None = None  # the message that ended the work
        self._shares: dict[str, Budget] = {}  # by role, from its last turn
        self._announced_ids: set[str] = set()  # of messages that no role wrote
        self._members = {str(number): Member(role, run, self._copies) for number, role in enumerate(env.roles, 1)}

    def run(self) -> Iterator[events.Event]:
        """Yield the run's own events as they happen, up to an `Ended`. Raises StateError."""
        try:
            yield from self._start_team()
            yield from self._rounds()
        except StopRun as stop:
            self.outcome = stop.outcome
        except KeyboardInterrupt:
            self.outcome = Outcome(Status.INTERRUPTED, "Ended by Ctrl-C.")
        except StateError:
            raise
        except (ForUser, ForModel) as error:
            self.outcome = Outcome(Status.SETUP if isinstance(error, SetupError) else Status.FAILED, str(error))
        except Exception as error:  # from a role's function: save the run, and let the caller raise it
            self.error = error
            self.outcome = Outcome(Status.FAILED, f"{type(error).__name__}: {error}")
        assert self.outcome is not None
        self._run.pool.mailbox.close()
        for member in self._members.values():
            member.role.active_turn = None
        outcome = self.outcome
        yield self._record(events.Ended(status=outcome.status, reason=outcome.reason, goals=outcome.goals))

    def _start_team(self) -> Iterator[events.Event]:
        """Restore the run from the log, record the start, hire the roles, and publish the user's requirement."""
        if not self._members:
            raise SettingsError("The team has no roles: hire one first.")
        user_messages, first_round = self._env.history.get(), self._env.round
        self._env.history.clear()
        if isinstance(self._start, events.Resumed):
            for member in self._members.values():
                member.role.messages_seen = 0  # what it remembers is not news
        hired = self._restore()
        yield self._record(self._start)
        for key, member in self._members.items():
            role = member.role
            if key not in hired:
                actions, watch = tuple(action.name for action in role.actions), tuple(sorted(role.rc.watch))
                yield self._record(events.Hired(
                    agent=key, name=role.name, profile=role.profile, prefix=role.prefix, actions=actions, watch=watch,
                    human=role.is_human,
                ))  # fmt: skip
            elif (hired[key].name, hired[key].profile) != (role.name, role.profile):
                raise StateError(f"The run was begun with {hired[key].name} ({hired[key].profile}) in place of {role}.")
        for number, message in enumerate(user_messages, 1):
            message.id = message.id or f"user.{first_round}.{number}"
            if message.id not in self._announced_ids:
                self._end_message = None
                yield from self._announce(message.id, message)
        self._copies.clear(f"{self._env.round}." if self._open_round else " ")
        for key, member in self._members.items():
            task, pool = Task(member.role.name, member.role.profile, ()), self._run.pool
            worker = RunningWorker(pool.mailbox, key, task, (), Budget(RunLimits()), Origin())
            worker.build = member.build
            pool.start(worker)

    def _restore(self) -> dict[str, events.Hired]:
        """Restore the state of the run from the log. Return the hired roles by key."""
        hired: dict[str, events.Hired] = {}
        for event in self._log.effective():
            role = self._members[event.agent].role if event.agent in self._members else None
            match event:
                case events.Hired():
                    hired[event.agent] = event
                case events.Published() if not event.agent:
                    self._announced_ids.add(event.id)
                    self._env.history.read(message_of(event))
                case events.RoundBegan():
                    self._env.round, self._open_round = event.step, _OpenRound(event.acts)
                    self._read()
                case events.Answered() if self._open_round and role:
                    self._open_round.answers.setdefault(event.agent, deque()).append(event)
                case events.Published() if self._open_round and role:
                    message = message_of(event)
                    self._open_round.messages.setdefault(event.agent, {})[message.id] = message
                case events.Acted() if self._open_round and role:
                    self._open_round.finished_keys.add(event.agent)
                    role.rc.news.clear()
                    _restore_memory(role.rc.memory, event.memory, self._open_round.messages.get(event.agent, {}))
                case events.RoundEnded() if self._open_round:
                    self._publish(self._open_round.messages)
                    self._open_round = None
            if not event.agent:
                self._budget.add(event)
        return hired

    def _rounds(self) -> Iterator[events.Event]:
        if self._budget.limits.usd <= 0 and self._start.settings["team"]["investment"] <= 0:
            raise self._out_of_money()
        if self._open_round is not None:
            yield from self._finish(
                [key for key in self._open_round.acting_keys if key not in self._open_round.finished_keys]
            )
        planned_rounds = self._start.settings["team"]["definition"].get("n_round", 0)
        while True:
            acts = self._read()
            if not acts or self._end_message is not None:
                rounds = f"round {self._env.round}" if self._env.round else "the beginning"
                yield from self._end(f"After {rounds} nobody has news to act on.")
                continue
            if self._env.round >= self._until:
                self.rounds_over = True
                if planned_rounds and self._env.round >= planned_rounds:
                    yield from self._end(f"All {planned_rounds} planned rounds are over.", is_planned=True)
                names = ", ".join(self._members[key].role.name for key in acts)
                reason = f"The last of {self._until} rounds (--n-round) is over; there is news for {names}."
                raise StopRun(Outcome(Status.LIMIT, reason))
            self._env.round += 1
            idle = {key: sorted(member.role.rc.watch) for key, member in self._members.items() if key not in acts}
            yield self._record(events.RoundBegan(acts=tuple(acts), waits=idle))
            self._open_round = _OpenRound(tuple(acts))
            yield from self._finish(acts)

    def _end(self, reason: str, *, is_planned: bool = False) -> Iterator[events.Event]:
        """End the work with the verdict on it, or as unverified if actions could end it and none did. Raises StopRun.

        If the user, or (once) the verifier, names missing work instead, publish that and return.
        """
        if self._end_message is not None:
            reason = f"Ended by {self._end_message.sent_from} in round {self._env.round}."
        judges = [
            f"{role} ({action})"
            for role in self._env.roles
            for action in role.actions
            if any(END in addresses_of(to) for to in action.when.values())
        ]
        if judges and self._end_message is None:
            reason = f"{reason} {', '.join(judges)} did not say that the work is done."
            raise StopRun(Outcome(Status.UNVERIFIED, reason))
        from autoagent.teams.verdict import verdict

        history = self._env.history.get()
        may_object = self._env.round < self._until and not any(id.startswith("Verifier.") for id in self._announced_ids)
        outcome, objection = yield from verdict(
            self._run, self._env.round, history[-1].content if history else "", reason,
            is_planned=is_planned or self._end_message is not None, may_object=may_object,
        )  # fmt: skip
        if objection is None:
            raise StopRun(outcome)
        self._end_message = None
        yield from self._announce(f"{objection.role}.{self._env.round}.{len(self._announced_ids)}", objection)

    def _read(self) -> list[str]:
        """Let every role read the new messages. Return the keys of the roles with something to act on."""
        messages = self._env.history.get()
        return [key for key, member in self._members.items() if member.role.read(messages)]

    def _finish(self, acts: Sequence[str]) -> Iterator[events.Event]:
        """Let these roles act, merge their changes, and publish the messages of the round."""
        assert self._open_round is not None
        written = {key: self._open_round.messages.get(key, {}) for key in self._members}
        pending = list(acts)
        while pending:
            turns = self._begin_turns(pending, written)
            while not all(turn.is_over for turn in turns.values()):
                with self._run.interrupts.allowed():
                    self._run.pool.mailbox.pause(POLL_SECONDS)  # shows events and asks the user the roles' questions
                for key in turns:
                    if (outcome := self._members[key].worker.outcome) is not None:
                        raise StopRun(outcome)
            self._run.pool.show_and_ask()
            for turn in turns.values():
                turn.budget.give_back()
            unaffordable = [key for key, turn in turns.items() if isinstance(turn.problem, NoMoneyException)]
            for turn in turns.values():
                if turn.problem is not None and not isinstance(turn.problem, NoMoneyException):
                    raise turn.problem
            if len(unaffordable) == len(pending):  # even the others' unspent money is not enough
                raise self._out_of_money()
            self._open_round.answers = {key: deque(turns[key].received) for key in unaffordable}
            pending = unaffordable
        yield from self._merge()
        yield self._record(events.RoundEnded())
        self._publish(written)
        self._open_round = None
        self._copies.clear()

    def _merge(self) -> Iterator[events.Event]:
        """Merge the roles' changes from their copies of the workspace, in hiring order. Announce conflicts."""
        copies, changed = self._copies, dict[str, str]()
        for key in self._members:
            name = f"{self._env.round}.{key}"
            if not copies.has(name):
                continue
            if not changed:
                yield self._record(events.Snapshot(tree=copies.base(name)))
            merged = copies.merge(name)
            self._run.tainted.inherit(merged.root, (), 0)
            if merged.conflicts or merged.refusals:
                yield from self._announce(f"merge.{name}", self._conflict_message(key, merged, changed))
            changed |= dict.fromkeys(merged.changed, key)
        if changed:
            yield self._record(events.Snapshot(tree=copies.tree()))

    def _conflict_message(self, key: str, merged: MergeResult, changed: Mapping[str, str]) -> Message:
        """Return a message about rejected changes, to their role and to the authors of the conflicting changes."""
        role = self._members[key].role
        author_keys = {
            path: next((author for other, author in changed.items() if paths_conflict(other, path)), "")
            for path in merged.conflicts
        }
        others = [self._members[other].role for other in dict.fromkeys(author_keys.values()) if other]
        lines = [
            f"{role} has changed {path}, and so has {self._members[other].role if other else 'somebody else'} in the "
            f"same round, whose change stands. This was not taken:\n{merged.diff_of(path) or '(no text)'}"
            for path, other in author_keys.items()
        ]
        lines += [f"{role} has changed {path}, which was not taken: {reason}" for path, reason in merged.refusals]
        text = "\n\n".join([*lines, f"{role.name}: look at what is there now, and put in what is missing."])
        message = Message(text, "Workspace", CONFLICT, "Workspace", {role.name, *(other.profile for other in others)})
        message.origin = role.rc.memory.origin
        return message

    def _announce(self, id: str, message: Message) -> Iterator[events.Event]:
        """Publish a message that no role wrote, unless an earlier process already did."""
        message.id = id
        if id in self._announced_ids:
            return
        self._announced_ids.add(id)
        event = self._record(event_of(message))
        yield event
        assert isinstance(event, events.Published)
        message.content = event.content  # as logged, with secrets masked
        self._env.history.read(message)

    def _begin_turns(self, keys: Sequence[str], written: Mapping[str, dict[str, Message]]) -> dict[str, AssignedTurn]:
        """Start the turns of these roles, each with an equal share of the remaining budget."""
        assert self._open_round is not None
        turns = {}
        for number, key in enumerate(keys):
            budget = self._budget.share(1 / (len(keys) - number), time.time())
            if budget is None:
                raise self._out_of_money()
            if key in self._shares:
                budget.adopt_estimate(self._shares[key])
            self._shares[key] = budget
            turns[key] = AssignedTurn(
                self._env.round, budget, self._open_round.answers.pop(key, deque()), written[key],
                is_parallel=len(self._open_round.acting_keys) > 1,
            )  # fmt: skip
        for key, turn in turns.items():
            self._members[key].turns.put(turn)
        return turns

    def _publish(self, written: Mapping[str, Mapping[str, Message]]) -> None:
        for key in self._members:
            for message in written.get(key, {}).values():
                self._env.history.read(message)
                self._end_message = message if END in message.send_to else self._end_message
        if any(id.startswith(f"merge.{self._env.round}.") for id in self._announced_ids):
            self._end_message = None  # a role with a rejected change gets a turn before the end

    def _out_of_money(self) -> NoMoneyException:
        investment = self._start.settings["team"]["investment"]
        reason = f"Insufficient funds: {self._budget.limits.usd or investment:g}"
        return NoMoneyException(Outcome(Status.BUDGET, reason), self._budget.usd)

    def _record(self, event: events.Event) -> events.Event:
        worked = round(self._budget.time.seconds, 3)
        recorded = self._log.append(replace(event, step=self._env.round, worked=worked))
        self._budget.add(recorded)
        return recorded


def _restore_memory(memory: Memory, changes: Sequence[Mapping[str, Any]], written: Mapping[str, Message]) -> None:
    """Repeat the logged changes of a turn to a role's memory. `written` are the messages of the turn by id."""
    old_messages = {message.id: message for message in memory} if any("id" in change for change in changes) else {}
    for change in changes:
        if change["do"] == "clear":
            memory.clear()
        elif "message" in change:
            memory.read(Message.from_json(change["message"]))
        elif (message := written.get(change["id"]) or old_messages.get(change["id"])) is not None:
            memory.read(message) if change["do"] == "add" else memory.delete(message)
    memory.keep()


def message_of(event: events.Published) -> Message:
    """Return the message that an event published."""
    meta = event.meta
    source = ", ".join(filter(None, ("private" if meta.private else "", meta.untrusted)))
    message = Message(event.content, event.role, event.cause_by, event.sent_from, set(event.send_to), id=event.id)
    message.origin = Origin(source, not meta.untrusted)
    message.restore(event.extra)
    return message
