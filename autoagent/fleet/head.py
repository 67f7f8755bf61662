"""Lead a fleet: start workers, divide the budget among them, and record the end of each run.

One thread does all of it, so that decisions about the budget never conflict. A worker that dies is replaced by another
that resumes the run from its log at its exact step. If the first may still be running on another machine, that happens
once its lease has expired.

Not covered: a command interrupted in this way may have acted on the outside world. The run is told so when it resumes.
"""

from __future__ import annotations

import json
import os
import platform
import selectors
import shutil
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from autoagent import __version__
from autoagent.core.errors import StateError
from autoagent.core.model import Price
from autoagent.core.task import Status
from autoagent.fleet.engine import GRACE, OUTPUT, Engine, WorkerProcess
from autoagent.fleet.folder_copy import FolderSender, receive
from autoagent.fleet.ledger import Call, Ceilings, Ledger
from autoagent.fleet.link import LEASE, LOCK
from autoagent.fleet.record import FleetRecord, FleetState, Row, RunTally, locked_by, tally_of

LONGEST = 64_000_000  # bytes of a worker's line
TICK = 0.5  # seconds between two screen updates
MARGIN = GRACE + 2.0
"""Seconds after a lease until its run is reassigned: time for the worker to end, and for clock differences."""
TEAM = "team.yaml"  # in the folder of a run on another machine
STOPPED = "The fleet is stopped; `autoagent fleet resume` continues it."
ANSWERS = 30 * 86_400.0  # seconds that a question waits for `autoagent answer`
NEVER_AGAIN = (Status.FINISHED, Status.UNVERIFIED, Status.UNMET, Status.STUCK, Status.LIMIT)
"""The ends that are final: a resumed fleet does not run them again."""


@dataclass(slots=True)
class Worker:
    """Hold a worker: its process, its run, and any error that it reported."""

    process: WorkerProcess
    row: Row
    unread: bytearray = field(default_factory=bytearray)
    problem: Mapping[str, Any] | None = None
    asks: str = ""
    ordered: bool = False
    copy: Path | None = None  # the folder here, if it works on another machine
    leased: float = 0.0  # how long it may continue without this head
    doomed: float | None = None  # when to kill it


