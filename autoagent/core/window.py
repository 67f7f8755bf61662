"""Divides a model's window among the parts of a prompt and the reply."""

from __future__ import annotations

from dataclasses import dataclass

SMALL_WINDOW = 16_000  # tokens; below it every command offered costs history

_CLOSING_WORDS = 100  # tokens of the last part beside goals and memories: clock, question, titles, message marks


@dataclass(frozen=True, slots=True)
class Shares:
    """Tokens for each part besides the system message.

    `recollections` limits memories for the newest step. `standing` and `lasting` limit memories for the goals.
    """

    history: int
    recollections: int
    standing: int
    lasting: int = 0


def reply_tokens(window: int) -> int:
    """Return the tokens kept free for the reply."""
    return min(window // 5, 4096)


def share_out(window: int, reply: int, system: int, goals: int) -> Shares:
    """Divide the window. All arguments are in tokens. `history` may be too small or negative: see `is_workable`."""
    recollections = max(96, min(window // 32, 1200))
    standing = max(96, min(window // 40, 600))
    history = window - reply - system - goals - recollections - standing - _CLOSING_WORDS
    return Shares(history, recollections // 2, standing, recollections // 2)


def is_workable(shares: Shares, window: int) -> bool:
    """Return whether the history holds enough to work with: an eighth of the window."""
    return shares.history >= window // 8
