"""A sub-agent as its starter sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoagent.core.memory import Origin


@dataclass(frozen=True, slots=True)
class SubAgent:
    """A sub-agent at one moment, as its starter sees it. `commands` are those it may use.

    `status` is `running`, `asking` (it waits until the user has answered a question of it) or as in Outcome, and
    `reason` then why it ended. `said` is what it said last, and `origin` what that comes from, after all it has read.
    """

    key: str
    name: str
    task: str
    commands: tuple[str, ...] = ()
    status: str = "running"
    reason: str = ""
    steps: int = 0
    seconds: float = 0.0
    said: str = ""
    origin: Origin = field(default_factory=Origin)
