"""Render figures for a person: times, money and counts."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Render seconds as `7 s`, `3 min 20 s`, `2 h 5 min`."""
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def money(cost: float | None) -> str:
    """Render a cost in USD, None if unknown."""
    return "$?" if cost is None else f"${cost:.4f}"


def counted(number: int, noun: str) -> str:
    """Render a count: `1 step`, `1,200 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
