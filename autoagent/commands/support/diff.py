"""Render unified diffs of a file's text, for approval by a person."""

from __future__ import annotations

import difflib

_CONTEXT_LINES = 3  # unchanged, around a change
_MAX_DIFFLIB_LINES = 4_000  # difflib takes quadratic time; longer texts get one hunk around all that differs


def unified(filename: str, before: str, after: str, *, is_new: bool = False) -> str:
    """Return the diff, or '' if nothing differs. It is never cut, as a person approves it."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    names = "/dev/null" if is_new else f"a/{filename}", f"b/{filename}"
    if len(old) + len(new) <= _MAX_DIFFLIB_LINES:
        return "\n".join(difflib.unified_diff(old, new, *names, n=_CONTEXT_LINES, lineterm=""))
    prefix = _common_prefix(old, new)
    suffix = _common_prefix(old[prefix:][::-1], new[prefix:][::-1])
    old_end, new_end = len(old) - suffix, len(new) - suffix
    start = max(0, prefix - _CONTEXT_LINES)
    context = old[old_end : old_end + _CONTEXT_LINES]
    lines = [
        f"--- {names[0]}",
        f"+++ {names[1]}",
        f"@@ -{_range(start, old_end + len(context))} +{_range(start, new_end + len(context))} @@",
        *(f" {line}" for line in old[start:prefix]),
        *(f"-{line}" for line in old[prefix:old_end]),
        *(f"+{line}" for line in new[prefix:new_end]),
        *(f" {line}" for line in context),
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
