"""Connect a run's process to its fleet: ask the head before each call and request, and report each event.

The process is an ordinary run of `autoagent`, joined by hooks. Head and worker exchange JSON lines over a socket that
the worker inherits. A worker that has lost its head makes no further calls, and ends instead of the next one. On
another machine, where the head cannot see it end, it ends at once, also if the head has been silent for a while.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import math
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
from autoagent.core.codec import to_json
from autoagent.core.errors import ForUser, StateError, StopRun
from autoagent.core.events import Event
from autoagent.core.model import Asking, Completion, Message
from autoagent.core.protocols import Model, RequestOptions
from autoagent.core.task import Outcome, Status
from autoagent.fleet.engine import GRACE_SECONDS
from autoagent.fleet.folder_copy import FolderSender, receive
from autoagent.models.openai.retry import Fault
from autoagent.registry.registrations import GUESTS
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
# It also counts the time asleep.
boot_time = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
GONE = "The head of the fleet is gone; `autoagent fleet resume` continues the fleet."


class HeadLink:
    """Hold the connection to the head. Any thread may use it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._send_lock = threading.Lock()
        self._call_numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._answered = threading.Condition()
        self._stopped = ""
        self.gone = False

    def tell(self, op: str, **fields: Any) -> None:
        """Send a message, unless the head is gone."""
        line = json.dumps({"op": op, **fields}, separators=(",", ":")).encode() + b"\n"
        try:
            with self._send_lock:
                self._connection.sendall(line)
        except OSError:
            self._lost_head()

    def receive_order(self, folder: str) -> dict[str, Any]:
        """Wait for the head's order, and receive the run's files if this node has its own folder.

        Raises StateError if the head is gone.
        """
        for line in self._lines:
            message = cast("dict[str, Any]", json.loads(line))
            if "put" not in message:
                threading.Thread(target=self._listen, name="head", daemon=True).start()
                return message
            receive(Path(folder), message["put"])
        raise StateError("The head of the fleet is gone.")

    def ping(self) -> bool:
        """Wait for the head and return whether it answers. If so, it has received everything sent before."""
        number = next(self._call_numbers)
        self.tell("beat", n=number)
        with self._answered:
            while self._answers.pop(number, None) is None:
                if self.gone:
                    return False
                self._answered.wait(POLL_SECONDS)
        return True

    def ask(self, op: str, heed: Callable[[], float], **fields: Any) -> dict[str, Any]:
        """Ask the head and wait for its answer, calling `heed` meanwhile. `n` in the answer is the question's number.

        Raises StopRun if the run is to end, and any error that `heed` raises.
        """
        number = next(self._call_numbers)
        if not self._stopped:
            self.tell(op, n=number, **fields)
        try:
            while True:
                with self._answered:
                    if self._stopped:
                        raise StopRun(Outcome(Status.STOPPED, self._stopped))
                    if (answer := self._answers.pop(number, None)) is not None:
                        break
                    self._answered.wait(POLL_SECONDS)
                heed()
        except BaseException:  # Ctrl-C too
            self.tell("failed", n=number)
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
        self.gone = True
        self._stop(GONE)

    def _stop(self, reason: str) -> None:
        self._stopped = self._stopped or reason
        with self._answered:
            self._answered.notify_all()


class MeteredModel:
    """Wrap a model, to reserve each call in the fleet's budget beforehand and settle it afterwards."""

    def __init__(self, model: Model, head: HeadLink) -> None:
        self._model = model
        self._head = head
        self._count = counter(model.name)
        self._probed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def asking(self) -> Asking:
        """Return how the model is asked for commands. Finding out may take requests."""
        if self._probed:
            return self._model.asking
        granted = self._reserve(PROBE_TOKENS, PROBE_TOKENS, lambda: math.inf)
        try:
            asking = self._model.asking
            self._probed = True
            return asking
        finally:  # its cost is known once the run logs it
            self._head.tell("failed", n=granted["n"])

    def complete(self, messages: Sequence[Message], **options: Unpack[RequestOptions]) -> Completion:
        """See protocols.Model. Raises StopRun if the fleet's budget does not cover the call."""
        count, listener, at_most = self._count, options.get("listener"), options.get("at_most")
        prompt = sum(count(m.content) + PER_MESSAGE + IMAGE_TOKENS * len(m.images) for m in messages)
        prompt += sum(count(call.name + call.arguments) for message in messages for call in message.calls)
        prompt += sum(count(json.dumps(asdict(spec), default=str)) for spec in options.get("commands", ()))
        max_reply = options["max_tokens"] + self._model.reasoning_room
        heed = listener.heed if listener else lambda: math.inf
        grant = self._reserve(prompt, min(max_reply, at_most or max_reply), heed)
        options["at_most"] = min(filter(None, (at_most, grant["at_most"])), default=None)
        try:
            completion = self._model.complete(messages, **options)
        except BaseException:  # Ctrl-C too
            self._head.tell("failed", n=grant["n"])
            raise
        usage = completion.usage
        self._head.tell("back", n=grant["n"], usd=usage.cost or 0.0, prompt=usage.prompt, completion=usage.completion)
        return completion

    def _reserve(self, prompt: int, max_reply: int, heed: Callable[[], float]) -> dict[str, Any]:
        price = self._model.price
        prices = [price.prompt, price.completion, price.cached] if price else None
        return self._head.ask("call", heed, model=self._model.name, prompt=prompt, most=max_reply, price=prices)


