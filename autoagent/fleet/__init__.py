"""Hundreds of runs under one budget.

`task_list` reads the tasks, `record` keeps the record (`fleet.jsonl`), `ledger` shares out money, tokens and
requests, `head` leads the workers, `engine` and `ray_engine` start them, `link` is the head's side of a run's own
process, `folder_copy` keeps copies of folders on other machines, `results` reads a record, `command_line` makes
`autoagent fleet`.

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
