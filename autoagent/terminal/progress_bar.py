"""The progress of a fetch."""

from __future__ import annotations

import sys

from autoagent.terminal.output import echo, echo_over


class ProgressBar:
    """A fetch's progress on stderr: one line that is redrawn; without a terminal, a line for every tenth."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = -1  # the percentage
        self._open = False  # whether the cursor stands behind a bar

    def show(self, done: int, total: int) -> None:
        percent = 100 * done // total
        if percent == self._shown:
            return
        amount = f"{percent:3} %  {done / 1e6:.0f} of {total / 1e6:.0f} MB"
        if self._live:
            echo_over(f"[{'#' * (percent // 5):<20}] {amount}")
            self._open = True
        elif percent // 10 > self._shown // 10:
            echo(amount, err=True)
        self._shown = percent

    def note(self, line: str) -> None:
        """Print a note on a line of its own."""
        self.close()
        echo(line, err=True)
        self._shown = -1

    def close(self) -> None:
        if self._open:
            echo(err=True)
            self._open = False
