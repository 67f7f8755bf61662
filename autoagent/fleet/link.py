"""Connect a run's process to its fleet: ask the head before each call and request, and report each event.

The process is an ordinary run of `autoagent`, joined by hooks. Head and worker exchange JSON lines over a socket that
the worker inherits. A worker that has lost its head makes no further calls: it ends before the next one.
On another machine, where the head cannot see that it has ended, it ends at once, and also when the head has been silent
for a while.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast

from autoagent import __version__
from autoagent.core import events
from autoagent.core.codec import event_to_dict
from autoagent.core.commands import CommandSpec
from autoagent.core.errors import ForUser, StateError, StopRun
from autoagent.core.events import Event
from autoagent.core.model import Asking, Completion, Message, Usage
from autoagent.core.protocols import Model, RequestOptions
from autoagent.core.task import Outcome, Status
from autoagent.fleet.engine import GRACE_SECONDS
from autoagent.fleet.folder_copy import FolderSender, receive
from autoagent.models.openai.retry import Fault
from autoagent.registry.registrations import HOST_HOOKS
from autoagent.terminal.output import echo
from autoagent.text.sanitize import shorten
from autoagent.text.tokens import IMAGE_TOKENS, PER_MESSAGE, counter

POLL_SECONDS = 0.2  # between two checks whether to keep waiting
PREDECESSOR_SECONDS = 30.0  # for the run's previous process to finish its step
PROBE_TOKENS = 4_000  # for the few small requests that find out how to ask a model
LOCK_FILE = "worker.lock"
LEASE_SECONDS = 20.0
"""How long a worker on another machine continues without its head: longer than the network or a busy head may stall,
and no longer than a user would wait for a lost run to resume."""
BEAT_SECONDS = 4.0  # between two messages, so that a lease survives four lost messages
# CLOCK_BOOTTIME goes on while the machine sleeps, so a lease expires then, too.
boot_time = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
HEAD_GONE = "The head of the fleet is gone; `autoagent fleet resume` continues the fleet."


class HeadLink:
    """The connection to the head. Any thread may use it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._send_lock = threading.Lock()
        self._call_numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._answered = threading.Condition()
        self._stop_reason = ""
        self.is_gone = False

    def tell(self, op: str, **fields: Any) -> None:
        """Send a message, unless the head is gone."""
        line = json.dumps({"op": op, **fields}, separators=(",", ":")).encode() + b"\n"
        try:
            with self._send_lock:
                self._connection.sendall(line)
        except OSError:
            self._lost_head()

    def receive_order(self, local_folder: str) -> dict[str, Any]:
        """Wait for the head's order, and receive the run's files into its local folder, if any.

        Raises StateError if the head is gone.
        """
        for line in self._lines:
            message = cast("dict[str, Any]", json.loads(line))
            if "put" not in message:
                threading.Thread(target=self._listen, name="head", daemon=True).start()
                return message
            receive(Path(local_folder), message["put"])
        raise StateError(HEAD_GONE)

    def ping(self) -> bool:
        """Wait until the head answers, having received everything sent before. Return False if it is gone."""
        number = next(self._call_numbers)
        self.tell("beat", n=number)
        with self._answered:
            while self._answers.pop(number, None) is None:
                if self.is_gone:
                    return False
                self._answered.wait(POLL_SECONDS)
        return True

    def ask(self, op: str, on_wait: Callable[[], object], **fields: Any) -> dict[str, Any]:
        """Ask the head and call `on_wait` until it answers. `n` in the answer is the question's number.

        Raises StopRun if the run is to end, and any error that `on_wait` raises.
        """
        number = next(self._call_numbers)
        if not self._stop_reason:
            self.tell(op, n=number, **fields)
        try:
            while True:
                with self._answered:
                    if self._stop_reason:
                        raise StopRun(Outcome(Status.STOPPED, self._stop_reason))
                    if (answer := self._answers.pop(number, None)) is not None:
                        break
                    self._answered.wait(POLL_SECONDS)
                on_wait()
        except BaseException:  # Ctrl-C too
            self.tell("unsettled", n=number)
            raise
        if reason := answer.get("refusal"):
            raise StopRun(Outcome(Status.BUDGET, reason))
        return answer

    def _listen(self) -> None:
        for line in self._lines:
            message = json.loads(line)
            if "n" not in message:
                self._stop(message["stop"])
                continue
            with self._answered:
                self._answers[message["n"]] = message
                self._answered.notify_all()
        self._lost_head()

    def _lost_head(self) -> None:
        self.is_gone = True
        self._stop(HEAD_GONE)

    def _stop(self, reason: str) -> None:
        self._stop_reason = self._stop_reason or reason
        with self._answered:
            self._answered.notify_all()


