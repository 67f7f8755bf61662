"""Let one process at a time write in a workspace, by a kernel lock (flock) on the folder itself.

The lock works across state folders, is released when the process ends, and is not inherited by the programs that the
agent starts. The kernel knows the holder, so no stale lock file is left behind.

Not covered: a workspace inside another workspace, and programs outside of runs, such as your editor.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from autoagent.core.errors import StateError
from autoagent.text.sanitize import escape


@contextmanager
def sole_writer(root: Path, warn: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock of the folder, and yield whether it is held. `warn` reports a file system without locks.

    Raises StateError with the other process and its run if the lock is held.
    """
    with ExitStack() as stack:
        try:
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = True
        except BlockingIOError:
            raise StateError(
                f"The workspace {escape(str(root))} is in use by {_holder(os.fstat(descriptor))}; wait until it ends, "
                "or start this run in another workspace (-w)."
            ) from None
        except OSError as error:
            is_held, reason = False, error.strerror
            warn(f"The workspace {escape(str(root))} cannot be locked ({reason}); do not start another run in it.")
        yield is_held


def _holder(folder: os.stat_result) -> str:
    """Describe the holder as `the run ID (process PID)`, or only what the kernel shows of it."""
    with suppress(OSError):
        locks = Path("/proc/locks").read_text()
        for lock in re.finditer(r"FLOCK +ADVISORY +WRITE +(\d+) +([0-9a-f]+):([0-9a-f]+):(\d+) ", locks):
            pid, device = lock[1], os.makedev(int(lock[2], 16), int(lock[3], 16))
            if (device, int(lock[4])) != (folder.st_dev, folder.st_ino):
                continue
            with suppress(OSError):
                for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):  # closed meanwhile
                        if run := re.search(r"/runs/([\w-]+)/events\.jsonl$", str(descriptor.readlink())):
                            return f"the run {run[1]} (process {pid})"
            return f"process {pid}"
    return "another process"  # for example in another container
