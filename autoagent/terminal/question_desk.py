"""Ask a run's questions at its terminal and, by `autoagent answer`, elsewhere. The first answer counts.

All questions pass through here, including those of sub-agents, roles of a team and planners. None waits longer than the
asker and the user's settings allow.
"""

from __future__ import annotations

import json
import math
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

_SHOWN = 20_000  # characters of a question's subject shown on other terminals


class AnsweredElsewhere(Exception):
    """Report that the question was answered from another terminal."""


@dataclass(frozen=True, slots=True)
class QuestionTerms:
    """Hold the user's settings for questions.

    `folder` is where other terminals find questions, or None to keep them here. After `seconds` without an answer (0:
    no limit) the run `ends` or continues. `workspace` and `state_dir` accompany each question.
    """

    folder: Path | None = None
    seconds: float = 0.0
    ends: bool = True
    workspace: str = ""
    state_dir: str = ""


THIS_TERMINAL = QuestionTerms()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Hold a waiting question: `held` for other terminals, with a time limit of the user or of the asker."""

    held: HeldQuestion | None
    seconds: float | None
    until: float  # by the monotonic clock
    by_user: bool

    @property
    def watch(self) -> Watch | None:
        """Return the function for the terminal's reader to poll, or None if nothing can end the wait."""
        return None if self.held is None and self.seconds is None else self._look

    def _look(self) -> BaseException | None:
        if self.held is not None and self.held.is_answered:
            return AnsweredElsewhere()
        return TimeoutError() if time.monotonic() >= self.until else None

    def close(self) -> str | None:
        """Stop waiting. Return an answer already given elsewhere, or None."""
        return None if self.held is None else self.held.close()


