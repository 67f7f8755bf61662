"""Act on a run from a page, by running the terminal's commands."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autoagent.core.errors import SettingsError, StateError
from autoagent.log.reader import holder_of, log_path, open_log_file, run_ids
from autoagent.safety.open_questions import OpenQuestions
from autoagent.text.sanitize import escape

QUICK_SECONDS = 60.0  # for a command to end
BEGIN_SECONDS = 4.0  # after which a running process counts as begun
ANSWER_SECONDS = 7 * 24 * 3600  # that a question of a run begun here stays open
_MAX_OUTPUT_CHARACTERS = 4_000


def is_locked(log: Path) -> bool:
    """Return whether a process has locked a log for writing."""
    try:
        with open_log_file(log) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


class Actions:
    """Run the actions of one state folder, by name.

    Each action takes the fields of a request and returns a line to show, or raises StateError or SettingsError with the
    reason. `questions` are the open questions of all the user's runs. `check_made_here` raises SetupError for a run
    that others made, which may be shown but not continued.
    """

    def __init__(self, state_dir: Path, questions: Path, check_made_here: Callable[[str], None]) -> None:
        self._state_dir = state_dir.absolute()
        self._check_made_here = check_made_here
        self.questions = OpenQuestions(questions)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._by_name: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
            "answer": self._answer,
            "pause": lambda fields: self._signal(fields, signal.SIGINT, "Paused: the run asks what to do."),
            "stop": lambda fields: self._signal(fields, signal.SIGTERM, "The run is saved and stops."),
            "undo": self._undo,
            "fork": self._fork,
            "resume": self._resume,
            "pin": self._memory,
            "unpin": self._memory,
            "forget": self._memory,
        }

    def close(self) -> None:
        """Detach from the runs begun here, so that they continue."""
        for process in self._processes:
            if process.poll() is None:
                process.returncode = 0  # not waited for: suppress Popen's warning

    def act(self, fields: Mapping[str, Any]) -> str:
        action = self._by_name.get(str(fields.get("action")))
        if action is None:
            raise SettingsError(f"There is no action {str(fields.get('action'))!r}.")
        return action(fields)

    def _answer(self, fields: Mapping[str, Any]) -> str:
        id, text = str(fields.get("question")), str(fields.get("text", ""))
        question = next((question for question in self.questions.all() if question.id == id), None)
        if question is None:
            raise StateError(f"{escape(id)} is no longer open: it was answered, or the run has continued.")
        self.questions.answer(question, text)
        return "Answered."

    def _signal(self, fields: Mapping[str, Any], number: signal.Signals, message: str) -> str:
        """Send a signal to the process that holds the log of the run."""
        run = self._run_id(fields)
        log = log_path(self._state_dir, run)
        pid = holder_of(log)[0].rpartition(" ")[2]
        if not (pid.isdecimal() and is_locked(log)):
            raise StateError(f"No process works on the run {run}.")
        try:
            pidfd = os.pidfd_open(int(pid))  # from now on it is that process or none
        except OSError as error:
            raise StateError(f"The process {pid} of the run {run} cannot be reached: {error.strerror}.") from error
        try:
            if not is_locked(log) or holder_of(log)[0].rpartition(" ")[2] != pid:
                raise StateError(f"The run {run} has just ended.")
            signal.pidfd_send_signal(pidfd, number)
        except OSError as error:
            raise StateError(f"The process {pid} cannot be reached: {error.strerror}.") from error
        finally:
            os.close(pidfd)
        return message

    def _undo(self, fields: Mapping[str, Any]) -> str:
        to = [] if fields.get("redo") or fields.get("to") is None else [f"--to={_whole_number(fields, 'to')}"]
        flags = [f"--{flag}" for flag in ("redo", "force") if fields.get(flag)]
        return self._run_command(["undo", *to, *flags], self._run_made_here(fields))

    def _fork(self, fields: Mapping[str, Any]) -> str:
        feedback = str(fields.get("text", "")).strip()
        flags = [f"--feedback={feedback}"] if feedback else []
        return self._start_run(["fork", f"--at={_whole_number(fields, 'at')}", *flags], self._run_made_here(fields))

    def _resume(self, fields: Mapping[str, Any]) -> str:
        wish = str(fields.get("text", "")).strip()
        return self._start_run(["resume"], self._run_made_here(fields), *([wish] if wish else []))

    def _memory(self, fields: Mapping[str, Any]) -> str:
        return self._run_command(["memory", fields["action"]], str(_whole_number(fields, "memory")))

    def _run_id(self, fields: Mapping[str, Any]) -> str:
        run = str(fields.get("run"))
        if run not in run_ids(self._state_dir):
            raise StateError(f"There is no run {escape(run)!r} in {self._state_dir}.")
        return run

    def _run_made_here(self, fields: Mapping[str, Any]) -> str:
        """Return the run of a request, for a command that gets --state-dir and so does not check where it was made."""
        run = self._run_id(fields)
        self._check_made_here(run)
        return run

    def _run_command(self, words: Sequence[str], *operands: str) -> str:
        """Run a command of this program to its end, and return its output."""
        try:
            process = subprocess.run(  # noqa: S603 - this program; what the page sent was checked, or is one argument
                self._command(words, operands),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=QUICK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StateError(f"{words[0]} has not ended after {QUICK_SECONDS:.0f} s; it was stopped.") from None
        if process.returncode:
            raise StateError(_printable(process.stderr or process.stdout))
        return _printable(process.stdout)

    def _start_run(self, words: Sequence[str], *operands: str) -> str:
        """Start a run that asks its questions here. It continues when the page's server ends."""
        flags = ["--plain", f"--answer-timeout={ANSWER_SECONDS}", "--if-unanswered=end"]
        self._processes = [process for process in self._processes if process.poll() is None]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(  # noqa: S603 - as above
                self._command([*words, *flags], operands),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(BEGIN_SECONDS)
            except subprocess.TimeoutExpired:
                self._processes.append(process)
                return "Started. Its questions appear here."
            output.seek(0)
            text = _printable(output.read())
        if code in (1, 2, 3):
            raise StateError(text)
        return text

    def _command(self, words: Sequence[str], operands: Sequence[str]) -> list[str]:
        folder = f"--state-dir={self._state_dir}"
        return [sys.executable, "-P", "-m", "autoagent", *words, folder, "--", *operands]


def _whole_number(fields: Mapping[str, Any], name: str) -> int:
    """Return a whole number from the request. Raises SettingsError for anything else."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**9:
        raise SettingsError(f"{name} must be a whole number from 0.")
    return value


def _printable(output: bytes) -> str:
    """Return the end of a command's output, with hidden characters escaped."""
    return escape(output.decode("utf-8", "replace").strip()[-_MAX_OUTPUT_CHARACTERS:])
