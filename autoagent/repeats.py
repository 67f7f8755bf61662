"""The loop guard: a fold over the log that notices an agent going round in circles.

Two kinds. A single call that was made before, with nothing changed since, would give the same result: it is barred
before it runs. A cycle of up to four calls that keeps giving the same results is told to the model, then to the
user, then ends the run. Polling is neither: its results change.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from autoagent.messages import Call, CommandSpec, Decided, Event, Rejected, Returned, Thought

LONGEST_CYCLE = 4
TELL_MODEL, TELL_USER, STOP = 3, 4, 6  # rounds of the same cycle


@dataclass(frozen=True, slots=True)
class Earlier:
    """A call that ran: in which step, and what it gave."""

    step: int
    text: str


class Repeats:
    """Add every event in order; ask `barred` before a call is authorized and `alarm` after the step.

    `barred_names`: commands of which a call was barred since the last one that ran. They are not offered again until
    another has run: a small model that is bound to what is offered gets out of its circle that way.
    """

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self._results: dict[str, Earlier] = {}
        self.barred_names: set[str] = set()
        self._pending: Call | None = None
        self._recent: deque[int] = deque(maxlen=LONGEST_CYCLE * STOP)
        self._told = 1

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case Thought():
                self._pending = event.call
            case Rejected():
                self._recent.append(hash(event.text))
            case Decided(allowed=False, by="loop guard") if self._pending:
                # It counts with the result it would have had, so that insisting on it is seen as a cycle.
                earlier = self._results.get(_key(self._pending))
                self._recent.append(hash((_key(self._pending), earlier.text if earlier else "")))
                self.barred_names.add(self._pending.name)
            case Returned() if self._pending:
                self.barred_names.clear()
                self._returned(self._pending, event)

    def barred(self, call: Call) -> Earlier | None:
        """The earlier run of this call, if running it again now would give the same result; else None."""
        spec = self._specs.get(call.name)
        return None if spec is None or spec.repeatable else self._results.get(_key(call))

    def alarm(self) -> int:
        """TELL_MODEL, TELL_USER or STOP when the newest cycle has just come round that often; else 0."""
        rounds, _ = self.rounds()
        if rounds <= self._told:
            self._told = min(self._told, rounds) if rounds < TELL_MODEL else self._told
            return 0
        self._told = rounds
        return STOP if rounds >= STOP else rounds if rounds in (TELL_MODEL, TELL_USER) else 0

    def rounds(self) -> tuple[int, int]:
        """How often the newest cycle of calls and results has come round without a change, and its length."""
        best = (1, 1)
        recent = list(self._recent)
        for length in range(1, LONGEST_CYCLE + 1):
            cycle, count = recent[-length:], 1
            while recent[-length * (count + 1) : -length * count or None] == cycle and len(cycle) == length:
                count += 1
            best = max(best, (count, length))
        return best

    def _returned(self, call: Call, event: Returned) -> None:
        self._recent.append(hash((_key(call), event.text)))
        spec = self._specs.get(call.name)
        if event.ok and (spec is None or spec.risk != "read"):
            self._results.clear()  # the world changed: any result may now be another
        self._results[_key(call)] = Earlier(event.step, event.text)
        if not event.known:
            self._results.pop(_key(call))


def _key(call: Call) -> str:
    return call.name + json.dumps(call.args, sort_keys=True, ensure_ascii=False)
