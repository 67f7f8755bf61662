"""Power cuts: what a disk holds that has seen only what the kernel had to write by then.

The world is a real ext4 file system in a file, on a loop device. What a process writes stays in memory until it is
synced or the kernel's timers run out (five minutes here): the file under the device, copied in the instant after a
kill, is the disk after a power cut at that boundary. The copy is mounted in its place, the journal replayed, and the
run resumed from it.

The disk changes when something is synced, and at no other call. So a cut is tried just before each sync: of all that
leave the same disk it is the one with the most acknowledged.

Not covered: disks that lie about what they have written, or write sectors in part; other file systems.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from crash.boundaries import Boundary, killing
from crash.trial import Outcome, finish
from crash.world import world

SIZE = 48 << 20  # bytes of the file system
# No write before its time: not by the journal's timer, nor where ext4 guesses that a rename is to replace a file.
OPTIONS = "loop,commit=300,noauto_da_alloc"
SYNCS = ("fsync", "fdatasync")


@cache
def missing() -> str:
    """Why no power cut can be shown here; '' where it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root can mount a file system on a loop device"
    if shutil.which("mkfs.ext4") is None:
        return "there is no mkfs.ext4"
    with tempfile.TemporaryDirectory() as folder:
        try:
            with _disk(Path(folder)):
                return ""
        except subprocess.CalledProcessError as error:
            return f"no file system can be mounted on a loop device: {error.stderr.decode(errors='replace').strip()}"


def cuts(found: Iterable[Boundary]) -> list[Boundary]:
    """Of these boundaries one for each state of the disk."""
    return [boundary for boundary in found if boundary.call in SYNCS]


def cut_at(boundary: Boundary) -> Outcome:
    """Cut the power of a run there, resume it from what the disk holds, and check. Raises AssertionError."""
    with (
        tempfile.TemporaryDirectory(prefix="power") as folder,
        _disk(Path(folder)) as disk,
        world(disk.mounted / "home") as home,
    ):
        _run("sync", "-f", str(disk.mounted))
        cut = home.begin(*killing(boundary))
        if cut.code == 0:
            return Outcome(False, len(home.log()), False)
        assert cut.code == -9, cut.err
        disk.lose_power()
        before = home.check_crash(cut, power=True)
        return finish(home, before, cut)


class Disk:
    """A file system that is mounted, and the file it is in."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk"
        self.mounted = folder / "mounted"

    def lose_power(self) -> None:
        """Go on with what has been written to the disk by now."""
        copy = self._image.with_name("after")
        _run("cp", "--sparse=always", str(self._image), str(copy))
        _run("umount", str(self.mounted))
        copy.replace(self._image)
        self.mount()

    def make(self) -> None:
        with self._image.open("wb") as file:
            file.truncate(SIZE)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self._image))
        self.mounted.mkdir()
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", OPTIONS, str(self._image), str(self.mounted))


@contextmanager
def _disk(folder: Path) -> Iterator[Disk]:
    disk = Disk(folder.resolve())
    disk.make()
    try:
        yield disk
    finally:
        _run("umount", "--lazy", str(disk.mounted))


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True)
