"""Forward to a model and to its listener, with what a run adds: another model, and the limits during a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoagent.core.model import Usage
from autoagent.core.protocols import Listener, Model


class SwitchableModel:
    """Forward protocols.Model to the current model. Spending of earlier models still counts."""

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


class Watch:
    """Forward everything to a listener, except streamed text if `quiet`, which `hear` always receives.

    `heed` returns the remaining seconds, `before_retry` receives the reason of a retry. Both may raise StopRun.
    """

    def __init__(
        self,
        listener: Listener,
        heed: Callable[[], float],
        before_retry: Callable[[str], None],
        *,
        quiet: bool = False,
        hear: Callable[[str], None] = lambda delta: None,
    ) -> None:
        self._listener = listener
        self._heed = heed
        self._before_retry = before_retry
        self._quiet = quiet
        self._hear = hear

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)

    def text(self, delta: str) -> None:
        self._hear(delta)
        if not self._quiet:
            self._listener.text(delta)

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        self._before_retry(reason)
        self._listener.waiting(reason, seconds, until)

    def heed(self) -> float:
        return min(self._listener.heed(), self._heed())
