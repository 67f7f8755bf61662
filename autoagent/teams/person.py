"""A person in the place of a role's model: reads what the model would read, and answers in one line or many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoagent.core.commands import Question
from autoagent.core.errors import StopRun
from autoagent.core.task import Outcome, Status

if TYPE_CHECKING:
    from autoagent.teams.role import Role
    from autoagent.terminal.console import Console

LEAVING = ("exit", "quit")
QUOTES = '"""'
_HOW = f"Your answer; an empty line ends it, or {QUOTES} if it began with {QUOTES}. `exit` saves and ends."


def ask_person(console: Console, role: Role, prompt: str, unanswered: str) -> str:
    """Show the prompt and return what the person answers to it, here or from another terminal.

    `unanswered` is the answer of somebody who gives none in time, where the run is to go on.

    Raises:
        StopRun: the person ends the work, or nobody is there.
        KeyboardInterrupt: Ctrl-C.
    """
    console.discard_typeahead()
    console.say(prompt)
    asked = Question(text=prompt)
    while True:
        try:
            text = console.ask(f"You are {role.name}, {role.profile}. {_HOW}", question=asked, goes_on=_goes_on)
        except EOFError:
            reason = f"{role} is a person, and nobody is there to answer; run it in a terminal, or pipe the answer in."
            raise StopRun(Outcome(Status.UNANSWERED, reason)) from None
        except TimeoutError:
            return unanswered
        if text.strip().lower() in LEAVING:
            raise StopRun(Outcome(Status.STOPPED, f"Ended by {role}."))
        if answer := _unquoted(text.strip()):
            return answer


def _goes_on(text: str) -> bool:
    """Return whether the person has not come to the end of an answer."""
    begun = text.strip()
    if begun.startswith(QUOTES):
        return not begun.removeprefix(QUOTES).endswith(QUOTES)
    return begun.lower() not in ("", *LEAVING) and bool(text.rpartition("\n")[2].strip())


def _unquoted(text: str) -> str:
    return text.removeprefix(QUOTES).removesuffix(QUOTES).strip() if text.startswith(QUOTES) else text
