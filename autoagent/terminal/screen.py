"""The screen that lines are written to: one place for all writing, which gives up output that cannot be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from autoagent.terminal.live_area import LiveArea
from autoagent.terminal.question_desk import NOWHERE_ELSE, Terms
from autoagent.terminal.rendering import Canvas
from autoagent.text.wrapping import Flow


@dataclass(frozen=True, slots=True)
class Style:
    """The look of the screen. `columns` None follows the terminal. `plain`: nothing streams, thoughts come whole.

    `whole`: nothing is cut. `thoughts`: `full`, `short` (in a line), `none`, or `auto`: the first, and the others in a
    line where t can show them. `history` is the file of typed lines, for later runs. `notify` the command that is told
    of questions, `terms` the settings for these.
    """

    color: bool = False
    columns: int | None = None
    plain: bool = False
    whole: bool = False
    thoughts: str = "auto"
    history: Path | None = None
    notify: str = ""
    terms: Terms = NOWHERE_ELSE


AS_USUAL = Style()


def decide_color(env: Mapping[str, str], isatty: bool) -> bool:
    """Return whether to write colour codes: by NO_COLOR, CLICOLOR_FORCE, CLICOLOR=0, then by the terminal."""
    if env.get("NO_COLOR"):
        return False
    if env.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    if not isatty or env.get("CLICOLOR") == "0":
        return False
    return env.get("TERM", "" if os.name == "posix" else "windows") not in ("", "dumb")


class Screen:
    """Writes to `stream`. `moves`: a live area stands below the text, and is hidden while text is written."""

    def __init__(self, stream: TextIO, style: Style, *, moves: bool) -> None:
        self.stream = stream
        self.area = LiveArea(self._put_here, self._free_column) if moves else None
        self.flow: Flow | None = None  # of a text whose end is still to come
        self.open_line = False  # the cursor stands behind text
        self.broken = ""  # why the output cannot be written any more
        self.reader_left = False  # that it is a closed pipe
        self._style = style

    @property
    def color(self) -> bool:
        """Whether colour codes are written."""
        return self._style.color

    @property
    def page(self) -> Canvas:
        """The terminal as it is now."""
        size = shutil.get_terminal_size()
        rows = size.lines if self.area is not None else 0
        return Canvas(
            self._style.columns or size.columns, self._style.color, self._style.whole, not self._style.plain, rows
        )

    def lines(self, lines: Iterable[str]) -> None:
        """Write whole lines, below the one that is open."""
        self.close_line()
        self.write("".join(f"{line}\n" for line in lines))

    def take_back(self, text: str) -> None:
        """Erase these lines, the last ones written. Nobody has resized the terminal since."""
        self.write(f"\x1b[{text.count(chr(10))}A\r\x1b[J")

    def close_line(self) -> None:
        """End the line that is open, if one is."""
        if self.open_line:
            self.open_line = False
            self.write("\n")

    def write(self, text: str) -> None:
        """Write a text as it is, but for characters that the encoding lacks: those are escaped."""
        if self.broken or not text:
            return
        if self.area is None:
            self._put_here(text)
        else:
            with self.area.hidden():
                self._put_here(text)

    def put(self, stream: TextIO, text: str) -> None:
        """Write to this or another stream at once. One that fails is written to no more, and so is this screen."""
        if self.broken or not text:
            return
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError as error:
                stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
            stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self.broken = getattr(error, "strerror", None) or str(error)
            self.reader_left = isinstance(error, BrokenPipeError)
            _abandon(stream)

    def _put_here(self, text: str) -> None:
        self.put(self.stream, text)

    def _free_column(self) -> int | None:
        """Return the column of the cursor, None where it is not known or nothing can be written any more."""
        if self.broken:
            return None
        if self.flow is not None:
            return self.flow.column
        return None if self.open_line else 0


def _abandon(stream: TextIO) -> None:
    """Discard the stream's buffer, so that Python's flush at exit does not fail again."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):  # a stream without a descriptor holds nothing back
        return
