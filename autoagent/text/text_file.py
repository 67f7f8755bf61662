"""Read the user's small text files with a size limit, and write them atomically."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from io import BufferedReader
from pathlib import Path

from autoagent.core.durable_files import replacing
from autoagent.core.errors import SettingsError
from autoagent.text.sanitize import shorten

_MAX_PATH_CHARACTERS = 200  # in messages
LIMIT = 262_144  # bytes; no settings file is larger, and larger YAML takes seconds to parse


def read_text(path: Path) -> str:
    r"""Read a UTF-8 file with or without a byte order mark. Return it with `\n` line ends.

    Raises SettingsError, with the file and the line, for a missing, irregular, unreadable, too large or binary file.
    """
    try:
        with open_regular(path) as file:
            raw = file.read(LIMIT + 1)
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file.") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}.") from error
    if len(raw) > LIMIT:
        raise SettingsError(f"{path}: is larger than {LIMIT // 1024} KiB; this cannot be a settings file.")
    return decode(path, raw).replace("\r\n", "\n").replace("\r", "\n")


def decode(path: Path, raw: bytes) -> str:
    """Return the text of a UTF-8 file without its byte order mark. Raises SettingsError with the file and the line."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: is not UTF-8; save the file as UTF-8.") from None


def is_inside(folder: Path, path: Path) -> bool:
    """Return whether a relative path, with links resolved, is inside the folder. A path with NUL never is."""
    if "\0" in str(path):
        return False
    # Not resolve(), which raises for circular links.
    return Path(os.path.realpath(folder / path)).is_relative_to(os.path.realpath(folder))


def is_there(path: Path) -> bool:
    """Return whether a path exists. Raises SettingsError if that cannot be determined."""
    try:
        return path.exists()
    except OSError as error:  # the name is too long, or access is denied
        raise SettingsError(f"{shorten(str(path), _MAX_PATH_CHARACTERS)}: cannot be read: {error.strerror}.") from error


def check_not_writable_by_others(path: Path) -> None:
    """Raise SettingsError if others may write to a settings file, as it can run programs as the user."""
    if is_there(path) and any(_others_write(place.stat()) for place in (path, path.parent)):
        raise SettingsError(f"{path}: others may have written it: review it, then chmod go-w it and its folder.")


def _others_write(status: os.stat_result) -> bool:
    """Return whether others may write: everybody, or a group with other members."""
    if status.st_mode & stat.S_IWOTH or not status.st_mode & stat.S_IWGRP:
        return bool(status.st_mode & stat.S_IWOTH)
    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(status.st_gid)
    except KeyError:  # names unknown here, so the group's members are unknown
        return True
    return user.pw_gid != group.gr_gid or group.gr_name != user.pw_name or any(n != user.pw_name for n in group.gr_mem)


def open_regular(path: Path) -> BufferedReader:
    """Open a user's file for reading. Raises OSError, and SettingsError for anything but a regular file."""
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device"
            raise SettingsError(f"{path}: is not a file but {kind}.")
        return os.fdopen(descriptor, "rb")
    except BaseException:  # Ctrl-C too
        os.close(descriptor)
        raise


def write_text(path: Path, text: str, *, private: bool = False, parents: bool = False) -> None:
    """Replace the file atomically, following links. `private`: only its owner may read it (0600).

    `parents`: create missing folders above it, private ones (0700) for a private file. Raises SettingsError if it
    cannot be written.
    """
    try:
        target = path.resolve()
        if parents:
            target.parent.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
        mode = 0o600 if private else target.stat().st_mode & 0o777 if target.exists() else 0o666
        with replacing(target, mode) as file:
            file.write(text.encode())
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written: {error.strerror}.") from error
