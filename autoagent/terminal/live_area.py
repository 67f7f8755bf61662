"""The live area below the text: a few status lines, redrawn several times a second.

The lines stand below the cursor, which stays at the end of the text, so that erasing below the cursor removes them.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from autoagent.text.sanitize import escape
from autoagent.text.wrapping import cut

BEGINS = 0.4  # seconds of silence, then the lines appear: what is quick needs none
EVERY = 0.15  # seconds from one drawing to the next
_FRAMES = "|/-\\"
_LOWEST = 8  # rows of a terminal; below that there is one line


class LiveArea:
    """Draws with `write`. `column` tells where the cursor stands, None while nothing may be drawn.

    Its thread runs from the first `begin` to `close`. Other writers use `hidden`.
    """

    def __init__(self, write: Callable[[str], None], column: Callable[[], int | None]) -> None:
        self._write = write
        self._column = column
        self._lock = threading.RLock()
        self._lines: Callable[[float], Sequence[str]] | None = None
        self._since = 0.0
        self._written = 0.0
        self._drawn = False
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def begin(self, lines: Callable[[float], Sequence[str]]) -> None:
        """From now on show the result of `lines(seconds since now)`, which is called in another thread."""
        with self._lock:
            self._lines, self._since = lines, time.monotonic()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._draw_on, name="live area", daemon=True)
                self._thread.start()
            self._wake.set()

    def end(self) -> None:
        """Show nothing until the next `begin`."""
        with self._lock:
            self._lines = None
            self._wake.clear()
            self._erase()

    def close(self) -> None:
        """End the drawing for good."""
        self.end()
        with self._lock:
            self._closed = True
            self._wake.set()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Keep the lines off the screen while entered."""
        with self._lock:
            self._erase()
            yield
            self._written = time.monotonic()

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            self._write("\x1b[J")

    def _draw_on(self) -> None:
        while self._wake.wait() and not self._closed:
            with self._lock:
                self._draw(time.monotonic())
            time.sleep(EVERY)

    def _draw(self, now: float) -> None:
        column = self._column()
        if self._lines is None or column is None or now - max(self._written, self._since) < BEGINS:
            return
        columns, rows = shutil.get_terminal_size()
        if column >= columns:  # a cursor there cannot be put back
            return
        seconds = now - self._since
        first, *more = self._lines(seconds)
        shown = [f"{_FRAMES[int(now / EVERY) % 4]} {first}", *(more if rows >= _LOWEST else ())]
        lines = [next(cut(escape(line).replace("\n", " "), max(20, columns - 1), hanging=0)) for line in shown]
        below = ["", *lines] if column else lines
        back = f"\x1b[{len(below) - 1}A" if len(below) > 1 else ""
        right = f"\x1b[{column}C" if column else ""
        self._drawn = True
        self._write("\x1b[J\x1b[2m" + "\r\n".join(below) + f"\x1b[0m{back}\r{right}")
