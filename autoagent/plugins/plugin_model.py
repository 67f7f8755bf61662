"""A plug-in in the place of the model, and one in the place of the embedder."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Unpack, cast

from autoagent.core.commands import Proposal, Verdict
from autoagent.core.errors import ModelError, StopRun
from autoagent.core.model import FULL, Asking, Completion, Message, Price, Usage
from autoagent.core.protocols import Asked, Authorizer, Model
from autoagent.core.task import Outcome, Status
from autoagent.plugins.plugin_hooks import PluginHooks
from autoagent.safety.approval import AuthorizerWrapper

if TYPE_CHECKING:
    from autoagent.settings import Settings

USUAL_WINDOW = 8_192  # tokens, where nothing says how many the plug-in's model has


class PluginModel:
    """Answers by the plug-ins. What none of them answers, the model itself does, opened when it is first needed."""

    def __init__(self, plugins: PluginHooks, settings: Settings, opened: Callable[[], Model]) -> None:
        self.name = settings.smart_llm
        self.window = settings.window or USUAL_WINDOW
        self.price: Price | None = None
        self.reasoning_room = 0
        self.asking: Asking = "text"
        self.style = FULL
        self._plugins = plugins
        self._temperature = settings.temperature
        self._opened = opened

    def complete(self, messages: Sequence[Message], **asked: Unpack[Asked]) -> Completion:
        """Answer the prompt; see protocols.Model."""
        text = self._plugins.completed(messages, self.name, self._temperature, asked["max_tokens"])
        if text is not None:
            return Completion(text, Usage(cost=None))  # what it costs, the plug-in alone knows
        kept = cast(Asked, {key: value for key, value in asked.items() if key not in ("commands", "schema")})
        return self._model.complete(messages, **kept)

    def take_usage(self) -> Usage:
        """Return what was spent besides; see protocols.Model."""
        return self._model.take_usage() if "_model" in self.__dict__ else Usage()

    @cached_property
    def _model(self) -> Model:
        return self._opened()


class PluginEmbedder:
    """Embeds by a plug-in; see protocols.Embedder."""

    name = "plug-in"

    def __init__(self, plugins: PluginHooks) -> None:
        self._plugins = plugins

    @cached_property
    def dim(self) -> int:
        """The number of values in a vector."""
        return len(self._vector("dimension"))

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        """Return a unit vector per text. Raises ModelError if the plug-in gives none, or one of another length."""
        return [self._unit(text) for text in texts], Usage(cost=None)

    def _unit(self, text: str) -> bytes:
        if not text.strip():
            return struct.pack(f"<{self.dim}f", *[0.0] * self.dim)
        vector = self._vector(text)
        length = math.sqrt(sum(value * value for value in vector))
        if len(vector) != self.dim or not math.isfinite(length) or length == 0:
            raise ModelError("The plug-in that embeds gives a vector that cannot be used.")
        return struct.pack(f"<{self.dim}f", *(value / length for value in vector))

    def _vector(self, text: str) -> list[float]:
        vector = self._plugins.embedded(text)
        if vector is None:
            raise ModelError("The plug-in that embeds gives no vector.")
        return vector


_YES = frozenset({"y", "yes", "yeah", "yep", "ok", "okay", "sure", "alright", "approve", "authorise", "authorize"})
_NO = frozenset({"n", "no", "nope", "stop", "exit", "quit"})


class PluginAuthorizer(AuthorizerWrapper):
    """Lets a plug-in answer for the user, from a chat for example (CHAT_MESSAGES_ENABLED).

    It does so where one call needs nothing but a yes. The guard's warnings are for the user alone.
    """

    def __init__(self, plugins: PluginHooks, asked: Authorizer) -> None:
        super().__init__(asked)
        self._plugins = plugins

    def decide(self, proposal: Proposal) -> Verdict:
        """Return the verdict; see protocols.Authorizer."""
        text, who = "", ""
        if not proposal.warning:
            text, who = self._plugins.answered(f"NEXT ACTION: {proposal.call}\nRun it? y, n, or feedback")
        if not text:
            return super().decide(proposal)
        if text.lower() in _YES:
            return Verdict(True, who)
        if text.lower() in _NO:
            raise StopRun(Outcome(Status.STOPPED, f"Stopped by {who}."))
        return Verdict(False, who, f"{who} says: {text}")  # not the user's word, which would reset the standstill count
