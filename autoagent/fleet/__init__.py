"""Run hundreds of tasks under one budget.

`fleet_run` is the entry point. `task_list` reads the tasks, `record` keeps the record (`fleet.jsonl`), `ledger` divides
money, tokens and requests, `head` leads the workers, `engine` and `ray_engine` start them. In a run's process,
`fleet_worker` joins the fleet, `head_connection` talks to the head, and `metered_model` reserves calls. `folder_copy`
copies folders between machines, `results` evaluates a record, `display` shows progress, `command_line` defines
`autoagent fleet`.

Rank 4. May import session/, teams/ and the rooms below. Nothing below knows of it. Exports `Fleet` for Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoagent.fleet.fleet_run import Fleet

__all__ = ["Fleet"]


def __getattr__(name: str) -> Any:
    """Import `Fleet` on first access, as workers do not need it."""
    if name != "Fleet":
        raise AttributeError(name)
    from autoagent.fleet.fleet_run import Fleet

    return Fleet