class MeteredModel:
    """Wrap a model, to reserve each call in the fleet's budget beforehand and settle it afterwards."""

    def __init__(self, model: Model, head: HeadLink) -> None:
        self._model = model
        self._head = head
        self._count = counter(model.name)
        self._has_probed = False
        self._probe_usage = Usage()  # until it is taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def asking(self) -> Asking:
        """Return how to ask the model for commands. The first access may send requests to find out."""
        if self._has_probed:
            return self._model.asking
        grant = self._reserve(PROBE_TOKENS, PROBE_TOKENS, lambda: None)
        usage = None
        try:
            asking = self._model.asking
            self._has_probed = True
            usage = self._model.take_usage()
            self._probe_usage += usage
            return asking
        finally:
            if usage == Usage():  # nothing that the run would log
                self._head.tell("settle", n=grant["n"], usd=0.0, prompt=0, completion=0)
            else:  # the cost is known once the run logs it
                self._head.tell("unsettled", n=grant["n"])

    def take_usage(self) -> Usage:
        """See protocols.Model."""
        usage, self._probe_usage = self._probe_usage + self._model.take_usage(), Usage()
        return usage

    def complete(self, messages: Sequence[Message], **options: Unpack[RequestOptions]) -> Completion:
        """See protocols.Model. Raises StopRun if the fleet's budget does not cover the call."""
        listener, at_most = options.get("listener"), options.get("at_most")
        max_reply = options["max_tokens"] + self._model.reasoning_room
        on_wait = listener.check_time_left if listener else lambda: None
        prompt = self._prompt_tokens(messages, options.get("commands", ()))
        grant = self._reserve(prompt, min(max_reply, at_most or max_reply), on_wait)
        options["at_most"] = min((limit for limit in (at_most, grant["at_most"]) if limit), default=None)
        try:
            completion = self._model.complete(messages, **options)
        except BaseException:  # Ctrl-C too
            self._head.tell("unsettled", n=grant["n"])
            raise
        usage = completion.usage
        self._head.tell("settle", n=grant["n"], usd=usage.cost or 0.0, prompt=usage.prompt, completion=usage.completion)
        return completion

    def _prompt_tokens(self, messages: Sequence[Message], commands: Sequence[CommandSpec]) -> int:
        count = self._count
        tokens = sum(count(m.content) + PER_MESSAGE + IMAGE_TOKENS * len(m.images) for m in messages)
        tokens += sum(count(call.name + call.arguments) for message in messages for call in message.calls)
        return tokens + sum(count(json.dumps(asdict(spec), default=str)) for spec in commands)

    def _reserve(self, prompt: int, max_reply: int, on_wait: Callable[[], object]) -> dict[str, Any]:
        price = self._model.price
        prices = [price.prompt, price.completion, price.cached] if price else None
        return self._head.ask("call", on_wait, model=self._model.name, prompt=prompt, max_reply=max_reply, price=prices)


def send_in_turn(head: HeadLink, on_wait: Callable[[], object], send: Callable[[], Any]) -> Any:
    """Send a request when its turn comes. Tell the head if the server asks for fewer requests."""
    head.ask("turn", on_wait)
    try:
        return send()
    except Fault as fault:
        if fault.after is not None:
            head.tell("slow", seconds=fault.after)
        raise


def report_event(head: HeadLink, sends_events: bool, event: Event) -> None:
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


def hold_lease(head: HeadLink, seconds: float, run_over: threading.Event) -> None:
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


def send_changes(head: HeadLink, sender: FolderSender, event: Event | None = None) -> None:
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


@contextmanager
def join_fleet(descriptor: int, local_folder: str) -> Iterator[dict[str, Any]]:
    """Join the fleet over an inherited socket, and yield the head's order. A run in the block is connected to the head.

    `local_folder` is the run's folder on this node if it cannot reach the fleet's folder, else ''. Raises StateError if
    the head is gone, or if another process is still working on this run.
    """
    os.set_inheritable(descriptor, False)
    run_over = threading.Event()
    with socket.socket(fileno=descriptor) as connection, ExitStack() as stack:
        head = HeadLink(connection)
        versions = {"version": __version__, "python": platform.python_version()}
        head.tell("hello", **versions, pid=os.getpid(), host=socket.gethostname(), local_folder=local_folder)
        order = head.receive_order(local_folder)
        flags = order["given"].items()  # JSON turned their tuples into lists
        order["given"] = {name: tuple(value) if isinstance(value, list) else value for name, value in flags}
        if order["lease"]:
            stack.callback(run_over.set)
            hold = partial(hold_lease, head, order["lease"], run_over)
            threading.Thread(target=hold, name="lease", daemon=True).start()
        with exclusive_lock(Path(order["folder"]) / LOCK_FILE):
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

    Raises StateError if another process does not release it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + PREDECESSOR_SECONDS
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
        yield
    finally:
        os.close(descriptor)
