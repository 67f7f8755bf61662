"""The translation between events and the lines of `events.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoagent.core.commands import ResultMeta
from autoagent.core.events import (
    EVENTS,
    VERSION,
    Event,
    Labelled,
    Prompted,
    Recalled,
    RunStarted,
)
from autoagent.core.record_codec import check_time, from_line, from_plain, to_plain


@dataclass(frozen=True, slots=True)
class _Envelope:
    type: str
    v: int = 0


@dataclass(frozen=True, slots=True)
class _Kept:
    """The logged settings that are read as they are. The others are validated like any setting."""

    budget: float = 0.0
    protected: tuple[str, ...] = ()
    said: Mapping[str, Any] = field(default_factory=dict)


def to_json(event: Event) -> dict[str, Any]:
    """Return an event as the JSON object of its log line."""
    return {"v": VERSION, "type": event.type, **to_plain(event)}


def from_json(line: Mapping[str, Any]) -> Event:
    """Return the event of a log line's object. Fields that this version does not know are dropped.

    Raises:
        ValueError: the object is no event: of an unknown type or a newer version, or a field that is missing or does
            not fit, which is named.
    """
    return _event(lambda kind: from_plain(kind, line))


def event_of(line: bytes) -> Event:
    """Return the event of a line as it stands in the log. Raises ValueError, as `from_json`."""
    return _event(lambda kind: from_line(kind, line))


def _event(read: Callable[[type[Any]], Any]) -> Event:
    """Return the event that `read` gives when asked for a record type. Raises ValueError."""
    try:
        envelope = read(_Envelope)
    except ValueError as error:
        raise ValueError(f"no event: {error}") from None
    if envelope.v > VERSION:
        raise ValueError(f"event version {envelope.v} is newer than this program's {VERSION}")
    kind = EVENTS.get(envelope.type)
    if kind is None:
        raise ValueError(f"unknown event type {envelope.type!r}")
    try:
        return _checked(read(kind))
    except ValueError as error:
        raise ValueError(f"misshapen {kind.type} event: {error}") from None


def _checked(event: Event) -> Event:
    for t in _times(event):
        check_time(t)
    if event.step < 0:
        raise ValueError("the step is below 0")
    if isinstance(event, RunStarted):
        from_plain(_Kept, event.settings)
    elif isinstance(event, Labelled) and event.data:
        from_plain(ResultMeta, {name: value for name, value in event.data.items() if name != "details"})
    return event


def _times(event: Event) -> Iterator[float]:
    """Yield every time of an event that is shown to somebody."""
    yield event.t
    if isinstance(event, Prompted):
        yield event.at
    elif isinstance(event, Recalled):
        for memory in event.memories:
            yield memory.t
