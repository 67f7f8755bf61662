"""Embed without a key or a network: by a table of word vectors, or by feature hashing if it is missing."""

from __future__ import annotations

import importlib.util
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder
from autoagent.core.services import Finding

if TYPE_CHECKING:
    from autoagent.registry.embedders import EmbedderOpening
    from autoagent.registry.models import ModelSettings

_LONGEST = 100_000  # characters that are looked at; the mean of so many words hardly moves any more


def open_embedder(opening: EmbedderOpening) -> Embedder:
    """Open the embedder as `embedded` does: there is nothing to choose."""
    return embedded()


def embedded() -> Embedder:
    """Load the better usable embedder of the two (1 s)."""
    try:
        return WordLlamaEmbedder()
    except ImportError:  # the extra `local` is not installed
        return HashEmbedder()


def examine(settings: ModelSettings, argument: str) -> Iterator[Finding]:
    """Report for `autoagent doctor` whether WordLlama can be used."""
    if importlib.util.find_spec("wordllama"):
        yield Finding("embedder", "ok", "the embedded one is installed")
    else:
        yield Finding("embedder", "warn", "the embedded one is not installed", "pip install 'autoagent[local]'")


class WordLlamaEmbedder:
    """Embed by the mean of pretrained word-piece vectors (WordLlama, `l2_supercat`) from the package `wordllama`.

    It knows words, not their order. Raises ImportError if the package is missing.
    """

    name = "wordllama-l2-supercat-256"
    dim = 256
    scale = (0.0, 0.95)  # it knows words, not what they say together: steps of one form reach .65 whatever they say

    def __init__(self) -> None:
        self._table, self._tokenizer = _load_wordllama()
        # It would keep the pieces of 10,000 texts, some kilobytes each, which do not come again.
        with suppress(AttributeError):  # an older tokenizer has no such switch
            self._tokenizer.model._resize_cache(0)

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        import numpy as np

        vectors = np.zeros((len(texts), self.dim), dtype="<f4")
        for row, text in enumerate(texts):
            # One by one: a batch is padded to its longest text, so that one long text would make it gigabytes.
            if pieces := self._tokenizer.encode(_cleaned(text), add_special_tokens=False).ids:
                vectors[row] = self._table[pieces].astype("<f4").mean(axis=0)
        return _unit(vectors), Usage()


class HashEmbedder:
    """Hash features with signs (Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009).

    The features are words and their character trigrams, weighted by 1 + log(count). It finds texts that share words or
    stems and knows nothing of meaning.
    """

    name = "hash-words-trigrams-1024"
    dim = 1024
    scale = (0.1, 0.95)

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        import numpy as np

        vectors = np.zeros((len(texts), self.dim), dtype="<f4")
        for row, text in enumerate(texts):
            marked = [f"<{word}>" for word in re.findall(r"\w+", _cleaned(text).lower())]
            trigrams = (word[i : i + 3] for word in marked for i in range(len(word) - 2))
            for feature, count in Counter((*(word[1:-1] for word in marked), *trigrams)).items():
                hashed = zlib.crc32(feature.encode())
                sign = 1.0 if hashed & 1 else -1.0  # so that collisions cancel out on average
                vectors[row, (hashed >> 1) % self.dim] += sign * (1.0 + np.log(count))
        return _unit(vectors), Usage()


def _cleaned(text: str) -> str:
    """Return the text without lone surrogates, cut to the tokenizer's limit, or '' if blank."""
    return text[:_LONGEST].encode("utf-8", "replace").decode().strip()


def _unit(vectors: Any) -> list[bytes]:
    """Scale the rows to length 1. Rows of zeros stay zero."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return [row.tobytes() for row in vectors / np.where(lengths > 0, lengths, 1)]


def _load_wordllama() -> tuple[Any, Any]:
    """Return the table (pieces, dimensions), memory-mapped, and the tokenizer. Raises ImportError if they are missing.

    The package itself would read the table as float32 (32 MB) and import a downloader.
    """
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("wordllama is not installed")
    import numpy as np
    from tokenizers import Tokenizer

    folder = Path(spec.submodule_search_locations[0])
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
        weights = folder / "weights" / "l2_supercat_256.safetensors"
        with weights.open("rb") as file:  # the length of a header of JSON, the header, the numbers
            length = int.from_bytes(file.read(8), "little")
            table = json.loads(file.read(length))["embedding.weight"]
        begin, _ = table["data_offsets"]
        mapped = np.memmap(weights, "<f2", "r", offset=8 + length + begin, shape=tuple(table["shape"]))
    except Exception as error:  # tokenizers raises a bare Exception where there is no file
        raise ImportError(f"wordllama has no table as it is known here: {error}") from error
    tokenizer.no_truncation()
    return np.asarray(mapped), tokenizer
