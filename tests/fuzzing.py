"""How often a thing is tried: a few times in the default suite, more among the slow tests, and as often as you say."""

from __future__ import annotations

import os

FEW = 40
MANY = int(os.environ.get("FUZZ_CASES", "300"))
"""In CI, whose time is short; `FUZZ_CASES=20000` was run with nothing found (docs/security.md)."""

KILLS = int(os.environ.get("KILLS", "25"))
"""At random moments, of a process that then goes on; `KILLS=100` was run with nothing lost (docs/promise.md)."""
