"""Track changed names in a folder tree through kernel notifications (inotify).

Not covered: changes through memory-mapped files, and changes by other machines on a shared file system. Callers that
need these scan everything.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from autoagent.workspace.syscalls import call

_EVENT = struct.Struct("iIII")  # struct inotify_event: watch, mask, cookie, bytes of the name
_MODIFY, _ATTRIBUTES, _MOVE, _CREATE, _DELETE, _SELF = 0x2, 0x4, 0xC0, 0x100, 0x200, 0xC00  # linux/inotify.h
_UNRELIABLE = 0x2000 | 0x4000  # the file system was unmounted, or events were dropped
_IGNORED, _IS_FOLDER = 0x8000, 0x4000_0000
_ONLY_FOLDERS, _NOT_UNLINKED = 0x0100_0000, 0x0400_0000
_EVENT_MASK = _MODIFY | _ATTRIBUTES | _MOVE | _CREATE | _DELETE | _SELF | _ONLY_FOLDERS | _NOT_UNLINKED
_BUFFER_BYTES = 1 << 16
_MAX_CHANGED_NAMES = 5_000  # with more, a full scan is no slower


class ChangeTracker:
    """Collect the changes in the added folders. If the kernel loses track, everything may have changed."""

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
        """Start again, before the first folder is added and scanned."""
        self.take()
        self._folders = {}
        if self._descriptor < 0:
            with suppress(OSError, ImportError, AttributeError):  # no ctypes, no such call, too many instances
                self._descriptor = call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)

    def add(self, where: str, descriptor: int) -> None:
        """Watch an open folder from now on, under the name `where`."""
        if self._descriptor >= 0:
            try:
                path = f"/proc/self/fd/{descriptor}".encode()
                self._folders[call("inotify_add_watch", self._descriptor, path, _EVENT_MASK)] = where
            except OSError:  # the user's limit is reached, or there is no /proc
                self.forget()

    def take(self) -> dict[str, set[str]] | None:
        """Return the names changed since the last call, by folder.

        None means unknown: a folder was created or deleted, its mode changed, or there were too many changes.
        """
        changed: dict[str, set[str]] = {}
        with suppress(BlockingIOError):  # no more events
            while self._descriptor >= 0:
                events, position = os.read(self._descriptor, _BUFFER_BYTES), 0
                while position < len(events):
                    watch, mask, _, length = _EVENT.unpack_from(events, position)
                    name = events[position + _EVENT.size : position + _EVENT.size + length].rstrip(b"\0")
                    position += _EVENT.size + length
                    where = self._folders.get(watch)
                    if mask & _UNRELIABLE or (where is not None and mask & (_IS_FOLDER | _SELF | _IGNORED)):
                        self.forget()
                    elif where is not None and name:
                        changed.setdefault(where, set()).add(os.fsdecode(name))
                if sum(map(len, changed.values())) > _MAX_CHANGED_NAMES:
                    self.forget()
        return changed if self._descriptor >= 0 else None
