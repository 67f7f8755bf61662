"""Says in words how long ago something was."""

from __future__ import annotations

import time

_UNITS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"))
_DATED = 60 * 86_400.0  # seconds, beyond which a date says more


def ago(then: float, now: float) -> str:
    """Return `just now`, `3 hours ago`, `2 days ago`, or a date. Both times are in seconds since 1970."""
    passed = now - then
    if passed > _DATED:
        return time.strftime("%Y-%m-%d", time.gmtime(then))
    for seconds, name in _UNITS:
        if (count := int(passed // seconds)) > 0:
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"
