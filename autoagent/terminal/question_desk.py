"""Questions of a run, answered by the person at its terminal or by `autoagent answer` elsewhere, whichever is first.

All questions pass through here, including those of sub-agents, roles of a team and planners. None waits longer than the
asker and the user's settings allow.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoagent.core.commands import Proposal, Question
from autoagent.core.errors import StateError, StopRun
from autoagent.core.frozen import dataclass
from autoagent.core.task import Outcome, Status
from autoagent.safety.open_questions import HeldQuestion, OpenQuestion, OpenQuestions
from autoagent.terminal.line_editor import LOOK, Watch
from autoagent.text.sanitize import shorten

_SHOWN = 20_000  # characters of what a question is about that other terminals show


class AnsweredElsewhere(Exception):
    """The question was answered from another terminal."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The user's settings for questions.

    `folder` opens them to other terminals, None for none. After `seconds` without an answer, 0 for never, the run
    `ends` or continues. `workspace` and `state_dir` accompany each question.
    """

    folder: Path | None = None
    seconds: float = 0.0
    ends: bool = True
    workspace: str = ""
    state_dir: str = ""


NOWHERE_ELSE = Terms()


class _Waiting:
    """A question while it waits: open to other terminals (`held`), for `seconds`, which the user has set or not."""

    def __init__(self, held: HeldQuestion | None, seconds: float | None, *, by_user: bool) -> None:
        self.held = held
        self.seconds = seconds
        self.by_user = by_user
        self._until = None if seconds is None else time.monotonic() + seconds

    @property
    def watch(self) -> Watch | None:
        """The function that the reader at the terminal polls, or None if nothing can happen meanwhile."""
        return None if self.held is None and self._until is None else self._look

    def _look(self) -> BaseException | None:
        if self.held is not None and self.held.is_answered:
            return AnsweredElsewhere()
        return TimeoutError() if self._until is not None and time.monotonic() >= self._until else None

    def close(self) -> str | None:
        """Stop waiting. Return an answer given elsewhere before, None if there is none."""
        return None if self.held is None else self.held.close()


class QuestionDesk:
    """Asks the questions of a run on the user's terms. `mask` removes secrets from the copies for other terminals.

    `say` writes on the run's own screen, `attention` calls the user. `elsewhere` tells where the last answer came from.
    """

    def __init__(
        self, terms: Terms, say: Callable[[str], None], attention: Attention, mask: Callable[[Any], Any]
    ) -> None:
        self.elsewhere = False
        self._terms = terms
        self._say = say
        self._attention = attention
        self._mask = mask
        self._problem = ""  # why questions are not open to other terminals
        self._last: tuple[Proposal | None, str] = None, ""  # what was asked about, and the id of the question
        self._unanswered: list[tuple[Question, _Waiting]] = []  # that stay open, the oldest first
        self._late: list[tuple[Question, str]] = []

    def ask(
        self,
        run: str,
        words: str,
        question: Question,
        timeout: float | None,
        read: Callable[[Watch | None], str],
        *,
        attended: bool,
    ) -> str:
        """Return the answer to a question of this run, '' before there is one. `read` reads it at the terminal.

        `timeout` are the seconds for which the asker waits at most. `attended`: somebody is at the terminal.

        Raises TimeoutError if the run is to go on without an answer, StopRun if it is to end. EOFError where nobody can
        answer, and any error of `read`.
        """
        self.elsewhere = False
        waiting = self._begun(run, words, question, timeout)
        told = {"kind": "question", "run": run, "question": words}
        if waiting.held is not None:
            told["answer"] = _way(waiting.held)
        kept = False
        try:
            with self._attention.asking(told):
                typed = self._read(read, waiting, attended=attended)
                if (came := waiting.close()) is None:
                    return typed or ""
                if typed:
                    self._say("The answer typed here came too late and does not count.")
                return self._taken(came)
        except TimeoutError:
            ends = waiting.by_user and self._terms.ends
            kept = question.stays_open and not ends
            if not kept and (came := waiting.close()) is not None:
                return self._taken(came)
            raise self._over(waiting, ends=ends) from None
        except EOFError:
            kept = question.stays_open
            raise
        finally:
            if kept:
                self._unanswered.append((question, waiting))
            else:
                waiting.close()

    def hear(self, typed: Callable[[], str | None]) -> None:
        """Take up late answers, from elsewhere or `typed` since. That gives a line, None where there is none."""
        for question, waiting in list(self._unanswered):
            if waiting.held is not None and waiting.held.is_answered:
                self._unanswered.remove((question, waiting))
                self._late.append((question, waiting.close() or ""))
        while self._unanswered and (line := typed()) is not None:
            if line.strip():
                question, waiting = self._unanswered.pop(0)
                self._late.append((question, waiting.close() or line.strip()))

    def take_late(self) -> list[tuple[Question, str]]:
        """Return the late answers that were heard since, each with its question."""
        late, self._late = self._late, []
        return late

    def close(self) -> None:
        """Let no question stay open."""
        for _, waiting in self._unanswered:
            waiting.close()
        self._unanswered.clear()

    def _begun(self, run: str, words: str, question: Question, timeout: float | None) -> _Waiting:
        seconds = self._terms.seconds if run else 0.0
        by_user = bool(seconds) and (timeout is None or seconds < timeout)
        wait = seconds if by_user else timeout
        held = None
        if run and self._terms.folder is not None:
            now, proposal = time.time(), question.proposal
            if proposal is None or proposal != self._last[0]:  # an id names the proposal that was seen
                self._last = proposal, f"{run}.{os.urandom(2).hex()}"
            opened = OpenQuestion(
                id=self._last[1],
                run=run,
                question=words,
                text="" if question.text in words else self._mask(shorten(question.text, _SHOWN)),
                kind=question.kind,
                yes=question.yes,
                no=question.no,
                command=self._command(proposal) if proposal is not None else {},
                agent=proposal.agent if proposal is not None else "",
                workspace=self._terms.workspace,
                state_dir=self._terms.state_dir,
                pid=os.getpid(),
                asked=now,
                until=None if wait is None else now + wait,
                stays_open=question.stays_open,
            )
            try:
                held = OpenQuestions(self._terms.folder).add(opened)
            except StateError as error:  # then it is asked at this terminal alone
                self._problem = str(error)
        return _Waiting(held, wait, by_user=by_user)

    def _command(self, proposal: Proposal) -> dict[str, Any]:
        return {
            "name": proposal.call.name,
            "arguments": self._mask(dict(proposal.call.args)),
            "risk": proposal.risk,
            "warning": self._mask(proposal.warning),
            "preview": self._mask(shorten(proposal.preview, _SHOWN)),
        }

    def _read(self, read: Callable[[Watch | None], str], waiting: _Waiting, *, attended: bool) -> str | None:
        """Return the typed answer, None for an answer from elsewhere. Raises as `ask` does."""
        try:
            return read(waiting.watch)
        except AnsweredElsewhere:
            return None
        except EOFError:
            if waiting.held is not None and waiting.held.is_answered:
                return None
            if attended or not self._terms.seconds:
                raise
            if waiting.held is None:
                self._say(self._problem)
                raise
        self._say(
            f"Nobody can answer here. For {waiting.seconds:g} s it can be answered elsewhere: {_way(waiting.held)}"
        )
        assert waiting.watch is not None
        while (came := waiting.watch()) is None:
            time.sleep(LOOK)
        if isinstance(came, TimeoutError):
            raise came
        return None

    def _taken(self, came: str) -> str:
        self.elsewhere = True
        self._say(f"Answered from another terminal: {came}")
        return came

    def _over(self, waiting: _Waiting, *, ends: bool) -> Exception:
        """Return the exception for a question that nobody has answered in time. Say that the run goes on."""
        if not waiting.by_user:
            return TimeoutError(f"The user did not answer within {waiting.seconds:g} s.")
        reason = f"Nobody answered within {waiting.seconds:g} s (--answer-timeout)"
        if ends:
            return StopRun(Outcome(Status.UNANSWERED, f"{reason}; the run is saved and ends."))
        self._say(f"{reason}; the run goes on.")
        return TimeoutError(f"{reason}.")


def _way(held: HeldQuestion) -> str:
    return f"autoagent answer {held.id} TEXT"


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
        timer = threading.Timer(WAITS, self.call, (told,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def call(self, told: Mapping[str, Any]) -> None:
        """Call the user and tell this."""
        self._ring()
        if not self._command:
            return
        import subprocess

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
