"""Render figures for a person: times, money and counts. Parse the times that a person writes."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

_DURATION = re.compile(r"(?:([\d.]+)d)?\s*(?:([\d.]+)h)?\s*(?:([\d.]+)m(?:in)?)?\s*(?:([\d.]+)s)?")
_UNITS = (86_400, 3_600, 60, 1)  # seconds
_MAX_DAYS_AGO = 60  # for an earlier time, a date is clearer


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
    """Render a count: `1 step`, `1,200 steps`, `2 memories`."""
    return f"{number:,} {noun if number == 1 else re.sub('(?<![aeou])y$', 'ie', noun) + 's'}"


def ago(then: float, now: float) -> str:
    """Render a time as `just now`, `3 hours ago`, `2 days ago`, or a date. Both are in seconds since the epoch."""
    passed = now - then
    if passed > _MAX_DAYS_AGO * 86_400:
        return time.strftime("%Y-%m-%d", time.gmtime(then))
    for seconds, noun in zip(_UNITS, ("day", "hour", "minute"), strict=False):
        if (count := int(passed // seconds)) > 0:
            return f"{counted(count, noun)} ago"
    return "just now"


def parse_time(text: str, now: float) -> float:
    """Parse a time such as `18:00` (the next one), `2026-11-23T08:00`, or `2h` from now.

    `now` is in seconds since the epoch. Times without a zone are local. Raises ValueError with the reason.
    """
    text = text.strip()
    try:
        if text and (match := _DURATION.fullmatch(text)):
            found = now + sum(float(number) * unit for number, unit in zip(match.groups("0"), _UNITS, strict=True))
        elif match := re.fullmatch(r"(\d{1,2}):(\d\d)", text):
            day = datetime.fromtimestamp(now)
            today = day.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
            found = (today if today.timestamp() > now else today + timedelta(days=1)).timestamp()
        else:
            found = datetime.fromisoformat(text).timestamp()
        datetime.fromtimestamp(found)  # raises for a time beyond the calendar
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not a time; write 18:00, 2026-11-23T08:00, or 2h30m from now") from None
    if found <= now:
        raise ValueError(f"{text!r} has passed already")
    return found


def precision_of(text: str) -> timedelta:
    """Return the length of the day, minute or second that a text names, such as 2026-11-24T09:30."""
    if len(text) <= len("2026-11-24"):
        return timedelta(days=1)
    return timedelta(minutes=1) if len(text) <= len("2026-11-24T09:30") else timedelta(seconds=1)
