"""The budget: hard ceilings on money, tokens, seconds and commands, as a fold over the log.

Every call counts, also one whose reply could not be used. A ceiling is checked before a call, with an estimate of
that call, so that it is not passed and then noticed. Money cannot be counted where the price is unknown: that is
said once, and the other ceilings hold, as does this one for what is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoagent.errors import StopRun
from autoagent.messages import Event, Outcome, Price, Rejected, Resumed, RunStarted, Spent, Started, Thought, Usage


@dataclass(frozen=True, slots=True)
class Limits:
    """Ceilings; 0 means none. `usd` and `tokens` and `seconds` hold for the whole run, over all its processes;
    `commands` for the present process alone, so that a resumed run goes on."""

    usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    commands: int = 0


class Budget:
    """Add every event in order; ask `check` before a call and `check_command` before a command."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.usage = Usage()
        self.usd = 0.0  # what is known of the cost; `usage.cost` is None once a call had no price
        self.commands = 0
        self._seconds = 0.0  # of earlier processes
        self._since: float | None = None  # start of this process
        self._last = 0.0

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case Resumed():
                self._seconds += self._last - (self._since if self._since is not None else self._last)
                self._since = event.t
                self.commands = 0
            case RunStarted():
                self._since = event.t
            case Thought() | Rejected() | Spent():
                self.usage += event.usage
                self.usd += event.usage.cost or 0.0
            case Started():
                self.commands += 1
        self._last = event.t

    @property
    def tokens(self) -> int:
        return self.usage.prompt + self.usage.completion

    def seconds(self, now: float) -> float:
        """Seconds of this run up to `now` (epoch), of all its processes."""
        return self._seconds + max(0.0, now - (self._since if self._since is not None else now))

    def check(self, prompt_tokens: int, reply_tokens: int, price: Price | None, now: float) -> None:
        """Raises StopRun where a call of this size would pass a ceiling, or time is up."""
        limits = self.limits
        if limits.seconds and self.seconds(now) >= limits.seconds:
            raise StopRun(Outcome("limit", f"The time limit of {limits.seconds:g} s is reached."))
        if limits.tokens and self.tokens + prompt_tokens + reply_tokens > limits.tokens:
            raise StopRun(
                Outcome(
                    "budget",
                    f"The next call may take {prompt_tokens + reply_tokens} tokens; of the limit of {limits.tokens} "
                    f"(--max-tokens) {max(0, limits.tokens - self.tokens)} are left.",
                )
            )
        estimate = estimated_cost(prompt_tokens, reply_tokens, price) or 0.0
        if limits.usd and self.usd + estimate > limits.usd:
            raise StopRun(
                Outcome(
                    "budget",
                    f"The next call may cost ${estimate:.4f}; of the budget of ${limits.usd:g} "
                    f"${max(0.0, limits.usd - self.usd):.4f} is left.",
                )
            )

    def check_command(self) -> None:
        """Raises StopRun where no further command may be started."""
        if self.limits.commands and self.commands >= self.limits.commands:
            number = self.limits.commands
            noun = "command" if number == 1 else "commands"
            raise StopRun(Outcome("limit", f"The limit of {number} {noun} (-l) is reached."))

    def left(self, now: float) -> str:
        """What is left, as a line for the prompt; '' without limits."""
        limits = self.limits
        parts = []
        if limits.commands:
            parts.append(f"{max(0, limits.commands - self.commands)} of {limits.commands} commands")
        if limits.usd:
            parts.append(f"${max(0.0, limits.usd - self.usd):.3f} of ${limits.usd:g}")
        if limits.tokens:
            parts.append(f"{max(0, limits.tokens - self.tokens)} tokens")
        if limits.seconds:
            parts.append(f"{max(0, int(limits.seconds - self.seconds(now)))} seconds")
        return f"You have left: {', '.join(parts)}." if parts else ""


def estimated_cost(prompt_tokens: int, reply_tokens: int, price: Price | None) -> float | None:
    """USD of a call at most this large, nothing of it cached; None where the price is unknown."""
    if price is None:
        return None
    return (prompt_tokens * price.prompt + reply_tokens * price.completion) / 1e6
