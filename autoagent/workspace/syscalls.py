"""Make system calls missing in Python. ctypes is loaded at the first call, which keeps `--help` fast."""

from __future__ import annotations

import functools
import os
from typing import Any


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library. Integers are passed as long. Raises OSError, ImportError without ctypes."""
    import ctypes

    function = getattr(_libc(), name)
    value = int(function(*(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)))
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value


def prctl(option: int, *arguments: int) -> int:
    """Call prctl(2). Raises OSError."""
    return call("prctl", option, *(*arguments, 0, 0, 0, 0)[:4])
