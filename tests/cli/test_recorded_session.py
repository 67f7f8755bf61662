"""The recorded session of the README is what the program shows: played again, the screen is the same.

WRITE_SCREENS=1 records it anew, to be looked at.
"""

from __future__ import annotations

import os
import runpy

import pytest
from driver import ROOT, Home


@pytest.mark.slow
def test_the_recorded_session_shows_what_the_program_shows(home: Home) -> None:
    record = runpy.run_path(str(ROOT / "docs" / "session" / "record.py"))
    if os.environ.get("WRITE_SCREENS"):
        record["main"]()
    session = record["play"](home.folder, person=False)
    shown = record["text_of"]("\n".join(record["cast_of"](session, home.folder)))
    kept = record["text_of"](record["CAST"].read_text(encoding="utf-8"))
    assert shown == kept
