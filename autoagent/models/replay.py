"""Replay recorded replies instead of asking a model: for replays, tests and the demo."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Unpack

from autoagent.core.errors import ModelError, SettingsError
from autoagent.core.events import Answered, Event, Rejected, RunStarted, Thought
from autoagent.core.model import FULL, Asking, Completion, Message, Price, Usage
from autoagent.core.protocols import RequestOptions
from autoagent.core.task import VERIFICATION
from autoagent.text.redaction import MASK, holds_mask

if TYPE_CHECKING:
    from autoagent.registry.models import ModelOpening

WINDOW = 128_000  # tokens, if the recording does not say
_CHUNK_CHARACTERS = 12  # characters that the listener receives at a time


class ReplayModel:
    """Answer each request for a command with the next recorded reply, free of charge.

    A verifier's questions get its recorded answers. Other requests, such as a proposal of goals, get an empty reply:
    recordings hold only the steps of a run.
    """

    price: Price | None = Price(0.0, 0.0, 0.0)
    reasoning_room = 0
    asking: Asking = "text"
    style = FULL

    def __init__(
        self,
        replies: Iterable[str | Completion | ModelError],
        name: str = "replay",
        window: int = WINDOW,
        verifications: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.window = window
        self._replies = iter(replies)
        self._verifications = iter(verifications)
        self._count = 0

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> ReplayModel:
        """Build a model that repeats the replies of a run, usable or not, in order and with the run's own window."""
        recorded = list(events)
        replies: list[str | Completion | ModelError] = []
        for event in recorded:
            if isinstance(event, Thought) and holds_mask(event.call.args):
                problem = f"The reply of step {event.step} contained a secret, which the log holds as {MASK}"
                replies.append(ModelError(f"{problem}; it cannot be replayed. Resume the run with another model."))
            elif isinstance(event, Thought):
                replies.append(event.text)
            elif isinstance(event, Rejected):
                replies.append(Completion(event.text, Usage(), truncated=event.truncated))
        verifications = [e.text for e in recorded if isinstance(e, Answered) and e.purpose == VERIFICATION]
        window = next((event.window for event in recorded if isinstance(event, RunStarted)), WINDOW)
        return cls(replies, window=window, verifications=verifications)

    def skip(self, count: int) -> None:
        """Skip replies already used: a resumed run continues the recording where it stopped."""
        self._replies = itertools.islice(self._replies, count, None)

    def take_usage(self) -> Usage:
        return Usage()  # none other than the completions'

    def complete(self, messages: Sequence[Message], **options: Unpack[RequestOptions]) -> Completion:
        """Return the next reply, whatever the prompt. Raises ModelError at the end of the recording."""
        if not options.get("commands"):
            return Completion(next(self._verifications, "") if options.get("schema") else "", Usage())
        reply = next(self._replies, None)
        if reply is None:
            problem = f"The recording {self.name!r} ended after {self._count} replies"
            raise ModelError(f"{problem}; resume the run with another model.")
        if isinstance(reply, ModelError):
            raise reply
        self._count += 1
        completion = Completion(reply, Usage()) if isinstance(reply, str) else reply
        if listener := options.get("listener"):
            for start in range(0, len(completion.text), _CHUNK_CHARACTERS):
                listener.text(completion.text[start : start + _CHUNK_CHARACTERS])
        return completion


def open_model(opening: ModelOpening) -> ReplayModel:
    """Open the replies of the run given as the argument, at this run's position.

    Raises SettingsError if no run is named, StateError if it does not exist.
    """
    if not opening.argument:
        raise SettingsError("The model 'replay' names no run; write replay:RUN (see `autoagent runs`).")
    model = ReplayModel.from_events(opening.recording(opening.argument))
    model.skip(opening.answered)
    return model
