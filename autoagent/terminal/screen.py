"""Write to the screen in one place, and give up once output cannot be written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from autoagent.core.frozen import dataclass
from autoagent.reply.reply_stream import ThoughtsStream
from autoagent.terminal import markup
from autoagent.terminal.live_area import LiveArea
from autoagent.terminal.output import discard_buffer
from autoagent.terminal.palette import Palette
from autoagent.terminal.rendering import Page
from autoagent.terminal.shared_questions import THIS_TERMINAL, QuestionSettings
from autoagent.text.sanitize import width
from autoagent.text.wrapping import Flow


@dataclass(frozen=True, slots=True)
class Style:
    """The look of the screen.

    `columns` None follows the terminal. With `plain`, nothing streams, and thoughts appear whole. With `whole`, nothing
    is cut. `thoughts` is `full`, `short` (one line), `none`, or `auto`: the first in full, the rest in a line that `t`
    expands. `history` is the file of typed lines. `notify` is the command that receives questions. With `brief`, nobody
    is asked, so a person at the terminal sees less.
    """

    color: Palette | None = None
    columns: int | None = None
    plain: bool = False
    whole: bool = False
    thoughts: str = "auto"
    history: Path | None = None
    notify: str = ""
    questions: QuestionSettings = THIS_TERMINAL
    brief: bool = False


DEFAULT_STYLE = Style()


class Screen:
    """Write to `stream`. With `moves`, a live area below the text is hidden while text is written."""

    def __init__(self, stream: TextIO, style: Style, *, moves: bool) -> None:
        self.stream = stream
        self.area = LiveArea(partial(self.put, stream), self._free_column, moves=moves)
        self.flow: Flow | None = None  # of an unfinished text
        self.open_line = False  # whether the cursor follows text
        self.problem = ""  # why output can no longer be written
        self.is_pipe_closed = False  # whether that is the reason
        self._style = style

    @property
    def page(self) -> Page:
        """Return the terminal as it is now."""
        size = shutil.get_terminal_size()
        rows, style = size.lines if self.area.moves else 0, self._style
        brief = style.brief and rows > 0
        return Page(style.columns or size.columns, style.color, style.whole, not style.plain, rows, brief)

    def lines(self, lines: Iterable[str]) -> None:
        """Write whole lines, after ending any open line."""
        self.close_line()
        self.write("".join(f"{line}\n" for line in lines))

    def erase_rows(self, rows: int) -> None:
        """Erase the last rows and the open line, if the terminal was not resized since."""
        self.write(f"\x1b[{rows}A\r\x1b[J" if rows else "\r\x1b[J")

    def close_line(self) -> None:
        """End the open line, if any."""
        if self.open_line:
            self.open_line = False
            self.write("\n")

    def write(self, text: str) -> None:
        """Write a text as it is, escaping characters that the encoding lacks."""
        if text and not self.problem:
            with self.area.hidden():
                self.put(self.stream, text)

    def put(self, stream: TextIO, text: str) -> None:
        """Write to this or another stream at once. After a failure, that stream and this screen are not written to."""
        if self.problem or not text:
            return
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError as error:
                stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
            stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self.problem = getattr(error, "strerror", None) or str(error)
            self.is_pipe_closed = isinstance(error, BrokenPipeError)
            discard_buffer(stream)

    def _free_column(self) -> int | None:
        """Return the cursor's column, or None if it is unknown or nothing can be written any more."""
        if self.problem:
            return None
        if self.flow is not None:
            return self.flow.column
        return None if self.open_line else 0


_ASCII_WORD_CHARACTERS = "".join(map(chr, range(0x21, 0x7F)))


class StreamedThoughts:
    """Write thoughts to the screen behind a label as they stream in. `mask` removes secrets."""

    def __init__(self, screen: Screen, mask: Callable[[Any], Any], label: Callable[[], str]) -> None:
        self._screen = screen
        self._mask = mask
        self._label = label
        self._stream = ThoughtsStream()
        self._shown_text = ""  # the part of `_whole_text` that is on the screen, masked
        self._whole_text = ""
        self._rows = self._columns = 0  # lines taken by the streamed text, at this many columns

    @property
    def is_open(self) -> bool:
        """Return whether unfinished thoughts are on the screen."""
        return self._screen.flow is not None

    def feed(self, delta: str) -> None:
        """Write the new part of the thoughts in a piece of the reply."""
        self._whole_text += self._stream.feed(delta)
        text = self._whole_text.lstrip()
        if not self._stream.ended:  # the last word may be half a secret
            text = text.rstrip(_ASCII_WORD_CHARACTERS)
        masked = self._mask(text)
        if not masked.startswith(self._shown_text):
            return  # the text on the screen was part of a secret: show the thoughts once complete
        if piece := masked[len(self._shown_text) :]:
            flow = self._screen.flow or self._begin()
            self._shown_text += piece
            self._write(flow.feed(piece) + (flow.flush() if self._stream.ended else ""))

    def finish(self, text: str) -> None:
        """Write the rest of this `text` of the thoughts, or all of it if the screen shows something else."""
        if not text.startswith(self._shown_text.strip()):
            self.reset()
        if not (text or self.is_open) or self._redraw(text):
            return
        flow = self._screen.flow or self._begin()
        rest = text[len(self._shown_text.lstrip()) :]
        self._write(flow.feed(rest) + flow.flush())
        self._screen.flow = None
        self.reset()

    def reset(self) -> None:
        """Reset after a complete or an abandoned stream. Dots mark an abandoned stream."""
        if (flow := self._screen.flow) is not None:
            self._write(flow.flush() if self._stream.ended else flow.feed("...") + flow.flush())
        self._stream, self._shown_text, self._whole_text, self._screen.flow = ThoughtsStream(), "", "", None
        self._screen.close_line()

    def _redraw(self, text: str) -> bool:
        """Redraw streamed thoughts as Markdown, as far as they are still on the screen."""
        screen, page = self._screen, self._screen.page
        if not (page.draws and markup.has_markup(text)) or (self.is_open and not self._rows < page.rows - 1):
            return False
        if self.is_open:
            if page.columns != self._columns:
                return False
            screen.flow, screen.open_line = None, False
            screen.erase_rows(self._rows)
        screen.lines(page.markdown(self._label(), text, "thought"))
        self.reset()
        return True

    def _write(self, text: str) -> None:
        self._rows += text.count("\n")
        self._screen.write(text)

    def _begin(self) -> Flow:
        screen, label = self._screen, self._label()
        page = screen.page
        screen.close_line()
        screen.write(page.ink("thought", label))
        self._rows, self._columns = 0, page.columns
        screen.flow = flow = Flow(page.columns, at=width(label))
        flow.feed(" ")
        screen.open_line = True
        return flow
