"""A model that can be replaced in the middle of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from autoagent.core.model import Asking, Completion, Message, Price, PromptStyle, Usage
from autoagent.core.protocols import Asked, Model


class SwitchableModel:
    """Satisfies protocols.Model with its current model. Spending of earlier models still counts."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._spent = Usage()

    def switch(self, model: Model) -> None:
        """Let this model answer from now on."""
        self._spent += self._model.take_usage()
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
        """See protocols.Model."""
        return self._model.complete(messages, **asked)

    def take_usage(self) -> Usage:
        """See protocols.Model."""
        usage, self._spent = self._spent + self._model.take_usage(), Usage()
        return usage
