"""Detect a standstill, as a fold over the log. docs/runs.md describes the rules.

A step is progress if it brings something new: a text not read before, a new state of the workspace, a new message to
another agent, or a goal whose check now passes. Every other step counts against the agent, so that no combination of
them continues for ever. Progress, user feedback and a wait of a minute reset the count. Results are compared without
times, durations, addresses and pids, which vary by themselves.

Not covered: a loop that brings something new each round, such as a growing line, a call with different arguments that
succeeds, or another model's words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

from autoagent.core import events
from autoagent.core.commands import Call, CommandSpec, Proposal, ResultMeta, fingerprint
from autoagent.core.frozen import dataclass

Alarm = Literal["", "model", "user", "stop"]
"""Who is told about a standstill; `stop` ends the run."""

ALARMS: tuple[Alarm, ...] = ("", "model", "user", "stop")
ROUND_LIMITS = (3, 4, 6)  # repetitions of one outcome without progress that raise each alarm
STEP_LIMITS = (8, 12, 20)  # steps without progress that raise each alarm
NUMBERS_PER_STEP = 4  # results that differ only in numbers, per counted step
MAX_STRIPPED_CHARACTERS = 50_000  # of a result, from which varying parts are removed
WAITS_PER_STEP = 25  # polls and waits per counted step
PROGRESS_WAIT_SECONDS = 60.0  # of waiting that count as progress

# The weight of a step without progress, an integer so that the sum does not depend on the order.
_STEP_WEIGHT = NUMBERS_PER_STEP * WAITS_PER_STEP
_REJECTED_END = "end"

# Parts that vary by themselves. Other numbers count: fewer failing tests are progress.
_VARYING_PART = re.compile(
    r"""
      \b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?   # 2026-01-31T12:00:00Z
    | \b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\s+)(?:[A-Z][a-z]{2}\s+\d+|\d+\s+[A-Z][a-z]{2})\b  # Sat Jan 31
    | \b\d+:\d\d(?::\d\d)?(?:[.,]\d+)?(?:\s?[AP]M)?\b                                 # 12:00:00
    | \b1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b                                              # seconds since the epoch
    | \b(?:\d+m)?\d+(?:[.,]\d+)?\s?(?:ns|us|µs|ms|s|secs?|seconds?|min|mins|minutes?|h|hrs?|hours?)\b   # 3.32s, 0m3s
    | \b0x[0-9a-fA-F]+\b
    | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b
    | /tmp/[^/\s'":,;)]+ | \bpytest-\d+\b
    | (?i:\b(?:pid|process|attempt|try|retry|request|counter|seed|port)\b[\s:=\#]*\d+)
    """,
    re.VERBOSE,
)
_NUMBER = re.compile(r"\d+")


class Standstill:
    """Count steps without progress. After each step, `alarm` names the recipient of the `message`."""

    NOT_IN_CHECKPOINT = ("_specs",)

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self.alarm: Alarm = ""
        self._call: Call | None = None
        self._trees: set[str] = set()  # earlier states of the workspace
        self._started_at = 0.0  # when the running command started
        self._tree_state: Literal["", "new", "old"] = ""  # the workspace after the running command, or '' if unknown
        self._change_outcomes: set[Hashable] = set()  # outcomes of steps that changed files
        self._other_outcomes: set[Hashable] = set()  # outcomes of other steps since the last change that was progress
        self._numberless_outcomes: set[Hashable] = set()  # the same without numbers, since the last new state
        self._outcome_by_call: dict[int, Hashable] = {}  # outcome of each call when it last ran, by its key
        # Since the last progress: outcomes with counts, the last outcome, the steps, their weight, the alarm level.
        self._outcome_counts: Counter[Hashable] = Counter()
        self._last_outcome: Hashable = ""
        self._steps = self._weight = self._alarm_level = 0

    def add(self, event: events.Event) -> None:
        match event:
            case events.Thought():
                self._call = event.call
            case events.Rejected():
                self._count("unusable")
            case events.Decided(allowed=False) if self._call:
                key = self._call.key
                self._count(self._outcome_by_call.get(key, key))
            case events.Started():
                self._call = event.call
                self._tree_state, self._started_at = "", event.t
            case events.Snapshot():
                self._tree_state = "old" if event.tree in self._trees else "new"
                self._trees.add(event.tree)
            case events.Returned(known=True) if self._call:
                self._add_returned(self._call, event)
            case events.Checked(met=True):
                self._reset_if_new(("met", event.goal))
            case events.AgentMessage():
                self._reset_if_new(("told", event.sender, strip_varying(event.text)))
            case events.Feedback() | events.Resumed() | events.Changed() | events.Undone():  # by the user
                self._change_outcomes.clear()
                self._other_outcomes.clear()
                self._numberless_outcomes.clear()
                self._reset()

    @property
    def message(self) -> str:
        """Return the text about the standstill."""
        repeats, kinds = self._outcome_counts[self._last_outcome], len(self._outcome_counts)
        if repeats >= ROUND_LIMITS[0] and self._last_outcome == _REJECTED_END:
            return f"The run was not ended {repeats} times, and nothing is new since."
        if repeats >= ROUND_LIMITS[0] and min(self._outcome_counts.values()) >= repeats - 1:  # a cycle
            return f"The same {'call' if kinds == 1 else f'{kinds} steps'} with the same results, {repeats} times over."
        return f"{self._steps} steps in a row have brought nothing new."

    # The outcome of a step ---------------------------------------------------------------------------------------

    def _add_returned(self, call: Call, event: events.Returned) -> None:
        """Count this step, or reset the count if it brought anything new."""
        meta, changed = event.meta, event.meta.changed
        if event.needs_review or meta.repeat:  # a rejected end brings nothing new, whatever its text
            self._count(_REJECTED_END if event.needs_review else self._outcome_by_call.get(call.key, call.key))
            return
        if meta.waits is not None and event.t - self._started_at >= PROGRESS_WAIT_SECONDS:
            self._reset()
            return
        has_failed = not event.ok or meta.failed
        spec = self._specs.get(call.name)
        is_read_only = spec is not None and spec.risk == "read"
        subject = call.name if has_failed else call.key  # the same failure of another call is not new
        text = strip_varying(event.text)
        outcome = fingerprint(repr((subject, text, changed)))
        numberless = _NUMBER.sub("0", _strip_arguments(call, text) if has_failed else text)
        numberless_key = fingerprint(repr((subject, numberless, changed)))
        earlier_outcomes = self._change_outcomes if changed else self._other_outcomes
        is_progress = bool(changed) and self._tree_state == "new"
        if is_progress:
            self._numberless_outcomes.clear()  # a new count of remaining work is progress
        if outcome in earlier_outcomes or (changed and self._tree_state == "old"):
            if meta.waits is not None:
                self._count(outcome, _STEP_WEIGHT // WAITS_PER_STEP if meta.waits else _STEP_WEIGHT, weight_of_repeat=0)
            else:  # appending the same line for ever changes files too, so it counts
                self._count(outcome, weight_of_repeat=0 if is_progress else 1)
        elif numberless_key in self._numberless_outcomes and has_failed:
            self._count(outcome, weight_of_repeat=0)
        elif numberless_key in self._numberless_outcomes and not is_read_only:  # for a read, a new number is news
            self._count(outcome, _STEP_WEIGHT // NUMBERS_PER_STEP, weight_of_repeat=0)
        else:
            if changed:
                self._other_outcomes.clear()  # everything may be read again
            self._reset(outcome)
        earlier_outcomes.add(outcome)
        self._numberless_outcomes.add(numberless_key)
        self._outcome_by_call[call.key] = outcome

    def _reset_if_new(self, news: Hashable) -> None:
        """Reset the count for news between steps, but only the first time it arrives."""
        if news not in self._change_outcomes:
            self._change_outcomes.add(news)
            self._reset()

    def _count(self, outcome: Hashable, weight: int = _STEP_WEIGHT, *, weight_of_repeat: int = 1) -> None:
        """Count a step without progress."""
        old_level = self._alarm_level
        self._steps += 1
        self._weight += weight
        self._last_outcome = outcome
        self._outcome_counts[outcome] += weight_of_repeat
        rounds, steps = self._outcome_counts[outcome], self._weight // _STEP_WEIGHT
        round_level = sum(rounds >= limit for limit in ROUND_LIMITS)
        self._alarm_level = max(old_level, round_level, sum(steps >= limit for limit in STEP_LIMITS))
        self.alarm = ALARMS[self._alarm_level] if self._alarm_level > old_level else ""

    def _reset(self, outcome: Hashable = "") -> None:
        """Reset the count after progress, with `outcome` seen once."""
        self._outcome_counts = Counter({outcome: 1} if outcome else {})
        self._last_outcome = outcome
        self._steps = self._weight = self._alarm_level = 0
        self.alarm = ""


def strip_varying(text: str) -> str:
    """Remove times, durations, addresses, pids and the like from the part of the text that is compared."""
    head, rest = text[:MAX_STRIPPED_CHARACTERS], text[MAX_STRIPPED_CHARACTERS:]
    lines = (_VARYING_PART.sub("~", line) if _NUMBER.search(line) else line for line in head.split("\n"))
    return "\n".join(lines) + rest


def _strip_arguments(call: Call, text: str) -> str:
    """Remove the arguments that a failure quotes from its text."""
    for value in call.args.values():
        if isinstance(value, str) and value.strip():
            text = text.replace(value, "~")
    return text


MAX_EXCERPT_CHARACTERS = 200  # of the earlier result that a refused repeat quotes
MAX_EARLIER_CALLS = 1_000  # that are remembered, so that the memory of a long run is bounded


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """An earlier call: its step, the beginning of its result and the result's digest.

    `is_from_outside` tells whether the result came from outside, `ok` whether the call succeeded.
    """

    step: int
    excerpt: str
    is_from_outside: bool = False
    digest: int = 0
    ok: bool = True


def refusal(earlier: EarlierCall, failing: str = "") -> str:
    """Tell the model that a repeated call is already done or has failed, and how to go on.

    `failing` names the goals with failing checks, since repeating the call would not change that.
    """
    result = "" if earlier.is_from_outside else f"It gave: {earlier.excerpt} "  # no room for marks
    if not earlier.ok:
        return (
            f"it failed in step {earlier.step}, and nothing has changed since, so it would fail again. {result}"
            "Use it with other arguments, or first another command that mends the cause."
        )
    state = f"it was done already in step {earlier.step}, and nothing has changed since. {result}"
    return f"{state}{f'{failing} ' if failing else ''}Use it with other arguments, or another command."


def refer_to(earlier: EarlierCall, failing: str = "") -> str:
    """Refer the model to an equal earlier result. See `refusal` for `failing`."""
    if earlier.ok:
        return " ".join(filter(None, (f"[the same as in step {earlier.step}]", failing, "Use another command.")))
    return f"[failed as in step {earlier.step}] Use it with other arguments, or first another command."


class LoopGuard:
    """Bar repeated calls. Call `earlier_call` before a call is authorized, and `earlier_read` after it ran.

    `barred_names` are the commands of a call that the agent insists on repeating, of one that failed the same way, or
    of a rejected end. They are withheld until another command has run, which breaks the loop of a small model.
    """

    NOT_IN_CHECKPOINT = ("_specs",)

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self._results: dict[int, EarlierCall] = {}  # by the keys of calls
        self.barred_names: set[str] = set()
        self._newest_call: Call | None = None
        self._repeated_key: int | None = None  # of the newest repeat
        self._newest_change_key: int | None = None  # of the newest call that changed something
        self._has_repeated_change = False  # whether the newest call repeated a change

    def add(self, event: events.Event) -> None:
        match event:
            case events.Thought() | events.Started():
                self._newest_call = event.call  # as requested, then as it runs
            case events.Rejected() if event.command:  # placeholders instead of values, which other commands provide
                self.barred_names.add(event.command)
            case events.Decided(allowed=False, by="loop guard") if self._newest_call:
                self._note_repeat(self._newest_call)
                self.barred_names.add(self._newest_call.name)
                earlier = self._results.get(self._newest_call.key)
                self._has_repeated_change = earlier is not None and earlier.ok
            case events.Decided(allowed=False, by="guard" | "nobody") if self._newest_call:
                if self._note_repeat(self._newest_call):  # asking again does not help, since nobody can allow it
                    self.barred_names.add(self._newest_call.name)
            case events.Returned(meta=ResultMeta(repeat=True)) if self._newest_call:
                self._has_repeated_change = False
                self.barred_names.add(self._newest_call.name)
            case events.Returned() if self._newest_call:
                earlier = self._results.get(self._newest_call.key)
                # A rejected end may be worded differently if it quotes outside text.
                is_same = earlier and (event.put_off or earlier.digest == fingerprint(event.text))
                self.barred_names = {self._newest_call.name} if earlier and is_same and not earlier.ok else set()
                self._repeated_key, self._has_repeated_change = None, False
                self._add_returned(self._newest_call, event)
            case events.Feedback() | events.Resumed() | events.Changed() | events.Undone():  # by the user
                self.barred_names.clear()
                self._has_repeated_change, self._newest_change_key = False, None
                self._results.clear()

    def select_commands(self, specs: Sequence[CommandSpec]) -> list[CommandSpec]:
        """Return the commands to offer next, or all if none would remain.

        An agent that repeats itself is done or mistaken, so it may only read or end the run.
        """
        offered = [spec for spec in specs if spec.name not in self.barred_names]
        if self._has_repeated_change:
            offered = [spec for spec in offered if spec.risk == "read"]
        return offered or list(specs)

    def earlier_call(self, proposal: Proposal) -> EarlierCall | None:
        """Return the earlier call that makes this one pointless, as it changes nothing or repeats a change, or None."""
        earlier = self._results.get(proposal.call.key)
        effects = proposal.spec.effects
        if effects is not None and effects.amends and proposal.call.key == self._newest_change_key:
            return earlier  # such as the same line appended again
        if proposal.changes or proposal.spec.repeatable or proposal.spec.risk == "read":
            return None
        if earlier and not earlier.ok and proposal.spec.risk == "network":
            return None  # an external failure may have passed
        return earlier

    def earlier_read(self, call: Call, text: str) -> EarlierCall | None:
        """Return the earlier call if it read the same text."""
        spec = self._specs.get(call.name)
        earlier = self._results.get(call.key)
        if earlier is None or spec is None or spec.repeatable or spec.risk != "read":
            return None
        return earlier if earlier.digest == fingerprint(text) else None

    def _note_repeat(self, call: Call) -> bool:
        """Note a repeated call. Return whether it is the second repeat in a row."""
        key = call.key
        is_second = self._repeated_key == key
        self._repeated_key = key
        return is_second

    def _add_returned(self, call: Call, event: events.Returned) -> None:
        key, digest = call.key, fingerprint(event.text)
        spec = self._specs.get(call.name)
        if (event.ok or event.meta.changed) and (spec is None or spec.risk != "read"):
            self._results.clear()  # files changed: any result may differ now
            self._newest_change_key = key if event.ok else None
        self._results.pop(key, None)  # if added again below, it is the newest
        if event.known:
            excerpt, is_from_outside = event.text[:MAX_EXCERPT_CHARACTERS], bool(event.meta.untrusted)
            ok = event.ok and not event.meta.failed  # a program can fail although the command succeeded
            self._results[key] = EarlierCall(event.step, excerpt, is_from_outside, digest, ok)
            if len(self._results) > MAX_EARLIER_CALLS:
                del self._results[next(iter(self._results))]
