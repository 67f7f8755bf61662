"""Convert between records and JSON by the records' annotations, and between events and log lines.

Files may be damaged or written by other programs. msgspec checks the type of every field, and the functions here check
the values. Unknown fields are dropped.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from autoagent.core.commands import ResultMeta
from autoagent.core.events import EVENTS, VERSION, Event, Labelled, Prompted, Recalled, RunStarted
from autoagent.core.frozen import dataclass

LATEST_TIME = 253_402_214_400.0  # epoch seconds: 31 December 9999, in the year 9999 in every time zone
_MAX_INTEGER = 2**63 - 1
_ID_PATTERN = re.compile(r"[\w.-]*", re.ASCII)
_LONG_NUMBER = re.compile(rb"(?<![.\d])\d{19}")  # a match within a text only costs a second check
_DIGITS_TO_ZERO = bytes(ord("0") if chr(byte).isdecimal() else byte for byte in range(256))
_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})
_field_names: dict[type[Any], tuple[str, ...]] = {}  # cache by record type

Record = TypeVar("Record")


def to_plain(record: Any) -> Any:
    """Return a record, and all records in it, as JSON values."""
    kind = type(record)
    if kind in _PLAIN_TYPES:
        return record
    if (names := _field_names.get(kind)) is not None:
        return {name: to_plain(getattr(record, name)) for name in names}
    if isinstance(record, (list, tuple)):
        return [to_plain(item) for item in record]
    if kind is dict or isinstance(record, Mapping):
        return {str(key): to_plain(value) for key, value in record.items()}
    if dataclasses.is_dataclass(kind):
        _field_names[kind] = tuple(field.name for field in dataclasses.fields(kind))
        return to_plain(record)
    return record  # such as an enum of texts


def from_line(kind: type[Record], line: bytes) -> Record:
    """Read a record from a line of JSON. Raises ValueError, which names the invalid field."""
    import msgspec  # only once a record is read

    try:
        record = msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):  # not JSON, or with a lone surrogate, which json accepts
        try:
            value = json.loads(line.decode(), parse_constant=refuse_constant)  # it would guess the encoding of bytes
        except RecursionError:
            raise ValueError("nested too deeply") from None
        return from_plain(kind, value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # The pattern alone takes ten times as long.
    if b"0" * 19 in line.translate(_DIGITS_TO_ZERO) and _LONG_NUMBER.search(line):
        _check_numbers(record)
    return record


def read_records(kind: type[Record], path: Path) -> Iterator[Record]:
    """Yield the records in a file of lines, skipping torn and malformed lines. Raises OSError."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with suppress(ValueError):
            yield from_line(kind, line)


def from_plain(kind: type[Record], value: Any) -> Record:
    """Read a record from a JSON value. Raises ValueError, which names the invalid field."""
    import msgspec

    try:
        record = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check_numbers(record)
    return record


def check_time(seconds: float) -> None:
    """Raise ValueError for a time that no calendar shows."""
    if not 0 <= seconds <= LATEST_TIME:
        raise ValueError(f"{seconds:g} is not a time, in seconds since 1970")


def refuse_constant(constant: str) -> float:
    """Refuse NaN and Infinity, which Python's json would accept as numbers. Raises ValueError."""
    raise ValueError(f"{constant} is not a JSON number")


def _check_numbers(record: Any) -> None:
    """Raise ValueError if a field holds a number too large to compute with."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(item):
                _check_numbers(item)
            elif isinstance(item, int) and abs(item) > _MAX_INTEGER:
                raise ValueError(f"{field.name} holds a number beyond 64 bits")
            elif isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"{field.name} holds {item}, which is not a JSON number")


@dataclass(frozen=True, slots=True)
class _Envelope:
    type: str
    v: int = 0


@dataclass(frozen=True, slots=True)
class _LoggedSettings:
    """The logged settings that are read unchanged. All others are validated like any setting."""

    budget: float = 0.0
    protected: tuple[str, ...] = ()
    said: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return an event as the JSON object of its log line, in plain values."""
    return {"v": VERSION, "type": event.type, **to_plain(event)}


def event_from_line(line: bytes, event_type: str = "") -> Event:
    """Read an event from a log line, dropping unknown fields.

    Pass `event_type` if the beginning of the line has been read: its version is then not checked again. Raises
    ValueError for an unknown type, a newer version, or a missing or invalid field, and names it.
    """
    if not event_type:
        try:
            envelope = from_line(_Envelope, line)
        except ValueError as error:
            raise ValueError(f"not an event: {error}") from None
        if envelope.v > VERSION:
            raise ValueError(f"event version {envelope.v} is newer than this program's {VERSION}")
        event_type = envelope.type
    kind = EVENTS.get(event_type)
    if kind is None:
        raise ValueError(f"unknown event type {event_type!r}")
    try:
        event = from_line(kind, line)
        _check_event(event)
    except ValueError as error:
        raise ValueError(f"malformed {kind.type} event: {error}") from None
    return event


def _check_event(event: Event) -> None:
    """Raise ValueError for a value that its type allows but an event does not."""
    check_time(event.t)
    if isinstance(event, Prompted):
        check_time(event.at)
    elif isinstance(event, Recalled):
        for memory in event.memories:
            check_time(memory.t)
            check_time(memory.stored)
    if event.step < 0:
        raise ValueError("the step is negative")
    if not _ID_PATTERN.fullmatch(event.run) or not _ID_PATTERN.fullmatch(event.agent):
        raise ValueError("the run or the agent is not a valid id")
    if isinstance(event, RunStarted):
        from_plain(_LoggedSettings, event.settings)
    elif isinstance(event, Labelled) and event.data:
        from_plain(ResultMeta, {name: value for name, value in event.data.items() if name != "details"})
