"""Download large files piece by piece to the disk, and resume interrupted downloads.

A part is continued only if the server confirms that the file is unchanged: its name stands for the URL, the ETag or
date, and the size. Otherwise the download starts over.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import BinaryIO

from autoagent.core.errors import CommandError
from autoagent.network.client import HttpAnswer, HttpClient
from autoagent.network.connections import Deadline

DOWNLOAD_SECONDS = 3600.0  # for a file, with all its interruptions

_AS_IT_IS: Mapping[str, str] = {"Accept-Encoding": "identity"}

# As in protocols.Web.download.
Progress = Callable[[int, int | None], None]
OpenPart = Callable[[str], AbstractContextManager[BinaryIO]]


def download(client: HttpClient, url: str, part: OpenPart, *, limit: int, progress: Progress) -> int:
    """Download a file of at most `limit` bytes, resuming while attempts make progress, and return its size.

    Raises CommandError. The part is emptied if it cannot be continued later.
    """
    with Deadline(DOWNLOAD_SECONDS) as deadline, client.asked(url, _AS_IT_IS, deadline) as first:
        validator, size = first.validator, first.length
        if size is not None and size > limit:
            raise _too_large(first, limit)
        version = hashlib.sha256(f"{url}\n{validator}\n{size}".encode()).hexdigest()[:16]
        with part(version) as file:
            if not validator or size is None:
                return _in_one_go(first, file, limit, progress)
            if file.seek(0, os.SEEK_END) > size:
                _empty(file)
            while (before := file.tell()) < size:
                try:
                    if before == 0:
                        _receive(first, file, size, progress)
                    else:
                        headers = {**_AS_IT_IS, "Range": f"bytes={before}-", "If-Range": validator}
                        with client.asked(url, headers, deadline, expected=(200, 206)) as rest:
                            if rest.status != 206 or rest.start != file.tell():
                                _empty(file)
                                raise CommandError(f"{url} has changed while it was being fetched; fetch it again.")
                            _receive(rest, file, size, progress)
                except CommandError:
                    if deadline.passed or file.tell() <= before:
                        raise
                if file.tell() <= before:
                    raise CommandError(f"{url} cannot be fetched: the server sent nothing more after {before:,} bytes.")
            return size


def _in_one_go(answer: HttpAnswer, file: BinaryIO, limit: int, progress: Progress) -> int:
    _empty(file)
    try:
        _receive(answer, file, limit + 1, progress)
        if file.tell() > limit:
            raise _too_large(answer, limit)
    except CommandError:
        _empty(file)
        raise
    return file.tell()


def _receive(answer: HttpAnswer, file: BinaryIO, end: int, progress: Progress) -> None:
    """Append the content to the file, up to a size of `end` bytes."""
    total = file.tell() + answer.length if answer.length is not None else None
    for block in answer.blocks(end - file.tell()):
        file.write(block)
        progress(file.tell(), total)


def _empty(file: BinaryIO) -> None:
    file.truncate(0)
    file.seek(0)


def _too_large(answer: HttpAnswer, limit: int) -> CommandError:
    size = f"has {answer.length:,} bytes" if answer.length is not None else "goes on"
    return CommandError(
        f"{answer.address.url} {size}, beyond the limit of {limit:,} bytes (AUTOAGENT_DOWNLOAD_LIMIT, in MB)."
    )