class QuestionDesk:
    """Ask the questions of a run on the user's terms.

    `mask` removes secrets from the copies for other terminals. `say` writes to the run's own screen, `attention` alerts
    the user. `elsewhere` is whether the last answer came from another terminal.
    """

    def __init__(
        self, terms: QuestionTerms, say: Callable[[str], None], attention: Attention, mask: Callable[[Any], Any]
    ) -> None:
        self.elsewhere = False
        self._terms = terms
        self._say = say
        self._attention = attention
        self._mask = mask
        self._problem = ""  # why questions cannot be shared with other terminals
        self._last: tuple[Proposal | None, str] = None, ""  # the last proposal asked about, and its question's id
        self._unanswered: list[tuple[Question, _Waiting]] = []  # still open, oldest first
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
        """Return the answer to a question of this run ('' before there is a run).

        `read` reads the answer at the terminal. `timeout` is how many seconds the asker waits, None for no limit.
        `attended`: somebody is at the terminal.

        Raises TimeoutError if the run is to continue without an answer, StopRun if it is to end, EOFError if nobody can
        answer, and any error of `read`.
        """
        self.elsewhere = False
        waiting = self._open(run, words, question, timeout)
        notice = {"kind": "question", "run": run, "question": words}
        if waiting.held is not None:
            notice["answer"] = _answer_command(waiting.held)
        kept = False
        try:
            with self._attention.asking(notice):
                typed = self._read(read, waiting, attended=attended)
                if (came := waiting.close()) is None:
                    return typed or ""
                if typed:
                    self._say("The answer typed here came too late and does not count.")
                return self._accept(came)
        except TimeoutError:
            ends = waiting.by_user and self._terms.ends
            kept = question.stays_open and not ends
            if not kept and (came := waiting.close()) is not None:
                return self._accept(came)
            raise self._timeout_error(waiting, ends=ends) from None
        except EOFError:
            kept = question.stays_open
            raise
        finally:
            if kept:
                self._unanswered.append((question, waiting))
            else:
                waiting.close()

    def hear(self, typed: Callable[[], str | None]) -> None:
        """Accept late answers, from elsewhere or `typed` here. `typed` returns the next line, or None."""
        for question, waiting in list(self._unanswered):
            if waiting.held is not None and waiting.held.is_answered:
                self._unanswered.remove((question, waiting))
                self._late.append((question, waiting.close() or ""))
        while self._unanswered and (line := typed()) is not None:
            if line.strip():
                question, waiting = self._unanswered.pop(0)
                self._late.append((question, waiting.close() or line.strip()))

    def take_late(self) -> list[tuple[Question, str]]:
        """Return the late answers received since the last call, each with its question."""
        late, self._late = self._late, []
        return late

    def close(self) -> None:
        """Close all open questions. An answer that has come meanwhile is a late one."""
        closed = [(question, waiting.close()) for question, waiting in self._unanswered]
        self._late += [(question, answer) for question, answer in closed if answer]
        self._unanswered.clear()

    def _open(self, run: str, words: str, question: Question, timeout: float | None) -> _Waiting:
        seconds = self._terms.seconds if run else 0.0
        by_user = bool(seconds) and (timeout is None or seconds < timeout)
        wait = seconds if by_user else timeout
        held = None
        if run and self._terms.folder is not None:
            now, proposal = time.time(), question.proposal
            if proposal is None or proposal != self._last[0]:  # an id belongs to the proposal that was shown
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
            except StateError as error:  # asked at this terminal alone
                self._problem = str(error)
        return _Waiting(held, wait, math.inf if wait is None else time.monotonic() + wait, by_user)

    def _command(self, proposal: Proposal) -> dict[str, Any]:
        return {
            "name": proposal.call.name,
            "arguments": self._mask(dict(proposal.call.args)),
            "risk": proposal.risk,
            "warning": self._mask(proposal.warning),
            "preview": self._mask(shorten(proposal.preview, _SHOWN)),
        }

    def _read(self, read: Callable[[Watch | None], str], waiting: _Waiting, *, attended: bool) -> str | None:
        """Return the typed answer, or None for an answer from elsewhere. Raises as `ask` does."""
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
            f"Nobody can answer here. For {waiting.seconds:g} s it can be answered elsewhere: "
            f"{_answer_command(waiting.held)}"
        )
        assert waiting.watch is not None
        while (came := waiting.watch()) is None:
            time.sleep(LOOK)
        if isinstance(came, TimeoutError):
            raise came
        return None

    def _accept(self, came: str) -> str:
        self.elsewhere = True
        self._say(f"Answered from another terminal: {came}")
        return came

    def _timeout_error(self, waiting: _Waiting, *, ends: bool) -> TimeoutError | StopRun:
        """Return the exception for an unanswered question. Tell the user if the run goes on."""
        if not waiting.by_user:
            return TimeoutError(f"The user did not answer within {waiting.seconds:g} s.")
        reason = f"Nobody answered within {waiting.seconds:g} s (--answer-timeout)"
        if ends:
            return StopRun(Outcome(Status.UNANSWERED, f"{reason}; the run is saved and ends."))
        self._say(f"{reason}; the run goes on.")
        return TimeoutError(f"{reason}.")


def _answer_command(held: HeldQuestion) -> str:
    return f"autoagent answer {held.id} TEXT"


ALERT_SECONDS = 10.0  # seconds a question waits before the user is alerted
_COMMAND_SECONDS = 5.0  # seconds that the alert command may take


@dataclass(frozen=True, slots=True)
class Attention:
    """Alert the user. `ring` rings the bell. `command` is a shell line that receives the message as JSON, or ''."""

    ring: Callable[[], None]
    command: str

    @contextmanager
    def asking(self, notice: Mapping[str, Any]) -> Iterator[None]:
        """Alert the user if this block still waits for an answer after a while."""
        timer = threading.Timer(ALERT_SECONDS, self.call, (notice,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def call(self, notice: Mapping[str, Any]) -> None:
        """Alert the user with this message."""
        self.ring()
        if not self.command:
            return
        import subprocess

        try:
            subprocess.run(  # noqa: S603 - the command is the user's, and no folder sets it unasked
                ["/bin/sh", "-c", self.command],
                input=json.dumps(notice).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_COMMAND_SECONDS,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return  # an alert is best effort
