"""Join a run's process to its fleet by hooks, and report each event to the head. The run itself is an ordinary one.

On another machine, where the head cannot see that it has ended, the process ends at once when it has lost its head, and
also when the head has been silent for a while.
"""

from __future__ import annotations

import fcntl
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from autoagent import __version__
from autoagent.core import events
from autoagent.core.codec import event_to_dict
from autoagent.core.errors import ForUser, StateError, StopRun
from autoagent.core.task import Outcome, Status
from autoagent.fleet.engine import GRACE_SECONDS, WORKER_LOCK_FILE
from autoagent.fleet.folder_copy import FolderSender
from autoagent.fleet.head_connection import HEAD_GONE, POLL_SECONDS, HeadConnection
from autoagent.fleet.metered_model import MeteredModel, send_in_turn
from autoagent.registry.registrations import HOST_HOOKS
from autoagent.terminal.output import echo
from autoagent.text.sanitize import shorten

PREDECESSOR_SECONDS = 30.0  # for the run's previous process to finish its step
BEAT_SECONDS = 4.0  # between two messages, so that a lease survives four lost messages
# CLOCK_BOOTTIME goes on while the machine sleeps, so a lease expires then, too.
boot_time = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@contextmanager
def join_fleet(descriptor: int, local_folder: str) -> Iterator[dict[str, Any]]:
    """Join the fleet over an inherited socket, and yield the head's order. A run in the block is connected to the head.

    `local_folder` is the run's folder on this node if it cannot reach the fleet's folder, else ''. Raises StateError if
    the head is gone, or if another process is still working on this run.
    """
    os.set_inheritable(descriptor, False)
    run_over = threading.Event()
    with socket.socket(fileno=descriptor) as connection, ExitStack() as stack:
        head = HeadConnection(connection)
        versions = {"version": __version__, "python": platform.python_version()}
        head.tell("hello", **versions, pid=os.getpid(), host=socket.gethostname(), local_folder=local_folder)
        order = head.receive_order(local_folder)
        flags = order["given"].items()  # JSON turned their tuples into lists
        order["given"] = {name: tuple(value) if isinstance(value, list) else value for name, value in flags}
        if order["lease"]:
            stack.callback(run_over.set)
            hold = partial(hold_lease, head, order["lease"], run_over)
            threading.Thread(target=hold, name="lease", daemon=True).start()
        stack.enter_context(exclusive_lock(Path(order["folder"]) / WORKER_LOCK_FILE))  # until the last files are sent
        if local_folder:
            sender = FolderSender(Path(local_folder), echo, is_complete=True)
            HOST_HOOKS["written"] = partial(send_changes, head, sender)
            stack.callback(HOST_HOOKS["written"])
        HOST_HOOKS["listen"] = partial(report_event, head, order["whole"])
        HOST_HOOKS["model"] = lambda model: MeteredModel(model, head)
        HOST_HOOKS["request"] = partial(send_in_turn, head)
        try:
            yield order
        except (ForUser, StopRun) as error:
            code = error.exit_code if isinstance(error, ForUser) else error.outcome.status.code
            head.tell("error", reason=str(error), code=code)
            raise


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, and write the process and machine into it.

    Raises StateError if another process does not release it, or it cannot be written.
    """
    deadline = time.monotonic() + PREDECESSOR_SECONDS
    with ExitStack() as stack:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, descriptor)
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise StateError(f"Another process is still working on the run in {path.parent}.") from None
                    time.sleep(POLL_SECONDS)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
        except OSError as error:
            raise StateError(f"{path}: cannot be used: {error.strerror}.") from error
        yield


def report_event(head: HeadConnection, sends_events: bool, event: events.Event) -> None:
    """Report an event's cost and the run's activity to the head, and with `sends_events` the event itself."""
    fields: dict[str, Any] = {"run": event.run, "type": event.type, "step": 0 if event.agent else event.step}
    match event:
        case events.Thought() | events.Rejected() | events.Answered() | events.Spent():
            usage = event.usage
            fields |= {"usd": usage.cost or 0.0, "tokens": usage.prompt + usage.completion}
        case events.Prompted():
            fields["doing"] = "thinks"
        case events.Proposed() if not event.agent:
            fields["asks"] = event.call.name
        case events.Decided() if not event.agent:
            fields["asks"] = ""
        case events.Started():
            argument = next(iter(event.call.args.values()), "")
            fields["doing"] = f"{event.call.name} {shorten(' '.join(str(argument).split()), 40)}".rstrip()
    if sends_events:
        fields["event"] = event_to_dict(event)
    head.tell("event", **fields)


def hold_lease(head: HeadConnection, seconds: float, run_over: threading.Event) -> None:
    """End this process if its head is gone or silent for `seconds` before the run is over.

    The lease counts from the sending of a ping here, and from its arrival at the head, so this process ends before the
    head reassigns the run.
    """
    lease_end = boot_time() + seconds

    def renew() -> None:  # in its own thread, as writing to a connection that nobody reads blocks
        nonlocal lease_end
        while not run_over.is_set():
            ping_time = boot_time()
            if head.ping():
                lease_end = ping_time + seconds
            run_over.wait(BEAT_SECONDS)

    threading.Thread(target=renew, name="beat", daemon=True).start()
    while boot_time() < lease_end and not head.is_gone:
        if run_over.wait(POLL_SECONDS):
            return
    if not run_over.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)


def send_changes(head: HeadConnection, sender: FolderSender, event: events.Event | None = None) -> None:
    """Send the changes in a run's folder after an event was logged.

    Without an event the run is over: wait until the head has received everything. Raises StopRun before a command if
    the head is gone.
    """
    if event is None:
        sys.stdout.flush()  # into the output file
    logs_only = event is not None and not isinstance(event, (events.RunStarted, events.Returned, events.Ended))
    for change in sender.changes(logs_only=logs_only):
        head.tell("put", **change)
    if event is None:
        head.ping()
    elif isinstance(event, events.Started) and not head.ping():
        raise StopRun(Outcome(Status.STOPPED, HEAD_GONE))
