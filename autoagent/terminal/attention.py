"""Calls the user back to a question that waits, and to a run that has ended: the bell, and a command of the user's."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

WAITS = 10.0  # seconds, then a question is told of
_PATIENCE = 5.0  # seconds that the command may hold up the end of the program


class Attention:
    """`ring` rings the bell. `command` is a shell line that gets the message as a JSON object, '' for none."""

    def __init__(self, ring: Callable[[], None], command: str) -> None:
        self._ring = ring
        self._command = command

    @contextmanager
    def asking(self, told: Mapping[str, Any]) -> Iterator[None]:
        """Call the user if the question of this block still waits after a while."""
        timer = threading.Timer(WAITS, self._call, (told,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def ended(self, told: Mapping[str, Any]) -> None:
        """Call the user: the run has ended."""
        self._call(told)

    def _call(self, told: Mapping[str, Any]) -> None:
        self._ring()
        if not self._command:
            return
        try:
            subprocess.run(  # noqa: S603 - the command is the user's, and no folder sets it unasked
                ["/bin/sh", "-c", self._command],
                input=json.dumps(told).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return  # the run does not depend on it
