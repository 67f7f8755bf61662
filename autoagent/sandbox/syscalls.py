"""System calls that Python has no function for."""

from __future__ import annotations

import ctypes
import os


def prctl(option: int, *arguments: int) -> int:
    """Call prctl(2). Raises OSError."""
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(_libc().prctl(option, *padded))


def syscall(number: int, *arguments: object) -> int:
    """Call syscall(2). Integers are passed as long, the rest as ctypes passes it. Raises OSError."""
    passed = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _checked(_libc().syscall(ctypes.c_long(number), *passed))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(value: int) -> int:
    if value < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return value
