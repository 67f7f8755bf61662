"""Ask for the user's consent to agents that add to the user's own memory, and save it in that memory's folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.core.commands import Question
from autoagent.core.errors import SettingsError, StateError
from autoagent.safety.typed_answers import UserAnswer, read_answer
from autoagent.text.text_file import write_text

if TYPE_CHECKING:
    from autoagent.agent.budget import Budget
    from autoagent.terminal.console import Console

Consent = Callable[[str], bool | None]
"""Asks the user a yes-or-no question, and returns None if nobody can be asked."""

NOT_ALLOWED = (
    "The user has not allowed agents to write into the user's own memory. Only the user can, with `autoagent memory "
    "--user allow` or at the terminal of a run."
)
SWITCHED_OFF = "The user's own memory is switched off here (MEMORY_USER)."
DECLINED = "The user declined to have this stored in their own memory."
_CONSENT_FILE = "agents-may-add"
_CONSENT_QUESTION = (
    "The agent wants to put this into your own memory, which runs in all your folders recall:\n{}\n"
    "May agents do so from now on, without being asked about it again?"
)


def save_consent(folder: Path, *, given: bool) -> None:
    """Save whether agents may add to the user's own memory in `folder`. Raises SettingsError if that fails."""
    mark = folder / _CONSENT_FILE
    if given:
        write_text(mark, "Agents may add to this memory.\n", private=True, parents=True)
        return
    try:
        mark.unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(f"{mark} cannot be removed: {error.strerror}.") from error


def consent_of(console: Console, budget: Budget) -> Consent:
    """Return a function that asks whether agents may add to the user's own memory. Enter means no.

    The function returns None without a terminal. Waiting for the user costs no working time of the `budget`.
    """

    def ask(question: str) -> bool | None:
        if sys.stdin.closed or not sys.stdin.isatty():
            return None
        console.discard_typeahead()
        try:
            with budget.time.idle():
                answer = console.ask(f"{question} y = yes, Enter = no", question=Question("going on"))
        except (EOFError, TimeoutError):
            return False
        return read_answer(answer) == UserAnswer("run", 1)

    return ask


class ConsentDialog:
    """Ask the user once whether agents may add to the user's own memory in `folder`, None if that is switched off."""

    def __init__(self, folder: Path | None, consent: Consent | None) -> None:
        self._folder = folder
        self._consent = consent
        self._is_declined = False

    def refusal(self, text: str) -> str:
        """Return why the agent may not add the text, or ''. Raises StateError if the consent cannot be saved."""
        if self._folder is None:
            return SWITCHED_OFF
        if (self._folder / _CONSENT_FILE).is_file():  # the user has allowed it before
            return ""
        if self._is_declined:
            return DECLINED
        quoted = "\n".join(f"  {line}" for line in text.strip().splitlines())
        answer = self._consent(_CONSENT_QUESTION.format(quoted)) if self._consent else None
        if answer is None:
            return NOT_ALLOWED
        if not answer:
            self._is_declined = True
            return DECLINED
        try:
            save_consent(self._folder, given=True)
        except SettingsError as error:
            raise StateError(str(error)) from error
        return ""
