"""System calls that Python has no function for. ctypes is loaded with the first: `--help` needs none."""

from __future__ import annotations

import functools
import os
from typing import Any


def prctl(option: int, *arguments: int) -> int:
    """Call prctl(2). Raises OSError."""
    return _call("prctl", option, *(*arguments, 0, 0, 0, 0)[:4])


def syscall(number: int, *arguments: object) -> int:
    """Call syscall(2). Integers are passed as long, the rest as ctypes passes it. Raises OSError."""
    return _call("syscall", number, *arguments)


def inotify_init() -> int:
    """Call inotify_init1(2): return a descriptor that blocks nobody. Raises OSError."""
    return _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)


def inotify_add(descriptor: int, path: bytes, what: int) -> int:
    """Call inotify_add_watch(2). Raises OSError."""
    return _call("inotify_add_watch", descriptor, path, what)


def _call(name: str, *arguments: object) -> int:
    libc, long, errno_of = _loaded()
    value = int(getattr(libc, name)(*(long(each) if isinstance(each, int) else each for each in arguments)))
    if value < 0:
        code = errno_of()
        raise OSError(code, os.strerror(code))
    return value


@functools.cache
def _loaded() -> tuple[Any, Any, Any]:
    """Return the C library, its `long`, and what gives its last error. Raises ImportError without ctypes."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True), ctypes.c_long, ctypes.get_errno
