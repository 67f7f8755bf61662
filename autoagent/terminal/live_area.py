"""Draw the live area: a few status lines below the text, redrawn several times a second.

The cursor stays at the end of the text, so that erasing everything below it removes the lines.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from autoagent.core.commands import Call
from autoagent.reply.reply_stream import TAIL, ReplyStream
from autoagent.text.figures import counted, duration
from autoagent.text.sanitize import escape, valid_text
from autoagent.text.wrapping import cut

DELAY_SECONDS = 0.4  # until the lines appear, as quick work needs none
REDRAW_SECONDS = 0.15  # between two redraws
_FRAMES = "|/-\\"
_MIN_ROWS = 8  # of a terminal; with fewer, one line is shown


class LiveArea:
    """Draw status lines with `write`, in a thread that runs from the first `begin` to `close`.

    `column` returns the cursor's column, or None while nothing may be drawn. Other writers use `hidden`. Without
    `moves`, nothing is drawn.
    """

    def __init__(self, write: Callable[[str], None], column: Callable[[], int | None], *, moves: bool = True) -> None:
        self.moves = moves
        self._write = write
        self._column = column
        self._lock = threading.RLock()
        self._lines: Callable[[float], Sequence[str]] | None = None
        self._start = 0.0
        self._write_time = 0.0
        self._is_drawn = False
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def begin(self, lines: Callable[[float], Sequence[str]]) -> None:
        """Show what `lines(seconds since now)` returns from now on. Another thread calls it."""
        if not self.moves:
            return
        with self._lock:
            self._lines, self._start = lines, time.monotonic()
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._draw_repeatedly, name="live area", daemon=True)
                self._thread.start()
            self._wake.set()

    def end(self) -> None:
        """Show nothing until the next `begin`."""
        with self._lock:
            self._lines = None
            self._wake.clear()
            self._erase()

    def close(self) -> None:
        """Stop drawing for good."""
        self.end()
        with self._lock:
            self._is_closed = True
            self._wake.set()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the lines within this block."""
        with self._lock:
            self._erase()
            yield
            self._write_time = time.monotonic()

    def _erase(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            self._write("\x1b[J")

    def _draw_repeatedly(self) -> None:
        while self._wake.wait() and not self._is_closed:
            with self._lock:
                self._draw(time.monotonic())
            time.sleep(REDRAW_SECONDS)

    def _draw(self, now: float) -> None:
        column = self._column()
        if self._lines is None or column is None or now - max(self._write_time, self._start) < DELAY_SECONDS:
            return
        columns, rows = shutil.get_terminal_size()
        if column >= columns:  # the cursor's position could not be restored
            return
        seconds = now - self._start
        first, *more = self._lines(seconds)
        texts = [f"{_FRAMES[int(now / REDRAW_SECONDS) % 4]} {first}", *(more if rows >= _MIN_ROWS else ())]
        lines = [next(cut(escape(line).replace("\n", " "), max(20, columns - 1), hanging=0)) for line in texts]
        below = ["", *lines] if column else lines
        back = f"\x1b[{len(below) - 1}A" if len(below) > 1 else ""
        right = f"\x1b[{column}C" if column else ""
        self._is_drawn = True
        self._write("\x1b[J\x1b[2m" + "\r\n".join(below) + f"\x1b[0m{back}\r{right}")


MAX_TAIL_LINES = 3  # of written or printed text


class Activity:
    """Describe the current activity in the live area. `mask` removes secrets."""

    def __init__(self, area: LiveArea, mask: Callable[[Any], Any]) -> None:
        self._area = area
        self._mask = mask
        self._reply = ReplyStream()
        self._operation = ""  # the long one
        self._operation_start = 0.0
        self._reply_start = 0.0  # when the first piece of the reply arrived, or 0
        self._output = ""
        self._bytes = 0
        self._is_background = False  # whether the reply in progress belongs to a task that `show_task` announced
        self._role_texts: dict[str, tuple[int, str]] = {}  # by role: the count of lines so far, and the last of them

    def show_request(self, model: str, tokens: int) -> None:
        """Show that the model was asked, with a prompt of this many tokens."""
        self._reply, self._operation = ReplyStream(), ""
        self._reply_start, self._is_background = 0.0, False
        self._area.begin(lambda seconds: self._reply_lines(f"waiting for {model} ({tokens:,} tokens)", seconds))

    def feed_reply(self, delta: str) -> None:
        if not self._area.moves or self._is_background:
            return
        if not self._reply_start:
            self._reply_start = time.monotonic()
            self._area.begin(lambda seconds: self._reply_lines("thinking", seconds))
        self._reply.feed(delta)

    def show_round(self) -> None:
        """Show that the roles of a team act, each by itself."""
        self._role_texts.clear()
        self._area.begin(self._round_lines)

    def feed_role(self, name: str, delta: str) -> None:
        """Receive text written by a role. Any thread may call this."""
        lines, text = self._role_texts.get(name, (1, ""))
        self._role_texts[name] = lines + delta.count("\n"), (text + delta)[-TAIL:]

    def show_operation(self, what: str) -> None:
        """Show a long operation of unknown end. The text after a colon is its progress."""
        now, operation = time.monotonic(), what.partition(": ")[0]
        if operation != self._operation:
            self._operation, self._operation_start = operation, now
        self._area.begin(lambda seconds: [f"{what} | {duration(now - self._operation_start + seconds)}"])

    def show_task(self, what: str) -> None:
        """Show an activity of unknown duration."""
        self._is_background = True
        self._area.begin(lambda seconds: [f"{what} | {duration(seconds)}"])

    def show_command(self, call: Call) -> None:
        """Show a running command. Its output arrives through `feed_output`."""
        self._output, self._bytes = "", 0

        def lines(seconds: float) -> Sequence[str]:
            size = f" | {self._bytes:,} bytes" if self._bytes else ""
            return [f"running {call.name} | {duration(seconds)}{size} | Ctrl-C ends it", *self._tail(self._output)]

        self._area.begin(lines)

    def feed_output(self, data: bytes) -> None:
        """Receive output of a program. Any thread may call this."""
        self._bytes += len(data)
        self._output = (self._output + data.decode("utf-8", "replace"))[-2 * TAIL :]

    def clear(self) -> None:
        """Show nothing while the run only waits for the user."""
        self._area.end()

    def _reply_lines(self, what: str, seconds: float) -> Sequence[str]:
        reply = self._reply
        if not reply.pieces:
            return [f"{what} | {duration(seconds)}"]
        rate = reply.pieces / max(0.1, time.monotonic() - self._reply_start)
        figures = f"{rate:.0f} tokens/s | {duration(seconds)}"
        if not reply.key:
            return [f"writing, {counted(reply.lines, 'line')} | {figures}"]
        if reply.is_thinking:
            is_streamed = reply.key in ("text", "thoughts") and reply.key not in reply.finished
            tail = () if is_streamed else self._tail(reply.text)
            return [f"thinking | {figures}", *tail]
        name = reply.finished.get("filename") or reply.finished.get("name") or reply.key
        return [f"writing {name}, {counted(reply.lines, 'line')} | {figures}", *self._tail(reply.text)]

    def _round_lines(self, seconds: float) -> Sequence[str]:
        texts = dict(self._role_texts)
        roles = [f"{name} writes, {counted(lines, 'line')}" for name, (lines, _) in texts.items()]
        tail = self._tail(list(texts.values())[-1][1]) if texts else ()
        return [f"{'; '.join(roles) or 'the roles of this round are at work'} | {duration(seconds)}", *tail]

    def _tail(self, text: str) -> Iterator[str]:
        """Yield the last whole lines. A partial word may be half a secret, so it is left out."""
        lines = text.split("\n")
        words = lines[-1].rpartition(" ")[0]
        complete = [*(lines[1:-1] if len(text) >= TAIL else lines[:-1]), words]
        for line in [line for line in complete if line.strip()][-MAX_TAIL_LINES:]:
            yield f"  | {self._mask(valid_text(line))}"
