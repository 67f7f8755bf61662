"""Transcribe recordings with OpenAI's API and compatible servers, Hugging Face, or Whisper on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from autoagent.core.errors import CommandError
from autoagent.extension import ApiProvider, Setting
from autoagent.text.sanitize import valid_text
from autoagent_media import charges

OFFLINE_SECONDS = 900.0  # for one recording; a CPU transcribes about ten times faster than real time
OFFLINE_EXTRA = "pip install 'autoagent[offline-audio]'"


@dataclass(frozen=True, slots=True)
class Recording:
    """Hold a recording, with the media type and suffix that its first bytes indicate."""

    data: bytes
    media_type: str
    suffix: str


Transcript = tuple[Any, float | None]
"""The words of a recording, '' if there are none, and their cost in USD, None if unknown."""

_MAGICS = (
    (0, b"fLaC", "audio/flac", ".flac"),
    (0, b"OggS", "audio/ogg", ".ogg"),
    (0, b"ID3", "audio/mpeg", ".mp3"),
    (0, b"\x1aE\xdf\xa3", "audio/webm", ".webm"),
    (4, b"ftyp", "audio/mp4", ".m4a"),
    (8, b"WAVE", "audio/wav", ".wav"),
)
_MPEG_SYNC, _MPEG_LAYER = 0xFFE0, 0x06  # an MPEG audio frame: 11 bits of ones, and which layer it is in two more


def recognised(name: str, data: bytes) -> Recording:
    """Recognise the recording by its first bytes.

    Raises CommandError for any other content of the file `name`: a decoder takes playlists too, and would fetch their
    entries.
    """
    for start, magic, media_type, suffix in _MAGICS:
        if data[start : start + len(magic)] == magic:
            return Recording(data, media_type, suffix)
    head = int.from_bytes(data[:2], "big")
    if head & _MPEG_SYNC == _MPEG_SYNC:
        mp3 = head & _MPEG_LAYER
        return Recording(data, "audio/mpeg", ".mp3") if mp3 else Recording(data, "audio/aac", ".aac")
    raise CommandError(f"{name} is not a recording that can be read: it must be WAV, MP3, M4A, AAC, OGG, FLAC or WebM.")


def hear_openai(provider: ApiProvider, setting: Setting, recording: Recording) -> Transcript:
    """Transcribe with `POST /audio/transcriptions`, a form with the file.

    Raises CommandError, as all of them: it names the provider and the reason.
    """
    file = (f"recording{recording.suffix}", recording.data, recording.media_type)  # its suffix tells the format
    form = {"model": setting("openai_audio_model"), "response_format": "json"}
    answer = provider.post("/audio/transcriptions", data=form, files={"file": file}).fields()
    cost = charges.of_transcript(provider, setting("openai_audio_model"), answer)
    return answer.get("text"), cost


def hear_hugging_face(provider: ApiProvider, setting: Setting, recording: Recording) -> Transcript:
    """Transcribe with the inference API, `POST /models/MODEL`, whose body is the recording itself."""
    path = f"/models/{setting('huggingface_audio_model')}"
    answer = provider.post(path, data=recording.data, headers={"Content-Type": recording.media_type})
    return answer.fields().get("text"), charges.elsewhere(provider)


def hear_offline(recording: Recording, seconds: float = OFFLINE_SECONDS) -> Transcript:
    """Transcribe with Whisper in its own process (`autoagent_whisper`), within limits and without a key."""
    if importlib.util.find_spec("faster_whisper") is None:
        raise CommandError(f"Recordings cannot be read offline: faster-whisper is missing; {OFFLINE_EXTRA}.")
    # No shell, and no word of it comes from outside: -I keeps the current folder off its path.
    command = [sys.executable, "-I", "-m", "autoagent_whisper", f"{seconds:.0f}"]
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    try:
        done = subprocess.run(  # noqa: S603 - see above
            command, input=recording.data, capture_output=True, timeout=seconds, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(
            f"The recording was not read within {seconds:.0f} s and was given up; cut it into shorter ones."
        ) from error
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:  # it was killed, or failed before it could say why
        raise CommandError(
            f"Whisper ended with status {done.returncode} and no answer; the recording may be too long or damaged."
        ) from error
    if problem := answer.get("problem"):
        raise CommandError(f"Whisper cannot read the recording: {problem}.")
    return text_of("Whisper", answer.get("text")), 0.0


def text_of(name: str, text: object) -> str:
    """Return the words that the provider `name` sent. Raises CommandError if it sent no text."""
    if not isinstance(text, str):
        raise CommandError(f"{name} sent no text in its answer.")
    return valid_text(text).strip()
