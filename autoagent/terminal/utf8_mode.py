"""File names in UTF-8 whatever the locale says, and the terminal in the encoding of the locale.

Python takes names of files for text of the locale's encoding: where that is ASCII or Latin-1, a file `π.txt` could be
neither named nor made. Only an interpreter that starts in UTF-8 mode (PEP 540) does otherwise.
"""

from __future__ import annotations

import io
import os
import sys

_TERMINAL = "terminal"  # an -X option of ours: the encoding of the terminal, for the interpreter in UTF-8 mode


def restart_in_utf8_mode() -> None:
    """Let a new interpreter in UTF-8 mode take this process over, with the same arguments, where names need it."""
    if sys.getfilesystemencoding() == "utf-8" or sys.flags.utf8_mode or not sys.executable:
        return
    import locale

    count = len(sys.argv) - 1  # what the user typed is text; what stands before it names files of the interpreter
    before, typed = sys.orig_argv[1 : len(sys.orig_argv) - count], sys.orig_argv[len(sys.orig_argv) - count :]
    options = ["-X", "utf8", "-X", f"{_TERMINAL}={locale.getencoding()}"]
    arguments = [os.fsencode(part) for part in (sys.executable, *options, *before)]
    arguments += [part.encode("utf-8", "surrogateescape") for part in typed]
    os.execv(sys.executable, arguments)  # noqa: S606 - it is this program


def use_encoding_of_terminal() -> None:
    """Read and write the terminal in its own encoding, with escapes for characters that it lacks."""
    encoding = sys._xoptions.get(_TERMINAL)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream is sys.stdin and isinstance(encoding, str):
            is_ascii = "é".encode(encoding, "ignore") == b""  # nothing is lost by taking the rest for UTF-8
            stream.reconfigure(encoding="utf-8" if is_ascii else encoding, errors="surrogateescape")
        elif stream is not sys.stdin:
            stream.reconfigure(encoding=encoding if isinstance(encoding, str) else None, errors="backslashreplace")
