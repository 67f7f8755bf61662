"""What is kept of a program's output."""

from __future__ import annotations


class OutputBuffer:
    """Takes bytes and keeps the first `head` and the last `tail` of them; `total` counts all."""

    def __init__(self, head: int, tail: int) -> None:
        self.total = 0
        self._head, self._tail = head, tail
        self._first, self._last = bytearray(), bytearray()

    def add(self, piece: bytes) -> None:
        """Take the next bytes."""
        self.total += len(piece)
        room = self._head - len(self._first)
        self._first += piece[:room]
        self._last += piece[room:]
        if len(self._last) > 2 * self._tail:  # now and then: to cut each time would move the tail each time
            del self._last[: -self._tail]

    def kept(self) -> bytes:
        """Head and tail; where bytes between them were left out, a line that says how many."""
        last = bytes(self._last[-self._tail :])
        left_out = self.total - len(self._first) - len(last)
        mark = f"\n[... {left_out:,} of {self.total:,} bytes left out ...]\n".encode() if left_out else b""
        return bytes(self._first) + mark + last
