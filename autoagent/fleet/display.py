"""Show a fleet: as a live table in a terminal, as plain lines in a pipe, or as JSON with an event per line."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from autoagent.fleet.record import FleetState, Row
from autoagent.fleet.results import status_of, summary, summary_line
from autoagent.terminal.live_area import LiveArea
from autoagent.terminal.output import Column, Columns, echo
from autoagent.text.sanitize import escape_json

_FRAME_LINES = 6  # the title, the header, `and N more running`, and room for the prompt
TABLE: Columns[Row] = Columns(
    (
        Column("RUN", lambda row: row.job.id),
        Column("ATTEMPT", lambda row: str(row.attempt) if row.attempt > 1 else "", spare=1),
        Column("STEP", lambda row: str(row.steps), right=True),
        Column("TOKENS", lambda row: f"{row.tokens:,}", spare=2, right=True),
        Column("COST", lambda row: f"${row.usd:.4f}", spare=3, right=True),
    ),
    Column("NOW", lambda row: row.doing),
)


class FleetScreen:
    """Show the progress of a fleet from the lines of its record, the events of its runs, and their ends."""

    def __init__(self, state: FleetState, *, as_json: bool) -> None:
        self._state = state
        self._json = as_json
        self._start_time = time.monotonic()
        is_live = not as_json and sys.stdout.isatty()
        self._area = LiveArea(self._write, lambda: 0, moves=is_live)  # each line ends at column 0
        self._area.begin(self._live_lines)

    def show_entry(self, entry: Mapping[str, Any]) -> None:
        """Show an entry of the record, or an event of a run."""
        kind = entry["type"]
        if self._json:
            self._write(f"{escape_json(json.dumps(entry, ensure_ascii=False))}\n")
        elif kind == "lost":
            self.say(f"{entry['id']}: {entry['reason']} Resuming it.")
        elif kind == "started" and entry["again"]:
            self.say(f"{entry['id']}: attempt {entry['attempt']}. {entry['again']}")

    def show_end(self, row: Row) -> None:
        """Show the end of a run."""
        if self._json:
            return
        rows = self._state.rows.values()
        done = sum(other.state == "done" for other in rows)
        figures = f"{row.steps} steps, {row.tokens:,} tokens, ${row.usd:.4f}, {row.seconds:.0f} s"
        reason = "" if row.finished else f": {row.reason}"
        self.say(f"{done}/{len(rows)}  {row.job.id}  {row.status}  {figures}{reason}")

    def say(self, text: str) -> None:
        """Print a line: on standard error if standard output carries JSON."""
        with self._area.hidden():
            echo(text, err=self._json)

    def close(self, refusal: str) -> None:
        """Stop drawing and print a summary. `refusal` is why no further calls were made, or ''."""
        self._area.close()
        state, figures = self._state, summary(self._state.rows.values())
        echo(summary_line(figures), err=True)
        if refusal:
            echo(refusal, err=True)
        hint = "" if figures["finished"] == figures["runs"] else f"; `autoagent fleet resume {state.out}` continues"
        echo(f"Results: autoagent fleet results {state.out}{hint}", err=True)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _live_lines(self, seconds: float) -> list[str]:
        rows = list(self._state.rows.values())
        columns, lines = shutil.get_terminal_size()
        busy = [row for row in rows if status_of(row) == "running"]
        visible = busy[: max(1, lines - _FRAME_LINES)]
        more = [f"and {len(busy) - len(visible)} more running"] if len(busy) > len(visible) else []
        title = f"{summary_line(summary(rows)).rstrip('.')}, {time.monotonic() - self._start_time:.0f} s"
        return [title, *TABLE.lines(visible, columns - 2), *more]
