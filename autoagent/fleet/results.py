"""Derive the results of a fleet from its record: a row per run, success rates, the difference between two fleets."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from math import comb
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from autoagent.core.task import Status

if TYPE_CHECKING:
    from autoagent.fleet.record import FleetState, Row

FORMULA = re.compile(r"[\s\0]*[=+\-@\uff1d\uff0b\uff0d\uff20]")  # the start of a cell that a spreadsheet would compute


def result_rows(state: FleetState) -> list[dict[str, Any]]:
    """Return the runs as JSON objects."""
    return [
        {
            "id": row.job.id,
            "task": row.job.task,
            "attempt": row.attempt,
            "status": row.current_status,
            "known": list(row.known),
            "steps": row.steps,
            "tokens": row.tokens,
            "usd": round(row.usd, 6),
            "unknown_usd": round(row.unknown_usd, 6),
            "seconds": round(row.seconds, 3),
            "folder": str(state.folder(row)),
            "reason": row.reason,
            "again": row.again,
        }
        for row in state.rows.values()
    ]


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as CSV. Put an apostrophe before any text that a spreadsheet would take for a formula."""
    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {**row, "known": " ".join(known or "-" for known in row["known"])}
        writer.writerow(
            {key: f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell for key, cell in cells.items()}
        )
    return text.getvalue()


def summary(rows: Iterable[Row]) -> dict[str, Any]:
    """Summarize all runs: counts by status, totals, and pass@k if tasks are repeated."""
    rows = list(rows)
    counts = Counter("stuck" if row.status == Status.STUCK else status_of(row) for row in rows)
    figures: dict[str, Any] = {"runs": len(rows), **{name: counts[name] for name in STATUSES}}
    figures |= {"steps": sum(row.steps for row in rows), "tokens": sum(row.tokens for row in rows)}
    figures |= {name: round(math.fsum(getattr(row, name) for row in rows), 6) for name in ("usd", "unknown_usd")}
    tasks: dict[str, list[bool]] = {}
    for row in rows:
        if row.state == "done":
            tasks.setdefault(row.job.task, []).append(row.finished)
    if tasks and max(map(len, tasks.values())) > 1:
        for k in (1, min(map(len, tasks.values()))):
            # an unbiased estimate, from all tries of a task, that at least one of k passes
            rates = [1 - comb(len(tries) - sum(tries), k) / comb(len(tries), k) for tries in tasks.values()]
            standard_error = stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else 0.0
            figures[f"pass@{k}"], figures[f"pass@{k} standard error"] = round(mean(rates), 4), round(standard_error, 4)
    return figures


STATUSES = ("finished", "running", "waiting", "stuck", "failed")


def status_of(row: Row) -> str:
    """Return the status of a run (STATUSES)."""
    if row.state != "done":
        return row.state
    return "finished" if row.finished else "failed"


def summary_line(figures: Mapping[str, Any]) -> str:
    """Format a summary as a line."""
    counts = ", ".join(f"{figures[name]} {name}" for name in STATUSES if figures[name])
    line = f"{figures['runs']} runs: {counts}; {figures['steps']:,} steps, {figures['tokens']:,} tokens"
    line += f", ${figures['usd']:.4f}"
    if figures["unknown_usd"]:
        line += f" (and at most ${figures['unknown_usd']:.4f} for interrupted calls)"
    rate_names = [name for name in figures if f"{name} standard error" in figures]
    rates = [f"{name} {figures[name]:.3f} ± {figures[f'{name} standard error']:.3f}" for name in rate_names]
    return "; ".join([line, *rates]) + "."


def difference(a_rows: Sequence[Row], b_rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the runs of two fleets by id, with both statuses and the differences in their figures."""
    a_by_id, b_by_id = ({row.job.id: row for row in rows} for rows in (a_rows, b_rows))
    changes = []
    for id in dict.fromkeys((*a_by_id, *b_by_id)):
        a, b = a_by_id.get(id), b_by_id.get(id)
        row: dict[str, Any] = {"id": id, "a": a.current_status if a else "-", "b": b.current_status if b else "-"}
        if a is not None and b is not None:
            row |= {"steps": b.steps - a.steps, "tokens": b.tokens - a.tokens, "usd": round(b.usd - a.usd, 6)}
        changes.append(row)
    return changes
