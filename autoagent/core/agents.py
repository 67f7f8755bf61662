"""A sub-agent as its starter sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoagent.core.memory import Origin


@dataclass(frozen=True, slots=True)
class SubAgent:
    """A snapshot of a sub-agent for the agent that started it. `commands` are the commands it may use.

    `status` is `running`, `asking` (it waits for the user's answer) or the status of its Outcome with its `reason`.
    `said` is its last message. `origin` records the sources of everything it has read.
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
