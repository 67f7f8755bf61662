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
from autoagent.safety.open_questions import LockedQuestion, OpenQuestion, OpenQuestions
from autoagent.terminal.line_editor import POLL_SECONDS, Watch
from autoagent.text.sanitize import shorten

_MAX_SUBJECT_CHARACTERS = 20_000  # of a question, on other terminals
_TOO_LATE = "The answer typed here came too late and does not count."


class AnsweredElsewhere(Exception):
    """Report that the question was answered from another terminal."""


@dataclass(frozen=True, slots=True)
class QuestionSettings:
    """The user's settings for questions.

    `folder` is where other terminals find questions, or None to keep them here. After `timeout` seconds without an
    answer (0 for no limit) the run ends if `ends_run`, or else continues. A question names `workspace` and `state_dir`.
    """

    folder: Path | None = None
    timeout: float = 0.0
    ends_run: bool = True
    workspace: str = ""
    state_dir: str = ""


THIS_TERMINAL = QuestionSettings()


@dataclass(frozen=True, slots=True)
class _Wait:
    """The wait for an answer, with a timeout of the user or of the asker. Other terminals see the `shared` question."""

    shared: LockedQuestion | None
    timeout: float | None
    deadline: float  # by the monotonic clock
    by_user: bool

    @property
    def watch(self) -> Watch | None:
        """Return the function for the terminal's reader to poll, or None if nothing can end the wait."""
        return None if self.shared is None and self.timeout is None else self._poll

    def _poll(self) -> BaseException | None:
        if self.shared is not None and self.shared.is_answered:
            return AnsweredElsewhere()
        return TimeoutError() if time.monotonic() >= self.deadline else None

    def close(self) -> str | None:
        """Stop waiting. Return an answer already given elsewhere, or None."""
        return None if self.shared is None else self.shared.close()


