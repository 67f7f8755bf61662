"""The value of `thoughts.text`, read out of a reply that is still growing.

For the screen only: what is run is parsed from the whole reply.
"""

from __future__ import annotations

import json
import re

_BEGINS = re.compile(r'"thoughts"\s*:\s*\{(?:[^{}]*?[,\s])??"text"\s*:\s*"')
_PIECE = re.compile(
    r'[^"\\]+'
    r"|\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # one character beyond U+FFFF
    r"|\\u(?![dD][89aAbB])[0-9a-fA-F]{4}"
    r"|\\u[dD][89aAbB][0-9a-fA-F]{2}(?=[^\\]|\\[^u])"  # half of one, and the other half does not follow
    r'|\\["\\/bfnrt]'
)
_PATIENCE = 4000  # characters; a reply whose thoughts begin later is shown when it is whole


class ThoughtsStream:
    """Feed it the pieces of one reply. It gives the pieces of the text in its thoughts."""

    def __init__(self) -> None:
        self._raw = ""
        self._inside = False
        self._done = False

    def feed(self, delta: str) -> str:
        """Take the next piece. Return what became readable, '' before the text begins and after it has ended."""
        if self._done:
            return ""
        self._raw += delta
        if not self._inside:
            begins = _BEGINS.search(self._raw)
            if begins is None:
                self._done = len(self._raw) > _PATIENCE
                return ""
            self._inside = True
            self._raw = self._raw[begins.end() :]
        return self._decoded()

    def _decoded(self) -> str:
        text, end = "", 0
        while piece := _PIECE.match(self._raw, end):
            text += json.loads(f'"{piece[0]}"', strict=False)
            end = piece.end()
        self._raw = self._raw[end:]
        # An escape takes at most 12 characters: what cannot be read by then is no JSON.
        self._done = self._raw.startswith('"') or len(self._raw) > 12
        return text
