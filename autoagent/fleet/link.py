"""Connect a run's own process to its fleet: ask the head before each call and request, and report each event.

The process is an ordinary run of `autoagent`, joined by hooks. Head and worker exchange JSON lines over a socket that
the worker inherits. A worker that has lost its head makes no further call: it ends at the next. On another machine,
where the head cannot see it end, it ends at once, and also after hearing nothing from the head for a while.
"""

from __future__ import annotations

import fcntl
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
from autoagent.core.codec import to_json
from autoagent.core.errors import ForUser, StateError, StopRun
from autoagent.core.events import (
    Answered,
    Decided,
    Ended,
    Event,
    Prompted,
    Proposed,
    Rejected,
    Returned,
    RunStarted,
    Spent,
    Started,
    Thought,
)
from autoagent.core.model import Asking, Completion, Message
from autoagent.core.protocols import Model, RequestOptions
from autoagent.core.task import Outcome, Status
from autoagent.fleet.engine import GRACE
from autoagent.fleet.folder_copy import FolderSender, receive
from autoagent.models.openai.retry import Fault
from autoagent.registry.registrations import GUESTS
from autoagent.terminal.output import echo
from autoagent.text.sanitize import shorten
from autoagent.text.tokens import PER_MESSAGE, counter

LOOK = 0.2  # seconds between two checks whether to keep waiting
PREDECESSOR = 30.0  # seconds for the run's previous process to finish its step
PROBE_TOKENS = 4_000  # for the few small requests that probe how to ask a model
LOCK = "worker.lock"
LEASE = 20.0
"""Seconds that a worker on another machine continues without its head: longer than a stall of the network or of a
busy head, and no longer than a user would wait for a lost run to resume."""
BEAT = 4.0  # seconds between two messages, so that a lease survives four lost messages
now = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))  # also runs during suspend
GONE = "The head of the fleet is gone; `autoagent fleet resume` continues the fleet."


class HeadLink:
    """Hold the connection to the head. Any thread may ask and tell."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._sending = threading.Lock()
        self._numbers = iter(range(1, 1 << 62))
        self._answers: dict[int, dict[str, Any]] = {}
        self._answered = threading.Condition()
        self._stopped = ""
        self.gone = False

    def tell(self, op: str, **fields: Any) -> None:
        """Send a message, unless the head is gone."""
        line = json.dumps({"op": op, **fields}, separators=(",", ":")).encode() + b"\n"
        try:
            with self._sending:
                self._connection.sendall(line)
        except OSError:
            self._lose()

    def order(self, folder: str) -> dict[str, Any]:
        """Wait for the head's order, and for the run's files if this node has its own folder.

        Raises StateError if there is none.
        """
        for line in self._lines:
            message = cast("dict[str, Any]", json.loads(line))
            if "put" not in message:
                threading.Thread(target=self._listen, name="head", daemon=True).start()
                return message
            receive(Path(folder), message["put"])
        raise StateError("The head of the fleet is gone.")

    def is_there(self) -> bool:
        """Return whether the head answers, waiting for it. It then also has everything told before."""
        number = next(self._numbers)
        self.tell("beat", n=number)
        with self._answered:
            while self._answers.pop(number, None) is None:
                if self.gone:
                    return False
                self._answered.wait(LOOK)
        return True

    def ask(self, op: str, heed: Callable[[], float], **fields: Any) -> dict[str, Any]:
        """Ask the head and wait for its answer, calling `heed` meanwhile. `n` in the answer is the question's number.

        Raises StopRun if the run is to end, and any error of `heed`.
        """
        number = next(self._numbers)
        if not self._stopped:
            self.tell(op, n=number, **fields)
        try:
            while True:
                with self._answered:
                    if self._stopped:
                        raise StopRun(Outcome(Status.STOPPED, self._stopped))
                    if (answer := self._answers.pop(number, None)) is not None:
                        break
                    self._answered.wait(LOOK)
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
        self._lose()

    def _lose(self) -> None:
        self.gone = True
        self._stop(GONE)

    def _stop(self, reason: str) -> None:
        self._stopped = self._stopped or reason
        with self._answered:
            self._answered.notify_all()


class MeteredModel:
    """Wrap a model, to reserve each call in the fleet's budget beforehand and to settle it afterwards."""

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
            self._probed = True
            return self._model.asking
        finally:  # its price is known once the run logs it
            self._head.tell("failed", n=granted["n"])

    def complete(self, messages: Sequence[Message], **asked: Unpack[RequestOptions]) -> Completion:
        """See protocols.Model. Raises StopRun if the fleet's budget does not cover the call."""
        count, listener, at_most = self._count, asked.get("listener"), asked.get("at_most")
        prompt = sum(count(message.content) + PER_MESSAGE for message in messages)
        prompt += sum(count(call.name + call.arguments) for message in messages for call in message.calls)
        prompt += sum(count(json.dumps(asdict(spec), default=str)) for spec in asked.get("commands", ()))
        most = asked["max_tokens"] + self._model.reasoning_room
        heed = listener.heed if listener else lambda: math.inf
        granted = self._reserve(prompt, min(most, at_most or most), heed)
        asked["at_most"] = min(filter(None, (at_most, granted["at_most"])), default=None)
        try:
            completion = self._model.complete(messages, **asked)
        except BaseException:  # Ctrl-C too
            self._head.tell("failed", n=granted["n"])
            raise
        usage = completion.usage
        self._head.tell("back", n=granted["n"], usd=usage.cost or 0.0, prompt=usage.prompt, completion=usage.completion)
        return completion

    def _reserve(self, prompt: int, most: int, heed: Callable[[], float]) -> dict[str, Any]:
        price = self._model.price
        prices = [price.prompt, price.completion, price.cached] if price else None
        return self._head.ask("call", heed, model=self._model.name, prompt=prompt, most=most, price=prices)


