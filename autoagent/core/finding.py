"""A finding of `autoagent doctor`, as a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `mend` says how to fix it, or '' if it is fine."""

    check: str
    status: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""
