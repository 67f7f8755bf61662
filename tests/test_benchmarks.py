"""The benchmarks whose figures do not depend on the machine hold what the README claims."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PREFIX = Path(__file__).parent.parent / "benchmarks" / "prefix.py"


@pytest.mark.slow
def test_most_of_a_prompt_can_come_from_the_prefix_cache() -> None:
    done = subprocess.run([sys.executable, PREFIX, "--steps", "200"], capture_output=True, text=True, check=True)
    shares = {int(window): float(share) for window, share in re.findall(r"^ *(\d+) +([\d.]+)%", done.stdout, re.M)}
    assert shares[32_768] >= 90, done.stdout
    assert shares[8_192] >= 75, done.stdout
