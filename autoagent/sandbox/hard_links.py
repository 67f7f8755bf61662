"""Files of a workspace that have hard links elsewhere: to write to one is to write outside.

They are looked for when a sandbox is opened, since none can be made from inside one.

Not covered: links that the user makes while the sandbox is open, and files beyond those looked at.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autoagent.workspace.gate import Workspace, shown

MOST_LOOKED_AT = 50_000  # files and folders; half a second
_MOST_NAMED = 3

_Identity = tuple[int, int]  # of a file system, and of a file in it


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """The files with links outside, by their path. `whole`: the workspace was looked through to its end."""

    identities: Mapping[str, _Identity]
    whole: bool

    def have_moved(self) -> bool:
        """Return whether one of them has moved: a program can rename its folder, or put a link there."""
        folders = {os.path.dirname(path) for path in self.identities}  # noqa: PTH120 - at the start of each program
        return any(os.path.realpath(folder) != folder for folder in folders) or any(
            _identity(path) != identity for path, identity in self.identities.items()
        )

    def gaps(self, root: Path, held: int = 0) -> tuple[str, ...]:
        """Return the gaps to report, given that the first `held` of them are read-only."""
        paths = [os.path.relpath(path, root) for path in self.identities][held:]
        more = f" and {len(paths) - _MOST_NAMED:,} more" if len(paths) > _MOST_NAMED else ""
        named = ", ".join(map(shown, paths[:_MOST_NAMED])) + more
        through = f"Programs can write to files outside the workspace through their hard links in it: {named}."
        unseen = (
            f"Only the first {MOST_LOOKED_AT:,} files of the workspace were searched for hard links to files outside, "
            "which programs could write through."
        )
        return (*((through,) if paths else ()), *(() if self.whole else (unseen,)))


def shared_files(workspace: Workspace) -> SharedFiles:
    """Return the regular files with hard links outside the workspace, without those protected there."""
    links: dict[_Identity, list[str]] = {}
    counts: dict[_Identity, int] = {}
    looked_at = 0
    for entry in _beneath(workspace):
        looked_at += 1
        if looked_at > MOST_LOOKED_AT:
            break
        with suppress(OSError):  # gone meanwhile
            status = entry.stat(follow_symlinks=False)
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                counts[identity] = status.st_nlink
                links.setdefault(identity, []).append(entry.path)
    shared = {path: identity for identity, paths in links.items() if len(paths) < counts[identity] for path in paths}
    return SharedFiles(dict(sorted(shared.items())), looked_at <= MOST_LOOKED_AT)


def _beneath(workspace: Workspace) -> Iterator[os.DirEntry[str]]:
    root = str(workspace.root)
    folders = [root]
    for folder in folders:  # grows while it is walked
        with suppress(OSError), os.scandir(folder) as entries:  # one that is not to be read, or gone meanwhile
            for entry in entries:
                if workspace.protected and workspace.is_protected(os.path.relpath(entry.path, root)):
                    continue
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def _identity(path: str) -> _Identity | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
