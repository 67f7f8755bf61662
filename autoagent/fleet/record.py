"""Read and write `fleet.jsonl`, the only record of a fleet. It is append-only.

Status, resume and results are derived from it and from the runs' own logs. A kernel lock lets one head write it at a
time. No secret is written: every text is masked.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from autoagent.agent.stats import RunStats
from autoagent.core import events
from autoagent.core.codec import from_plain, to_plain
from autoagent.core.durable_files import add_lines
from autoagent.core.errors import SetupError, StateError
from autoagent.core.events import Event
from autoagent.core.task import Status
from autoagent.fleet.task_list import ID, Job
from autoagent.log.reader import read, run_ids
from autoagent.registry.parts import UntrustedValue
from autoagent.session.trust import Trusted
from autoagent.settings import user_state_path
from autoagent.text.text_file import open_regular

VERSION = 1
MAX_BYTES = 500_000_000  # of a record
RECORD_FILE, LOCK_FILE = "fleet.jsonl", "fleet.lock"


@dataclass(slots=True)
class Row:
    """The state of a run in a fleet.

    `known` is, for each goal, the evidence that it is met, or ''. `unknown_usd` is the most that interrupted calls may
    have cost in addition to `usd`.
    """

    job: Job
    state: Literal["waiting", "running", "done"] = "waiting"
    attempt: int = 0
    status: str = ""
    reason: str = ""
    run: str = ""
    known: tuple[str, ...] = ()
    steps: int = 0
    tokens: int = 0
    usd: float = 0.0
    unknown_usd: float = 0.0
    seconds: float = 0.0
    again: str = ""  # what an earlier attempt may have done
    doing: str = ""
    node: str = ""  # the other machine that works on it, if any

    @property
    def finished(self) -> bool:
        return self.current_status == Status.FINISHED

    @property
    def current_status(self) -> str:
        """Return the status of a run that is over, else `waiting` or `running`."""
        return self.status if self.state == "done" else self.state


@dataclass(slots=True)
class FleetState:
    """A record as read: the settings of the fleet, and its runs in order.

    `made` is a random id, which identifies a fleet that this user started here.
    """

    out: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    made: str = ""

    @property
    def origin(self) -> UntrustedValue:
        """Return the fleet as a value that needs the user's trust if somebody else made its folder."""
        about = "runs and logs that you did not create here, with the programs, files and settings that they use"
        return UntrustedValue(file=RECORD_FILE, name="fleet", value=self.made, about=about)

    def folder(self, row: Row) -> Path:
        """Return the folder of a run. Each attempt after the first has its own subfolder."""
        folder = self.out / row.job.id
        return folder if row.attempt <= 1 else folder / f"attempt-{row.attempt}"


