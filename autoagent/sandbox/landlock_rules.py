"""Confine the calling process permanently, with Landlock, seccomp and no capabilities."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress

from autoagent.sandbox import seccomp
from autoagent.workspace.syscalls import call, prctl

OLDEST_ABI = 3  # the first to cover truncation
ABI_OF_SIGNALS = 6

# linux/landlock.h; the numbers of the calls are the same on all architectures.
_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_EVERYTHING = (1 << 15) - 1  # the rights of ABI 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_TCP = 0b11  # bind and connect; ABI 4
_ABI_OF_TCP = 4
_SCOPES = 0b11  # abstract Unix sockets and signals

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAP_AMBIENT = 24, 38, 22, 47  # linux/prctl.h
_SECCOMP_MODE_FILTER, _PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
_CAPABILITY_VERSION = 0x20080522  # linux/capability.h


class _FilterProgram(ctypes.Structure):
    """Lay out struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def landlock_abi() -> int:
    """Return the kernel's Landlock version, or 0 without Landlock."""
    try:
        return call("syscall", _CREATE, None, 0, _VERSION)
    except OSError:  # ENOSYS, EOPNOTSUPP, or a seccomp filter on this process
        return 0


def confine(
    visible: Collection[str],
    writable: Collection[str],
    devices: Collection[str],
    out_of_reach: Collection[str],
    network: bool,
) -> None:
    """Confine this process and all its descendants.

    Args:
        visible: files and folders to be read and executed. Missing paths are ignored.
        writable: folders with all rights.
        devices: files to be read and written.
        out_of_reach: paths in a writable folder without any rights, whether they exist or not.
        network: whether it may create sockets.

    Raises:
        OSError: a part of the confinement failed. The process must not continue.
    """
    abi = landlock_abi()
    tcp = _TCP if abi >= _ABI_OF_TCP and not network else 0
    attributes = struct.pack("=QQQ", _EVERYTHING, tcp, _SCOPES if abi >= ABI_OF_SIGNALS else 0)
    size = 24 if abi >= ABI_OF_SIGNALS else 16 if abi >= _ABI_OF_TCP else 8  # as much of the struct as the kernel knows
    rules = call("syscall", _CREATE, attributes, size, 0)
    for path in visible:
        _allow(rules, path, _READ)
    for path in devices:
        _allow(rules, path, _READ_FILE | _WRITE_FILE)
    for path in writable:
        for place, rights in _around(path, out_of_reach):
            _allow(rules, place, rights)
    with suppress(OSError):  # fails for an ordinary user (without any) and past the last capability
        for capability in range(64):
            prctl(_PR_CAPBSET_DROP, capability)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header, none = struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)
    call("capset", header, none)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    call("syscall", _RESTRICT_SELF, rules, 0)
    os.close(rules)
    _filter(seccomp.guard(sockets=network, groups=False))


def keep_in_group() -> None:
    """Keep this process and all its descendants in its process group. Raises OSError."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)  # required for an ordinary user's seccomp filter
    _filter(seccomp.group_keeper())


def _filter(steps: bytes) -> None:
    program = _FilterProgram(len(steps) // seccomp.STEP, steps)
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _around(folder: str, out_of_reach: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the paths in a folder that get rights for everything beneath. A folder with holes is only listed."""
    if not any(place.startswith(folder + "/") for place in out_of_reach):
        yield folder, _EVERYTHING & ~_MAKE_DEVICES
        return
    yield folder, _READ_DIR
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.path not in out_of_reach and not entry.is_symlink():
                yield from _around(entry.path, out_of_reach)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # missing, or unreadable for the user anyway
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _ON_FILES
        call("syscall", _ADD_RULE, rules, _BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)