def send_in_turn(head: HeadLink, heed: Callable[[], float], send: Callable[[], Any]) -> Any:
    """Send a request when its turn comes. Tell the head if the server wants fewer requests."""
    head.ask("turn", heed)
    try:
        return send()
    except Fault as fault:
        if fault.after is not None:
            head.tell("slow", seconds=fault.after)
        raise


def told(head: HeadLink, whole: bool, event: Event) -> None:
    """Report an event to the head: its cost and the run's activity, or with `whole` the whole event."""
    fields: dict[str, Any] = {"run": event.run, "type": event.type, "step": 0 if event.agent else event.step}
    match event:
        case Thought() | Rejected() | Answered() | Spent():
            usage = event.usage
            fields |= {"usd": usage.cost or 0.0, "tokens": usage.prompt + usage.completion}
            fields["replied"] = bool(usage.completion)
        case Prompted():
            fields["doing"] = "thinks"
        case Proposed() if not event.agent:
            fields["asks"] = event.call.name
        case Decided() if not event.agent:
            fields["asks"] = ""
        case Started():
            argument = next(iter(event.call.args.values()), "")
            fields["doing"] = f"{event.call.name} {shorten(' '.join(str(argument).split()), 40)}".rstrip()
    if whole:
        fields["event"] = to_json(event)
    head.tell("event", **fields)


def hold_lease(head: HeadLink, seconds: float, over: threading.Event) -> None:
    """End this process after hearing nothing from its head for so long, unless the run is `over` before.

    The lease runs from the question, while the head counts from its answer. So it ends here before the head reassigns
    the run.
    """
    until = now() + seconds

    def renew() -> None:  # in a thread of its own, as a connection that nobody reads holds up whoever writes
        nonlocal until
        while not over.is_set():
            asked = now()
            if head.is_there():
                until = asked + seconds
            over.wait(BEAT)

    threading.Thread(target=renew, name="beat", daemon=True).start()
    while now() < until and not head.gone:
        if over.wait(LOOK):
            return
    if not over.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os.kill(os.getpid(), signal.SIGKILL)


def hand_on(head: HeadLink, sender: FolderSender, event: Event | None = None) -> None:
    """Send on the changes in a run's folder up to an event of the log. For None, its end, wait until they arrive.

    Raises StopRun before a command that the head cannot learn of.
    """
    if event is None:
        sys.stdout.flush()  # to the output file
    for change in sender.changes(whole=event is None or isinstance(event, (RunStarted, Returned, Ended))):
        head.tell("put", **change)
    if (event is None or isinstance(event, Started)) and not head.is_there() and event:
        raise StopRun(Outcome(Status.STOPPED, GONE))


@contextmanager
def joined(descriptor: int, own: str) -> Iterator[dict[str, Any]]:
    """Join the fleet over an inherited socket: yield the order, and take part in the run that follows.

    `own` is the run's folder on this node if the fleet's folder cannot be reached, else ''. Raises StateError if the
    head is gone, or another process still has this run.
    """
    os.set_inheritable(descriptor, False)
    over = threading.Event()
    with socket.socket(fileno=descriptor) as connection, ExitStack() as stack:
        head = HeadLink(connection)
        version, python = __version__, platform.python_version()
        head.tell("hello", version=version, python=python, pid=os.getpid(), host=socket.gethostname(), own=own)
        order = head.order(own)
        order["given"] = {k: tuple(v) if isinstance(v, list) else v for k, v in order["given"].items()}
        if order["lease"]:
            stack.callback(over.set)
            threading.Thread(target=hold_lease, args=(head, order["lease"], over), name="lease", daemon=True).start()
        with held_alone(Path(order["folder"]) / LOCK):
            if own:
                GUESTS["written"] = partial(hand_on, head, FolderSender(Path(own), echo, has=True))
                stack.callback(GUESTS["written"])
            GUESTS["listen"] = partial(told, head, order["whole"])
            GUESTS["model"] = lambda model: MeteredModel(model, head)
            GUESTS["request"] = partial(send_in_turn, head)
            try:
                yield order
            except ForUser as error:
                head.tell("error", reason=str(error), code=error.exit_code)
                raise
            except StopRun as error:
                head.tell("error", reason=str(error), code=error.outcome.status.code)
                raise


@contextmanager
def held_alone(path: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, with the names of process and machine in it.

    Raises StateError if another process keeps it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + PREDECESSOR
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StateError(f"Another process still works on the run in {path.parent}.") from None
                time.sleep(LOOK)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
        yield
    finally:
        os.close(descriptor)
