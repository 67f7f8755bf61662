"""Replace a model in the middle of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from autoagent.core.model import Asking, Completion, Message, Price, PromptStyle, Usage
from autoagent.core.protocols import Asked, Model


class SwitchableModel:
    """Forward protocols.Model to the current model. Spending of earlier models still counts."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._earlier_usage = Usage()

    def switch(self, model: Model) -> None:
        """Use this model from now on."""
        self._earlier_usage += self._model.take_usage()
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def window(self) -> int:
        return self._model.window

    @property
    def price(self) -> Price | None:
        return self._model.price

    @property
    def reasoning_room(self) -> int:
        return self._model.reasoning_room

    @property
    def asking(self) -> Asking:
        return self._model.asking

    @property
    def style(self) -> PromptStyle:
        return self._model.style

    def complete(self, messages: Sequence[Message], **asked: Unpack[Asked]) -> Completion:
        """Complete a prompt with the current model."""
        return self._model.complete(messages, **asked)

    def take_usage(self) -> Usage:
        """See protocols.Model."""
        usage, self._earlier_usage = self._earlier_usage + self._model.take_usage(), Usage()
        return usage
