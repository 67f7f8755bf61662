"""The thoughts of a reply on the screen, as they stream in: never the JSON around them, nor half a secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autoagent.reply.reply_stream import ThoughtsStream
from autoagent.text.sanitize import width
from autoagent.text.wrapping import Flow

if TYPE_CHECKING:
    from autoagent.terminal.screen import Screen

_GRAPHIC = "".join(map(chr, range(0x21, 0x7F)))  # what a word of ASCII consists of


class StreamedThoughts:
    """Writes thoughts to the screen behind a label. `mask` takes secrets out of them."""

    def __init__(self, screen: Screen, mask: Callable[[Any], Any], label: Callable[[], str]) -> None:
        self._screen = screen
        self._mask = mask
        self._label = label
        self._stream = ThoughtsStream()
        self._shown = ""  # of what was heard, as far as it is on screen
        self._heard = ""

    @property
    def begun(self) -> bool:
        """Whether thoughts are on screen whose end is still to come."""
        return self._screen.flow is not None

    def hear(self, delta: str) -> None:
        """Write the new part of the thoughts in a piece of the reply."""
        self._heard += self._stream.feed(delta)
        whole = self._heard.rstrip(_GRAPHIC).lstrip()  # the last word may be half a secret
        masked = self._mask(whole)
        if not masked.startswith(self._shown):
            return  # it held the beginning of a secret: the thoughts are shown once they are whole
        if piece := masked[len(self._shown) :]:
            flow = self._screen.flow or self._begin()
            self._shown += piece
            self._screen.write(flow.feed(piece))

    def end(self, text: str) -> None:
        """Write the rest of the thoughts, which are this `text`, or all of it where something else is on screen.

        Nothing is written for a model that gives none.
        """
        if not text.startswith(self._shown.strip()):
            self.forget()
        if not (text or self.begun):
            return
        flow = self._screen.flow or self._begin()
        unseen = text[len(self._shown.lstrip()) :]
        self._screen.write(flow.feed(unseen) + flow.end())
        self.forget()

    def cut_off(self) -> None:
        """Write the last word of thoughts that came whole, though the reply is of no use."""
        if self._screen.flow is not None:
            self._screen.write(self._screen.flow.end())
        self.forget()

    def forget(self) -> None:
        """Begin anew: the stream is complete or was abandoned."""
        self._stream, self._shown, self._heard, self._screen.flow = ThoughtsStream(), "", "", None
        self._screen.close_line()

    def _begin(self) -> Flow:
        screen, label = self._screen, self._label()
        page = screen.page
        screen.close_line()
        screen.write(page.ink("thought", label))
        screen.flow = flow = Flow(page.columns, at=width(label))
        flow.feed(" ")
        screen.open_line = True
        return flow