class FleetRecord:
    """Write the record, on behalf of the fleet's head in this process."""

    def __init__(self, out: Path, mask: Callable[[Any], Any]) -> None:
        """Lock the folder. Raises StateError if another head has locked it, or it cannot be used."""
        self._path = out / RECORD_FILE
        self._mask = mask
        self.on_line: Callable[[Mapping[str, Any]], None] = lambda line: None  # called with each line
        try:
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
            if out.stat().st_mode & 0o022:
                out.chmod(0o700)
            self.lock = os.open(out / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StateError(f"{out}: cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self.lock, 0)
            os.pwrite(self.lock, f"{os.getpid()}\n".encode(), 0)
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            # A last line that a crash or a full disk has torn would be damage behind another line.
            with suppress(FileNotFoundError), os.fdopen(os.open(self._path, flags), "r+b") as file:
                file.truncate(file.read().rfind(b"\n") + 1)
        except OSError as error:
            os.close(self.lock)
            if isinstance(error, BlockingIOError):
                raise StateError(f"{out}: another process leads this fleet (`autoagent fleet status`).") from None
            raise StateError(f"{error.filename or out}: cannot be used: {error.strerror}.") from error

    def add(self, type: str, **fields: Any) -> None:
        """Append a line, and sync it to disk."""
        line = self._mask({"v": VERSION, "t": round(time.time(), 3), "type": type, **fields})
        try:
            add_lines(self._path, f"{json.dumps(line, ensure_ascii=False)}\n")
        except OSError as error:
            raise StateError(f"{self._path}: cannot be written: {error.strerror}.") from error
        self.on_line(line)


def holder_of(path: Path) -> int:
    """Return the id of the process on this machine that holds a lock file, or 0. A worker's file names its machine."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return 0
    except BlockingIOError:
        pid, _, host = os.read(descriptor, 300).decode(errors="replace").strip().partition(" ")
        return int(pid) if pid.isdecimal() and host in ("", socket.gethostname()) else 0
    except OSError:  # a file system without locks
        return 0
    finally:
        os.close(descriptor)


def origin_in(folder: Path) -> list[UntrustedValue]:
    """Return the fleet in a folder, if any, as a value that needs trust. Raises StateError for a damaged record."""
    return [read_record(folder).origin] if (folder / RECORD_FILE).exists() else []


def check_made_here(state: FleetState) -> None:
    """Raise SetupError for a fleet that the user did not start, as its record names processes, programs and files."""
    if not Trusted(user_state_path(os.environ)).holds(state.out.resolve(), state.origin.mark):
        raise SetupError(
            f"{state.out}: you did not start this fleet here. Its record and logs set the programs, files and "
            f"settings of its runs; review them, then trust it with `autoagent trust {state.out}`."
        )


def read_record(out: Path) -> FleetState:
    """Read the record of a fleet. Raises StateError if there is none, or if a line other than the last is damaged."""
    state, path = FleetState(out), out / RECORD_FILE
    try:
        with open_regular(path) as file:
            lines = file.read(MAX_BYTES + 1).splitlines()
            if file.tell() > MAX_BYTES:
                raise StateError(f"{path}: is larger than {MAX_BYTES // 1_000_000} MB.")
    except FileNotFoundError as error:
        raise StateError(
            f"{out}: is not the folder of a fleet; `autoagent fleet run TASKS --out DIR` starts one."
        ) from error
    except OSError as error:
        raise StateError(f"{path}: cannot be read: {error.strerror}.") from error
    for number, line in enumerate(lines, 1):
        try:
            apply_line(state, json.loads(line))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if number == len(lines):
                break  # cut off by a crash
            raise StateError(f"{path}:{number}: is damaged: {error}.") from error
    if not state.rows:
        raise StateError(f"{out}: no fleet was started here.")
    return state


def apply_line(state: FleetState, line: Mapping[str, Any]) -> None:
    """Apply a line of a record. Raises ValueError, KeyError or TypeError for an invalid line."""
    kind = line["type"]
    if kind == "fleet":
        state.settings, state.made = line["settings"], str(line.get("made", ""))
        for plain in line["runs"]:
            job = from_plain(Job, plain)
            if not ID.match(job.id) or "/" in job.id:
                raise ValueError(f"{job.id!r} does not name a folder")
            state.rows.setdefault(job.id, Row(job))
    elif kind == "limits":
        state.settings = {**state.settings, **line["settings"]}
    elif "id" in line:
        row = state.rows[line["id"]]
        state.rows[row.job.id] = from_plain(Row, {**to_plain(row), **{k: v for k, v in line.items() if k != "job"}})


class RunTally:
    """Summarize a run's log: its figures, its end and its calls of unknown cost."""

    def __init__(self) -> None:
        self.stats = RunStats()
        self.usd = self.unknown_usd = 0.0  # of calls with a known price
        self.unknown_tokens = 0
        self.commands = 0  # that have returned
        # the most that each open call may cost, by agent, the purpose of its spending, and the question
        self._open_calls: dict[tuple[str, str, str], tuple[float, int]] = {}

    def add(self, event: Event) -> None:
        """Apply an event."""
        self.stats.add(event)
        match event:
            case events.Prompted():
                self._open_calls[event.agent, events.CUT_SHORT, ""] = event.estimate or 0.0, event.tokens
            case events.Asked():
                self._open_calls[event.agent, event.purpose, event.sha256] = event.estimate or 0.0, event.tokens
            case events.Spent():
                self.usd += event.usage.cost or 0.0
                keys = [key for key in self._open_calls if key[:2] == (event.agent, event.purpose)]
                for key in keys[-1:]:  # the event has the cost of what arrived; more may be charged
                    usd, tokens = self._open_calls.pop(key)
                    self.unknown_usd += max(0.0, usd - (event.usage.cost or 0.0))
                    self.unknown_tokens += max(0, tokens - event.usage.prompt)
            case events.Thought() | events.Rejected():
                self.usd += event.usage.cost or 0.0
                self._open_calls.pop((event.agent, events.CUT_SHORT, ""), None)
            case events.Answered():
                self.usd += event.usage.cost or 0.0
                self._open_calls.pop((event.agent, event.purpose, event.sha256), None)
            case events.RunStarted() if not event.agent and not isinstance(event, events.Changed):
                self.count_open_calls()
            case events.Returned():
                self.commands += 1
            case events.Ended() if not event.agent:
                self._open_calls.clear()

    def count_open_calls(self) -> None:
        """Count the calls that were open when the worker died, at their highest possible cost."""
        self.unknown_usd += sum(usd for usd, _ in self._open_calls.values())
        self.unknown_tokens += sum(tokens for _, tokens in self._open_calls.values())
        self._open_calls.clear()

    def fill(self, row: Row) -> None:
        """Write the figures into a row."""
        stats = self.stats
        row.steps, row.tokens, row.usd, row.seconds = stats.step, stats.tokens, self.usd, stats.seconds
        row.unknown_usd, row.run = self.unknown_usd, stats.run
        if stats.outcome is not None:
            row.status, row.reason = stats.outcome.status, stats.outcome.reason
            goals = len(stats.task.goals) if stats.task else 0
            row.known = tuple(stats.goal_status(number) for number in range(goals))


def tally_of(folder: Path) -> RunTally:
    """Summarize the log in a run's folder, if there is one. Raises StateError if it is damaged."""
    tally = RunTally()
    for event in events_of(folder):
        tally.add(event)
    if tally.stats.outcome is None:
        tally.count_open_calls()
    return tally


def events_of(folder: Path) -> Iterator[Event]:
    """Yield the events of the run in a folder, or of the newest if there are several."""
    state = folder / "state"
    for run in run_ids(state):
        with suppress(FileNotFoundError):
            run_events = read(state, run)
            if (first := next(run_events, None)) is not None:
                yield first
                yield from run_events
                return
