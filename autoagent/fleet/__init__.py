"""Run hundreds of tasks under one budget.

`lead` is the entry point. `task_list` reads the tasks, `record` keeps the record (`fleet.jsonl`), `ledger` divides
money, tokens and requests, `head` leads the workers, `engine` and `ray_engine` start them, `link` connects a run's
process to the head, `folder_copy` copies folders between machines, `results` evaluates a record, `display` shows
progress, and `command_line` defines `autoagent fleet`.

Rank 4. May import session/, teams/ and the rooms below. Nothing below knows of it. Exports `Fleet` for Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoagent.fleet.lead import Fleet

__all__ = ["Fleet"]


def __getattr__(name: str) -> Any:
    """Import `Fleet` on first access, as workers do not need it."""
    if name != "Fleet":
        raise AttributeError(name)
    from autoagent.fleet.lead import Fleet

    return Fleet
