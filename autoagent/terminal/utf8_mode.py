"""Use UTF-8 for file names whatever the locale, and the locale's encoding for the terminal.

Python decodes file names by the locale's encoding. With ASCII or Latin-1, a file `π.txt` could be neither named nor
created. Only an interpreter started in UTF-8 mode (PEP 540) behaves differently.
"""

from __future__ import annotations

import io
import os
import sys

_TERMINAL = "terminal"  # our own -X option that passes the terminal's encoding to the new interpreter


def restart_in_utf8_mode() -> None:
    """Replace this process by an interpreter in UTF-8 mode with the same arguments, if file names need it."""
    if sys.getfilesystemencoding() == "utf-8" or sys.flags.utf8_mode or not sys.executable:
        return
    import locale

    count = len(sys.argv) - 1  # the user's arguments are text, the ones before are the interpreter's file names
    split = len(sys.orig_argv) - count
    interpreter_arguments, user_arguments = sys.orig_argv[1:split], sys.orig_argv[split:]
    options = ["-X", "utf8", "-X", f"{_TERMINAL}={locale.getencoding()}"]
    arguments = [os.fsencode(part) for part in (sys.executable, *options, *interpreter_arguments)]
    arguments += [part.encode("utf-8", "surrogateescape") for part in user_arguments]
    os.execv(sys.executable, arguments)  # noqa: S606 - it is this program


def use_encoding_of_terminal() -> None:
    """Use the terminal's own encoding, with escapes for characters that it lacks."""
    encoding = sys._xoptions.get(_TERMINAL)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream is sys.stdin and isinstance(encoding, str):
            is_ascii = "é".encode(encoding, "ignore") == b""  # the rest may safely be read as UTF-8
            stream.reconfigure(encoding="utf-8" if is_ascii else encoding, errors="surrogateescape")
        elif stream is not sys.stdin:
            stream.reconfigure(encoding=encoding if isinstance(encoding, str) else None, errors="backslashreplace")
