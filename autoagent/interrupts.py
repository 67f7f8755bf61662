"""Signals that may cut a run short, let through only where being cut short is harmless.

Python raises KeyboardInterrupt between any two instructions, also between writing a log line and syncing it. Here a
signal is noted at once and raised only inside `allowed()`: while a model thinks, a command runs or a question waits.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from autoagent.errors import StopRun
from autoagent.messages import Outcome

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While installed: Ctrl-C raises KeyboardInterrupt, SIGTERM and SIGHUP raise StopRun, each inside `allowed()`.

    Two Ctrl-C before the first could be raised count as the second one: StopRun.
    """

    def __init__(self) -> None:
        self._pending: list[int] = []
        self._depth = 0

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Take the signals over; give them back at the end."""
        before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, *_ENDING)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Signals are raised in this block: those that come, and those that came before it."""
        self._depth += 1
        try:
            self._raise_pending()
            yield
        finally:
            self._depth -= 1

    @contextmanager
    def held(self) -> Iterator[None]:
        """Signals that come in this block are raised behind it, where they would have been raised in it."""
        depth, self._depth = self._depth, 0
        try:
            yield
        finally:
            self._depth = depth
        if depth:
            self._raise_pending()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending.append(number)
        if self._depth:
            self._raise_pending()

    def _raise_pending(self) -> None:
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        for number in pending:
            if number in _ENDING:
                raise StopRun(Outcome("interrupted", f"Ended by {signal.Signals(number).name}."))
        if len(pending) > 1:
            raise StopRun(Outcome("interrupted", "Ended by Ctrl-C."))
        raise KeyboardInterrupt
