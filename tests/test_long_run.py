"""A run of many steps stays as quick and as small as it began: nothing is walked anew that only grows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

LONG_RUN = Path(__file__).parent.parent / "benchmarks" / "long_run.py"


@pytest.mark.slow
def test_two_thousand_steps_cost_no_more_at_the_end_than_at_the_beginning() -> None:
    done = subprocess.run([sys.executable, LONG_RUN, "--steps", "2000"], capture_output=True, text=True, check=True)
    growth = re.search(r"^last tenth beside the first +([\d.]+)", done.stdout, re.MULTILINE)
    memory = re.search(r"^memory added +(-?[\d.]+) MB", done.stdout, re.MULTILINE)
    assert growth and memory, done.stdout
    # A busy machine can double either figure; what walks all steps anew is ten times slower at the end.
    assert float(growth[1]) < 2.5, done.stdout
    assert float(memory[1]) < 40, done.stdout
