"""The one token count is tiktoken's, though it is not tiktoken that counts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from autoagent.text.byte_pairs import MAX_CACHED_CHARACTERS
from autoagent.text.tokens import _byte_pairs, _encoding, counter

ROOT = Path(__file__).parent.parent
ENCODINGS = {"gpt-4o-mini": "o200k_base", "gpt-4": "cl100k_base"}
WORDS = ["'s", "'LL", "the", "THE", "The", " of", "12", "  ", "\n\n", "autoagent", "\r\n", "/", "antidisestablishment"]


def _mixed(rng: random.Random, letters: list[str]) -> str:
    return "".join(rng.choice(letters) for _ in range(rng.randrange(1, 60)))


@pytest.mark.slow
@pytest.mark.parametrize("model", ENCODINGS)
def test_texts_have_the_tokens_that_tiktoken_makes_of_them(model: str) -> None:
    count, encoding, rng = counter(model), _encoding(ENCODINGS[model]), random.Random(1)
    plain = [chr(n) for n in range(128)] + 5 * WORDS
    spoken = [
        *plain,
        *"äöüßéñçøåÄÖÜÉ“”„…€£°²½βγδЖдщקשأبती中文字日本語한국어🙂👩\u200d👧🇩🇪\u2019\u2013\u00a0\u3000\u2028",
    ]
    texts = [_mixed(rng, letters) for letters in (plain, spoken) for _ in range(3000)]
    texts += [path.read_text() for path in (*ROOT.glob("docs/*.md"), *ROOT.glob("autoagent/runs/*.py"))]
    texts += ["", "x" * 5000, "-" * 599, "=" * 601, "a1" * 400, " " * 3000, "\n" * 700, "é" * 450]
    for letters in ("ACGT", "กขคงจฉชซญดตถทธนบปผพฟมยรลวสหอาเแโใไ", [chr(n) for n in range(0x4E00, 0x9FA5)]):
        texts += ["".join(rng.choices(letters, k=rng.randrange(20, 300))) for _ in range(500)]
    assert [text for text in texts if count(text) != len(encoding.encode_ordinary(text))] == []
    known = _byte_pairs(ENCODINGS[model])._cached_count.cache_info
    before = known()
    assert count("-" * (MAX_CACHED_CHARACTERS + 1)) and known() == before, "a long piece is not kept"


@pytest.mark.slow
def test_a_million_spaces_are_counted() -> None:
    assert counter("gpt-4o")(" " * 1_000_000) == 7813  # `encode_ordinary` panics at that


def test_half_a_pair_of_surrogates_counts_as_what_stands_for_it() -> None:
    text = "a \ud83d b"
    assert counter("gpt-4o")(text) == len(_encoding("o200k_base").encode_ordinary(text))
