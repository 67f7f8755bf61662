"""The questions of all runs of this user that wait for an answer, in a folder of the user's own state.

A question is a file that its process holds locked as long as it waits: the lock goes with the process, however that
ends, so a question that nobody waits for is never shown as open. Its answer is a second file beside it. Who answers and
who ends a question does so under the lock of the folder: one of them is first, and the other one learns it.

The folder and what is read in it must belong to this user alone. Commands cannot reach it: it lies in the user's own
state, which the workspace gate refuses and the sandbox hides.

Not covered: a program without a sandbox, which can do here whatever its user can.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from autoagent.core.commands import Question, QuestionKind
from autoagent.core.errors import StateError

LONGEST = 100_000  # characters of an answer
_MOST = 2_000_000  # bytes of a file that is read
_QUESTION, _ANSWER = ".json", ".answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question that waits. `until` (seconds since the epoch) is when the run goes on or ends without an answer.

    `question` are its words, `text` what it is about where they do not say that. `command` is the call it decides on:
    name, arguments, risk, warning, preview; empty for other questions. One that `stays_open` is answered to a run that
    has gone on since.
    """

    id: str
    run: str
    question: str
    text: str = ""
    kind: QuestionKind = "text"
    yes: str = "y"
    no: str = "n"
    command: Mapping[str, Any] = field(default_factory=dict)
    agent: str = ""
    workspace: str = ""
    state_dir: str = ""
    pid: int = 0
    asked: float = 0.0
    until: float | None = None
    stays_open: bool = False

    @property
    def waits(self) -> bool:
        """Whether the run waits for the answer."""
        return self.until is None or time.time() < self.until

    @property
    def form(self) -> Question:
        """The form of its answer."""
        return Question(self.kind, self.yes, self.no, warned=bool(self.command.get("warning")))


class HeldQuestion:
    """A question that this process waits with. It is open until it is closed, or the process is gone."""

    def __init__(self, folder: int, file: int, id: str) -> None:
        self.id = id
        self._folder = folder
        self._file = file

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer. After `close` there is none."""
        if self._folder < 0:
            return False
        return _is_there(self._folder, self.id + _ANSWER)

    def close(self) -> str | None:
        """Ask no longer. Return the answer that came before, None if there is none."""
        if self._folder < 0:
            return None
        text = None
        try:
            with _locked(self._folder):
                with suppress(OSError, ValueError, KeyError, TypeError):  # what is no answer of ours is none
                    text = str(_read(self._folder, self.id + _ANSWER)["text"])
                _remove(self._folder, self.id)
        finally:
            os.close(self._file)
            os.close(self._folder)
            self._folder = -1
        return text


class OpenQuestions:
    """The open questions in a folder, which is made (mode 0700) with the first one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder

    def add(self, question: OpenQuestion) -> HeldQuestion:
        """Open a question. Raises StateError if it cannot be kept."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = self._opened()
            try:
                with _locked(folder):
                    self._live(folder)
                    file = _write(folder, question.id + _QUESTION, {"v": 1, **asdict(question)})
                    return HeldQuestion(folder, file, question.id)
            except BaseException:  # Ctrl-C too
                os.close(folder)
                raise
        except OSError as error:
            raise StateError(f"A question cannot be kept in {self._path}: {error.strerror}.") from error

    def all(self) -> list[OpenQuestion]:
        """Return the questions that are open, the oldest first. Forget those whose process is gone.

        Raises StateError.
        """
        try:
            with self._listing() as (_, found):
                return found
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateError(f"{self._path} cannot be read: {error.strerror}.") from error

    def answer(self, question: OpenQuestion, text: str) -> None:
        """Answer a question. Raises StateError if it is no longer open: somebody else was first, or its run is over."""
        try:
            with self._listing() as (folder, found):
                name = question.id + _ANSWER
                if any(each.id == question.id for each in found) and not _is_there(folder, name):
                    os.close(_write(folder, name, {"v": 1, "text": text, "t": time.time()}))
                    return
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StateError(f"The answer cannot be written in {self._path}: {error.strerror}.") from error
        raise StateError(f"{question.id} is no longer open: it was answered meanwhile, or the run has gone on.")

    def _opened(self) -> int:
        """Open the folder. Raises StateError if others may write in it."""
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not _is_private(os.fstat(folder)):
            os.close(folder)
            raise StateError(f"{self._path} must belong to you alone; remove it, or `chmod 700` it.")
        return folder

    @contextmanager
    def _listing(self) -> Iterator[tuple[int, list[OpenQuestion]]]:
        folder = self._opened()
        try:
            with _locked(folder):
                yield folder, self._live(folder)
        finally:
            os.close(folder)

    def _live(self, folder: int) -> list[OpenQuestion]:
        """Return the questions whose processes hold them, the oldest first, and remove the others."""
        names = os.listdir(folder)
        found = []
        for name in names:
            id = name.removesuffix(_QUESTION)
            if id == name:
                if name.removesuffix(_ANSWER) + _QUESTION not in names:
                    _remove(folder, name)  # of a process that was killed
                continue
            if not _is_held(folder, name):
                _remove(folder, id)
                continue
            with suppress(OSError, ValueError, KeyError, TypeError):  # no question that this version knows
                data, known = _read(folder, name), {each.name for each in fields(OpenQuestion)}
                found.append(OpenQuestion(**{name: value for name, value in data.items() if name in known}))
        return sorted(found, key=lambda question: (question.asked, question.id))


def pick(questions: Sequence[OpenQuestion], wanted: str) -> OpenQuestion:
    """Return the question of this id, or of the run, by any unique prefix, or '' for the only one there is.

    Of several of one run it is the one that the run waits for. Raises StateError if there is none, or more than one.
    """
    found = [question for question in questions if question.id == wanted or question.run == wanted]
    found = found or [question for question in questions if question.id.startswith(wanted)]
    if len({question.run for question in found}) == 1:
        found = [question for question in found if question.waits] or found
    if len(found) == 1:
        return found[0]
    if not questions:
        raise StateError("No question is open.")
    if not found:
        raise StateError(f"No question is open that begins with {wanted!r}; `autoagent inbox` lists them.")
    raise StateError(f"{len(found)} questions are open here; name one: {', '.join(each.id for each in found)}.")


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_held(folder: int, name: str) -> bool:
    """Return whether a process holds this question."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _read(folder: int, name: str) -> Any:
    """Return what one of our own files holds. Raises OSError, ValueError for one that is none."""
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        if not (stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and _is_private(found)):
            raise ValueError(f"{name} is no file of this user alone")
        return json.loads(opened.read(_MOST))


def _write(folder: int, name: str, value: Mapping[str, Any]) -> int:
    """Write a file at once, hold it locked, and return its descriptor."""
    draft = f".{name}.new"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        with os.fdopen(os.dup(file), "wb") as opened:
            opened.write(json.dumps(value).encode())
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:  # Ctrl-C too
        os.close(file)
        raise
    return file


def _remove(folder: int, id: str) -> None:
    for name in (id, id + _QUESTION, id + _ANSWER):
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
