"""Lead a fleet: start workers, divide the budget among them, and record the end of each run.

A single thread does all of it, so that decisions about the budget never conflict. A worker that dies is replaced by
another, which resumes the run from its log at the exact step. If the first may still be running on another machine, its
lease must expire before.

Not covered: an interrupted command may already have acted on the outside world; the resumed run is told so.
"""

from __future__ import annotations

import json
import math
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
from autoagent.fleet.engine import (
    GRACE_SECONDS,
    LEASE_SECONDS,
    OUTPUT_FILE,
    WORKER_LOCK_FILE,
    Engine,
    NoWorker,
    WorkerProcess,
)  # fmt: skip
from autoagent.fleet.folder_copy import FolderSender, receive
from autoagent.fleet.ledger import Call, Ceilings, Ledger
from autoagent.fleet.record import FleetRecord, FleetState, Row, RunTally, holder_of, tally_of

MAX_LINE_BYTES = 64_000_000  # of one message of a worker
TICK_SECONDS = 0.5  # between two screen updates
LEASE_MARGIN = GRACE_SECONDS + 2.0
"""Seconds from the end of a lease to the reassignment of its run, when even a worker with a slow clock has ended."""
SEND_SECONDS = LEASE_SECONDS / 2  # a worker that reads nothing for so long would delay the answers to the others
TEAM_FILE = "team.yaml"  # in the folder of a run on another machine
STOPPED = "The fleet is stopped; `autoagent fleet resume` continues it."
ANSWER_SECONDS = 30 * 86_400.0  # how long a question waits for `autoagent answer`
FINAL_STATUSES = (Status.FINISHED, Status.UNVERIFIED, Status.UNMET, Status.STUCK, Status.LIMIT)
"""A resumed fleet does not start such runs again."""
STATUS_OF_CODE = {status.code: status for status in Status}


@dataclass(slots=True)
class Worker:
    """A worker: its process, its run, and any error that it reported.

    `asks_about` is the command of its open question, or ''. `outgoing` are the first messages to it: a copy of the
    run's folder unless it shares that, and its order.
    """

    process: WorkerProcess
    row: Row
    unread: bytearray = field(default_factory=bytearray)
    problem: Mapping[str, Any] | None = None
    asks_about: str = ""
    outgoing: Iterator[Mapping[str, Any]] | None = None
    has_order: bool = False
    copy: Path | None = None  # the local copy of its folder, if it works on another machine
    lease_end: float = 0.0  # when the head may reassign its run
    has_stop_order: bool = False
    kill_time: float = math.inf

    def renew_lease(self) -> None:
        """Reserve the run for this worker for a while longer."""
        self.lease_end = time.monotonic() + LEASE_SECONDS + LEASE_MARGIN


