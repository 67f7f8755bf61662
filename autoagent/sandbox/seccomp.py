"""Build system call filters, as classic BPF programs for seccomp(2).

Programs for another architecture than the machine's (32 bits on 64) do not run under them.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable

# The name of each architecture in linux/audit.h, and its column in the table.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

_REFUSED = {
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
_UNKNOWN = {"clone3": (435, 435), "memfd_create": (319, 279)}  # callers fall back if a call seems to be missing
_SOCKET = (41, 198)
_CHMOD = {"chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)}  # 0: no such call
_OTHERS_RIGHTS = 0o6000  # S_ISUID, S_ISGID
_LEAVE_GROUP = {"setpgid": (109, 154), "setsid": (112, 157)}
_CLONE, _IOCTL = (56, 220), (16, 29)
_NEW_NAMESPACE = 0x7E020080  # all of CLONE_NEW*, linux/sched.h
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # asm-generic/ioctls.h
_X32 = 0x40000000  # marks the x32 calls of x86-64

# linux/bpf_common.h and linux/seccomp.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
STEP = 8  # bytes of a struct sock_filter
# Offsets in struct seccomp_data; low halves of the arguments.
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32


def is_known() -> bool:
    """Return whether there is a filter for this machine's architecture."""
    return os.uname().machine in _ARCHITECTURES


def guard(*, sockets: bool, groups: bool) -> bytes:
    """Refuse system calls that no agent's program needs or that have led out of sandboxes. Struct sock_filter[].

    That is looking into other processes, namespaces, keys of the kernel, io_uring, faked input on a terminal, and files
    that run with the rights of their owner or group (the kernel takes these bits from a new file that is written to);
    memory without a name (memfd), because no limit would see it; without `sockets` making any, but for pairs; without
    `groups` see `group_keeper`.
    """
    column = _ARCHITECTURES[os.uname().machine][1]
    code = [*_refusals(_REFUSED.values(), errno.EPERM), *_refusals(_UNKNOWN.values(), errno.ENOSYS)]
    if not sockets:
        code += _refusals([_SOCKET], errno.EACCES)
    if not groups:
        code += _refusals(_LEAVE_GROUP.values(), 0)
    code += _with_argument(_CLONE[column], _FIRST, _when(_ANY_BIT, _NEW_NAMESPACE, errno.EPERM))
    for name, numbers in _CHMOD.items():
        if numbers[column]:
            mode = _THIRD if "at" in name else _SECOND
            code += _with_argument(numbers[column], mode, _when(_ANY_BIT, _OTHERS_RIGHTS, errno.EPERM))
    faked = [*_when(_EQUAL, _TIOCSTI, errno.EPERM), *_when(_EQUAL, _TIOCLINUX, errno.EPERM)]
    return _whole([*code, *_with_argument(_IOCTL[column], _SECOND, faked)])


def group_keeper() -> bytes:
    """Keep processes in their group, so that one signal reaches them all. Leaving it only appears to work.

    A program that needs its own session, to have a terminal in it, fails.
    """
    return _whole(_refusals(_LEAVE_GROUP.values(), 0))


def _whole(code: list[bytes]) -> bytes:
    """Build the filter from its steps, each after the number of a system call."""
    architecture, column = _ARCHITECTURES[os.uname().machine]
    begin = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, 1, 0), _step(_RETURN, _ERROR | errno.ENOSYS)]
    begin.append(_step(_LOAD, _NUMBER))
    x32 = _when(_AT_LEAST, _X32, errno.ENOSYS) if column == 0 else []
    return b"".join([*begin, *x32, *code, _step(_RETURN, _ALLOW)])


def _refusals(calls: Iterable[tuple[int, int]], error: int) -> list[bytes]:
    column = _ARCHITECTURES[os.uname().machine][1]
    return [step for call in calls for step in _when(_EQUAL, call[column], error)]


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Return one struct sock_filter. `yes` and `no` are the numbers of steps to skip."""
    return struct.pack("=HBBI", code, yes, no, value)


def _when(test: int, value: int, error: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, _ERROR | error)]


def _with_argument(number: int, argument: int, tests: list[bytes]) -> list[bytes]:
    """Return the tests of one argument of this system call. A call that passes them is allowed."""
    body = [_step(_LOAD, argument), *tests, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(body)), *body]