class Head:
    """Lead a fleet to its end.

    `flags` are those of `autoagent run` for every run. `patience` is how many seconds all runs wait at most when an
    endpoint asks for fewer requests.
    """

    def __init__(
        self, state: FleetState, record: FleetRecord, flags: Mapping[str, Any], engine: Engine, patience: float
    ) -> None:
        self.state = state
        self.say: Callable[[str], None] = lambda text: None
        self.not_copied: Collection[Path] = {state.out.resolve()}  # in a task's files: they belong to the agent itself
        settings = state.settings
        self.ledger = Ledger(Ceilings(settings["budget"], settings["max_tokens"], settings["rpm"], settings["tpm"]))
        self.stops = 0  # how often the user asked to stop
        self._record = record
        self._flags = flags
        self._patience = patience
        self._engine = engine
        self._parallel, self._retries = int(settings["parallel"]), int(settings["retries"])
        self._workers: dict[int, Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._without_progress: dict[
            str, tuple[int, int]
        ] = {}  # consecutive failures, and the number of commands done by then
        self._queue: deque[Row] = deque()
        self._told = False  # whether questions reach nobody
        self._held_back: list[tuple[float, Row]] = []  # runs that a worker may still hold, and the latest end

    def run(self) -> Iterator[Row]:
        """Yield each run as it ends, until all have ended or the fleet is stopped."""
        for row in self.state.rows.values():
            lost = row.state == "running" and row.node
            if self.is_over(row):
                continue
            if lost:  # by a killed head
                self._held_back.append((time.monotonic() + LEASE + MARGIN, row))
            else:
                self._queue.append(row)
        with self.stopped_by_signals():
            try:
                while True:
                    goes_on = not self.stops and not self.ledger.exhausted
                    while goes_on and self._queue and len(self._workers) < self._parallel:
                        self.start_next()
                    if not self._workers and not (goes_on and self._held_back):
                        break
                    yield from self.listen()
            finally:
                self.end_all()

    def is_over(self, row: Row) -> bool:
        """Return whether a run needs no worker. Adopt facts from its log that a killed head may not have recorded."""
        is_done = row.state == "done" and row.status in NEVER_AGAIN
        try:
            tally = tally_of(self.state.folder(row))
        except StateError:
            return is_done
        self.ledger.set_spent(row.job.id, tally.usd + tally.unknown_usd, tally.stats.tokens + tally.unknown_tokens)
        if is_done:
            return True
        tally.fill(row)
        if tally.stats.outcome is not None and tally.stats.outcome.status in NEVER_AGAIN:
            self._note(row)
            return True
        row.state = "waiting"
        return False

    def start_next(self) -> None:
        """Start a worker for the run that has waited longest, in another folder if its log cannot be read."""
        row = self._queue.popleft()
        try:
            run = row.run if tally_of(self.state.folder(row)).stats.run else ""
        except StateError as error:
            row.attempt += 1
            row.again = f"Attempt {row.attempt - 1} cannot be resumed and may have acted outside: {error}"
            run = ""
        row.attempt = row.attempt or 1
        folder = self.state.folder(row)
        if not run:
            fill_workspace(row, folder, self.not_copied)
        worker = Worker(self._engine.start(folder), row)
        row.node = ""
        row.state, row.status, row.reason, row.doing, row.run = "running", "", "", self._engine.initial_state, run
        self._record.add(
            "started", id=row.job.id, state="running", attempt=row.attempt, run=run, again=row.again, node=""
        )
        self._workers[worker.process.connection.fileno()] = worker
        self._selector.register(worker.process.connection, selectors.EVENT_READ, worker)

    def order_for(self, worker: Worker, folder: Path, *, asks: bool) -> dict[str, Any]:
        """Return the order for a worker in a folder, with its run's flags. `asks`: somebody there can answer."""
        row, job = worker.row, worker.row.job
        given = {**({"answer_timeout": ANSWERS} if asks else {}), **self._flags, **job.given}
        given |= {"state_dir": str(folder / "state"), "plain_output": True, "skip_reprompt": True, "run_name": job.id}
        given["workspace"] = given["moved_to"] = str(folder / "workspace")  # its path may differ on each node
        if row.run:
            given = {name: value for name, value in given.items() if name not in ("wish", "ai_goals")}
        elif "ai_goals" in given:  # no saved task completes these
            given["ai_settings_file"] = str(folder / "none.yaml")
            given.setdefault("ai_name", job.id)
        return {
            "folder": str(folder),
            "given": given,
            "run": row.run,
            "team": str(folder / TEAM) if worker.copy and job.team else job.team,
            "idea": job.idea,
            "whole": bool(self.state.settings["events"]),
            "lease": LEASE if self._engine.leases else 0,
        }

    def listen(self) -> Iterator[Row]:
        """Listen to the workers for a moment. Yield the runs that have ended."""
        wait = min(TICK, self.ledger.wakes)
        for key, _ in self._selector.select(wait):
            if key.data is None:
                os.read(key.fd, 64)  # a signal came
                continue
            worker: Worker = key.data
            try:
                data = worker.process.connection.recv(1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            worker.unread += data
            *lines, rest = worker.unread.split(b"\n")
            worker.unread = bytearray(rest)
            try:
                if len(rest) > LONGEST:
                    raise StateError(f"It sent more than {LONGEST // 1_000_000} MB in a line.")
                for line in lines:
                    self.hear(worker, json.loads(line))
            except (StateError, ValueError, TypeError, LookupError) as error:  # the others continue
                worker.problem = {
                    "reason": f"The worker can no longer be monitored: {error}",
                    "code": Status.FAILED.code,
                }
                worker.process.send_signal(signal.SIGKILL)
            if not data and (row := self.worker_ended(worker)) is not None:
                yield row
        for answer in self.ledger.answers():
            run, number = answer.key
            for worker in self._workers.values():
                if worker.row.job.id == run:
                    self._tell(worker, {"n": number, "at_most": answer.at_most, "refusal": answer.refusal})
        now = time.monotonic()
        self._queue.extendleft(row for until, row in self._held_back if now > until)
        self._held_back = [(until, row) for until, row in self._held_back if now <= until]
        self.hurry()

    def hear(self, worker: Worker, message: Mapping[str, Any]) -> None:
        row, ledger = worker.row, self.ledger
        key = (row.job.id, message.get("n", 0))
        match message["op"]:
            case "hello":
                self.welcome(worker, message)
            case "beat":
                worker.leased = time.monotonic() + LEASE + MARGIN
                self._tell(worker, {"n": message["n"]})
            case "put" if worker.copy:
                receive(worker.copy, message)
            case "call":
                price = Price(*message["price"]) if message["price"] else None
                ledger.waiting.append(Call(key, message["model"], message["prompt"], message["most"], price))
            case "back":
                ledger.came_back(key, message["usd"], message["prompt"], message["completion"])
            case "failed":
                ledger.failed(key)
            case "turn":
                ledger.turns.append(key)
            case "slow":
                ledger.slow_down(min(message["seconds"], self._patience))
            case "error":
                worker.problem = message
            case "event":
                if not row.run:
                    row.run = message["run"]
                    self._record.add("run", id=row.job.id, run=row.run)
                usd, tokens = message.get("usd", 0.0), message.get("tokens", 0)
                ledger.logged(row.job.id, usd, tokens, replied=message.get("replied", False))
                row.steps, row.usd, row.tokens = max(row.steps, message["step"]), row.usd + usd, row.tokens + tokens
                worker.asks = message.get("asks", worker.asks)
                row.doing = f"asks about {worker.asks}" if worker.asks else message.get("doing", row.doing)
                if "event" in message:
                    self._record.tell({"id": row.job.id, **message["event"]})

    def welcome(self, worker: Worker, hello: Mapping[str, Any]) -> None:
        """Give a worker its order, unless its version differs from this head's, or the fleet is stopping."""
        here, there = (__version__, platform.python_version()), (hello["version"], hello["python"])
        if here != there:
            text = "The {} has autoagent {} on Python {}".format
            reason = f"{text('worker', *there)}, and {text('head', *here).lower()}; install the same on both."
            worker.problem = {"reason": reason, "code": Status.SETUP.code}
        elif self.stops:
            worker.problem = {"reason": STOPPED, "code": Status.STOPPED.code}
        if worker.problem:
            worker.process.send_signal(signal.SIGKILL)
            return
        row, folder = worker.row, self.state.folder(worker.row).absolute()
        near = hello["host"] == socket.gethostname() and not hello["own"]
        if not near and not self._flags.get("continuous") and not self._told:
            self._told = True
            self.say(f"Questions on {hello['host']} do not reach the inbox: a run with a question ends there; give -c.")
        worker.ordered = True
        worker.leased = time.monotonic() + LEASE + MARGIN
        if not near:
            row.node = hello["host"]
            self._record.add("placed", id=row.job.id, node=row.node)
        if hello["own"]:
            worker.copy = folder
            for change in FolderSender(folder, self.say).changes():
                self._tell(worker, {"put": change})
            folder = Path(hello["own"])
        self._tell(worker, self.order_for(worker, folder, asks=near))

    def _tell(self, worker: Worker, message: Mapping[str, Any]) -> None:
        """Send a message. A missing worker is noticed when its socket is read."""
        connection = worker.process.connection
        with suppress(OSError):
            connection.setblocking(True)
            connection.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        connection.setblocking(False)

    def worker_ended(self, worker: Worker) -> Row | None:
        """Record the end of a worker. Return its run if that has ended for this head, None if it is retried."""
        row, connection = worker.row, worker.process.connection
        self._selector.unregister(connection)
        del self._workers[connection.fileno()]
        connection.close()
        code = worker.process.wait()
        try:
            tally = tally_of(self.state.folder(row))
        except StateError as error:  # the next start is another attempt
            tally, worker.problem = RunTally(), {"reason": str(error), "code": Status.FAILED.code}
        self.ledger.set_spent(row.job.id, tally.usd + tally.unknown_usd, tally.stats.tokens + tally.unknown_tokens)
        tally.fill(row)
        row.doing = ""
        died = tally.stats.outcome is None or bool(worker.problem)
        if died:
            reason = worker.process.problem or said_of(code)
            problem = worker.problem or {"reason": reason, "code": Status.FAILED.code}
            statuses = {status.code: status for status in Status}
            row.status, row.reason = statuses.get(problem["code"], Status.FAILED), problem["reason"]
            self._record.add("lost", id=row.job.id, attempt=row.attempt, reason=row.reason, run=row.run)
        if row.status == Status.FAILED and not self.stops and self.may_try_again(row, tally.returned):
            row.state = "waiting"
            if code is None and row.node:
                self._held_back.append((worker.leased, row))
                row.doing = "waiting for the end of its lease"
            else:
                self._queue.appendleft(row)
            return None
        self._note(row)
        return row

    def may_try_again(self, row: Row, returned: int) -> bool:
        """Return whether a run that failed or lost its worker is tried again: so often without another command done."""
        failures, before = self._without_progress.get(row.job.id, (0, returned))
        failures = failures + 1 if before == returned else 1
        self._without_progress[row.job.id] = failures, returned
        return failures <= self._retries

    def _note(self, row: Row) -> None:
        row.state = "done"
        fields = {name: value for name, value in asdict(row).items() if name not in ("job", "doing")}
        self._record.add("ended", id=row.job.id, **fields)

    def hurry(self) -> None:
        """End running workers if the fleet is to stop: at their next call, or at once."""
        now = time.monotonic()
        for worker in self._workers.values():
            if self.stops and worker.doomed is None:
                worker.doomed = float("inf")
                if worker.ordered:
                    self._tell(worker, {"stop": STOPPED})
                if worker.asks or (self._engine.leases and not worker.ordered):
                    worker.process.send_signal(signal.SIGTERM)
            if self.stops > 1 and worker.doomed == float("inf"):
                worker.doomed = now + GRACE
                worker.process.send_signal(signal.SIGTERM)
            if worker.doomed is not None and now > worker.doomed:
                worker.process.send_signal(signal.SIGKILL)
            if self._engine.leases and worker.ordered and now > worker.leased:
                worker.process.abandon()

    def end_all(self) -> None:
        """End all remaining workers, when the caller stops listening."""
        for worker in self._workers.values():
            worker.process.send_signal(signal.SIGTERM)
            worker.process.connection.close()
        for worker in self._workers.values():
            worker.process.wait()
        self._selector.close()

    @contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """Stop new runs at the first signal and running ones at once at the second. Main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        here, there = socket.socketpair()
        there.setblocking(False)
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)

        def stop(number: int, frame: FrameType | None) -> None:
            self.stops += 1

        before = {number: signal.signal(number, stop) for number in numbers}
        wakeup = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        self._selector.register(here, selectors.EVENT_READ, None)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            here.close()
            there.close()


def said_of(code: int | None) -> str:
    """Return why a worker ended without reporting a reason."""
    if code is None:
        return "The fate of the worker is unknown."
    if code < 0:
        return f"The worker was ended by {signal.Signals(-code).name}."
    return f"The worker ended with exit code {code} before its run."


def fill_workspace(row: Row, folder: Path, but: Collection[Path]) -> None:
    """Make the workspace of a run that begins, with the files of its task `but` these. Raises StateError."""
    workspace = folder / "workspace"

    def left_out(place: str, names: list[str]) -> list[str]:
        return [name for name in names if (Path(place) / name).resolve() in but]

    try:
        shutil.rmtree(workspace, ignore_errors=True)  # from a start killed before its run began
        workspace.mkdir(mode=0o700, parents=True)
        (folder / OUTPUT).touch(mode=0o600)
        if row.job.team:
            shutil.copy2(row.job.team, folder / TEAM)  # for a node without it
        for path in map(Path, row.job.files):
            if path.is_dir():
                shutil.copytree(path, workspace, symlinks=True, ignore=left_out, dirs_exist_ok=True)
            else:
                shutil.copy2(path, workspace / path.name)
    except OSError as error:
        raise StateError(f"{error.filename or workspace}: cannot be copied: {error.strerror or error}.") from error


def end_orphans(state: FleetState) -> None:
    """End the workers of a killed head: after their step, then by signals."""
    paths = [state.folder(row) / LOCK for row in state.rows.values()]
    for path in paths:
        deadline = time.monotonic() + 2 * GRACE
        while (pid := holder(path)) and time.monotonic() < deadline + GRACE:
            if time.monotonic() > deadline - GRACE:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if time.monotonic() > deadline else signal.SIGTERM)
            time.sleep(0.1)


def holder(path: Path) -> int:
    """Return the pid of the process on this machine that holds a run's folder, or 0."""
    pid, _, host = locked_by(path).partition(" ")
    return int(pid) if pid.isdecimal() and host == socket.gethostname() else 0
