"""Standstill detection: whether the agent makes progress, as a fold over the log. docs/runs.md has its rules.

A step is progress if it brings something new: a text not read before, a new state of the workspace, a new message to
somebody, a goal whose check now passes. Every other step counts as one without progress, so that no mix of them goes on
for ever. Progress, feedback of the user and a wait of a minute reset the count: an agent that watches something does
the same each time. Results are compared without times, durations, addresses and pids, which vary by themselves.

Not covered: a loop that brings something new each round, such as a line that grows, a call with other arguments that
succeeds, or the words of another model.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from autoagent.core.commands import Call, CommandSpec, Proposal, ResultMeta
from autoagent.core.events import (
    AgentMessage,
    Changed,
    Checked,
    Decided,
    Event,
    Feedback,
    Rejected,
    Resumed,
    Returned,
    Snapshot,
    Started,
    Thought,
)

Alarm = Literal["", "model", "user", "stop"]
"""Who is to hear of a standstill now; `stop` ends the run."""

ALARMS: tuple[Alarm, ...] = ("", "model", "user", "stop")
ROUNDS = (3, 4, 6)  # repetitions of the very same outcome without progress at which each alarm is raised
STEPS = (8, 12, 20)  # steps without progress, of whatever kind, at which it is raised
NUMBERS = 4  # results that differ from an earlier one in numbers alone, for each step that is counted
COMPARED = 50_000  # characters of a result in which what varies is set aside
WAITS = 25  # looks at what still goes on, and waits for it, for each step that is counted
LONG_WAIT = 60.0  # seconds

_UNIT = NUMBERS * WAITS  # weight of a step without progress; integers add up the same in any order

# What varies by itself. Not every number: the count of failing tests is progress.
_VARYING = re.compile(
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
    """Add every event in order. After each step, `alarm` names who is to hear of a standstill, `says` the text."""

    NOT_KEPT = ("_specs",)  # in a checkpoint

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self.alarm: Alarm = ""
        self._call: Call | None = None
        self._trees: set[str] = set()  # states of the workspace that were there
        self._began = 0.0  # when the running command did
        self._state: Literal["", "new", "old"] = ""  # that the running command has led to; '' where it is not known
        self._changes: set[Hashable] = set()  # what came of steps that changed files
        self._rest: set[Hashable] = set()  # what came of all others since the last change that was progress
        self._nearly: set[Hashable] = set()  # the same, but for the numbers in it, since the last new state
        self._newest: dict[str, Hashable] = {}  # what came of each call when it last ran
        # Since the last progress: how often each thing came, what came last, the steps, and how much they count.
        self._times: Counter[Hashable] = Counter()
        self._last: Hashable = ""
        self._steps = self._weight = self._level = 0

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case Thought():
                self._call = event.call
            case Rejected():
                self._count("unusable")
            case Decided(allowed=False) if self._call:
                key = self._call.key
                self._count(self._newest.get(key, key))
            case Started():
                self._call, self._state, self._began = event.call, "", event.t
            case Snapshot():
                self._state = "old" if event.tree in self._trees else "new"
                self._trees.add(event.tree)
            case Returned(known=True) if self._call:
                self._returned(self._call, event)
            case Checked(met=True):
                self._count_outside(("met", event.goal))
            case AgentMessage():
                self._count_outside(("told", event.sender, without_varying(event.text)))
            case Feedback() | Resumed() | Changed():  # the user intervened, and may have changed anything
                self._changes.clear()
                self._rest.clear()
                self._nearly.clear()
                self._start_again()

    @property
    def says(self) -> str:
        """The text about the standstill."""
        again, kinds = self._times[self._last], len(self._times)
        if again >= ROUNDS[0] and self._last == _END:
            return f"The run was not ended {again} times, and nothing is new since."
        if again >= ROUNDS[0] and min(self._times.values()) >= again - 1:  # a circle
            return f"The same {'call' if kinds == 1 else f'{kinds} steps'} with the same results, {again} times over."
        return f"{self._steps} steps in a row have brought nothing new."

    # What a step comes to ----------------------------------------------------------------------------------------

    def _returned(self, call: Call, event: Returned) -> None:
        key = call.key
        if event.wants_a_look:  # the end was put off: nothing is new, whatever the text says
            self._count(_END)
        elif event.meta.waits is not None and event.t - self._began >= LONG_WAIT:
            self._start_again()
        elif event.meta.repeat:
            self._count(self._newest.get(key, key))
        else:
            self._compare(call, event)

    def _compare(self, call: Call, event: Returned) -> None:
        """Return whether this step brought anything that earlier ones had not."""
        meta, changed = event.meta, event.meta.changed
        has_failed = not event.ok or meta.failed
        about = call.name if has_failed else call.key  # the same failure of another call is nothing new
        text = without_varying(event.text)
        outcome = _fingerprint(repr((about, text, changed)))
        alike = _NUMBER.sub("0", _without(call, text) if has_failed else text)
        nearly = _fingerprint(repr((about, alike, changed)))
        known = self._changes if changed else self._rest
        leads_on = bool(changed) and self._state == "new"
        if leads_on:
            self._nearly.clear()  # a new number of things left to do is progress
        if outcome in known or (changed and self._state == "old"):
            if meta.waits is not None:
                self._count(outcome, _UNIT // WAITS if meta.waits else _UNIT, again=0)
            else:  # adding the same line for ever changes files too, so it counts
                self._count(outcome, again=0 if leads_on else 1)
        elif nearly in self._nearly and has_failed:
            self._count(outcome, again=0)
        elif nearly in self._nearly and not self._only_looks(call):
            self._count(outcome, _UNIT // NUMBERS, again=0)
        else:
            if changed:
                self._rest.clear()  # all may be looked at again
            self._start_again(outcome)
        known.add(outcome)
        self._nearly.add(nearly)
        self._newest[call.key] = outcome

    def _count_outside(self, outside: Hashable) -> None:
        """Count a message between steps as progress the first time only."""
        if outside not in self._changes:
            self._changes.add(outside)
            self._start_again()

    def _count(self, what: Hashable, weight: int = _UNIT, *, again: int = 1) -> None:
        """Count a step without progress. `again`: how often more the very same has come."""
        before = self._level
        self._steps += 1
        self._weight += weight
        self._last = what
        self._times[what] += again
        rounds, steps = self._times[what], self._weight // _UNIT
        by_rounds = sum(rounds >= limit for limit in ROUNDS)
        self._level = max(before, by_rounds, sum(steps >= limit for limit in STEPS))
        self.alarm = ALARMS[self._level] if self._level > before else ""

    def _start_again(self, what: Hashable = "") -> None:
        """Note progress: reset the count, with `what` seen once."""
        self._times = Counter({what: 1} if what else {})
        self._last = what
        self._steps = self._weight = self._level = 0
        self.alarm = ""

    def _only_looks(self, call: Call) -> bool:
        """Return whether its command is declared as read-only: a number in its result is news."""
        spec = self._specs.get(call.name)
        return spec is not None and spec.risk == "read"


_END = "end"


def without_varying(text: str) -> str:
    """Drop times, durations, addresses, pids and the like from the text, as far as it is examined."""
    head, rest = text[:COMPARED], text[COMPARED:]
    lines = (_VARYING.sub("~", line) if _NUMBER.search(line) else line for line in head.split("\n"))
    return "\n".join(lines) + rest


def _without(call: Call, text: str) -> str:
    """Drop from the text of a failure the arguments it quotes."""
    for value in call.args.values():
        if isinstance(value, str) and value.strip():
            text = text.replace(value, "~")
    return text


QUOTED_CHARACTERS = 200  # of an earlier result, where a repeat is refused


@dataclass(frozen=True, slots=True)
class Earlier:
    """A call that ran: its step, the beginning of its result and the hash
    of it. `outside`: the result came from outside. `ok`: it did not fail.

    The whole text is not kept: a run may read for days.
    """

    step: int
    begins: str
    outside: bool = False
    digest: int = 0
    ok: bool = True


def refusal(earlier: Earlier, failing: str = "") -> str:
    """Tell the model that a barred repeat is done or has failed, and where to go from there.

    `failing`: the goals whose checks fail, so that repeating the call does not help.
    """
    gave = "" if earlier.outside else f"It gave: {earlier.begins} "  # no marks fit in here
    if not earlier.ok:
        return (
            f"it failed in step {earlier.step}, and nothing has changed since, so it would fail again. {gave}"
            "Use it with other arguments, or first another command that mends the cause."
        )
    done = f"it was done already in step {earlier.step}, and nothing has changed since. {gave}"
    return f"{done}{f'{failing} ' if failing else ''}Use it with other arguments, or another command."


def shown_before(earlier: Earlier, failing: str = "") -> str:
    """Refer the model to a result it is shown already, instead of repeating it. `failing` as for `refusal`."""
    if earlier.ok:
        return " ".join(filter(None, (f"[the same as in step {earlier.step}]", failing, "Use another command.")))
    return f"[failed as in step {earlier.step}] Use it with other arguments, or first another command."


class LoopGuard:
    """Add every event in order. Ask `barred` before a call is authorized, `same` after it ran.

    `barred_names`: commands with which the agent insists on a repeat, on a call that failed the same way before, or on
    an end that was put off. They are not offered again until another command has run: this gets a small model, which
    is bound to the offered commands, out of its loop.
    """

    NOT_KEPT = ("_specs",)  # in a checkpoint

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self._results: dict[str, Earlier] = {}
        self.barred_names: set[str] = set()
        self._pending: Call | None = None
        self._insisted = ""  # the newest repeat
        self._newest_change = ""
        self._done_again = False  # the newest call was to change what it had changed already

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case Thought() | Started():
                self._pending = event.call  # as it was asked for, then as it runs
            case Rejected() if event.command:  # its values are not known yet: something else has to come first
                self.barred_names.add(event.command)
            case Decided(allowed=False, by="loop guard") if self._pending:
                self._repeated(self._pending)
                self.barred_names.add(self._pending.name)
                earlier = self._results.get(self._pending.key)
                self._done_again = earlier is not None and earlier.ok
            case Decided(allowed=False, by="guard" | "nobody") if self._pending:
                if self._repeated(self._pending):  # nobody is there to allow it, however often it is asked for
                    self.barred_names.add(self._pending.name)
            case Returned(meta=ResultMeta(repeat=True)) if self._pending:
                self._done_again = False
                self.barred_names.add(self._pending.name)
            case Returned() if self._pending:
                again = self._failed_again(self._pending, event)
                self.barred_names = {self._pending.name} if again else set()
                self._insisted, self._done_again = "", False
                self._returned(self._pending, event)
            case Feedback() | Resumed() | Changed():  # the user intervened, and may have changed anything
                self.barred_names.clear()
                self._done_again, self._newest_change = False, ""
                self._results.clear()

    def offered(self, specs: Sequence[CommandSpec]) -> list[CommandSpec]:
        """Return the commands to offer next, all if none would be left.

        An agent that repeats itself is done or mistaken: it may look, or end the run.
        """
        kept = [spec for spec in specs if spec.name not in self.barred_names]
        if self._done_again:
            kept = [spec for spec in kept if spec.risk == "read"]
        return kept or list(specs)

    def barred(self, proposal: Proposal) -> Earlier | None:
        """Return the earlier run of this call, if it is to change something and its preview no longer shows a
        change, or if it was itself the newest change.
        """
        earlier = self._results.get(proposal.call.key)
        effects = proposal.spec.effects
        if effects is not None and effects.amends and proposal.call.key == self._newest_change:
            return earlier  # such as the same line appended once more
        if proposal.changes or proposal.spec.repeatable or proposal.spec.risk == "read":
            return None
        if earlier and not earlier.ok and proposal.spec.risk == "network":
            return None  # what failed out there may work now
        return earlier

    def same(self, call: Call, text: str) -> Earlier | None:
        """Return the earlier run of this call, if it is a look that has just shown the same text again."""
        spec = self._specs.get(call.name)
        earlier = self._results.get(call.key)
        if earlier is None or spec is None or spec.repeatable or spec.risk != "read":
            return None
        return earlier if earlier.digest == _fingerprint(text) else None

    def _repeated(self, call: Call) -> bool:
        """Note a repeat. Whether it is insisted on."""
        key = call.key
        insisted, self._insisted = self._insisted == key, key
        return insisted

    def _failed_again(self, call: Call, event: Returned) -> bool:
        """Return whether the call has failed as it did before, with nothing changed in between.

        An end is put off again in other words where they quote a text from outside.
        """
        earlier = self._results.get(call.key)
        return earlier is not None and not earlier.ok and (event.put_off or earlier.digest == _fingerprint(event.text))

    def _returned(self, call: Call, event: Returned) -> None:
        key, digest = call.key, _fingerprint(event.text)
        spec = self._specs.get(call.name)
        if (event.ok or event.meta.changed) and (spec is None or spec.risk != "read"):
            self._results.clear()  # the world changed: any result may now be another
            self._newest_change = key if event.ok else ""
        if event.known:
            begins, outside = event.text[:QUOTED_CHARACTERS], bool(event.meta.untrusted)
            ok = event.ok and not event.meta.failed  # a program that failed is a result as well
            self._results[key] = Earlier(event.step, begins, outside, digest, ok)
        else:
            self._results.pop(key, None)


def _fingerprint(text: str) -> int:
    """Return 64 bits of the text's digest, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
