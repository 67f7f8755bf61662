"""Replace a model in the middle of a run."""

from __future__ import annotations

from typing import Any

from autoagent.core.model import Usage
from autoagent.core.protocols import Model


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