class Head:
    """Lead a fleet to its end.

    `flags` are the flags of `autoagent run` for every run. `patience` is the maximum number of seconds that all runs
    wait when an endpoint asks for fewer requests.
    """

    def __init__(
        self, state: FleetState, record: FleetRecord, flags: Mapping[str, Any], engine: Engine, patience: float
    ) -> None:
        self.state = state
        self.notify: Callable[[str], None] = lambda text: None
        self.not_copied: Collection[Path] = {state.out.resolve()}  # the agent's own, among a task's files
        settings = state.settings
        self.ledger = Ledger(Ceilings(settings["budget"], settings["max_tokens"], settings["rpm"], settings["tpm"]))
        self.stops = 0  # how often the user asked to stop
        self._record = record
        self._flags = flags
        self._patience = patience
        self._engine = engine
        self._parallel = int(settings["parallel"])
        self._retries = int(settings["retries"])
        self._workers: dict[int, Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._failures: dict[str, tuple[int, int]] = {}  # by run: failures in a row, and its commands by then
        self._queue: deque[Row] = deque()
        self._has_warned = False  # that questions reach nobody
        self._maybe_alive: list[tuple[float, Row]] = []  # runs whose worker may be alive, and until when

    def run(self) -> Iterator[Row]:
        """Yield each run as it ends, until all have ended or the fleet is stopped."""
        for row in self.state.rows.values():
            is_orphaned = row.state == "running" and row.node  # by a killed head
            if self.close_if_over(row):
                continue
            if is_orphaned:
                self._maybe_alive.append((time.monotonic() + LEASE_SECONDS + LEASE_MARGIN, row))
            else:
                self._queue.append(row)
        with self.stopped_by_signals():
            try:
                while True:
                    goes_on = not self.stops and not self.ledger.exhausted
                    while goes_on and self._queue and len(self._workers) < self._parallel:
                        if (failed_row := self.start_next()) is not None:
                            yield failed_row
                    if not self._workers and not (goes_on and self._maybe_alive):
                        break
                    yield from self.serve_workers()
            finally:
                self.end_all()

    def close_if_over(self, row: Row) -> bool:
        """Catch up with a run's log: a killed head may not have recorded its end. Return whether it needs no worker."""
        is_done = row.state == "done" and row.status in FINAL_STATUSES
        try:
            tally = tally_of(self.state.folder(row))
        except StateError:
            return is_done
        self.ledger.set_spent(row.job.id, tally.usd + tally.unknown_usd, tally.stats.tokens + tally.unknown_tokens)
        if is_done:
            return True
        tally.fill(row)
        if tally.stats.outcome is not None and tally.stats.outcome.status in FINAL_STATUSES:
            self._record_end(row)
            return True
        row.state = "waiting"
        return False

    def start_next(self) -> Row | None:
        """Start a worker for the run that has waited longest, in a new folder if its log cannot be read.

        Return the run if it cannot be started. If no further worker can be, go on with those that run.
        """
        row = self._queue.popleft()
        try:
            self._start(row)
        except NoWorker as error:
            if not self._workers:
                raise
            self._queue.appendleft(row)
            self._parallel = len(self._workers)
            self.notify(f"{error} The fleet goes on with {self._parallel} at a time.")
        except StateError as error:  # such as a file of its task that has vanished; the other runs continue
            row.status, row.reason = Status.FAILED, str(error)
            self._record_end(row)
            return row
        return None

    def _start(self, row: Row) -> None:
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

    def assignment_for(self, worker: Worker, folder: Path, *, attended: bool) -> dict[str, Any]:
        """Return the order for a worker in a folder, with its run's flags. `attended`: a person can answer there."""
        row, job = worker.row, worker.row.job
        flags = {**({"answer_timeout": ANSWER_SECONDS} if attended else {}), **self._flags, **job.given}
        flags |= {"state_dir": str(folder / "state"), "plain_output": True, "skip_reprompt": True, "run_name": job.id}
        flags["workspace"] = flags["moved_to"] = str(folder / "workspace")  # the path may differ on each node
        if row.run:
            flags = {name: value for name, value in flags.items() if name not in ("wish", "ai_goals")}
        elif "ai_goals" in flags:  # do not complete them from a saved task
            flags["ai_settings_file"] = str(folder / "none.yaml")
            flags.setdefault("ai_name", job.id)
        return {
            "folder": str(folder),
            "given": flags,
            "run": row.run,
            "team": str(folder / TEAM_FILE) if worker.copy and job.team else job.team,
            "idea": job.idea,
            "whole": bool(self.state.settings["events"]),
            "lease": LEASE_SECONDS if self._engine.needs_leases else 0,
        }

    def serve_workers(self) -> Iterator[Row]:
        """Serve the workers for a moment. Yield the runs that have ended."""
        has_outgoing = any(worker.outgoing for worker in self._workers.values())
        wait = 0.0 if has_outgoing else min(TICK_SECONDS, self.ledger.seconds_to_wake)
        for key, _ in self._selector.select(wait):
            if key.data is None:
                os.read(key.fd, 64)  # a signal arrived
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
                if len(rest) > MAX_LINE_BYTES:
                    raise StateError(f"It sent more than {MAX_LINE_BYTES // 1_000_000} MB in a line.")
                for line in lines:
                    self.handle_message(worker, json.loads(line))
            except (StateError, ValueError, TypeError, LookupError) as error:  # the others continue
                self._give_up(worker, f"The worker can no longer be monitored: {error}")
            if not data and (row := self.reap(worker)) is not None:
                yield row
        for answer in self.ledger.answers():
            run, number = answer.key
            for worker in self._workers.values():
                if worker.row.job.id == run:
                    self._send(worker, {"n": number, "at_most": answer.at_most, "refusal": answer.refusal})
        self._send_outgoing()
        now = time.monotonic()
        self._queue.extendleft(row for until, row in self._maybe_alive if now > until)
        self._maybe_alive = [(until, row) for until, row in self._maybe_alive if now <= until]
        self.stop_workers()
        for worker in self._workers.values():
            if self._engine.needs_leases and worker.has_order and now > worker.lease_end:
                worker.process.abandon()

    def handle_message(self, worker: Worker, message: Mapping[str, Any]) -> None:
        """Apply a worker's message."""
        row, ledger = worker.row, self.ledger
        key = (row.job.id, message.get("n", 0))
        match message["op"]:
            case "hello":
                self.answer_hello(worker, message)
            case "beat":
                worker.renew_lease()
                self._send(worker, {"n": message["n"]})
            case "put" if worker.copy:
                receive(worker.copy, message)
            case "call":
                price = Price(*message["price"]) if message["price"] else None
                ledger.waiting.append(Call(key, message["model"], message["prompt"], message["max_reply"], price))
            case "settle":
                ledger.settle(key, message["usd"], message["prompt"], message["completion"])
            case "unsettled":
                ledger.leave_unsettled(key)
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
                ledger.add_logged_cost(row.job.id, usd, tokens)
                row.steps, row.usd, row.tokens = max(row.steps, message["step"]), row.usd + usd, row.tokens + tokens
                worker.asks_about = message.get("asks", worker.asks_about)
                row.doing = f"asks about {worker.asks_about}" if worker.asks_about else message.get("doing", row.doing)
                if "event" in message:
                    self._record.on_line({"id": row.job.id, **message["event"]})

    def answer_hello(self, worker: Worker, hello: Mapping[str, Any]) -> None:
        """Give a worker its order, unless its version differs from this head's, or the fleet is stopping."""
        ours, theirs = (__version__, platform.python_version()), (hello["version"], hello["python"])
        if ours != theirs:
            describe = "has autoagent {} on Python {}".format
            reason = f"The worker {describe(*theirs)}, and the head {describe(*ours)}; install the same on both."
            worker.problem = {"reason": reason, "code": Status.SETUP.code}
        elif self.stops:
            worker.problem = {"reason": STOPPED, "code": Status.STOPPED.code}
        if worker.problem:
            worker.process.send_signal(signal.SIGKILL)
            return
        row = worker.row
        is_local = hello["host"] == socket.gethostname() and not hello["local_folder"]
        if not is_local and not self._flags.get("continuous") and not self._has_warned:
            self._has_warned = True
            self.notify(f"Questions on {hello['host']} do not reach the inbox, so a run that asks one ends; pass -c.")
        if not is_local:
            row.node = hello["host"]
            self._record.add("placed", id=row.job.id, node=row.node)
        worker.outgoing = self._first_messages(worker, hello["local_folder"], attended=is_local)

    def _first_messages(self, worker: Worker, local_folder: str, *, attended: bool) -> Iterator[Mapping[str, Any]]:
        """Yield the changes that make the worker's `local_folder`, if any, a copy of this head's; then its order."""
        folder = self.state.folder(worker.row).absolute()
        if local_folder:
            worker.copy = folder
            for change in FolderSender(folder, self.notify).changes():
                yield {"put": change}
            folder = Path(local_folder)
        worker.has_order = True
        worker.renew_lease()
        yield self.assignment_for(worker, folder, attended=attended)

    def _send_outgoing(self) -> None:
        """Send each worker some of its first messages, so that a large folder does not keep the others waiting."""
        for worker in self._workers.values():
            try:
                message = next(worker.outgoing, None) if worker.outgoing else None
            except (StateError, OSError) as error:
                self._give_up(worker, f"The folder of the run cannot be copied: {error}")
                message = None
            if message is None:
                worker.outgoing = None
            else:
                self._send(worker, message)

    def _send(self, worker: Worker, message: Mapping[str, Any]) -> None:
        """Send a message. If the worker is gone, this is noticed when its socket is read."""
        connection = worker.process.connection
        try:
            connection.settimeout(SEND_SECONDS)
            connection.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except TimeoutError:
            self._give_up(worker, f"The worker has read nothing for {SEND_SECONDS:.0f} s.")
        except OSError:
            pass
        connection.setblocking(False)

    def _give_up(self, worker: Worker, reason: str) -> None:
        worker.problem, worker.outgoing = {"reason": reason, "code": Status.FAILED.code}, None
        worker.process.send_signal(signal.SIGKILL)

    def reap(self, worker: Worker) -> Row | None:
        """Record the end of a worker. Return its run, or None if the run is tried again."""
        row, connection = worker.row, worker.process.connection
        self._selector.unregister(connection)
        del self._workers[connection.fileno()]
        connection.close()
        code = worker.process.wait()
        tally = RunTally()
        try:
            tally = tally_of(self.state.folder(row))
        except StateError as error:  # the next start is another attempt
            worker.problem = {"reason": str(error), "code": Status.FAILED.code}
            self.ledger.retire(row.job.id)
        else:
            self.ledger.set_spent(row.job.id, tally.usd + tally.unknown_usd, tally.stats.tokens + tally.unknown_tokens)
            tally.fill(row)
        row.doing = ""
        if tally.stats.outcome is None or worker.problem:
            reason = worker.process.problem or exit_reason(code)
            problem = worker.problem or {"reason": reason, "code": Status.FAILED.code}
            row.status, row.reason = STATUS_OF_CODE.get(problem["code"], Status.FAILED), problem["reason"]
            self._record.add("lost", id=row.job.id, attempt=row.attempt, reason=row.reason, run=row.run)
        if row.status == Status.FAILED and not self.stops and self.may_try_again(row, tally.commands):
            row.state = "waiting"
            if code is None and row.node:
                self._maybe_alive.append((worker.lease_end, row))
                row.doing = "waiting for the end of its lease"
            else:
                self._queue.appendleft(row)
            return None
        self._record_end(row)
        return row

    def may_try_again(self, row: Row, command_count: int) -> bool:
        """Return whether to retry a failed run. Only failures without a command in between count."""
        failures, old_count = self._failures.get(row.job.id, (0, command_count))
        failures = failures + 1 if old_count == command_count else 1
        self._failures[row.job.id] = failures, command_count
        return failures <= self._retries

    def _record_end(self, row: Row) -> None:
        row.state = "done"
        fields = {name: value for name, value in asdict(row).items() if name not in ("job", "doing")}
        self._record.add("ended", id=row.job.id, **fields)

    def stop_workers(self) -> None:
        """If the fleet is stopped, end the workers: at their next call, or at once."""
        now = time.monotonic()
        for worker in self._workers.values():
            if self.stops and not worker.has_stop_order:
                worker.has_stop_order = True
                if worker.has_order:
                    self._send(worker, {"stop": STOPPED})
                if worker.asks_about or (self._engine.needs_leases and not worker.has_order):
                    worker.process.send_signal(signal.SIGTERM)
            if self.stops > 1 and worker.kill_time == math.inf:
                worker.kill_time = now + GRACE_SECONDS
                worker.process.send_signal(signal.SIGTERM)
            if now > worker.kill_time:
                worker.process.send_signal(signal.SIGKILL)

    def end_all(self) -> None:
        """End all remaining workers once the caller stops listening."""
        for worker in self._workers.values():
            worker.process.send_signal(signal.SIGTERM)
            worker.process.connection.close()
        for worker in self._workers.values():
            worker.process.wait()
        self._selector.close()

    @contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """Stop the fleet on signals: the first ends each run at its next call, the second at once. Main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)

        def stop(number: int, frame: FrameType | None) -> None:
            self.stops += 1

        old_handlers = {number: signal.signal(number, stop) for number in numbers}
        old_wakeup_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ, None)
        try:
            yield
        finally:
            signal.set_wakeup_fd(old_wakeup_fd)
            for number, handler in old_handlers.items():
                signal.signal(number, handler)
            reader.close()
            writer.close()


def exit_reason(code: int | None) -> str:
    """Return why a worker ended without reporting a reason."""
    if code is None:
        return "What became of the worker is unknown."
    if code < 0:
        has_name = -code in set(signal.Signals)  # real-time signals have none
        return f"The worker was ended by {signal.Signals(-code).name if has_name else f'signal {-code}'}."
    return f"The worker ended with exit code {code} before its run ended."


def fill_workspace(row: Row, folder: Path, excluded: Collection[Path]) -> None:
    """Create the workspace of a new run, with its task's files except `excluded`. Raises StateError."""
    workspace = folder / "workspace"

    def ignored(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(os.path.realpath(Path(parent) / name)) in excluded]  # never raises

    try:
        shutil.rmtree(workspace, ignore_errors=True)  # from a start killed before its run began
        workspace.mkdir(mode=0o700, parents=True)
        (folder / OUTPUT_FILE).touch(mode=0o600)
        if row.job.team:
            shutil.copy2(row.job.team, folder / TEAM_FILE)  # for a node that cannot reach it
        for path in map(Path, row.job.files):
            if path.is_dir():
                shutil.copytree(path, workspace, symlinks=True, ignore=ignored, dirs_exist_ok=True)
            else:
                shutil.copy2(path, workspace / path.name)
    except OSError as error:
        raise StateError(f"{error.filename or workspace}: cannot be copied: {error.strerror or error}.") from error


def end_orphans(state: FleetState) -> None:
    """End the workers of a killed head: let them finish their step, then send signals."""
    locks = [state.folder(row) / WORKER_LOCK_FILE for row in state.rows.values()]
    for lock in locks:
        deadline = time.monotonic() + 2 * GRACE_SECONDS
        while (pid := holder_of(lock)) and time.monotonic() < deadline + GRACE_SECONDS:
            if time.monotonic() > deadline - GRACE_SECONDS:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL if time.monotonic() > deadline else signal.SIGTERM)
            time.sleep(0.1)
