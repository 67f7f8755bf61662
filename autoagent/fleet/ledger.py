"""Keep one budget of money and tokens, and one request rate, for all workers.

Amounts are reserved before each call, so the limits are exact at any parallelism. A call is granted while its longest
possible reply fits. When the budget runs short, the reply is limited to a multiple of earlier replies. Near the ceiling
a call waits until every other call has returned. Then its reply is limited to the rest of the budget, or it is refused,
as by the budget of a single run (agent/budget.py).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autoagent.agent.budget import FIRST_REPLY_TOKENS, estimated_cost
from autoagent.core.model import Price

RECENT_REPLIES = 20  # of a model, for estimating the next
EXPECTED_RATIO = 1.25  # of the next reply to the longest recent one
MAX_RATIO_IF_SHORT = 4  # when the budget runs short
SPARE_CALLS = 3  # similar calls that must fit beside a call with the longest reply
MINUTE = 60.0  # in seconds
LOG_SECONDS = 10.0  # how long a call waits for the cost of another to be logged
MIN_GAP_SECONDS, MAX_GAP_SECONDS = 0.1, 5.0  # between requests, after the server refused one for its rate

Key = tuple[str, int]
"""A call: the run's id, and the number that its worker gave it."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The limits over all runs. 0 means none."""

    usd: float = 0.0
    tokens: int = 0
    rpm: float = 0.0
    tpm: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A call that asks for its share of the budget. `prompt` is its worker's count of tokens."""

    key: Key
    model: str
    prompt: int
    max_reply: int
    price: Price | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call: the maximum tokens of its reply (0: no limit), or why it is refused."""

    key: Key
    at_most: int = 0
    refusal: str = ""


@dataclass(slots=True)
class Amount:
    """An amount of money (USD) and tokens."""

    usd: float = 0.0
    tokens: int = 0

    def add(self, usd: float, tokens: int) -> None:
        """Add another amount."""
        self.usd += usd
        self.tokens += tokens


@dataclass(slots=True, eq=False)
class Unlogged:
    """The amount of a call that is over, until its run logs it. If `unsettled`, it is the reserved amount."""

    amount: Amount
    since: float
    unsettled: bool = False


class Ledger:
    """Track the spending by run, and the reservations by call. For use by a single thread."""

    def __init__(self, ceilings: Ceilings, clock: Callable[[], float] = time.monotonic) -> None:
        self.ceilings = ceilings
        self.exhausted = ""  # why the last call was refused
        self.waiting: deque[Call] = deque()  # calls waiting for their share, oldest first
        self.turns: deque[Key] = deque()  # requests waiting for their turn
        self._clock = clock
        self._spent: dict[str, Amount] = {}  # according to the logs
        self._total = Amount()
        self._reserved: dict[Key, tuple[Call, Amount]] = {}
        self._unlogged: dict[str, list[Unlogged]] = {}  # by run
        self._reply_sizes: dict[str, deque[int]] = {}
        self._count_ratios: dict[str, deque[float]] = {}
        self._minute: deque[tuple[float, Amount]] = deque()  # the calls of the last minute, with the time of each
        self._pause_end = self._next_turn = -math.inf
        self._gap = 0.0

    def set_spent(self, run: str, usd: float, tokens: int) -> None:
        """Set the totals from a run's log, and forget the calls of its ended worker."""
        old = self._spent.get(run, Amount())
        self._total.add(usd - old.usd, tokens - old.tokens)
        self._spent[run] = Amount(usd, tokens)
        self._unlogged.pop(run, None)
        self._reserved = {key: reserved for key, reserved in self._reserved.items() if key[0] != run}
        self.waiting = deque(call for call in self.waiting if call.key[0] != run)
        self.turns = deque(key for key in self.turns if key[0] != run)

    def retire(self, run: str) -> None:
        """Keep what a run has spent, and forget its calls: its log cannot be read, and another attempt begins anew."""
        spent = self._spent.get(run, Amount())
        self.set_spent(run, spent.usd, spent.tokens)
        self._spent.pop(run)

    def settle(self, key: Key, usd: float, prompt: int, completion: int) -> None:
        """Replace a call's reservation by its cost, until the run has logged it."""
        if (reserved := self._reserved.pop(key, None)) is None:
            return
        call, amount = reserved
        if call.prompt and prompt:
            self._count_ratios.setdefault(call.model, deque(maxlen=RECENT_REPLIES)).append(prompt / call.prompt)
        if completion:
            self._reply_sizes.setdefault(call.model, deque(maxlen=RECENT_REPLIES)).append(completion)
        self._unlogged.setdefault(key[0], []).append(Unlogged(Amount(usd, prompt + completion), self._clock()))
        amount.tokens = prompt + completion  # in the last minute, too

    def leave_unsettled(self, key: Key) -> None:
        """Keep the reservation of a call of unknown cost until its run logs the cost. It waits no longer."""
        self.waiting = deque(call for call in self.waiting if call.key != key)
        self.turns = deque(turn for turn in self.turns if turn != key)
        if (reserved := self._reserved.pop(key, None)) is not None:
            self._unlogged.setdefault(key[0], []).append(Unlogged(reserved[1], self._clock(), unsettled=True))

    def add_logged_cost(self, run: str, usd: float, tokens: int) -> None:
        """Add the cost of a run's event, in USD and tokens, and drop the calls that it covers.

        An unsettled call is covered by tokens of no settled call, or by an event more than LOG_SECONDS later.
        """
        self._total.add(usd, tokens)
        self._spent.setdefault(run, Amount()).add(usd, tokens)
        calls = self._unlogged.get(run, [])
        covered = [call for call in calls if not call.unsettled and call.amount.tokens == tokens][:1]
        if not covered:
            for call in calls:
                if not call.unsettled and call.amount.tokens <= tokens:
                    tokens -= call.amount.tokens
                    covered.append(call)
            earliest = self._clock() - LOG_SECONDS  # by now the run would have logged the cost of an earlier call
            covered += [call for call in calls if call.unsettled and (tokens or call.since < earliest)]
        self._unlogged[run] = [call for call in calls if call not in covered]

    def slow_down(self, seconds: float) -> None:
        """Pause all requests, then send them less often, after the server refused a request for its rate."""
        self._pause_end = max(self._pause_end, self._clock() + seconds)
        self._gap = min(MAX_GAP_SECONDS, max(MIN_GAP_SECONDS, 2 * self._gap))

    def answers(self) -> Iterator[Answer]:
        """Yield an answer for each call that no longer has to wait, oldest first."""
        while self.waiting and (answer := self.decide(self.waiting[0])) is not None:
            self.waiting.popleft()
            yield answer
        now = self._clock()
        while self.turns and now >= max(self._pause_end, self._next_turn):
            rate = MINUTE / self.ceilings.rpm if self.ceilings.rpm else 0.0
            self._next_turn = now + max(rate, self._gap)
            self._gap = self._gap * 0.95 if self._gap > MIN_GAP_SECONDS / 10 else 0.0
            yield Answer(self.turns.popleft())

    @property
    def seconds_to_wake(self) -> float:
        """Return after how many seconds the passing of time alone may let a call continue, or infinity."""
        moments = [max(self._pause_end, self._next_turn)] if self.turns else []
        moments += [self._minute[0][0] + MINUTE] if self.waiting and self._minute else []
        return max(0.0, min(moments) - self._clock()) if moments else math.inf

    def decide(self, call: Call) -> Answer | None:
        """Return the answer to a call, or None if it has to wait."""
        prompt = math.ceil(call.prompt * max(self._count_ratios.get(call.model, ()), default=1.0))
        replies = self._reply_sizes.get(call.model)
        expected = min(call.max_reply, int(EXPECTED_RATIO * max(replies)) if replies else FIRST_REPLY_TOKENS)
        now, ceilings = self._clock(), self.ceilings
        if ceilings.tpm:
            while self._minute and self._minute[0][0] <= now - MINUTE:
                self._minute.popleft()
            if self._minute and sum(amount.tokens for _, amount in self._minute) + prompt + expected > ceilings.tpm:
                return None
        reply = call.max_reply
        if replies and self._max_reply(call, (prompt + reply) * SPARE_CALLS) < reply:
            reply = min(reply, max(FIRST_REPLY_TOKENS, MAX_RATIO_IF_SHORT * max(replies)))
        if self._max_reply(call, prompt) < reply:
            unlogged = [call for calls in self._unlogged.values() for call in calls]
            if self._reserved or any(now - call.since < LOG_SECONDS for call in unlogged):
                return None
            reply = self._max_reply(call, prompt)
            if reply < expected:
                self.exhausted = self._refusal(call, prompt, expected)
                return Answer(call.key, refusal=self.exhausted)
        amount = Amount(estimated_cost(prompt, reply, call.price) or 0.0, prompt + reply)
        self._reserved[call.key] = call, amount
        if ceilings.tpm:
            self._minute.append((now, amount))
        return Answer(call.key, reply if ceilings.usd or ceilings.tokens else 0)

    def _max_reply(self, call: Call, prompt: int) -> int:
        """Return how many tokens a reply may have within the ceilings, given everything spent and reserved."""
        amounts = [amount for _, amount in self._reserved.values()]
        amounts += [call.amount for calls in self._unlogged.values() for call in calls]
        limits: list[float] = [call.max_reply]
        if self.ceilings.tokens:
            used = self._total.tokens + sum(reserved.tokens for reserved in amounts)
            limits.append(self.ceilings.tokens - used - prompt)
        if self.ceilings.usd and call.price is not None:
            usd = self.ceilings.usd - self._total.usd - sum(reserved.usd for reserved in amounts)
            usd -= prompt * call.price.prompt / 1e6
            if usd < 0:
                limits.append(-1)
            elif call.price.completion > 0:
                limits.append(usd / call.price.completion * 1e6)
        return math.floor(min(limits) + 1e-6)

    def _refusal(self, call: Call, prompt: int, expected: int) -> str:
        ceilings, left = self.ceilings, self.ceilings.usd - self._total.usd
        cost = estimated_cost(prompt, expected, call.price) or 0.0
        if ceilings.usd and call.price is not None and cost > left:
            need = f"${cost:.4f}; of the fleet's budget of ${ceilings.usd:g} ${max(0.0, left):.4f} is left"
        else:
            left = max(0, ceilings.tokens - self._total.tokens)
            need = f"{prompt + expected} tokens; of the fleet's {ceilings.tokens} (--max-tokens) {left} are left"
        return f"The next call may take {need}."
