"""How many cases the fuzzers try: a few in the default suite, more among the slow tests, and as many as you say."""

from __future__ import annotations

import os

FEW = 40
MANY = int(os.environ.get("FUZZ_CASES", "1000"))
"""In CI, whose time is short; `FUZZ_CASES=20000` was run with nothing found (docs/security.md)."""
