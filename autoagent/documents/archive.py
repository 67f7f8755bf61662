"""What a zip archive must be before a library opens it.

The sizes in the central directory bind: Python's zipfile reads no more of an entry than it declares there.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from pathlib import PurePosixPath

from autoagent.documents.reading import UnreadableDocument

ENTRY_LIMIT = 10_000  # files in one archive
UNPACKED_LIMIT = 300_000_000  # bytes of all of them together
EXPANSION_LIMIT = 200  # times its own size; office files reach about 50
EXPANSION_FROM = 1_000_000  # bytes unpacked below which nobody minds


def check(data: bytes) -> None:
    """Raises Unreadable for an archive that is damaged, leads out of its folder, or is larger than the limits."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, zlib.error, ValueError, RuntimeError) as error:  # RuntimeError: on several disks
        raise UnreadableDocument(f"is a damaged archive: {error}.") from error
    if len(entries) > ENTRY_LIMIT:
        raise UnreadableDocument(f"holds {len(entries):,} files; the limit is {ENTRY_LIMIT:,}.")
    for entry in entries:
        if problem := _problem(entry):
            raise UnreadableDocument(f"holds an entry {problem}: {entry.filename[:100]!r}.")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > UNPACKED_LIMIT:
        raise UnreadableDocument(f"unpacks to {unpacked:,} bytes; the limit is {UNPACKED_LIMIT:,}.")
    if unpacked > EXPANSION_FROM and unpacked > EXPANSION_LIMIT * len(data):
        raise UnreadableDocument(
            f"unpacks to {unpacked // len(data):,} times its size; the limit is {EXPANSION_LIMIT}."
        )


def _problem(entry: zipfile.ZipInfo) -> str:
    name = entry.orig_filename.replace("\\", "/")
    if name.startswith("/") or name[1:2] == ":":
        return "with an absolute path"
    if ".." in PurePosixPath(name).parts:
        return "that leads out of its folder"
    return "that is a symbolic link" if stat.S_ISLNK(entry.external_attr >> 16) else ""
