"""How often a thing is tried (a few times in the default suite, more among the slow tests), and how data is spoilt."""

from __future__ import annotations

import os

from hypothesis import strategies as st

FEW = 40
MANY = int(os.environ.get("FUZZ_CASES", "300"))
"""In CI, whose time is short; `FUZZ_CASES=20000` was run with nothing found (docs/security.md)."""

KILLS = int(os.environ.get("KILLS", "25"))
"""At random moments, of a process that then goes on; `KILLS=100` was run with nothing lost (docs/promise.md)."""


@st.composite
def perhaps_spoilt(draw: st.DrawFn, data: bytes) -> bytes:
    """The data, perhaps cut, or with bytes that are no text."""
    match draw(st.integers(0, 5)):
        case 0:
            data = data[: draw(st.integers(0, len(data)))]
        case 1:
            at = draw(st.integers(0, len(data)))
            data = data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at:]
    return data
