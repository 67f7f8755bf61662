"""Colour code: find the characters of a line that form a keyword, a string, a comment. The text stays unchanged.

The colours of a line are a string of lengths and kinds: `3k1.4f` for `def main`. A kind `k` is the class `hl-k` of the
style sheet, and `.` is plain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

from pygments.lexer import Lexer
from pygments.lexers import get_all_lexers, get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String, Token

MAX_LINE_CHARACTERS = 2_000  # a longer line has no colours
_KINDS = (
    (Comment, "c"), (String, "s"), (Number, "n"), (Keyword, "k"), (Name.Function, "f"), (Name.Class, "f"),
    (Name.Decorator, "f"), (Name.Tag, "k"), (Name.Attribute, "f"), (Name.Builtin, "b"), (Token.Generic.Heading, "k"),
    (Token.Generic.Subheading, "k"),
)  # fmt: skip


@lru_cache(maxsize=64)
def _lexer(ending: str) -> Lexer | None:
    """Return pygments' own lexer for this kind of file. A plug-in lexer would run with our rights."""
    for _, aliases, patterns, _ in get_all_lexers(plugins=False):
        if ending and f"*{ending}" in patterns and aliases:
            return get_lexer_by_name(aliases[0], stripnl=False, ensurenl=False)
    return None


@lru_cache(maxsize=256)
def _kind(token: object) -> str:
    return next((letter for kind, letter in _KINDS if token in kind), ".")


@lru_cache(maxsize=256)
def colours(text: str, name: str) -> Sequence[str]:
    """Return the colours of each line of a file's text. '' stands for a plain line.

    Cached, since a new file appears both in its step's diff and among the files at that step.
    """
    lexer = _lexer(re.sub(r"^[^.]*", "", name.rpartition("/")[2])[-12:].lower())
    lines = text.split("\n")
    if lexer is None or any(len(line) > MAX_LINE_CHARACTERS for line in lines):
        return [""] * len(lines)
    line_colours: list[str] = []
    runs: list[tuple[int, str]] = []
    for _, token, value in lexer.get_tokens_unprocessed(text):
        first, *further = value.split("\n")
        runs.append((len(first), _kind(token)))
        for line in further:
            line_colours.append(_render_runs(runs))
            runs = [(len(line), _kind(token))]
    return [*line_colours, _render_runs(runs)]


def _render_runs(runs: Sequence[tuple[int, str]]) -> str:
    joined = [(sum(length for length, _ in same), kind) for kind, same in groupby(runs, lambda run: run[1])]
    text = "".join(f"{length}{kind}" for length, kind in joined if length)
    return re.sub(r"\d+\.$", "", text)


def colours_of_diff(diff: str) -> list[str]:
    """Return the colours of each line of a unified diff, without its first character. '' stands for a plain line.

    Each side of a hunk is read on its own, so that a string that ends in it does not run on.
    """
    head, *lines = diff.split("\n")
    names = [line[4:].split("\t")[0] for line in (head, *lines[:1])]
    name = names[0] if names[-1] == "/dev/null" else names[-1]
    line_colours = [""] * (len(lines) + 1)
    sides: tuple[list[int], list[int]] = ([], [])
    for number, line in enumerate([*lines, "@@ "], 1):
        if line.startswith("@@ ") or line.startswith("+++ "):
            for side in sides:
                text = "\n".join(lines[index - 1][1:] for index in side)
                for index, colour in zip(side, colours(text, name), strict=False):
                    line_colours[index] = colour
                side.clear()
            continue
        if line[:1] != "+":
            sides[0].append(number)
        if line[:1] != "-":
            sides[1].append(number)
    return line_colours
