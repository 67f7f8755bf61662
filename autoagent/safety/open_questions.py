"""Store the open questions of all this user's runs, in a folder of the user's own state.

A question is a file that its process holds locked while it waits: the lock ends with the process, so an abandoned
question is never shown as open. Its answer is a second file beside it. Answering and ending a question both need the
lock of the folder, so that the second notices the first.

The folder and its files must belong to this user alone. Commands cannot access it: the workspace gate refuses the
user's own state, and the sandbox hides it.

Not covered: a program without a sandbox can do here whatever its user can.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any

from autoagent.core.commands import Question, QuestionKind
from autoagent.core.errors import SettingsError, StateError
from autoagent.core.frozen import dataclass
from autoagent.safety.typed_answers import refusal

MAX_ANSWER_CHARACTERS = 100_000
_MAX_FILE_BYTES = 2_000_000  # read from a file
_QUESTION_SUFFIX, _ANSWER_SUFFIX = ".json", ".answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A waiting question.

    `until` (seconds since the epoch) is when the run continues or ends without an answer. `question` is its wording,
    `text` its subject where needed. `command` is the call to decide on: name, arguments, risk, warning, preview. It is
    empty for other questions. A question that `stays_open` can be answered after the run has continued.
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
        """Return whether the run waits for the answer."""
        return self.until is None or time.time() < self.until

    @property
    def form(self) -> Question:
        return Question(self.kind, self.yes, self.no, warned=bool(self.command.get("warning")))


class LockedQuestion:
    """Keep a question of this process open until it is closed or the process ends."""

    def __init__(self, folder: int, file: int, id: str) -> None:
        self.id = id
        self._folder = folder
        self._file = file

    @property
    def is_answered(self) -> bool:
        """Return whether there is an answer. After `close` there is none."""
        return self._folder >= 0 and _exists(self._folder, self.id + _ANSWER_SUFFIX)

    def close(self) -> str | None:
        """Close the question. Return the answer that came before, or None."""
        if self._folder < 0:
            return None
        text = None
        try:
            with _locked(self._folder):
                with suppress(OSError, ValueError, KeyError, TypeError):  # ignore answers of another form
                    text = str(_read(self._folder, self.id + _ANSWER_SUFFIX)["text"])
                _remove(self._folder, self.id)
        finally:
            os.close(self._file)
            os.close(self._folder)
            self._folder = -1
        return text


class OpenQuestions:
    """Manage the open questions in a folder, created (mode 0700) with the first question."""

    def __init__(self, folder: Path) -> None:
        self._path = folder

    def add(self, question: OpenQuestion) -> LockedQuestion:
        """Open a question. Raises StateError if it cannot be saved."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock_and_list() as (folder, _):
                file = _write(folder, question.id + _QUESTION_SUFFIX, {"v": 1, **asdict(question)})
                return LockedQuestion(os.dup(folder), file, question.id)
        except OSError as error:
            raise StateError(f"A question cannot be kept in {self._path}: {error.strerror}.") from error

    def all(self) -> list[OpenQuestion]:
        """Return the open questions, the oldest first. Remove those of ended processes. Raises StateError."""
        try:
            with self._lock_and_list() as (_, questions):
                return questions
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateError(f"{self._path} cannot be read: {error.strerror}.") from error

    def answer(self, question: OpenQuestion, text: str) -> None:
        """Answer a question. It stays open if the text is not an answer to it.

        Raises SettingsError if the text is not an answer, and StateError if the question is no longer open: it was
        answered, or its run is over.
        """
        if len(text) > MAX_ANSWER_CHARACTERS:
            raise SettingsError(f"An answer has at most {MAX_ANSWER_CHARACTERS:,} characters; the question stays open.")
        if reason := refusal(text, question.form):
            raise SettingsError(f"{reason} The question stays open.")
        try:
            with self._lock_and_list() as (folder, questions):
                name = question.id + _ANSWER_SUFFIX
                if any(each.id == question.id for each in questions) and not _exists(folder, name):
                    os.close(_write(folder, name, {"v": 1, "text": text, "t": time.time()}))
                    return
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StateError(f"The answer cannot be written in {self._path}: {error.strerror}.") from error
        raise StateError(f"{question.id} is no longer open: it was answered, or the run has continued.")

    @contextmanager
    def _lock_and_list(self) -> Iterator[tuple[int, list[OpenQuestion]]]:
        """Open and lock the folder, and yield it with its questions. Raises StateError if others may write in it."""
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not _is_private(os.fstat(folder)):
                raise StateError(f"{self._path} must belong to you alone; remove it, or `chmod 700` it.")
            with _locked(folder):
                yield folder, self._list_open(folder)
        finally:
            os.close(folder)

    def _list_open(self, folder: int) -> list[OpenQuestion]:
        """Return the questions held by their processes, the oldest first, and remove the others."""
        names = os.listdir(folder)
        questions = []
        for name in names:
            id = name.removesuffix(_QUESTION_SUFFIX)
            if id == name:
                if name.removesuffix(_ANSWER_SUFFIX) + _QUESTION_SUFFIX not in names:
                    _remove(folder, name)  # left by a killed process
                continue
            if not _is_locked(folder, name):
                _remove(folder, id)
                continue
            with suppress(OSError, ValueError, KeyError, TypeError):  # unknown to this version
                data, field_names = _read(folder, name), {field.name for field in fields(OpenQuestion)}
                questions.append(OpenQuestion(**{name: value for name, value in data.items() if name in field_names}))
        return sorted(questions, key=lambda question: (question.asked, question.id))


def pick(questions: Sequence[OpenQuestion], key: str) -> OpenQuestion:
    """Return the question with this id or run, or a unique prefix of it. '' means the only open question.

    If a run has several, it is the question that the run waits for. Raises StateError for none or more than one.
    """
    matches = [question for question in questions if question.id == key or question.run == key]
    matches = matches or [question for question in questions if question.id.startswith(key)]
    if len({question.run for question in matches}) == 1:
        matches = [question for question in matches if question.waits] or matches
    if len(matches) == 1:
        return matches[0]
    if not questions:
        raise StateError("No question is open.")
    if not matches:
        raise StateError(f"No open question begins with {key!r}; `autoagent inbox` lists them.")
    raise StateError(f"{len(matches)} questions are open; name one: {', '.join(each.id for each in matches)}.")


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _exists(folder: int, name: str) -> bool:
    with suppress(OSError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def _is_locked(folder: int, name: str) -> bool:
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
    """Return the content of a file of this user. Raises OSError, or ValueError for anybody else's file."""
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(file, "rb") as file_object:
        status = os.fstat(file)
        if not (stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and _is_private(status)):
            raise ValueError(f"{name} is not a file of this user alone")
        return json.loads(file_object.read(_MAX_FILE_BYTES))


def _write(folder: int, name: str, value: Mapping[str, Any]) -> int:
    """Write a file atomically, keep it locked, and return its descriptor."""
    draft = f".{name}.new"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        with os.fdopen(os.dup(file), "wb") as file_object:
            file_object.write(json.dumps(value).encode())
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:  # Ctrl-C too
        os.close(file)
        raise
    return file


def _remove(folder: int, id: str) -> None:
    for name in (id, id + _QUESTION_SUFFIX, id + _ANSWER_SUFFIX):
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
