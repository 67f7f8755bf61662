"""Follow the logs of a state folder as they grow: a list of its runs, and one run in full. Nothing is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autoagent.agent.stats import RunStats
from autoagent.core.codec import event_from_line
from autoagent.core.errors import StateError
from autoagent.core.events import Event, Forked, RunStarted
from autoagent.log.reader import log_path, open_log_file, read, run_ids
from autoagent.text.sanitize import escape, shorten
from autoagent.web.file_states import FileStates
from autoagent.web.highlight import colours
from autoagent.web.page import as_json, with_colours
from autoagent.web.report import Report

MAX_EVENTS = 2_000  # read before changes are sent
MAX_LIST_EVENTS = 4_000  # read per poll for the list of runs
MAX_TEXT = 4_000  # of each long text
MAX_FILE_CHARACTERS = 100_000
MAX_WHOLE_STEPS = 40  # changed steps sent whole; if there are more, only their rows

_ROW_FIELDS = ("agent", "step", "t", "end", "thought_for", "waited", "ran", "usage")


class Tail:
    """Read the events that a log has gained since the last poll. `events` counts those read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = 0
        self._offset = 0

    @property
    def has_more(self) -> bool:
        """Return whether the log has more to read. Raises OSError."""
        return self.path.stat().st_size > self._offset

    def read(self, max_events: int) -> Iterator[Event]:
        """Yield at most so many further events, but none still being written. Raises StateError for a damaged line."""
        try:
            if not self.has_more:
                return
            with open_log_file(self.path) as file:
                file.seek(self._offset)
                for _, line in zip(range(max_events), file, strict=False):
                    if not line.endswith(b"\n"):
                        return
                    event = event_from_line(line)
                    self._offset += len(line)
                    self.events += 1
                    yield event
        except ValueError as error:
            raise StateError(f"{self.path}:{self.events + 1}: not an event: {error}.") from error
        except OSError as error:
            raise StateError(f"Cannot read the log {self.path}: {error.strerror}.") from error


class LiveRun:
    """Follow one run, folding its log as it grows. Any thread may use it. Answers are JSON, or None."""

    def __init__(self, state_dir: Path, run: str) -> None:
        self._state_dir = state_dir
        self._run = run
        self._tail = Tail(log_path(state_dir, run))
        self._report = Report()
        self._changed: list[int] = []  # for each step, the number of events after its last change
        self._files = FileStates(state_dir)
        self._names: dict[str, str] = {}  # of files, by content id
        self._lock = threading.Lock()

    def changes_since(self, events: int) -> tuple[int, bool, str] | None:
        """Read on, and return the changes after so many events: the page's head, and the steps by index.

        Also return the number to ask with next, and whether the log has further events. Raises StateError for a damaged
        log.
        """
        with self._lock:
            for event in self._tail.read(MAX_EVENTS):
                self._report.add(event)
                self._changed += [0] * (len(self._report.steps) - len(self._changed))
                for place in self._report.touched:
                    self._changed[place] = self._tail.events
                self._report.touched.clear()
            self._report.texts.clear()
            if self._report.began is None or self._tail.events <= events:
                return None
            places = [place for place, changed in enumerate(self._changed) if changed > events]
            render = (lambda step: with_colours(step, MAX_TEXT)) if len(places) <= MAX_WHOLE_STEPS else _row
            steps = [[place, render(self._report.steps[place])] for place in places]
            change = {"events": self._tail.events, "head": self._report.head, "steps": steps}
            return self._tail.events, self._tail.has_more, as_json(change, MAX_TEXT)

    def steps(self, first: int, last: int) -> str:
        """Return the whole steps at these indices."""
        with self._lock:
            return as_json([with_colours(step, MAX_TEXT) for step in self._report.steps[first:last]], MAX_TEXT)

    def prompt(self, seq: int) -> str | None:
        """Return the parts of the prompt at this position in the log."""
        from autoagent.session.prompt_replay import BuiltPrompt, prompt_of_step, prompts
        from autoagent.web.prompt_parts import PARTS, whole_prompt

        with self._lock:
            rows = [row for row in self._report.steps if row.get("prompt", {}).get("seq") == seq and not row["agent"]]
        built: BuiltPrompt | None = prompt_of_step(self._state_dir, self._run, rows[0]["step"]) if rows else None
        if built is None or built.prompted.seq != seq:  # of a sub-agent, or of a revoked step
            all_of_run = prompts(read(self._state_dir, self._run))
            built = next((prompt for prompt in all_of_run if prompt.prompted.seq == seq), None)
        if built is None:
            return None
        prompt = whole_prompt(built)
        return as_json({**prompt, "texts": [prompt["texts"][part] for part in PARTS]}, MAX_FILE_CHARACTERS)

    def files(self) -> str:
        """Return the files that each step changed."""
        with self._lock:
            changes = list(self._files.changes(self._report.head["tree"], self._report.steps))
            self._names |= {id: path for _, files in changes for path, _, id in files if id}
        return as_json({"changes": changes, "store": escape(str(self._state_dir / "snapshots"))}, MAX_TEXT)

    def content(self, id: str) -> str | None:
        """Return the text and colours of a file that `files` has named by this id."""
        if id not in self._names or (text := self._files.text(id, MAX_FILE_CHARACTERS)) is None:
            return None
        return as_json([text, colours(text, self._names[id])], MAX_FILE_CHARACTERS)


