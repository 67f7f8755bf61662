"""Questions of a planner that the user did not answer in time: the run goes on, and a late answer is news."""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence

from autoagent.core.errors import CommandError
from autoagent.core.events import Event, Feedback
from autoagent.core.protocols import Inbox
from autoagent.terminal.console import Console


class LateAnswers:
    """Asks at the console, and reads later what was not answered in time. `unanswered` is what is said meanwhile."""

    def __init__(self, console: Console, unanswered: str) -> None:
        self._console = console
        self._unanswered = unanswered
        self._open: list[str] = []

    def ask(self, question: str, timeout: float | None) -> str:
        """Return the user's answer. Raises CommandError if there was none in time, or nobody is there."""
        if not self._open:  # else what was typed since is the answer to an earlier question
            self._console.discard_typeahead()
        try:
            return self._console.ask(question, timeout, label="The agent asks:")
        except TimeoutError:
            self._open.append(question)
            raise CommandError(self._unanswered) from None
        except EOFError:
            raise CommandError(self._unanswered) from None

    def after(self, inbox: Inbox) -> Inbox:
        """Return an inbox that also brings what the user answers late."""
        return _LateInbox(inbox, self)

    def take(self) -> list[Event]:
        """Return what was answered since, if a question is open."""
        found: list[Event] = []
        while self._open and self._is_typed():
            line = self._console.read_typed().strip()
            if not line:
                break
            found.append(Feedback(text=f"A late answer to {self._open.pop(0)!r}: {line}"))
        return found

    def _is_typed(self) -> bool:
        try:
            return bool(select.select([sys.stdin], [], [], 0.0)[0])
        except (OSError, ValueError):  # it is closed, or no file
            return False


class _LateInbox:
    def __init__(self, inner: Inbox, late: LateAnswers) -> None:
        self._inner = inner
        self._late = late

    def take(self) -> Sequence[Event]:
        return [*self._inner.take(), *self._late.take()]

    def close(self) -> Sequence[Event]:
        return self._inner.close()
