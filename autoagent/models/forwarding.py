"""Wrap a model so that the user can switch it, and a listener so that a run's limits apply during a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoagent.core.model import Usage
from autoagent.core.protocols import Listener, Model


class SwitchableModel:
    """Forward to the current model. Satisfies protocols.Model. The usage of earlier models still counts."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._earlier_usage = Usage()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def switch(self, model: Model) -> None:
        """Use this model from now on."""
        self._earlier_usage += self._model.take_usage()
        self._model = model

    def take_usage(self) -> Usage:
        """See protocols.Model."""
        usage, self._earlier_usage = self._earlier_usage + self._model.take_usage(), Usage()
        return usage


class LimitedListener:
    """Forward to a listener, and enforce limits during the call.

    `remaining_seconds` returns how long the call may go on, and `before_retry` receives the reason for a retry. Both
    may raise StopRun.
    `on_text` receives streamed text, and so does the listener unless `quiet`.
    """

    def __init__(
        self,
        listener: Listener,
        remaining_seconds: Callable[[], float],
        before_retry: Callable[[str], None],
        *,
        quiet: bool = False,
        on_text: Callable[[str], None] = lambda delta: None,
    ) -> None:
        self._listener = listener
        self._remaining_seconds = remaining_seconds
        self._before_retry = before_retry
        self._quiet = quiet
        self._on_text = on_text

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)

    def text(self, delta: str) -> None:
        self._on_text(delta)
        if not self._quiet:
            self._listener.text(delta)

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        self._before_retry(reason)
        self._listener.waiting(reason, seconds, until)

    def check_time_left(self) -> float:
        return min(self._listener.check_time_left(), self._remaining_seconds())
