"""Embed texts with any OpenAI-compatible endpoint."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from autoagent.core.errors import ModelError, Unreachable
from autoagent.core.model import Usage
from autoagent.core.protocols import Listener
from autoagent.models.openai.endpoint import Endpoint
from autoagent.models.openai.response import read_object, tokens_in
from autoagent.models.pricing import cost_of
from autoagent.text.sanitize import valid_text

_BATCH_SIZE = 128  # texts per request
_STEP_TEXTS = 8  # texts embedded in a step
_FAILURE_PAUSE = 60.0  # seconds without requests after a failure, so that no step waits for it twice
_MAX_TOKENS = 8000  # tokens per text; OpenAI's embedders accept at most 8191


class OpenAIEmbedder:
    """Use an embedding model of an endpoint. Satisfies protocols.Embedder. `dim` is known after the first call.

    Its name includes the host, as a model of this name on another host may give other vectors. `listener` is notified
    of waits and long silences. `quick_endpoint` is the same endpoint with less patience, used while a step waits.
    """

    def __init__(
        self,
        *,
        model: str,
        endpoint: Endpoint,
        count: Callable[[str], int],
        listener: Listener | None = None,
        quick_endpoint: Endpoint | None = None,
    ) -> None:
        self.name = f"{endpoint.host}/{model}"
        self._model = model
        self._endpoint = endpoint
        self._quick_endpoint = quick_endpoint or endpoint
        self._count = count
        self._dim: int | None = None
        self._price = endpoint.price(model)
        self._listener = listener
        self._pending_usage = Usage()
        self._last_failure: tuple[float, str] | None = None  # the time and reason of the last failure

    @property
    def dim(self) -> int:
        if self._dim is None:
            _, self._pending_usage = self.embed(["dimension"])
        assert self._dim is not None
        return self._dim

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        """Embed texts. Of a text beyond the model's limit, embed the beginning.

        The next call reports the cost of a failed call. After a failure, the endpoint is not asked for a while. Raises
        ModelError if it fails, or does not answer with one finite vector of `dim` values per text.
        """
        pending = [self._truncate(valid_text(text)) for text in texts if text.strip()]
        embedded: list[bytes] = []
        for start in range(0, len(pending), _BATCH_SIZE):
            embedded += self._embed(pending[start : start + _BATCH_SIZE])
        remaining = iter(embedded)
        vectors = [next(remaining) if text.strip() else bytes(4 * self.dim) for text in texts]
        usage, self._pending_usage = self._pending_usage, Usage()
        return vectors, usage

    def _embed(self, texts: list[str]) -> list[bytes]:
        body = {"model": self._model, "input": texts}
        if self._last_failure and time.monotonic() < self._last_failure[0] + _FAILURE_PAUSE:
            raise Unreachable(self._last_failure[1])
        try:
            endpoint = self._quick_endpoint if len(texts) <= _STEP_TEXTS else self._endpoint
            answer, _ = endpoint.post("/embeddings", body, read_object, self._listener)
        except Unreachable as error:
            self._last_failure = time.monotonic(), str(error)
            raise
        self._last_failure = None
        usage = answer.get("usage")
        reported = tokens_in(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
        tokens = reported or sum(map(self._count, texts))
        self._pending_usage += Usage(tokens, cost=cost_of(self._price, tokens, 0, 0))
        data = answer.get("data")
        rows = [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []
        if len(rows) != len(texts):
            counts = f"{len(rows)} embeddings for {len(texts)} texts"
            raise ModelError(f"{self.name} gave {counts}; use another EMBEDDING_MODEL")
        rows.sort(key=lambda row: row["index"] if isinstance(row.get("index"), int) else 0)
        return [self._vector(row.get("embedding")) for row in rows]

    def _vector(self, values: Any) -> bytes:
        """Return the values as a unit vector of float32."""
        are_numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
        try:
            numbers = [float(value) for value in values] if are_numbers else [math.nan]
        except OverflowError:  # an integer with hundreds of digits
            numbers = [math.nan]
        if not math.isfinite(math.hypot(*numbers)):
            raise ModelError(f"{self.name} gave an embedding that is not numbers; use another EMBEDDING_MODEL")
        largest = max(map(abs, numbers), default=0.0)
        if largest == 0:
            raise ModelError(f"{self.name} gave an empty embedding; use another EMBEDDING_MODEL")
        numbers = [value / largest for value in numbers]  # as the norm of denormal numbers is inexact
        length = math.hypot(*numbers)
        if self._dim is None:
            self._dim = len(numbers)
        if len(numbers) != self._dim:
            raise ModelError(f"{self.name} gave an embedding of {len(numbers)} values instead of {self._dim}")
        return struct.pack(f"<{len(numbers)}f", *(value / length for value in numbers))

    def _truncate(self, text: str) -> str:
        # A token is at least a character, with rare exceptions, so these characters hold at most as many tokens.
        is_short = len(text) <= _MAX_TOKENS or (len(text) <= 8 * _MAX_TOKENS and self._count(text) <= _MAX_TOKENS)
        return text if is_short else text[:_MAX_TOKENS]
