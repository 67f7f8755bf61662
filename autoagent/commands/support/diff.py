"""Render unified diffs of a file's text, for approval by a person."""

from __future__ import annotations

import difflib

_CONTEXT = 3  # unchanged lines around a change
_MAX_DIFFLIB_LINES = 4_000  # difflib takes quadratic time; longer texts get one hunk around all that differs


def unified(filename: str, before: str, after: str, *, is_new: bool = False) -> str:
    """Return the diff, or '' if nothing differs. It is never cut, as a person approves it."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    names = "/dev/null" if is_new else f"a/{filename}", f"b/{filename}"
    if len(old) + len(new) <= _MAX_DIFFLIB_LINES:
        return "\n".join(difflib.unified_diff(old, new, *names, n=_CONTEXT, lineterm=""))
    same = _common_prefix(old, new)
    same_at_end = _common_prefix(old[same:][::-1], new[same:][::-1])
    end_old, end_new = len(old) - same_at_end, len(new) - same_at_end
    start = max(0, same - _CONTEXT)
    rest = old[end_old : end_old + _CONTEXT]
    lines = [
        f"--- {names[0]}",
        f"+++ {names[1]}",
        f"@@ -{_range(start, end_old + len(rest))} +{_range(start, end_new + len(rest))} @@",
        *(f" {line}" for line in old[start:same]),
        *(f"-{line}" for line in old[same:end_old]),
        *(f"+{line}" for line in new[same:end_new]),
        *(f" {line}" for line in rest),
    ]
    return "\n".join(lines)


def _common_prefix(old: list[str], new: list[str]) -> int:
    pairs = zip(old, new, strict=False)
    return next((n for n, (left, right) in enumerate(pairs) if left != right), min(len(old), len(new)))


def _range(start: int, end: int) -> str:
    """Return the first line, from 1, and the number of lines. An empty range names the line before it."""
    return f"{start + 1 if end > start else start},{end - start}"


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]
