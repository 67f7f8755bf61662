"""Render figures for a person: times, money and counts. Parse the times that a person writes."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_DURATION = re.compile(r"(?:([\d.]+)d)?\s*(?:([\d.]+)h)?\s*(?:([\d.]+)m(?:in)?)?\s*(?:([\d.]+)s)?")
_UNITS = (86_400, 3_600, 60, 1)  # seconds


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


def moment(text: str, now: float) -> float:
    """Parse a time such as `18:00` (the next one), `2026-11-23T08:00`, or `2h` from now.

    `now` is in seconds since the epoch. Times without a zone are local. Raises ValueError with the reason.
    """
    text = text.strip()
    try:
        found = _from_now(text, now) or _next_occurrence(text, now) or datetime.fromisoformat(text).timestamp()
        datetime.fromtimestamp(found)  # raises for a time beyond the calendar
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not a time; write 18:00, 2026-11-23T08:00, or 2h30m from now") from None
    if found <= now:
        raise ValueError(f"{text!r} has passed already")
    return found


def _from_now(text: str, now: float) -> float | None:
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        return None
    return now + sum(float(number) * unit for number, unit in zip(found.groups("0"), _UNITS, strict=True))


def _next_occurrence(text: str, now: float) -> float | None:
    """Return the next occurrence of a time of day, or None for any other text."""
    found = re.fullmatch(r"(\d{1,2}):(\d\d)", text)
    if found is None:
        return None
    today = datetime.fromtimestamp(now).replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
    return min(time for time in (today.timestamp(), (today + timedelta(days=1)).timestamp()) if time > now)


def length_of(text: str) -> timedelta:
    """Return how long the day, minute or second lasts that a text names, such as 2026-11-24T09:30."""
    if len(text) <= len("2026-11-24"):
        return timedelta(days=1)
    return timedelta(minutes=1) if len(text) <= len("2026-11-24T09:30") else timedelta(seconds=1)
