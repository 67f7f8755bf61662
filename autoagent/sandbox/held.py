"""Limits of the system's own on a program that bubblewrap holds at its start until it has them.

A shell in between could take them on as well; to start one for each program costs a millisecond.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import select
from collections.abc import Mapping
from dataclasses import dataclass

START_SECONDS = 120.0  # until bubblewrap has made the first process; a very busy machine takes long for namespaces


@dataclass(frozen=True, slots=True)
class Held:
    """A program that is not begun before `until` is closed; its first process is named on `named` (bwrap's --info-fd).

    `limits` are of `resource.setrlimit`, for that process and all that comes from it.
    """

    named: int
    until: int
    limits: Mapping[int, int]

    def limit(self) -> None:
        """Give the program its limits. Raises OSError where it cannot have them; it must be killed before `close`."""
        pid = self._first_process()
        try:
            for which, wanted in self.limits.items() if pid else ():
                most = resource.prlimit(pid, which)[1]
                least = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
                resource.prlimit(pid, which, (least, least))
        except ProcessLookupError:  # bubblewrap has failed; its end will say so
            pass

    def close(self) -> None:
        """Close both descriptors, by which the program begins."""
        os.close(self.named)
        os.close(self.until)

    def _first_process(self) -> int:
        """Its pid; 0 where bubblewrap failed before there was one. Read to the end, or bubblewrap has no reader."""
        poll = select.poll()
        poll.register(self.named, select.POLLIN)
        told = b""
        while b"}" not in told:
            if not poll.poll(1000 * START_SECONDS):
                raise TimeoutError(errno.ETIMEDOUT, f"bubblewrap does not begin within {START_SECONDS:g} s")
            piece = os.read(self.named, 4096)
            if not piece:
                return 0
            told += piece
        found = re.search(rb'"child-pid": ([0-9]+)', told)
        return int(found[1]) if found else 0
