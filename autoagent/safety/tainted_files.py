"""A small durable record of the files of the workspace that hold text from outside: taint outlives the run.

One JSON object a line, appended and synced before the run goes on. A file that is still as it was left then is no data
of the user's. One that was touched since may be both: it stays tainted, and it counts as the user's own.

Not covered: tainted files that something other than the agent copied, and taint that another state folder knows of.
"""

from __future__ import annotations

import filecmp
import json
import os
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

from autoagent.core.codec import lines_of
from autoagent.core.durable_files import add_lines
from autoagent.core.errors import StateError
from autoagent.workspace.gate import folder_named

LOOKED_AT = 20_000  # files searched for one of the user's own; if there are more, one is assumed


@dataclass(frozen=True, slots=True)
class Mark:
    """A workspace path, what tainted it, when (event `seq` of a run), and how the file was left.

    `changed` is the time of its last change of any kind (ctime, which no program can set back). For a folder, which
    stands for all that is in it, the time of the mark. Both in nanoseconds since the epoch; 0 where what is there may
    be the user's as well.
    """

    workspace: str
    path: str
    source: str
    run: str
    seq: int
    size: int
    changed: int


class TaintedFiles:
    """The tainted files beneath `workspace_root`. `path` is the record, in a folder of the agent's own.

    Paths are relative to the root, or absolute inside it. Raises StateError if the record cannot be used. The agents
    of a run share one, each in a thread of its own.
    """

    def __init__(self, path: Path, workspace_root: Path) -> None:
        self._path = path
        self._root = Path(os.path.realpath(workspace_root))
        self._marks: dict[str, Mark] = {}
        for mark in self._recorded():
            self._marks[mark.path] = mark

    def mark(self, paths: Sequence[str], source: str, *, run: str = "", seq: int = 0, shared: bool = False) -> None:
        """Record files or folders as tainted by `source` from this event on. What is not there is passed over.

        `shared`: they may hold the user's own data as well. Folding events again, for a resumed run, changes nothing.
        """
        fresh = []
        for path in paths:
            where = self._locate(path)
            known = self._marks.get(where)
            if known is not None and known.run == run and known.seq >= seq:
                continue
            if (mark := self._as_left(where, source, run, seq)) is not None:
                self._marks[where] = replace(mark, changed=0) if shared else mark
                fresh.append(self._marks[where])
        if fresh:
            self._append(fresh)

    def inherit(self, origin: Path, runs: Collection[str], events: int) -> None:
        """Take up the marks of the workspace `origin`, of which this one is a copy from when the log of `runs` had so
        many events.

        Later marks of these runs count only if the file is here as they left it there. A file that has changed, or may
        have, counts as the user's own too.
        """
        theirs = TaintedFiles(self._path, origin)
        found: dict[str, Mark] = {}
        for mark in theirs._recorded():
            same = all(theirs._is_left_by(mark, file) and theirs._equals(self, file) for file in self._files(mark.path))
            if (same or mark.run not in runs or mark.seq < events) and (
                mine := self._as_left(mark.path, mark.source, mark.run, mark.seq)
            ):
                found[mark.path] = mine if same else replace(mine, changed=0)
        if found:
            self._marks |= found
            self._append(list(found.values()))

    def source_of(self, path: str) -> str:
        """Return what tainted the file, its folder, or a file in the folder, or '' if nothing did."""
        where = self._locate(path)
        if (mark := self._nearest(where)) is not None:
            return mark.source
        if not self._marks or not (self._root / where).is_dir():
            return ""
        beneath = "" if where == "." else f"{where}/"
        return next((m.source for m in list(self._marks.values()) if m.path.startswith(beneath)), "")

    def holds_own(self, path: str, made: Collection[str] = ()) -> bool:
        """Return whether the file, or one in the folder, is the user's: not `made`, nor tainted and unchanged."""
        where = self._locate(path)
        for count, file in enumerate(self._files(where)):
            mark = self._nearest(file)
            if count == LOOKED_AT or (file not in made and not (mark and self._is_left_by(mark, file))):
                return True
        return False

    def _locate(self, path: str) -> str:
        return os.path.relpath(os.path.realpath(self._root / folder_named(path)), self._root)

    def _files(self, where: str) -> Iterator[str]:
        """Yield the file itself, or those beneath the folder, without the agent's own."""
        place = self._root / where
        if not place.is_dir():
            yield from [where] if os.path.lexists(place) else []
            return
        own = os.path.realpath(self._path.parent)
        for folder, folders, names in os.walk(place):
            folders[:] = [name for name in folders if os.path.realpath(os.path.join(folder, name)) != own]  # noqa: PTH118
            yield from (os.path.relpath(os.path.join(folder, name), self._root) for name in names)  # noqa: PTH118

    def _as_left(self, where: str, source: str, run: str, seq: int) -> Mark | None:
        """Return the mark of what is there now, or None if nothing is."""
        try:
            status = (self._root / where).lstat()
        except OSError:  # deleted since: nothing is left that could be read
            return None
        changed = time.time_ns() if stat.S_ISDIR(status.st_mode) else status.st_ctime_ns
        return Mark(str(self._root), where, source, run, seq, status.st_size, changed)

    def _is_left_by(self, mark: Mark, file: str) -> bool:
        try:
            status = (self._root / file).lstat()
        except OSError:  # gone while its folder was looked through
            return True
        if mark.path != file:
            return status.st_ctime_ns <= mark.changed
        return (status.st_size, status.st_ctime_ns) == (mark.size, mark.changed)

    def _equals(self, other: TaintedFiles, file: str) -> bool:
        """Return whether the file is the same in the other workspace, or False if that cannot be compared."""
        with suppress(OSError):
            return filecmp.cmp(self._root / file, other._root / file, shallow=False)
        return False

    def _nearest(self, where: str) -> Mark | None:
        """Return the mark of the file or of the nearest folder above it, or None."""
        places = (where, *map(str, PurePosixPath(where).parents))
        return next((self._marks[place] for place in places if place in self._marks), None)

    # The record --------------------------------------------------------------------------------------------------

    def _recorded(self) -> Iterator[Mark]:
        """Yield the marks of this workspace, oldest first. A line torn by a crash is skipped: its event comes again."""
        try:
            yield from (mark for mark in lines_of(Mark, self._path) if mark.workspace == str(self._root))
        except OSError as error:
            raise StateError(f"The record of tainted files {self._path} cannot be read: {error.strerror}.") from error

    def _append(self, marks: Sequence[Mark]) -> None:
        try:
            add_lines(self._path, "".join(f"{json.dumps(asdict(mark))}\n" for mark in marks))
        except OSError as error:
            raise StateError(
                f"The record of tainted files {self._path} cannot be written: {error.strerror}."
            ) from error
