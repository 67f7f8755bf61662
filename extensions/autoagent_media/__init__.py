"""Draw pictures, transcribe recordings and speak. The settings choose the providers.

`commands` draws and listens by the `providers`, `speech` says aloud the words meant for the user.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # keep the start fast, as few users want a voice
    from autoagent.extension import RunOpening, RunPart


@contextmanager
def opened(run: RunOpening) -> Iterator[RunPart | None]:
    """Take part in a run that is to speak, and end the voice with it."""
    if not run.place.setting("speak"):
        yield None
        return
    from autoagent_media.speech import SpokenRun

    spoken = SpokenRun(run.place.setting, run.say)
    try:
        yield spoken
    finally:
        spoken.end()
