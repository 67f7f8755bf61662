"""Record the workspace files that hold outside text, durably: taint outlives the run.

One JSON object per line, appended and synced before the run goes on. A marked file holds no data of the user until it
is changed again. From then on it may hold both: it stays tainted and also counts as the user's own.

Not covered: copies of tainted files made by others, and taint known only to another state folder.
"""

from __future__ import annotations

import filecmp
import json
import os
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath

from autoagent.core.codec import read_records
from autoagent.core.durable_files import add_lines
from autoagent.core.errors import StateError
from autoagent.core.frozen import dataclass
from autoagent.workspace.gate import folder_or_root

MAX_SEARCHED_FILES = 20_000  # for one of the user's own; beyond this, one is assumed


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a workspace path with its source of taint, the event (`seq` of a run), and the file's state.

    `changed` is the time of its last change of any kind (ctime, which no program can set back), or for a folder, which
    stands for its contents, the time of the mark. Both are in nanoseconds since the epoch, or 0 if the user's data may
    be there as well.
    """

    workspace: str
    path: str
    source: str
    run: str
    seq: int
    size: int
    changed: int


class TaintedFiles:
    """Manage the tainted files beneath `workspace_root`. `path` is the record, in a folder of the agent's own.

    Paths are relative to the root, or absolute inside it. Raises StateError. A run's agents share it across threads.
    """

    def __init__(self, path: Path, workspace_root: Path) -> None:
        self._path = path
        self._root = Path(os.path.realpath(workspace_root))
        self._marks = {mark.path: mark for mark in self._saved_marks()}

    def mark(self, paths: Sequence[str], source: str, *, run: str = "", seq: int = 0, shared: bool = False) -> None:
        """Record files or folders as tainted by `source` from this event on, unless they are missing.

        With `shared`, they may hold the user's own data as well. Replaying events for a resumed run changes nothing.
        """
        new_marks = []
        for path in paths:
            location = self._locate(path)
            old_mark = self._marks.get(location)
            if old_mark is not None and old_mark.run == run and old_mark.seq >= seq:
                continue
            if (mark := self._new_mark(location, source, run, seq)) is not None:
                self._marks[location] = replace(mark, changed=0) if shared else mark
                new_marks.append(self._marks[location])
        if new_marks:
            self._append(new_marks)

    def inherit(self, origin: Path, runs: Collection[str], events: int) -> None:
        """Adopt the marks of the workspace `origin`, copied here when the log of `runs` had `events` events.

        Later marks of these runs count only if the file is unchanged here. Any other file counts as the user's own too.
        """
        original = TaintedFiles(self._path, origin)
        marks: dict[str, Mark] = {}
        for mark in original._saved_marks():
            is_same = all(
                original._is_unchanged(mark, file) and original._is_same_in(self, file)
                for file in self._files(mark.path)
            )
            if (is_same or mark.run not in runs or mark.seq < events) and (
                own_mark := self._new_mark(mark.path, mark.source, mark.run, mark.seq)
            ):
                marks[mark.path] = own_mark if is_same else replace(own_mark, changed=0)
        if marks:
            self._marks |= marks
            self._append(list(marks.values()))

    def source_of(self, path: str) -> str:
        """Return the source of taint of a file or of its folder, or for a folder that of a file in it, or ''."""
        location = self._locate(path)
        if (mark := self._nearest_mark(location)) is not None:
            return mark.source
        if not self._marks or not (self._root / location).is_dir():
            return ""
        prefix = "" if location == "." else f"{location}/"
        return next((m.source for m in list(self._marks.values()) if m.path.startswith(prefix)), "")

    def has_user_data(self, path: str, own_files: Collection[str] = ()) -> bool:
        """Return whether a file, or any in the folder, is the user's: neither in `own_files` nor merely tainted."""
        location = self._locate(path)
        for count, file in enumerate(self._files(location)):
            mark = self._nearest_mark(file)
            if count == MAX_SEARCHED_FILES or (file not in own_files and not (mark and self._is_unchanged(mark, file))):
                return True
        return False

    def _locate(self, path: str) -> str:
        return os.path.relpath(os.path.realpath(self._root / folder_or_root(path)), self._root)

    def _files(self, location: str) -> Iterator[str]:
        """Yield the file itself, or those beneath the folder, without the agent's own."""
        place = self._root / location
        if not place.is_dir():
            yield from [location] if os.path.lexists(place) else []
            return
        own_folder = os.path.realpath(self._path.parent)
        for folder, folders, names in os.walk(place):
            folders[:] = [name for name in folders if os.path.realpath(os.path.join(folder, name)) != own_folder]  # noqa: PTH118
            yield from (os.path.relpath(os.path.join(folder, name), self._root) for name in names)  # noqa: PTH118

    def _new_mark(self, location: str, source: str, run: str, seq: int) -> Mark | None:
        try:
            status = (self._root / location).lstat()
        except OSError:  # deleted since: nothing is left to read
            return None
        change_time = time.time_ns() if stat.S_ISDIR(status.st_mode) else status.st_ctime_ns
        return Mark(str(self._root), location, source, run, seq, status.st_size, change_time)

    def _is_unchanged(self, mark: Mark, file: str) -> bool:
        try:
            status = (self._root / file).lstat()
        except OSError:  # deleted while its folder was listed
            return True
        if mark.path != file:
            return status.st_ctime_ns <= mark.changed
        return (status.st_size, status.st_ctime_ns) == (mark.size, mark.changed)

    def _is_same_in(self, other: TaintedFiles, file: str) -> bool:
        """Return whether the file is known to be the same in the other workspace."""
        with suppress(OSError):
            return filecmp.cmp(self._root / file, other._root / file, shallow=False)
        return False

    def _nearest_mark(self, location: str) -> Mark | None:
        """Return the mark of the file or of the nearest folder above it, or None."""
        places = (location, *map(str, PurePosixPath(location).parents))
        return next((self._marks[place] for place in places if place in self._marks), None)

    # The record --------------------------------------------------------------------------------------------------

    def _saved_marks(self) -> Iterator[Mark]:
        """Yield the marks of this workspace, oldest first. A torn line is skipped, as its event is replayed."""
        try:
            yield from (mark for mark in read_records(Mark, self._path) if mark.workspace == str(self._root))
        except OSError as error:
            raise StateError(f"The record of tainted files {self._path} cannot be read: {error.strerror}.") from error

    def _append(self, marks: Sequence[Mark]) -> None:
        try:
            add_lines(self._path, "".join(f"{json.dumps(asdict(mark))}\n" for mark in marks))
        except OSError as error:
            raise StateError(
                f"The record of tainted files {self._path} cannot be written: {error.strerror}."
            ) from error
