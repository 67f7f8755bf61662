"""Confine the calling process permanently, with Landlock, seccomp and no capabilities.

The filters of system calls are built as classic BPF programs for seccomp(2). Programs for another architecture than the
machine's (32 bits on 64) do not run under them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from autoagent.workspace.syscalls import call, prctl

OLDEST_ABI = 3  # the first to cover truncation
ABI_OF_SIGNALS = 6

# linux/landlock.h; the numbers of the calls are the same on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ALL_RIGHTS = (1 << 15) - 1  # of ABI 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
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
        return call("syscall", _CREATE_RULESET, None, 0, _VERSION_FLAG)
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
        network: whether the process may create sockets.

    Raises:
        OSError: a part of the confinement failed. The process must not continue.
    """
    abi = landlock_abi()
    tcp = _TCP if abi >= _ABI_OF_TCP and not network else 0
    attributes = struct.pack("=QQQ", _ALL_RIGHTS, tcp, _SCOPES if abi >= ABI_OF_SIGNALS else 0)
    size = 24 if abi >= ABI_OF_SIGNALS else 16 if abi >= _ABI_OF_TCP else 8  # as much of the struct as the kernel knows
    rules = call("syscall", _CREATE_RULESET, attributes, size, 0)
    for path in visible:
        _allow(rules, path, _READ)
    for path in devices:
        _allow(rules, path, _READ_FILE | _WRITE_FILE)
    for path in writable:
        for place, rights in _writable_parts(path, out_of_reach):
            _allow(rules, place, rights)
    with suppress(OSError):  # fails for an ordinary user (without any) and past the last capability
        for capability in range(64):
            prctl(_PR_CAPBSET_DROP, capability)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    no_capabilities = bytes(24)
    call("capset", struct.pack("=Ii", _CAPABILITY_VERSION, 0), no_capabilities)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    call("syscall", _RESTRICT_SELF, rules, 0)
    os.close(rules)
    _install(call_filter(sockets=network, groups=False))


def keep_in_group() -> None:
    """Keep this process and all its descendants in its process group, so that one signal reaches them all.

    Leaving it only appears to work. A program that needs its own session, to have a terminal in it, fails. Raises
    OSError.
    """
    prctl(_PR_SET_NO_NEW_PRIVS, 1)  # required for an ordinary user's seccomp filter
    _install(_complete_filter(_refusals(_GROUP_CALLS.values(), 0)))


def _install(steps: bytes) -> None:
    program = _FilterProgram(len(steps) // _STEP_BYTES, steps)
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _writable_parts(folder: str, out_of_reach: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield paths in a folder with the rights for everything beneath. A folder with holes may only be listed."""
    if not any(place.startswith(folder + "/") for place in out_of_reach):
        yield folder, _ALL_RIGHTS & ~_MAKE_DEVICES
        return
    yield folder, _READ_DIR
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.path not in out_of_reach and not entry.is_symlink():
                yield from _writable_parts(entry.path, out_of_reach)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # missing, or unreadable for the user anyway
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        call("syscall", _ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


# Filters of system calls -------------------------------------------------------------------------------------------

# The name of each architecture in linux/audit.h, and its column in the table.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

_REFUSED_CALLS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "request_key": (249, 218),
    "setns": (308, 268),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
_MISSING_CALLS = {"clone3": (435, 435), "memfd_create": (319, 279)}  # callers fall back if a call seems to be missing
_SOCKET = (41, 198)
_CHMOD = {"chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)}  # 0: no such call
_SET_ID_BITS = 0o6000  # S_ISUID, S_ISGID
_GROUP_CALLS = {"setpgid": (109, 154), "setsid": (112, 157)}
_CLONE, _IOCTL = (56, 220), (16, 29)
_NAMESPACE_FLAGS = 0x7E020080  # all of CLONE_NEW*, linux/sched.h
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # asm-generic/ioctls.h
_X32_BIT = 0x40000000  # of the x32 calls of x86-64

# linux/bpf_common.h and linux/seccomp.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_STEP_BYTES = 8  # bytes of a struct sock_filter
# Offsets in struct seccomp_data; low halves of the arguments.
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32


def has_call_filter() -> bool:
    """Return whether there is a filter for this machine's architecture."""
    return os.uname().machine in _ARCHITECTURES


def call_filter(*, sockets: bool, groups: bool) -> bytes:
    """Return a filter (struct sock_filter[]) of system calls that no program needs or that have led out of sandboxes.

    It refuses access to other processes, namespaces, keys of the kernel, io_uring, faked input on a terminal, and files
    that run with the rights of their owner or group (the kernel takes these bits from a new file that is written to).
    It also refuses memory without a name (memfd), because no limit would see it. Without `sockets`, only pairs of
    sockets can be made. Without `groups`, processes stay in their group, as by `keep_in_group`.
    """
    column = _ARCHITECTURES[os.uname().machine][1]
    code = [*_refusals(_REFUSED_CALLS.values(), errno.EPERM), *_refusals(_MISSING_CALLS.values(), errno.ENOSYS)]
    if not sockets:
        code += _refusals([_SOCKET], errno.EACCES)
    if not groups:
        code += _refusals(_GROUP_CALLS.values(), 0)
    code += _test_argument(_CLONE[column], _FIRST, _refuse_if(_ANY_BIT, _NAMESPACE_FLAGS, errno.EPERM))
    for name, numbers in _CHMOD.items():
        if numbers[column]:
            mode = _THIRD if "at" in name else _SECOND
            code += _test_argument(numbers[column], mode, _refuse_if(_ANY_BIT, _SET_ID_BITS, errno.EPERM))
    fake_input = [*_refuse_if(_EQUAL, _TIOCSTI, errno.EPERM), *_refuse_if(_EQUAL, _TIOCLINUX, errno.EPERM)]
    return _complete_filter([*code, *_test_argument(_IOCTL[column], _SECOND, fake_input)])


def _complete_filter(code: list[bytes]) -> bytes:
    """Build the filter from its steps, each after the number of a system call."""
    architecture, column = _ARCHITECTURES[os.uname().machine]
    header = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, architecture, 1, 0),
        _instruction(_RETURN, _ERROR | errno.ENOSYS),
    ]
    header.append(_instruction(_LOAD, _NUMBER))
    x32 = _refuse_if(_AT_LEAST, _X32_BIT, errno.ENOSYS) if column == 0 else []
    return b"".join([*header, *x32, *code, _instruction(_RETURN, _ALLOW)])


def _refusals(calls: Iterable[tuple[int, int]], error: int) -> list[bytes]:
    column = _ARCHITECTURES[os.uname().machine][1]
    return [step for numbers in calls for step in _refuse_if(_EQUAL, numbers[column], error)]


def _instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Return one struct sock_filter. `yes` and `no` are the numbers of steps to skip."""
    return struct.pack("=HBBI", code, yes, no, value)


def _refuse_if(test: int, value: int, error: int) -> list[bytes]:
    return [_instruction(test, value, 0, 1), _instruction(_RETURN, _ERROR | error)]


def _test_argument(number: int, argument: int, tests: list[bytes]) -> list[bytes]:
    """Return the tests of one argument of this system call. A call that passes them is allowed."""
    body = [_instruction(_LOAD, argument), *tests, _instruction(_RETURN, _ALLOW)]
    return [_instruction(_EQUAL, number, 0, len(body)), *body]
