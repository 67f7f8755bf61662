"""The agent's current activity, in words for the live area: waiting for the model, thinking, writing, running."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autoagent.core.commands import Call
from autoagent.core.model import Thoughts
from autoagent.reply.reply_stream import TAIL, ReplyStream
from autoagent.terminal.live_area import LiveArea
from autoagent.terminal.rendering import counted, duration
from autoagent.text.sanitize import valid

TAIL_LINES = 3  # of what is written or printed
_THOUGHTS = frozenset(Thoughts.__dataclass_fields__)


class Activity:
    """Fills the live area, if there is one. `mask` removes secrets."""

    def __init__(self, area: LiveArea | None, mask: Callable[[Any], Any]) -> None:
        self._area = area
        self._mask = mask
        self._reply = ReplyStream()
        self._about = ""  # what takes long, since when
        self._began = 0.0
        self._answered = 0.0  # when the first piece of the reply came
        self._output = ""
        self._bytes = 0

    @property
    def is_live(self) -> bool:
        """Whether anything is shown at all."""
        return self._area is not None

    def thinks(self, model: str, tokens: int) -> None:
        """The model was asked with a prompt of so many tokens."""
        self._reply, self._answered, self._about = ReplyStream(), 0.0, ""
        self._begin(lambda seconds: self._thinking(f"waiting for {model} ({tokens:,} tokens)", seconds))

    def hears(self, delta: str) -> None:
        """A piece of the reply came."""
        if self._area is None:
            return
        if not self._answered:
            self._answered = time.monotonic()
            self._begin(lambda seconds: self._thinking("thinking", seconds))
        self._reply.feed(delta)

    def works(self, what: str) -> None:
        """Show a long operation. The text after a colon is its progress. Its end is not known."""
        now, about = time.monotonic(), what.partition(": ")[0]
        if about != self._about:
            self._about, self._began = about, now
        self._begin(lambda passed: [f"{what} | {duration(now - self._began + passed)}"])

    def says(self, what: str) -> None:
        """Something goes on of which nobody knows how long it takes."""
        self._begin(lambda seconds: [f"{what} | {duration(seconds)}"])

    def runs(self, call: Call) -> None:
        """Show a running command. Its output comes through `prints`."""
        self._output, self._bytes = "", 0
        self._begin(lambda seconds: self._running(call.name, seconds))

    def prints(self, data: bytes) -> None:
        """A program has printed this. From any thread."""
        self._bytes += len(data)
        self._output = (self._output + data.decode("utf-8", "replace"))[-2 * TAIL :]

    def rests(self) -> None:
        """Nothing is waited for but the user."""
        if self._area is not None:
            self._area.end()

    def _begin(self, lines: Callable[[float], Sequence[str]]) -> None:
        if self._area is not None:
            self._area.begin(lines)

    def _thinking(self, what: str, seconds: float) -> Sequence[str]:
        reply = self._reply
        if not reply.pieces:
            return [f"{what} | {duration(seconds)}"]
        rate = reply.pieces / max(0.1, time.monotonic() - self._answered)
        figures = f"{rate:.0f} tokens/s | {duration(seconds)}"
        if not reply.key:
            return [f"writing, {counted(reply.lines, 'line')} | {figures}"]
        if reply.key in _THOUGHTS:
            tail = () if reply.key == "text" and "text" not in reply.done else self._tail(reply.text)
            return [f"thinking | {figures}", *tail]
        about = reply.done.get("filename") or reply.done.get("name") or reply.key
        return [f"writing {about}, {counted(reply.lines, 'line')} | {figures}", *self._tail(reply.text)]

    def _running(self, name: str, seconds: float) -> Sequence[str]:
        printed = f" | {self._bytes:,} bytes" if self._bytes else ""
        return [f"running {name} | {duration(seconds)}{printed} | Ctrl-C ends it", *self._tail(self._output)]

    def _tail(self, text: str) -> Iterator[str]:
        """Yield the last whole lines. The last word may be half a secret, and so may what has lost its beginning."""
        lines = text.split("\n")
        words = lines[-1].rpartition(" ")[0]
        whole = [*(lines[1:-1] if len(text) >= TAIL else lines[:-1]), words]
        for line in [line for line in whole if line.strip()][-TAIL_LINES:]:
            yield f"  | {self._mask(valid(line))}"
