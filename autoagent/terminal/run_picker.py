"""The choice of a run at a terminal: a short list, and words that narrow it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass

from autoagent.core.errors import StopRun
from autoagent.core.task import Outcome, Status
from autoagent.terminal.setup_wizard import SetupTerminal
from autoagent.text.ages import ago
from autoagent.text.wrapping import cut

MOST_LISTED = 500  # runs that can be searched
_ROWS = 10  # of the list


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run as the list shows it. `status` is None where it has not ended. `updated` is in seconds since the epoch."""

    run: str
    name: str
    status: Status | None
    updated: float


def pick_run(runs: Sequence[ListedRun], terminal: SetupTerminal) -> str:
    """Have the person choose one of the runs, by its number or by words of its name. Return its id.

    Enter takes the newest one that is not finished. Raises StopRun at the end of the input.
    """
    shown = list(runs)
    while True:
        usual = next((number for number, run in enumerate(shown, 1) if run.status != Status.FINISHED), 1)
        for number, run in enumerate(shown[:_ROWS], 1):
            terminal.say(_row(number, run))
        more = f", {len(shown) - _ROWS} more by words" if len(shown) > _ROWS else ""
        try:
            answer = terminal.ask(f"Which run? Number, or words to search{more} [{usual}]:", str(usual)).strip()
        except EOFError:
            raise StopRun(Outcome(Status.STOPPED, "Nothing was resumed.")) from None
        if answer.isdecimal() and 0 < int(answer) <= len(shown):
            return shown[int(answer) - 1].run
        found = [run for run in runs if _fits(run, answer)]
        if len(found) == 1:
            return found[0].run
        if not found:
            terminal.say(f"No run fits {answer!r}.")
        shown = found or list(runs)


def _fits(run: ListedRun, words: str) -> bool:
    text = f"{run.run} {run.name} {_standing(run)}".casefold()
    return all(word in text for word in words.casefold().split())


def _standing(run: ListedRun) -> str:
    return run.status or "unfinished"


def _row(number: int, run: ListedRun) -> str:
    start = f"{number:>3}  {ago(run.updated, time.time()):<15} {_standing(run):<11} "
    return next(cut(run.name, shutil.get_terminal_size().columns - 1, start, at_spaces=True))
