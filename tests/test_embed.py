"""The embedders without a key: unit vectors for any text, and near ones for texts that say the same."""

from __future__ import annotations

import math
import struct
import subprocess
import sys

import pytest

from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder
from autoagent.memory.embedders.builtin import HashEmbedder, WordLlamaEmbedder, open_builtin
from autoagent.registry.embedders import EmbedderOpening
from autoagent.settings import Settings

HOSTILE = ["\ud800 half a pair", "x" * 100_000, "long words " * 10_000, "\0", "🙂 你好", "a\nb\tc"]


@pytest.fixture(scope="module", params=[HashEmbedder, WordLlamaEmbedder])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    made: Embedder = request.param()
    return made


def values(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // 4}f", vector)


def similarity(embedder: Embedder, one: str, other: str) -> float:
    first, second = (values(vector) for vector in embedder.embed([one, other])[0])
    return sum(a * b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:12]))
def test_any_text_gives_a_unit_or_zero_vector_of_the_right_size(embedder: Embedder, text: str) -> None:
    (vector,), usage = embedder.embed([text])
    length = math.sqrt(sum(x * x for x in values(vector)))
    assert len(vector) == 4 * embedder.dim
    assert length == pytest.approx(1, abs=1e-5) or length == 0
    assert usage == Usage()


def test_a_text_without_content_gives_the_zero_vector(embedder: Embedder) -> None:
    vectors, _ = embedder.embed(["", " \n\t"])
    assert vectors == [bytes(4 * embedder.dim)] * 2


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]) == ([], Usage())


def test_a_text_has_one_vector_whatever_it_is_embedded_with(embedder: Embedder) -> None:
    alone = embedder.embed(["The oven is broken."])[0]
    assert embedder.embed(["x " * 5000, "The oven is broken."])[0][1:] == alone


def test_texts_that_share_words_are_nearer_than_texts_that_do_not(embedder: Embedder) -> None:
    near = similarity(embedder, "The invoice of March is unpaid", "unpaid invoices from march")
    far = similarity(embedder, "The invoice of March is unpaid", "a recipe for tomato soup")
    assert near > far + 0.2


def test_word_vectors_know_what_hashing_does_not() -> None:
    meaning = ("The car would not start", "an automobile with a dead engine")
    unrelated = ("The car would not start", "she planted roses in spring")
    table = WordLlamaEmbedder()
    assert similarity(table, *meaning) > similarity(table, *unrelated) + 0.2
    assert abs(similarity(HashEmbedder(), *meaning)) < 0.2


def test_loading_the_table_leaves_the_log_alone() -> None:
    code = (
        "import logging\n"
        "from autoagent.memory.embedders.builtin import open_builtin\n"
        "print(open_builtin().name, logging.getLogger().handlers, logging.getLogger().level)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{WordLlamaEmbedder.name} [] {30}\n"
    assert done.stderr == ""


def test_without_the_package_hashing_takes_over() -> None:
    code = (
        "import sys\n"
        "sys.modules['wordllama'] = None\n"
        "from autoagent.memory.embedders.builtin import open_builtin\n"
        "print(open_builtin().name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{HashEmbedder.name}\n"
    assert open_builtin().name == WordLlamaEmbedder.name


@pytest.mark.slow
def test_minilm_knows_what_a_sentence_says() -> None:
    pytest.importorskip("onnxruntime")
    kind, argument = Settings(embedding_model="minilm").embedder
    embedder = kind.open(EmbedderOpening(Settings().model_settings, argument, None))
    asked = "For how long can yesterday's copy of the data be brought back?"
    right = similarity(embedder, asked, "Nightly backups of the database are kept for 14 days.")
    wrong = similarity(embedder, asked, "The analytics replica lags four minutes behind the primary.")
    assert right > wrong + 0.1
    vectors, _ = embedder.embed(["", " \n", "x " * 50_000, "half \ud800 of a character"])
    lengths = [math.hypot(*values(vector)) for vector in vectors]
    assert lengths == pytest.approx([0, 0, 1, 1], abs=1e-5)
