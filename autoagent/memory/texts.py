"""What a text goes through before it is stored: made valid, and cut where it is long."""

from __future__ import annotations

PART = 8_000  # characters; an embedder reads little more than that, and a prompt has room for little more


def clean(text: str) -> str:
    """The text as valid Unicode: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parts(text: str) -> list[str]:
    """The text in pieces of at most PART characters, cut after a line or a word where one ends near; [] if blank."""
    found, start = [], 0
    while start < len(text):
        end = start + PART
        if end < len(text):
            near = (text.rfind(mark, start + PART // 2, end) for mark in ("\n", " "))
            end = next((cut for cut in near if cut >= 0), end - 1) + 1
        found.append(text[start:end])
        start = end
    return [part for part in found if part.strip()]
