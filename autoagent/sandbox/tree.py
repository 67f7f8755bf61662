"""The process tree beneath a process. Its imports are loaded for every program that is supervised.

Not psutil: it takes a tenth of a second to import, for each of these programs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_PARENT = 1


def tree_of(root: int) -> dict[int, list[bytes]]:
    """Return the process `root` and its descendants by their pid, itself first, or empty if it is gone.

    With each come the fields of /proc/PID/stat from the state on, which is the third there (proc(5)).
    """
    processes = dict(_processes())
    children: dict[int, list[int]] = {}
    for pid, fields in processes.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    pids = [root] if root in processes else []
    for pid in pids:  # grows while it is walked
        pids += children.get(pid, [])
    return {pid: processes[pid] for pid in pids}


def _processes() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - several times faster, and done many times a second
        if not name.isdigit():
            continue
        try:
            descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY)
        except OSError:  # gone meanwhile
            continue
        try:
            line = os.read(descriptor, 4096)
        except OSError:  # gone meanwhile
            continue
        finally:
            os.close(descriptor)
        yield int(name), line[line.rfind(b")") + 2 :].split()  # the name of the program may hold spaces and brackets