def send_in_turn(head: HeadLink, heed: Callable[[], float], send: Callable[[], Any]) -> Any:
    """Send a request when its turn comes. Tell the head if the server asks for fewer requests."""
    head.ask("turn", heed)
    try:
        return send()
    except Fault as fault:
        if fault.after is not None:
            head.tell("slow", seconds=fault.after)
        raise


def report_event(head: HeadLink, whole_events: bool, event: Event) -> None:
    """Report an event's cost and the run's activity to the head, and with `whole_events` the event itself."""
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
    if whole_events:
        fields["event"] = to_json(event)
    head.tell("event", **fields)


def hold_lease(head: HeadLink, seconds: float, over: threading.Event) -> None:
    """End this process if its head is gone or silent for `seconds`, unless the run is `over` first.

    Here the lease runs from the question, and for the head from its answer. So it ends here before the head reassigns
    the run.
    """
    until = boot_time() + seconds

    def renew() -> None:  # in its own thread, as writing to a connection that nobody reads blocks
        nonlocal until
        while not over.is_set():
            asked = boot_time()
            if head.ping():
                until = asked + seconds
            over.wait(BEAT_SECONDS)

    threading.Thread(target=renew, name="beat", daemon=True).start()
    while boot_time() < until and not head.gone:
        if over.wait(POLL_SECONDS):
            return
    if not over.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)


def send_changes(head: HeadLink, sender: FolderSender, event: Event | None = None) -> None:
    """Send the changes in a run's folder after an event was logged.

    Without an event the run is over: wait until everything has arrived. Raises StopRun before a command if the head
    cannot be told of it.
    """
    if event is None:
        sys.stdout.flush()  # into the output file
    whole = event is None or isinstance(event, (events.RunStarted, events.Returned, events.Ended))
    for change in sender.changes(whole=whole):
        head.tell("put", **change)
    if event is None:
        head.ping()
    elif isinstance(event, events.Started) and not head.ping():
        raise StopRun(Outcome(Status.STOPPED, GONE))


@contextmanager
def join_fleet(descriptor: int, own: str) -> Iterator[dict[str, Any]]:
    """Join the fleet over an inherited socket. Yield the head's order, and connect the run that follows.

    `own` is the run's folder on this node if the fleet's folder cannot be reached, else ''. Raises StateError if the
    head is gone, or if another process is still working on this run.
    """
    os.set_inheritable(descriptor, False)
    over = threading.Event()
    with socket.socket(fileno=descriptor) as connection, ExitStack() as stack:
        head = HeadLink(connection)
        version, python = __version__, platform.python_version()
        head.tell("hello", version=version, python=python, pid=os.getpid(), host=socket.gethostname(), own=own)
        order = head.receive_order(own)
        order["given"] = {k: tuple(v) if isinstance(v, list) else v for k, v in order["given"].items()}
        if order["lease"]:
            stack.callback(over.set)
            threading.Thread(target=hold_lease, args=(head, order["lease"], over), name="lease", daemon=True).start()
        with exclusive_lock(Path(order["folder"]) / LOCK_FILE):
            if own:
                GUESTS["written"] = partial(send_changes, head, FolderSender(Path(own), echo, has=True))
                stack.callback(GUESTS["written"])
            GUESTS["listen"] = partial(report_event, head, order["whole"])
            GUESTS["model"] = lambda model: MeteredModel(model, head)
            GUESTS["request"] = partial(send_in_turn, head)
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
        until = time.monotonic() + PREDECESSOR_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StateError(f"Another process still works on the run in {path.parent}.") from None
                time.sleep(POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
        yield
    finally:
        os.close(descriptor)
