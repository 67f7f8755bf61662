"""Collect the facts of a run that its pages show: a fold over its events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autoagent.agent.stats import RunStats
from autoagent.core import events
from autoagent.core.memory import memory_name
from autoagent.core.model import Usage
from autoagent.log.workspace_history import WorkspaceHistory
from autoagent.text.sanitize import escape

SHORT = 400  # characters of a text that is never cut
MAX_LANE = 300  # characters of a role's message in the lanes of its team; the step has all of it
_STATES = {"met": "shown", "not met": "unmet", "cannot tell": "claimed"}  # a goal's state, by the verifier's finding


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the run, escaped and cut when it is written out. A file holds each `shared` text once."""

    text: str
    shared: bool = False

    def cut(self, most: int) -> str:
        """Return about the first `most` characters, with nothing hidden in them."""
        if len(self.text) <= max(SHORT, most):
            return escape(self.text)
        return f"{escape(self.text[:most])}\n… {len(self.text) - most:,} more characters are in the log."


class Report:
    """Add every event in order, then read `head` and `steps`: JSON values, but for each `Text`.

    Attributes:
        steps: a record for each step of an agent, in the order of their beginning.
        touched: the steps that events have changed, by their place in `steps`. The reader clears it.
        texts: those that are written out, one for each time that a step shows it.
        began: how the run began, None if there is nothing to show yet.
    """

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.touched: set[int] = set()
        self.texts: list[Text] = []
        self._stats = RunStats()
        self._workspace = WorkspaceHistory()
        self.began: events.RunStarted | None = None
        self._run = self._folder = ""
        self._open: dict[str, int] = {}  # the place of each agent's newest step
        self._times: dict[str, float] = {}  # when each agent's newest prompt, question or command began
        self._names: dict[str, str] = {}  # of the agents
        self._ledger: dict[int, list[dict[str, Any]]] = {}  # by goal
        self._roles: list[dict[str, Any]] = []
        self._rounds: list[dict[str, Any]] = []

    def add(self, event: events.Event) -> None:
        old_task = self._stats.task
        self._stats.add(event)
        self._workspace.add(event)
        self._run = event.run  # a fork begins with the events of another run
        match event:
            case events.RunStarted():
                self._names[event.agent] = event.task.name
                if not event.agent:
                    if old_task and old_task.goals != event.task.goals:
                        self._ledger.clear()
                    self.began = self.began or event
                    self._folder = event.workspace
                self._note(event, *_start(event))
            case events.Prompted():
                files = {"files": self._text(event.files, shared=True)} if event.files else {}
                self._step(event)["prompt"] = {"seq": event.seq, "tokens": event.tokens, "left": event.left, **files}
                self._times[event.agent] = event.t
            case events.Recalled():
                self._add_memories(event)
            case events.Thought():
                self._add_usage(event, event.usage)
                thoughts = asdict(event.thoughts)
                self._step(event)["thoughts"] = {name: self._text(text) for name, text in thoughts.items() if text}
                self._add_call(event, event.call.name, event.call.args)
            case events.Rejected():
                self._add_usage(event, event.usage)
                self._note(event, "Reply not used", event.problem)
            case events.Proposed():
                step = self._add_call(event, event.call.name, event.call.args)
                step["preview"], step["diff"] = self._text(event.preview), event.is_diff
                step["warning"], step["risk"] = escape(event.warning), event.risk
                self._times[event.agent] = event.t
            case events.Decided():
                step = self._step(event)
                step["decided"] = {"allowed": event.allowed, "by": event.by}
                step["decided"] |= {"reason": self._text(event.reason)} if event.reason else {}
                step["waited"] = self._seconds_since(event)
            case events.Started():
                self._times[event.agent] = event.t
            case events.Returned():
                self._add_result(event)
            case events.Snapshot(apart=False) if self.steps:
                self._add_tree(event)
            case events.Checked():
                self._set_goal(event, event.goal, "checked" if event.met else "unmet", event.output)
                self._note(event, f"Check of goal {event.goal + 1}: {'met' if event.met else 'not met'}", event.output)
            case events.Verified():
                for verdict in event.verdicts:
                    text = f'"{verdict.evidence}" {verdict.why}' if verdict.evidence else verdict.why
                    self._set_goal(event, verdict.goal, _STATES[verdict.finding], f"{event.model}: {text}")
                    self._note(event, f"Verifier on goal {verdict.goal + 1}: {verdict.finding}", text)
            case _:
                self._add_other(event)

    def _add_memories(self, event: events.Recalled) -> None:
        step = self._step(event)
        memories = [
            [memory_name(m.id), escape(m.kind), round(m.evidence, 2), self._text(m.text, shared=True)]
            for m in event.memories
        ]
        step["recalled"] = [*step.get("recalled", ()), *memories]
        step |= {"gate": event.gate} if event.gate else {}
        reasons = Counter(other.reason for other in event.left_out).items()
        step.setdefault("left_out", []).extend([[n, self._text(why, shared=True)] for why, n in reasons])

    def _add_result(self, event: events.Returned) -> None:
        step, meta = self._step(event), event.meta
        step["result"] = {"ok": event.ok, "outcome": event.outcome, "text": self._text(event.text)}
        step["ran"] = self._seconds_since(event)
        step |= {"changed": [escape(path) for path in meta.products]} if meta.products else {}
        step |= {"outside": escape(meta.untrusted)} if meta.untrusted else {}
        if not event.agent:
            self._add_tree(event)
            for goal, proof in enumerate(meta.goals):
                self._set_goal(event, goal, proof, f"The agent: {meta.finished}", confirms=True)
            for number in meta.given_up:
                self._set_goal(event, number - 1, "unmet", "The agent says that it cannot be met.")

    def _add_tree(self, event: events.Event) -> None:
        """Note the snapshot of the workspace at the end of a step so far."""
        if self._workspace.tree and not event.agent:
            self._step(event)["tree"] = self._workspace.tree

    def _add_other(self, event: events.Event) -> None:
        """Add an event of a team, or a note to its step."""
        match event:
            case events.Hired():
                self._names[event.agent] = event.name
                watch = [*map(escape, event.watch)]
                self._roles.append({"key": event.agent, "name": escape(event.name), "watch": watch,
                                    "profile": escape(event.profile)})  # fmt: skip
            case events.RoundBegan():
                waits = {key: [escape(str(name)) for name in names] for key, names in event.waits.items()}
                self._rounds.append({"round": event.step, "waits": waits, "said": []})
            case events.Published():
                short = escape(event.content[:MAX_LANE]) + ("…" if len(event.content) > MAX_LANE else "")
                if not self._rounds:  # the idea, before the first of them
                    self._rounds.append({"round": 0, "waits": {}, "said": []})
                self._rounds[-1]["said"].append([event.agent, escape(event.cause_by), short])
                self._note(event, f"{event.sent_from or event.role} publishes", event.content)
            case events.Retried():
                self._note(event, "Asked again", event.reason)
                self._step(event)["retries"] = self._step(event).get("retries", 0) + 1
            case events.Feedback():
                self._note(event, "Feedback of the user", event.text)
            case events.SystemNotice():
                self._note(event, "Notice", event.text)
            case events.AgentMessage():
                self._note(event, event.heading.rstrip(":"), event.text)
            case events.Spent(usage=usage) if usage.cost != 0.0:
                price = "$?" if usage.cost is None else f"${usage.cost:.4f}"
                text = f"{usage.prompt:,} tokens in, {usage.completion:,} out, {price}"
                self._note(event, f"Spent on {event.purpose}", text)
            case events.Undone() | events.Rewound():
                for goal in self._ledger:
                    self._set_goal(event, goal, "open", f"The workspace is restored to step {event.to}.")
                is_undo = isinstance(event, events.Undone)
                text = "The workspace is taken back to" if is_undo else "The run goes on from"
                self._note(event, "Undone" if is_undo else "Taken back", f"{text} step {event.to}.")
            case events.Forked():
                self._note(event, "Fork", f"Up to step {event.at} the steps are those of the run {event.origin}.")
            case events.Ended():
                if not event.agent:
                    for goal, proof in enumerate(event.goals):
                        self._set_goal(event, goal, proof, event.reason, confirms=True)
                self._note(event, f"Ended: {event.status.value}", event.reason)

    @property
    def head(self) -> dict[str, Any]:
        """Return everything on the page except the steps."""
        began, stats = self.began, self._stats
        assert began is not None, "a run's first event is RunStarted"
        task, outcome, usage = stats.task or began.task, stats.outcome, stats.usage
        goals = [
            {
                "text": escape(goal.text), "check": escape(goal.check or ""), "ledger": self._ledger.get(number, []),
                "proof": outcome.goals[number] if outcome and number < len(outcome.goals) else "",
            }
            for number, goal in enumerate(task.goals)
        ]  # fmt: skip
        return {
            "run": self._run, "name": escape(task.name), "role": escape(task.role), "goals": goals,
            "model": escape(stats.model), "host": escape(stats.host), "workspace": escape(self._folder),
            "version": began.version, "began": began.t, "window": stats.window, "tree": self._workspace.first,
            "status": outcome.status.value if outcome else "", "reason": escape(outcome.reason) if outcome else "",
            "tokens": [usage.prompt, usage.cached, usage.completion], "cost": usage.cost, "seconds": stats.seconds,
            "count": stats.step, "unpriced": bool(stats.unpriced), "commands": stats.commands.most_common(),
            "files": [[escape(path), *stats.lines.get(path, (0, 0))] for path in stats.changed],
            "agents": {key: escape(name) for key, name in self._names.items()},
            "roles": self._roles, "rounds": self._rounds,
        }  # fmt: skip

    def _step(self, event: events.Event) -> dict[str, Any]:
        """Return the step of an event, begun if it is new."""
        place = self._open.get(event.agent)
        if place is None or self.steps[place]["step"] != event.step:
            place = self._open[event.agent] = len(self.steps)
            self.steps.append({"agent": event.agent, "step": event.step, "t": round(event.t, 3), "notes": []})
        self.touched.add(place)
        step = self.steps[place]
        step["end"] = round(event.t, 3)
        return step

    def _seconds_since(self, event: events.Event) -> float:
        return round(event.t - self._times.pop(event.agent, event.t), 3)

    def _add_usage(self, event: events.Event, usage: Usage) -> None:
        step = self._step(event)
        step["thought_for"] = round(step.get("thought_for", 0.0) + self._seconds_since(event), 3)
        sums = step.get("usage", [0, 0, 0, 0.0])
        figures = [usage.prompt, usage.cached, usage.completion, usage.cost or 0.0]
        step["usage"] = [total + figure for total, figure in zip(sums, figures, strict=True)]

    def _add_call(self, event: events.Event, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        step = self._step(event)
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in args.items()}
        step["call"] = {"name": escape(name), "args": {escape(key): self._text(text) for key, text in texts.items()}}
        return step

    def _set_goal(self, event: events.Event, goal: int, state: str, evidence: str, *, confirms: bool = False) -> None:
        """Enter the state of a goal, new or as before. An event that only `confirms` the state is no evidence."""
        ledger = self._ledger.setdefault(goal, [])
        if not ledger or ledger[-1]["state"] != state:
            ledger.append({"step": event.step, "t": round(event.t, 3), "state": state, "again": -1})
        elif confirms:
            return
        ledger[-1]["again"] += 1
        ledger[-1] |= {"last": event.step, "evidence": Text(evidence)}

    def _note(self, event: events.Event, label: str, text: str) -> None:
        if label:
            self._step(event)["notes"].append([escape(label), self._text(text)])

    def _text(self, text: str, *, shared: bool = False) -> Text:
        self.texts.append(Text(text, shared=shared))
        return self.texts[-1]


def _start(event: events.RunStarted) -> tuple[str, str]:
    match event:
        case events.Changed():
            return "Changed by the user", event.what
        case events.Resumed():
            return "Resumed", f"{event.model}, autoagent {event.version}"
        case _ if event.agent:
            return "Sub-agent", "\n".join([f"{event.task.name}, {event.task.role}", *map(str, event.task.goals)])
    return "", ""