def _row(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a step for the timeline and the figures."""
    row = {name: step[name] for name in _ROW_FIELDS if name in step}
    row["notes"] = [[label, ""] for label, _ in step["notes"]]
    if "call" in step:
        row["call"] = {"name": step["call"]["name"], "args": {}}
    if "result" in step:
        row["result"] = {"ok": step["result"]["ok"], "outcome": step["result"]["outcome"], "text": ""}
    return {**row, "row": True}


class _ListedRun:
    """Follow a run in the list."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)
        self.stats = RunStats()
        self.began: RunStarted | None = None
        self.parent = self.damage = ""

    def read(self, max_events: int) -> int:
        """Read on, and return the number of events read."""
        before = self.tail.events
        try:
            for event in self.tail.read(max_events):
                self.stats.add(event)
                if isinstance(event, RunStarted) and not event.agent:
                    self.began = event
                elif isinstance(event, Forked):
                    self.parent = event.origin
        except StateError as error:
            self.damage = str(error)
        return self.tail.events - before

    def row(self, run: str, *, is_locked: bool) -> dict[str, Any]:
        """Return the run's facts for the list."""
        stats, began = self.stats, self.began
        goals = [escape(str(goal)) for goal in began.task.goals] if began else []
        name = (began.settings.get("run_name") if began else "") or "; ".join(goals)
        status = stats.outcome.status.value if stats.outcome else "running" if is_locked else "unfinished"
        return {
            "id": run,
            "name": shorten(escape(str(name)), 300),
            "status": "damaged" if self.damage else status,
            "problem": escape(self.damage),
            "steps": stats.step,
            "cost": None if stats.unpriced else stats.usage.cost,
            "updated": stats.updated,
            "parent": self.parent,
        }


class RunList:
    """List the runs of a state folder. `is_locked` tells whether a process writes a log. Any thread may use it."""

    def __init__(self, state_dir: Path, is_locked: Callable[[Path], bool]) -> None:
        self._state_dir = state_dir
        self._is_locked = is_locked
        self._runs: dict[str, _ListedRun] = {}
        self._lock = threading.Lock()

    def rows(self) -> list[dict[str, Any]]:
        """Return the runs, newest first. Long logs are read over several polls. Raises StateError."""
        with self._lock:
            left, rows = MAX_LIST_EVENTS, []
            for run in run_ids(self._state_dir):
                path = log_path(self._state_dir, run)
                listed = self._runs.setdefault(run, _ListedRun(path))
                if left > 0:
                    left -= listed.read(left)
                rows.append(listed.row(run, is_locked=self._is_locked(path)))
            return rows
