"""Questions of a planner that the user did not answer in time: the run goes on, and a late answer is news."""

from __future__ import annotations

from collections.abc import Sequence

from autoagent.core.commands import Question
from autoagent.core.errors import CommandError
from autoagent.core.events import Event, Feedback
from autoagent.core.protocols import Inbox
from autoagent.terminal.console import Console


class LateAnswers:
    """Asks at the console, and passes late answers on. `unanswered` is the answer meanwhile."""

    def __init__(self, console: Console, unanswered: str) -> None:
        self._console = console
        self._unanswered = unanswered

    def ask(self, question: str, timeout: float | None) -> str:
        """Return the user's answer. Raises CommandError if there was none in time, or nobody is there."""
        self._console.discard_typeahead()
        asked = Question(text=question, stays_open=True)
        try:
            return self._console.ask(question, timeout, label="The agent asks:", question=asked)
        except (TimeoutError, EOFError):
            raise CommandError(self._unanswered) from None

    def after(self, inbox: Inbox, first: Sequence[Event] = ()) -> Inbox:
        """Return an inbox that also brings late answers of the user, and the messages in `first` before any others."""
        return _LateInbox(inbox, self._console, first)


class _LateInbox:
    def __init__(self, inner: Inbox, console: Console, first: Sequence[Event]) -> None:
        self._inner = inner
        self._first = first
        self._console = console

    def take(self) -> Sequence[Event]:
        late = self._console.take_late()
        first, self._first = self._first, ()
        return [
            *first,
            *self._inner.take(),
            *(Feedback(text=f"A late answer to {question.text!r}: {line}") for question, line in late),
        ]

    def close(self) -> Sequence[Event]:
        self._console.close_questions()
        return self._inner.close()
