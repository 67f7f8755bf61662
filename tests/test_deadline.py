"""A time as a person writes it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from autoagent.text.figures import parse_time

NOON = datetime(2026, 11, 22, 12, 0)
NOW = NOON.timestamp()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("18:00", NOON + timedelta(hours=6)),
        ("8:30", NOON + timedelta(hours=20, minutes=30)),
        ("12:00", NOON + timedelta(days=1)),
        ("2h", NOON + timedelta(hours=2)),
        *((text, NOON + timedelta(minutes=90)) for text in ("1h30m", "1.5h", "90min")),
        ("45s", NOON + timedelta(seconds=45)),
        ("2d 3h", NOON + timedelta(days=2, hours=3)),
        ("2026-11-23T08:00", NOON + timedelta(hours=20)),
        ("2026-11-23 08:00:30", NOON + timedelta(hours=20, seconds=30)),
        ("2026-11-23", NOON + timedelta(hours=12)),
    ],
)
def test_what_is_meant(text: str, meant: datetime) -> None:
    assert parse_time(text, NOW) == meant.timestamp()


def test_a_time_with_a_zone_is_that_zones() -> None:
    assert parse_time("2026-11-23T08:00:00Z", NOW) == parse_time("2026-11-23T10:00:00+02:00", NOW)


NONE = ["", "soon", "25:00", "12:61", "5", "h", "2h later", "-2h", "1..5h", "2026-13-01", "inf", "9999999999999d"]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_time_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time; write 18:00"):
        parse_time(text, NOW)


@pytest.mark.parametrize("text", ["0s", "2026-11-22T11:59", "1999-01-01"])
def test_what_has_passed_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="has passed already"):
        parse_time(text, NOW)