class SharedQuestions:
    """Ask the questions of a run, as the user's settings have it.

    `mask` removes secrets from the copies for other terminals. `say` writes to the run's own screen, `alert` alerts
    the user. `elsewhere` is whether the last answer came from another terminal.
    """

    def __init__(
        self, settings: QuestionSettings, say: Callable[[str], None], alert: UserAlert, mask: Callable[[Any], Any]
    ) -> None:
        self.elsewhere = False
        self._settings = settings
        self._say = say
        self._alert = alert
        self._mask = mask
        self._problem = ""  # why a question could not be shared with other terminals
        self._last_proposal: Proposal | None = None
        self._last_id = ""  # of the question about it
        self._unanswered: list[tuple[Question, _Wait]] = []  # still open, oldest first
        self._late_answers: list[tuple[Question, str]] = []

    def ask(
        self,
        run: str,
        prompt: str,
        question: Question,
        timeout: float | None,
        read: Callable[[Watch | None], str],
        *,
        is_attended: bool,
    ) -> str:
        """Return the answer to a question of this run ('' before there is a run).

        `read` reads the answer at the terminal. `timeout` is how many seconds the asker waits, None for no limit.
        `is_attended` is whether somebody is at the terminal.

        Raises TimeoutError if the run is to continue without an answer, StopRun if it is to end, EOFError if nobody can
        answer, and any error of `read`.
        """
        self.elsewhere = False
        wait = self._open(run, prompt, question, timeout)
        notice = {"kind": "question", "run": run, "question": prompt}
        if wait.shared is not None:
            notice["answer"] = _answer_command(wait.shared)
        stays_open = False
        try:
            with self._alert.if_waiting(notice):
                typed = self._read(read, wait, is_attended=is_attended)
                if (remote_answer := wait.close()) is None:
                    return typed or ""
                if typed:
                    self._say(_TOO_LATE)
                return self._accept(remote_answer)
        except TimeoutError:
            ends_run = wait.by_user and self._settings.ends_run
            stays_open = question.stays_open and not ends_run
            if not stays_open and (remote_answer := wait.close()) is not None:
                return self._accept(remote_answer)
            raise self._timeout_error(wait, ends_run=ends_run) from None
        except EOFError:
            stays_open = question.stays_open
            raise
        finally:
            if stays_open:
                self._unanswered.append((question, wait))
            else:
                wait.close()

    def collect_late(self, read_line: Callable[[], str | None]) -> None:
        """Accept late answers, from elsewhere or typed here. `read_line` returns the next line, or None."""
        for question, wait in list(self._unanswered):
            if wait.shared is not None and wait.shared.is_answered:
                self._unanswered.remove((question, wait))
                self._late_answers.append((question, wait.close() or ""))
        while self._unanswered and (line := read_line()) is not None:
            if line.strip():
                question, wait = self._unanswered.pop(0)
                if remote_answer := wait.close():
                    self._say(_TOO_LATE)
                self._late_answers.append((question, remote_answer or line.strip()))

    def take_late(self) -> list[tuple[Question, str]]:
        """Return the late answers received since the last call, each with its question."""
        answers, self._late_answers = self._late_answers, []
        return answers

    def close(self) -> None:
        """Close all open questions. An answer that has come meanwhile is a late one."""
        closed = [(question, wait.close()) for question, wait in self._unanswered]
        self._late_answers += [(question, answer) for question, answer in closed if answer]
        self._unanswered.clear()

    def _open(self, run: str, prompt: str, question: Question, timeout: float | None) -> _Wait:
        user_timeout = self._settings.timeout if run else 0.0
        by_user = bool(user_timeout) and (timeout is None or user_timeout < timeout)
        timeout = user_timeout if by_user else timeout
        shared = None
        if run and self._settings.folder is not None:
            now, proposal = time.time(), question.proposal
            if proposal is None or proposal != self._last_proposal:  # an id belongs to the proposal that was shown
                self._last_proposal, self._last_id = proposal, f"{run}.{os.urandom(2).hex()}"
            open_question = OpenQuestion(
                id=self._last_id,
                run=run,
                question=prompt,
                text="" if question.text in prompt else self._mask(shorten(question.text, _MAX_SUBJECT_CHARACTERS)),
                kind=question.kind,
                yes=question.yes,
                no=question.no,
                command=self._command(proposal) if proposal is not None else {},
                agent=proposal.agent if proposal is not None else "",
                workspace=self._settings.workspace,
                state_dir=self._settings.state_dir,
                pid=os.getpid(),
                asked=now,
                until=None if timeout is None else now + timeout,
                stays_open=question.stays_open,
            )
            try:
                shared = OpenQuestions(self._settings.folder).add(open_question)
            except StateError as error:  # asked at this terminal alone
                self._problem = str(error)
        return _Wait(shared, timeout, math.inf if timeout is None else time.monotonic() + timeout, by_user)

    def _command(self, proposal: Proposal) -> dict[str, Any]:
        return {
            "name": proposal.call.name,
            "arguments": self._mask(dict(proposal.call.args)),
            "risk": proposal.risk,
            "warning": self._mask(proposal.warning),
            "preview": self._mask(shorten(proposal.preview, _MAX_SUBJECT_CHARACTERS)),
        }

    def _read(self, read: Callable[[Watch | None], str], wait: _Wait, *, is_attended: bool) -> str | None:
        """Return the typed answer, or None for an answer from elsewhere. Raises as `ask` does."""
        try:
            return read(wait.watch)
        except AnsweredElsewhere:
            return None
        except EOFError:
            if wait.shared is not None and wait.shared.is_answered:
                return None
            if is_attended or not self._settings.timeout:
                raise
            if wait.shared is None:
                if self._problem:
                    self._say(self._problem)
                raise
        command = _answer_command(wait.shared)
        self._say(f"Nobody can answer here. For {wait.timeout:g} s it can be answered elsewhere: {command}")
        assert wait.watch is not None
        while (error := wait.watch()) is None:
            time.sleep(POLL_SECONDS)
        if isinstance(error, TimeoutError):
            raise error
        return None

    def _accept(self, remote_answer: str) -> str:
        self.elsewhere = True
        self._say(f"Answered from another terminal: {remote_answer}")
        return remote_answer

    def _timeout_error(self, wait: _Wait, *, ends_run: bool) -> TimeoutError | StopRun:
        """Return the exception for an unanswered question. Tell the user if the run goes on."""
        if not wait.by_user:
            return TimeoutError(f"The user did not answer within {wait.timeout:g} s.")
        reason = f"Nobody answered within {wait.timeout:g} s (--answer-timeout)"
        if ends_run:
            return StopRun(Outcome(Status.UNANSWERED, f"{reason}; the run is saved and ends."))
        self._say(f"{reason}; the run goes on.")
        return TimeoutError(f"{reason}.")


def _answer_command(question: LockedQuestion) -> str:
    return f"autoagent answer {question.id} TEXT"


ALERT_SECONDS = 10.0  # until the user is alerted to a waiting question
_COMMAND_SECONDS = 5.0  # that the alert command may take


@dataclass(frozen=True, slots=True)
class UserAlert:
    """Alert the user. `ring` rings the bell. `command` is a shell line that receives the message as JSON, or ''."""

    ring: Callable[[], None]
    command: str

    @contextmanager
    def if_waiting(self, notice: Mapping[str, Any]) -> Iterator[None]:
        """Alert the user if this block still waits for an answer after a while."""
        timer = threading.Timer(ALERT_SECONDS, self.send, (notice,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def send(self, notice: Mapping[str, Any]) -> None:
        self.ring()
        if not self.command:
            return
        import subprocess  # only here, as few users set a command

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
