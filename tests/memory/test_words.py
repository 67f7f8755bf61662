"""The words of a text, and which of them a search looks for."""

from autoagent.memory.texts import MAX_WORD_CHARACTERS, weights, words


def test_words_are_spelt_alike() -> None:
    assert words("Ünïcode, STRASSE: Straße; ﬁne_print 4711!") == ["unicode", "strasse", "strasse", "fine_print", "4711"]
    assert words("e\u0301t\u00e9") == ["ete"]
    assert words(" ~ ' \" ") == []
    assert words("x" * 9_000) == ["x" * MAX_WORD_CHARACTERS]


def test_common_words_are_left_out_where_rare_ones_do() -> None:
    counts = {"the": 900, "anchor": 3, "ship": 40, "of": 700}
    assert list(weights(counts, 50, 1000)) == ["anchor", "ship"]
    assert list(weights(counts, 10_000, 1000)) == ["anchor", "ship", "of", "the"]
    assert list(weights({"the": 900, "of": 700}, 50, 1000)) == ["of"]
    assert list(weights({}, 50, 1000)) == []
