"""Let plug-ins replace the model and the embedder."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Unpack, cast

from autoagent.core.errors import ModelError
from autoagent.core.model import FULL, Asking, Completion, Message, Price, Usage
from autoagent.core.protocols import Model, RequestOptions
from autoagent_autogpt_plugins.plugin_hooks import PluginHooks

if TYPE_CHECKING:
    from autoagent.extension import Setting

USUAL_WINDOW = 8_192  # tokens, if nothing tells the window of the plug-in's model


class PluginModel:
    """Let plug-ins answer. If none does, ask the model itself, which is opened when first needed."""

    def __init__(self, plugins: PluginHooks, setting: Setting, opened: Callable[[], Model]) -> None:
        self.name: str = setting("smart_llm")
        self.window: int = setting("window") or USUAL_WINDOW
        self.price: Price | None = None
        self.reasoning_room = 0
        self.asking: Asking = "text"
        self.style = FULL
        self._plugins = plugins
        self._temperature: float = setting("temperature")
        self._opened = opened

    def complete(self, messages: Sequence[Message], **asked: Unpack[RequestOptions]) -> Completion:
        """Answer the prompt; see protocols.Model."""
        text = self._plugins.completed(messages, self.name, self._temperature, asked["max_tokens"])
        if text is not None:
            return Completion(text, Usage(cost=None))  # only the plug-in knows what it costs
        kept = cast(RequestOptions, {key: value for key, value in asked.items() if key not in ("commands", "schema")})
        return self._model.complete(messages, **kept)

    def take_usage(self) -> Usage:
        """Return what was spent besides; see protocols.Model."""
        return self._model.take_usage() if "_model" in self.__dict__ else Usage()

    @cached_property
    def _model(self) -> Model:
        return self._opened()


class PluginEmbedder:
    """Embed by a plug-in. Satisfies protocols.Embedder."""

    def __init__(self, plugins: PluginHooks) -> None:
        self.name = f"plug-in {plugins.embedder_name}"  # a store keeps the vectors of each name apart
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
