"""The report of a run: one HTML file that loads nothing, made from the events of its log.

The page holds the facts as JSON, and a script that shows them as text: nothing from a model, a page or a file is ever
HTML. A policy in the page lets no other script or style run, by their digests, and nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from autoagent.agent.stats import RunStats
from autoagent.core.errors import StateError
from autoagent.core.events import (
    AgentMessage,
    Changed,
    Checked,
    Decided,
    Ended,
    Event,
    Feedback,
    Forked,
    Hired,
    Prompted,
    Proposed,
    Published,
    Recalled,
    Rejected,
    Resumed,
    Retried,
    Returned,
    Rewound,
    RunStarted,
    Spent,
    Started,
    SystemNotice,
    Thought,
    Undone,
    Verified,
)
from autoagent.core.model import Usage
from autoagent.text.sanitize import escape

ROOM = 1_200_000  # characters for all long texts of a report together
LONGEST, SHORTEST = 8_000, 400  # characters of one of them, in a short run and in a long one


def longest(events: int) -> int:
    """Return how many characters of a long text to show where a report holds so many events."""
    return max(SHORTEST, min(LONGEST, ROOM // max(1, events // 2)))


class Report:
    """Add every event in order, then read `facts`: all that the page shows, as JSON values.

    Args:
        most: characters shown of each long text.

    Attributes:
        steps: a record for each step of an agent, in the order of their beginning.
        touched: the steps that events have changed, by their place in `steps`. The reader clears it.
    """

    def __init__(self, most: int = LONGEST) -> None:
        self.steps: list[dict[str, Any]] = []
        self.touched: set[int] = set()
        self._stats = RunStats()
        self._most = most
        self._began: RunStarted | None = None
        self._run = self._workspace = ""
        self._open: dict[str, int] = {}  # the place of each agent's newest step
        self._names: dict[str, str] = {}  # of the agents
        self._verdicts: dict[int, dict[str, Any]] = {}
        self._checks: dict[int, list[dict[str, Any]]] = {}

    def add(self, event: Event) -> None:
        """Add one event."""
        self._stats.add(event)
        self._run = event.run  # a fork begins with the events of another run
        match event:
            case RunStarted():
                self._names[event.agent] = event.task.name
                if not event.agent:
                    self._began = self._began or event
                    self._workspace = event.workspace
                self._note(event, *_start(event))
            case Hired():
                self._names[event.agent] = event.name
            case Prompted():
                step = self._step(event)
                step["prompt"] = {"tokens": event.tokens, "left": event.left, "files": event.files}
                step["asked"] = event.t
            case Recalled():
                step = self._step(event)
                found = [f"mem:{memory.id} ({memory.kind}) {memory.text}" for memory in event.memories]
                step["recalled"] = [*step.get("recalled", ()), *map(self._cut, found)]
                step["left_out"] = step.get("left_out", 0) + len(event.left_out)
            case Thought():
                self._replied(event, event.usage)
                said = asdict(event.thoughts)
                self._step(event)["thoughts"] = {name: escape(text) for name, text in said.items() if text}
                self._called(event, event.call.name, event.call.args)
            case Rejected():
                self._replied(event, event.usage)
                self._note(event, "Reply not used", event.problem)
            case Proposed():
                step = self._called(event, event.call.name, event.call.args)
                step |= {"preview": self._cut(event.preview), "warning": escape(event.warning), "risk": event.risk}
                step["proposed"] = event.t
            case Decided():
                step = self._step(event)
                step["decided"] = {"allowed": event.allowed, "by": event.by, "reason": escape(event.reason)}
                step["waited"] = round(event.t - step.get("proposed", event.t), 3)
            case Started():
                self._step(event)["started"] = event.t
            case Returned():
                step = self._step(event)
                step["result"] = {"ok": event.ok, "outcome": event.outcome, "text": self._cut(event.text)}
                step["ran"] = round(event.t - step.get("started", event.t), 3)
                step["changed"] = [escape(path) for path in event.meta.products]
                step["outside"] = escape(event.meta.untrusted)
            case Checked():
                checked = {"step": event.step, "met": event.met, "output": self._cut(event.output)}
                self._checks.setdefault(event.goal, []).append(checked)
                self._note(event, f"Check of goal {event.goal + 1}: {'met' if event.met else 'not met'}", event.output)
            case Verified():
                for verdict in event.verdicts:
                    self._verdicts[verdict.goal] = {**asdict(verdict), "model": event.model}
                    text = f'"{verdict.evidence}" {verdict.why}' if verdict.evidence else verdict.why
                    self._note(event, f"Verifier on goal {verdict.goal + 1}: {verdict.finding}", text)
            case _:
                self._other(event)

    def _other(self, event: Event) -> None:
        """Add an event that is a note in its step."""
        match event:
            case Retried():
                self._note(event, "Asked again", event.reason)
                self._step(event)["retries"] = self._step(event).get("retries", 0) + 1
            case Feedback():
                self._note(event, "Feedback of the user", event.text)
            case SystemNotice():
                self._note(event, "Notice", event.text)
            case AgentMessage():
                self._note(event, event.heading.rstrip(":"), event.text)
            case Published():
                self._note(event, f"{event.sent_from or event.role} publishes", event.content)
            case Spent(usage=usage) if usage != Usage():
                self._note(event, f"Spent on {event.purpose}", _usage(usage))
            case Undone():
                self._note(event, "Undone", f"The workspace is taken back to step {event.to}.")
            case Rewound():
                self._note(event, "Taken back", f"The run goes on from step {event.to}.")
            case Forked():
                self._note(event, "Fork", f"Up to step {event.at} the steps are those of the run {event.origin}.")
            case Ended():
                self._note(event, f"Ended: {event.status.value}", event.reason)

    @property
    def has_begun(self) -> bool:
        """Whether there is anything to show."""
        return self._began is not None

    @property
    def facts(self) -> Mapping[str, Any]:
        """Everything on the page."""
        return {**self.head, "steps": self.steps}

    @property
    def head(self) -> Mapping[str, Any]:
        """Everything on the page but the steps."""
        began, stats = self._began, self._stats
        assert began is not None, "a run's first event is RunStarted"
        task, ended, spent = stats.task or began.task, stats.ended, stats.usage
        goals = [
            {
                "text": escape(goal.text), "check": escape(goal.check or ""),
                "proof": ended.goals[number] if ended and number < len(ended.goals) else "",
                "verdict": self._verdicts.get(number), "checks": self._checks.get(number, []),
            }
            for number, goal in enumerate(task.goals)
        ]  # fmt: skip
        return {
            "run": self._run, "name": escape(task.name), "role": escape(task.role), "goals": goals,
            "model": escape(stats.model), "host": escape(stats.host), "workspace": escape(self._workspace),
            "version": began.version, "began": began.t, "system_tokens": began.system_tokens, "window": stats.window,
            "status": ended.status.value if ended else "", "reason": escape(ended.reason) if ended else "",
            "tokens": [spent.prompt, spent.cached, spent.completion], "cost": spent.cost, "seconds": stats.seconds,
            "count": stats.step, "unpriced": bool(stats.unpriced), "commands": stats.commands.most_common(),
            "files": [[escape(path), *stats.lines.get(path, (0, 0))] for path in stats.changed],
            "agents": {key: escape(name) for key, name in self._names.items()},
        }  # fmt: skip

    def _step(self, event: Event) -> dict[str, Any]:
        """Return the step of an event, begun if it is new."""
        place = self._open.get(event.agent)
        if place is None or self.steps[place]["step"] != event.step:
            place = self._open[event.agent] = len(self.steps)
            self.steps.append({"agent": event.agent, "step": event.step, "t": event.t, "notes": []})
        self.touched.add(place)
        step = self.steps[place]
        step["end"] = event.t
        return step

    def _replied(self, event: Event, usage: Usage) -> None:
        step = self._step(event)
        step["thought_for"] = round(step.get("thought_for", 0.0) + event.t - step.pop("asked", event.t), 3)
        before = step.get("usage", [0, 0, 0, 0.0])
        now = [usage.prompt, usage.cached, usage.completion, usage.cost or 0.0]
        step["usage"] = [one + other for one, other in zip(before, now, strict=True)]

    def _called(self, event: Event, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        step = self._step(event)
        shown = {key: value if isinstance(value, str) else json.dumps(value) for key, value in args.items()}
        step["call"] = {"name": escape(name), "args": {escape(key): self._cut(text) for key, text in shown.items()}}
        return step

    def _note(self, event: Event, label: str, text: str) -> None:
        if label:
            self._step(event)["notes"].append([escape(label), self._cut(text)])

    def _cut(self, text: str) -> str:
        """Return the beginning of a long text, with nothing hidden in it."""
        if len(text) <= self._most:
            return escape(text)
        return f"{escape(text[: self._most])}\n… {len(text) - self._most:,} more characters are in the log."


def _start(event: RunStarted) -> tuple[str, str]:
    match event:
        case Changed():
            return "Changed by the user", event.what
        case Resumed():
            return "Resumed", f"{event.model}, autoagent {event.version}"
        case _ if event.agent:
            return "Sub-agent", "\n".join([f"{event.task.name}, {event.task.role}", *map(str, event.task.goals)])
    return "", ""


def _usage(usage: Usage) -> str:
    price = "$?" if usage.cost is None else f"${usage.cost:.4f}"
    return f"{usage.prompt:,} tokens in, {usage.completion:,} out, {price}"


def part(name: str) -> str:
    """Return the text of a file that the pages are made of."""
    return (files("autoagent.web") / name).read_text("utf-8")


def page_of(events: Iterable[Event]) -> str:
    """Render the events of a run, in the order of its log, as one HTML file. They begin with its RunStarted."""
    facts = _facts(events)
    return _page(f"Run {facts['run']}", "report.js", facts)


def comparison_of(one: Iterable[Event], other: Iterable[Event]) -> str:
    """Render two runs side by side from the step at which they part."""
    runs = _facts(one), _facts(other)
    pairs = zip(*(run["steps"] for run in runs), strict=False)
    alike = next(
        (n for n, pair in enumerate(pairs) if _acts(pair[0]) != _acts(pair[1])), min(len(r["steps"]) for r in runs)
    )
    return _page(f"Runs {runs[0]['run']} and {runs[1]['run']}", "compare.js", {"runs": runs, "alike": alike})


def _acts(step: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a step did and what came of it."""
    return step["agent"], step.get("thoughts"), step.get("call"), step.get("decided"), step.get("result")


def _facts(events: Iterable[Event]) -> Mapping[str, Any]:
    found = list(events)
    report = Report(longest(len(found)))
    for event in found:
        report.add(event)
    if not report.has_begun:
        raise StateError("The log does not say how the run began.")
    return report.facts


def _page(title: str, script: str, facts: Mapping[str, Any]) -> str:
    style, code = part("pages.css"), part("pages.js") + part(script)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, code)]
    data = json.dumps(facts, ensure_ascii=False).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{digests[0]}'; \
script-src 'sha256-{digests[1]}'">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript>This report needs JavaScript.</noscript>
<main id="report"></main>
<script type="application/json" id="facts">{data}</script>
<script>{code}</script>
</body>
</html>
"""
