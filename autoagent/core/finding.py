"""What `autoagent doctor` has found, as a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `mend` says what to do, '' if nothing needs doing."""

    check: str
    status: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""
