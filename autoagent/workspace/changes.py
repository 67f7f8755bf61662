"""The names in a folder tree that have changed since they were last asked about, as the kernel notes them (inotify).

Not covered: what a program changes through memory that it has mapped, and what another machine changes on a file system
that both have mounted. Who cannot do without these looks at everything.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from autoagent.workspace.syscalls import call

_EVENT = struct.Struct("iIII")  # struct inotify_event: watch, what, cookie, bytes of the name
_MODIFIED, _ATTRIBUTES, _MOVED, _CREATED, _DELETED, _ITSELF = 0x2, 0x4, 0xC0, 0x100, 0x200, 0xC00
_LOST = 0x2000 | 0x4000  # the file system is gone, events were dropped
_NO_LONGER, _OF_FOLDER = 0x8000, 0x4000_0000
_ONLY_FOLDERS, _NOT_UNLINKED = 0x0100_0000, 0x0400_0000
_ASKED = _MODIFIED | _ATTRIBUTES | _MOVED | _CREATED | _DELETED | _ITSELF | _ONLY_FOLDERS | _NOT_UNLINKED
_PIECE = 1 << 16  # bytes of events at once
_MOST = 5_000  # changes; to look at everything is not slower then


class Changes:
    """The changes in the folders that were added. Where the kernel cannot tell, everything may have changed."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._folders: dict[int, str] = {}

    def __del__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget everything until folders are added again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._folders = -1, {}

    def begin(self) -> None:
        """Start over, before the first folder is added and looked at."""
        self.taken()
        self._folders = {}
        if self._descriptor < 0:
            with suppress(OSError, ImportError, AttributeError):  # no ctypes, no such call, too many of them
                self._descriptor = call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)

    def add(self, where: str, folder: int) -> None:
        """Note from now on what changes in an open folder, which is called `where`."""
        if self._descriptor >= 0:
            try:
                path = f"/proc/self/fd/{folder}".encode()
                self._folders[call("inotify_add_watch", self._descriptor, path, _ASKED)] = where
            except OSError:  # there are as many as the user may have, or no /proc
                self.forget()

    def taken(self) -> dict[str, set[str]] | None:
        """Return the names that have changed since this was last asked, by folder, or None where that is not known.

        It is not known where a folder is new, gone or has another mode.
        """
        found: dict[str, set[str]] = {}
        with suppress(BlockingIOError):  # there are no more
            while self._descriptor >= 0:
                events, at = os.read(self._descriptor, _PIECE), 0
                while at < len(events):
                    watch, what, _, length = _EVENT.unpack_from(events, at)
                    name = events[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                    at += _EVENT.size + length
                    where = self._folders.get(watch)
                    if what & _LOST or (where is not None and what & (_OF_FOLDER | _ITSELF | _NO_LONGER)):
                        self.forget()
                    elif where is not None and name:
                        found.setdefault(where, set()).add(os.fsdecode(name))
                if sum(map(len, found.values())) > _MOST:
                    self.forget()
        return found if self._descriptor >= 0 else None
