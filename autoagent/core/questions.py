"""A question to the user: what it is about and how its answer is read, whoever gives it and wherever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autoagent.core.commands import Proposal

QuestionKind = Literal["decision", "remark", "going on", "text"]
"""How an answer is read: it decides on a command; Enter goes on, and text is feedback; Enter goes on; or any text."""


@dataclass(frozen=True, slots=True)
class Question:
    """What belongs to a question beside its words.

    `yes` and `no` are the keys that run and that stop; `warned`: only an answer of its own allows this very `proposal`.
    `text` is what was asked, without what the program says around it. One that `stays_open` can still be answered once
    the run has gone on.
    """

    kind: QuestionKind = "text"
    yes: str = "y"
    no: str = "n"
    warned: bool = False
    proposal: Proposal | None = None
    text: str = ""
    stays_open: bool = False


ANY_TEXT = Question()
"""A question to which every text is an answer."""
