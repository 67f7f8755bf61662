"""The report of a fleet: a table of its runs, and a page for each of them beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from autoagent.core.errors import StateError
from autoagent.fleet.record import FleetState, Row, events_of, read_record
from autoagent.fleet.results import listed, said, summary
from autoagent.text.sanitize import escape
from autoagent.text.text_file import write_text
from autoagent.web.page import page, page_of


def write_fleet(out: Path, target: Path, tell: Callable[[str], None]) -> int:
    """Write the report of the fleet in `out` to `target`, and those of its runs to a folder named like it.

    Return how many runs have a page. `tell` hears of each run without one, whose log is damaged. Raises StateError if
    there is no fleet, SettingsError if a file cannot be written.
    """
    state = read_record(out)
    folder = target.with_name(f"{target.stem}-runs")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    rows, written = listed(state), 0
    for shown, row in zip(rows, state.rows.values(), strict=True):
        shown["link"] = _written(state, row, folder / f"{row.job.id}.html", tell)
        written += bool(shown["link"])
    figures = summary(state.rows.values())
    facts = {"name": escape(out.absolute().name), "said": escape(said(figures)), "figures": figures, "rows": rows}
    data = escape(json.dumps(facts, ensure_ascii=False))
    write_text(target, page(f"Fleet {escape(out.absolute().name)}", ("pages.js", "fleet.js"), data), private=True)
    return written


def _written(state: FleetState, row: Row, target: Path, tell: Callable[[str], None]) -> str:
    """Write the page of one run. Return the address of it in that of the fleet, or '' if the run has none."""
    folder = state.folder(row)
    try:
        if not (events := list(events_of(folder))):
            return ""
        write_text(target, page_of(events, folder / "state"), private=True)
    except StateError as error:
        tell(str(error))
        return ""
    return f"{target.parent.name}/{target.name}"
