"""Breaks the silence while an endpoint says nothing, so that its user knows that it is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from autoagent.core.errors import StopRun
from autoagent.models.openai.timers import Timers

LONGEST = 30.0  # seconds without a word to the user


class Heartbeat:
    """While entered, calls `tell` with the seconds of silence so far, each time another `every` of them have passed.

    Without `tell` nobody is told. It is called in a thread of its own, and never between a `heard` and what is made of
    the piece that was heard.
    """

    def __init__(self, timers: Timers, every: float = 0.0, tell: Callable[[float], None] | None = None) -> None:
        self._timers = timers
        self._every = every
        self._tell = tell
        self._turn = threading.Lock()
        self._since = time.monotonic()
        self._told = 0  # times in this silence
        self._cancel: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        with self._turn:
            if self._tell is not None:
                self._wait(self._every)
        return self

    def __exit__(self, *_: object) -> None:
        with self._turn:
            if self._cancel is not None:
                self._cancel()
            self._cancel = None

    def heard(self) -> None:
        """A piece came; the silence begins anew."""
        with self._turn:
            self._since, self._told = time.monotonic(), 0

    def _wait(self, seconds: float) -> None:
        """Within the turn."""
        self._cancel = self._timers.after(seconds, self._look)

    def _look(self) -> None:
        with self._turn:
            if self._cancel is None or self._tell is None:
                return
            silent = time.monotonic() - self._since
            if silent >= (self._told + 1) * self._every:
                self._told += 1
                with suppress(StopRun):  # who ends what listens does so in the listener's own thread, at the next piece
                    self._tell(silent)
            self._wait(max(0.0, self._since + (self._told + 1) * self._every - time.monotonic()))
