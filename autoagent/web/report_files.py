"""Write reports to files: of a run, of two runs side by side, of a team, and of a fleet with a page for each run."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from autoagent.core.errors import SettingsError, StateError
from autoagent.core.events import Hired
from autoagent.fleet.record import events_of, read_record
from autoagent.fleet.results import result_rows, summary, summary_line
from autoagent.log.reader import find_run, read
from autoagent.text.figures import counted
from autoagent.text.sanitize import escape, escape_json
from autoagent.text.text_file import write_text
from autoagent.web.page import comparison_page, html_page, report_page


def write_run_report(
    state_dir: Path, target: Path | None, run: str | None = None, *, compare: str | None = None, team: str | None = None
) -> str:
    """Write the report of a run, found by an id prefix, or of a `team`, to a file. Return a message about it.

    Raises StateError for an unknown run or a damaged log, SettingsError if it is not a team's.
    """
    run = find_run(state_dir, run or team or "")
    if team and next(read(state_dir, run, (Hired,)), None) is None:
        raise SettingsError(f"{run} is not the run of a team; `autoagent report {run}` writes it.")
    if compare:
        other = find_run(state_dir, compare)
        target = target or Path(f"{other}-{run}.html")
        text = comparison_page(read(state_dir, other), read(state_dir, run))
    else:
        target, text = target or Path(f"{run}.html"), report_page(read(state_dir, run), state_dir)
    write_text(target, text, private=True)
    return f"Written to {target}."


def write_fleet_report(out: Path, target: Path | None) -> str:
    """Write the report of the fleet in `out` to a file, and its runs' reports to a folder of the same name.

    Return a message about it, and one for each run with a damaged log. Raises StateError if there is no fleet.
    """
    state = read_record(out)
    name = escape(out.absolute().name)
    target = target or Path(f"{name}.html")
    folder = target.with_name(f"{target.stem}-runs")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    rows, problems = result_rows(state), []
    for fields, row in zip(rows, state.rows.values(), strict=True):
        home, page_file, fields["link"] = state.folder(row), folder / f"{row.job.id}.html", ""
        try:
            if events := list(events_of(home)):
                write_text(page_file, report_page(events, home / "state"), private=True)
                fields["link"] = quote(f"{folder.name}/{page_file.name}")
        except StateError as error:
            problems.append(f"{row.job.id} has no page: {error}")
    figures = summary(state.rows.values())
    facts = {"name": name, "said": escape(summary_line(figures)), "figures": figures, "rows": rows}
    data = escape_json(json.dumps(facts, ensure_ascii=False))
    write_text(target, html_page(f"Fleet {name}", ("pages.js", "fleet.js"), data), private=True)
    pages = counted(sum(bool(fields["link"]) for fields in rows), "run")
    return "\n".join([*problems, f"Written to {target}, with the pages of {pages} in {folder}."])
