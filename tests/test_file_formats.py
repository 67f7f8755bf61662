"""Whether a text has the form that the name of its file promises."""

from __future__ import annotations

import re

import pytest

from autoagent.text.file_formats import MAX_CHARACTERS, digest, format_error


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.json", '{"a": [1, 2.5, null]}\n'), ("a.json", "\ufeff{}"), ("a.json", "9" * 5000),
        ("a.py", "path = '\\d'\nprint(path)\n"), ("a.toml", "[a]\nb = 1\n"),
        ("a.yaml", "- !mine x\n- &a b\n- *a\n---\nc: d\n"), ("a.yml", "# nothing\n"), ("a.txt", "}{"),
        ("json", "}{"), ("a.json", " \n"),
    ],
)  # fmt: skip
def test_a_well_formed_text_has_no_error(path: str, text: str) -> None:
    assert format_error(path, text) == ""


@pytest.mark.parametrize(
    ("path", "text", "error"),
    [
        ("conf/a.JSON", '{\n"a": 1,}', "is not valid JSON: .+, line 2"),
        ("a.py", "x = 1\ndef f(:\n", "is not valid Python: .+, line 2"),
        ("a.py", "x = 1\0", "is not valid Python: .*null bytes.*"),
        ("a.toml", "a = 1\nb = \n", "is not valid TOML: line 2"),
        ("a.yaml", "a: 1\nb: ]\n", "is not valid YAML: line 2"),
        ("a.yml", "a: \x01", "is not valid YAML: a character that it cannot hold"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(path: str, text: str, error: str) -> None:
    assert re.fullmatch(error, format_error(path, text))


@pytest.mark.parametrize("text", ["[" * 100_000, f'["{"x" * MAX_CHARACTERS}"'])
def test_of_what_is_too_deep_or_too_long_nothing_is_told(text: str) -> None:
    assert format_error("a.json", text) == ""


@pytest.mark.parametrize("path", ["a.py", "a.toml", "a.yaml"])
def test_deep_nesting_ends_nothing(path: str) -> None:
    assert isinstance(format_error(path, "a = " + "[" * 50_000), str)


@pytest.mark.parametrize(
    ("path", "text", "other", "alike"),
    [
        ("a.py", "x = f(1)\n", "x=f( 1 )  \n\n", True),
        ("a.py", "x = 1\n", "x = 1  # one\n", False),
        ("a.json", '{"a": 1, "b": [2]}', '{"b":[2],\n"a":1}\n', True),
        ("a.json", "[1, 2]", "[2, 1]", False),
        ("a.txt", "a \nb\n", "a\nb", True),
        ("a.txt", "a\nb", "a\n\nb", False),
        ("a.py", "x = (", "x = ( ", True),
        ("a.txt", "", None, False),
    ],
)
def test_the_layout_of_a_text_is_no_part_of_its_digest(path: str, text: str, other: str | None, alike: bool) -> None:
    assert (digest(path, text) == digest(path, other)) is alike
