"""A question to the user and how its answer is read, whichever terminal gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autoagent.core.commands import Proposal

QuestionKind = Literal["decision", "remark", "going on", "text"]
"""How an answer is read: it decides on a command; Enter goes on, and text is feedback; Enter goes on; or any text."""


@dataclass(frozen=True, slots=True)
class Question:
    """The parts of a question beside its text.

    `yes` and `no` are the keys to run and to stop. `warned`: only a new answer allows this very `proposal`. `text` is
    the question without surrounding output. If it `stays_open`, it can still be answered after the run has gone on.
    `words` are the commands that begin with a slash.
    """

    kind: QuestionKind = "text"
    yes: str = "y"
    no: str = "n"
    warned: bool = False
    proposal: Proposal | None = None
    text: str = ""
    stays_open: bool = False
    words: tuple[str, ...] = ()


ANY_TEXT = Question()
"""A question to which every text is an answer."""
