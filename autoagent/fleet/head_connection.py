"""Exchange JSON lines with the head of the fleet, over the socket that a worker inherits.

A worker that has lost its head makes no further calls: it ends before the next one.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from autoagent.core.errors import StateError, StopRun
from autoagent.core.task import Outcome, Status
from autoagent.fleet.folder_copy import receive

POLL_SECONDS = 0.2  # between two checks whether to keep waiting
HEAD_GONE = "The head of the fleet is gone; `autoagent fleet resume` continues the fleet."


class HeadConnection:
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
