"""Speak texts with espeak-ng (or another program of this machine), ElevenLabs or StreamElements.

Speech never delays or fails a run. One thread speaks one text after the other, and only the newest waiting text is
kept: an agent that thinks faster than it talks does not fall behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from autoagent.core.errors import CommandError
from autoagent.core.events import Ended, Thought
from autoagent.core.task import Status
from autoagent.extension import ApiProvider, Event, RunPart, Setting
from autoagent.text.sanitize import valid_text
from autoagent_media.transcription import recognised

SPOKEN_LIMIT = 500  # characters of one text, as paid voices charge for each
SPOKEN_SECONDS = 120.0  # for a program to say or play one text
LAST_WORDS_SECONDS = 10.0  # seconds the voice may take to finish once the run has ended
ELEVENLABS_MODEL = "eleven_flash_v2_5"

# Programs that speak their standard input, and programs that play a sound file. The first that is installed is used.
SPEAKERS = (("espeak-ng", "--stdin"), ("espeak", "--stdin"), ("say", "-f", "-"))
PLAYERS = (
    ("mpv", "--no-video", "--really-quiet"),
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "error"),
    ("mpg123", "-q"),
    ("afplay",),
    ("pw-play",),
    ("paplay",),
)

# The whole environment of a program: it holds no key.
_ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "TMPDIR", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"),
    *("XDG_RUNTIME_DIR", "PULSE_SERVER", "PULSE_COOKIE", "PIPEWIRE_REMOTE", "ALSA_CONFIG_PATH", "AUDIODEV"),
)


@dataclass(frozen=True, slots=True)
class Utterance:
    """Hold the program that speaks a text, and its standard input."""

    argv: Sequence[str]
    data: bytes = b""


class SpeechSource:
    """Define a source of spoken texts."""

    def utter(self, text: str) -> AbstractContextManager[Utterance]:
        """Return the utterance of a text, usable inside the context. Raises CommandError, which says why not."""
        raise CommandError("Nothing can be spoken here.")


@dataclass(frozen=True, slots=True)
class OfflineVoice(SpeechSource):
    """Speak with a program of this machine."""

    speakers: Sequence[Sequence[str]] = SPEAKERS

    @contextmanager
    def utter(self, text: str) -> Iterator[Utterance]:
        yield Utterance(_first_installed(self.speakers, "apt install espeak-ng"), text.encode())


@dataclass(frozen=True)  # without slots, as a property is cached
class ElevenLabsVoice(SpeechSource):
    """`POST /v1/text-to-speech/VOICE`, whose answer is MP3. Without a `voice` it is the first of `GET /v1/voices`."""

    provider: ApiProvider
    voice: str = ""
    players: Sequence[Sequence[str]] = PLAYERS

    @contextmanager
    def utter(self, text: str) -> Iterator[Utterance]:
        player = _first_installed(self.players, _INSTALL_PLAYER)  # before anything is paid for
        path = f"/v1/text-to-speech/{quote(self.voice or self._first_voice, safe='')}"
        body = {"text": text, "model_id": ELEVENLABS_MODEL}
        answer = self.provider.post(path, json=body, headers={"Accept": "audio/mpeg"})
        with _sound_file(self.provider.name, answer.body) as file:
            yield Utterance([*player, file])

    @cached_property
    def _first_voice(self) -> str:
        voices = self.provider.get("/v1/voices").fields().get("voices")
        first = voices[0] if isinstance(voices, list) and voices else None
        voice = first.get("voice_id") if isinstance(first, Mapping) else None
        if not isinstance(voice, str):
            raise CommandError(f"{self.provider.name} has no voice for this key; name one in ELEVENLABS_VOICE_ID.")
        return valid_text(voice)


@dataclass(frozen=True, slots=True)
class StreamElementsVoice(SpeechSource):
    """`GET /kappa/v2/speech`, whose answer is MP3."""

    provider: ApiProvider
    voice: str
    players: Sequence[Sequence[str]] = PLAYERS

    @contextmanager
    def utter(self, text: str) -> Iterator[Utterance]:
        player = _first_installed(self.players, _INSTALL_PLAYER)
        answer = self.provider.get("/kappa/v2/speech", params={"voice": self.voice, "text": text})
        with _sound_file(self.provider.name, answer.body) as file:
            yield Utterance([*player, file])


_INSTALL_PLAYER = "apt install mpg123"


class Voice:
    """Speak texts. `tell` receives, once and in one line, why that did not work.

    `silent` is why nothing can be heard here: then nothing is asked of the source, which may cost money.
    """

    def __init__(self, source: SpeechSource, tell: Callable[[str], None], *, silent: str = "") -> None:
        self._source = source
        self._tell = tell
        self._problem = silent
        self._silent = bool(silent)
        self._reported = False
        self._changed = threading.Condition()
        self._next = ""
        self._speaking = False
        self._closed = False
        self._program: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def say(self, text: str) -> None:
        """Say a text once the voice is free, replacing one that is still waiting. Return at once."""
        spoken = "".join(c for c in " ".join(text.split()) if c.isprintable())[:SPOKEN_LIMIT]
        if spoken and not self._silent:
            with self._changed:
                self._next = spoken
                self._changed.notify_all()
            if self._thread is None:
                self._start()
        self._tell_problem()

    def close(self, seconds: float = 10.0) -> None:
        """Wait at most so many seconds for the current text, then end it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._next and not self._speaking, seconds)
            self._closed = True
            if self._program:
                self._program.kill()
            self._changed.notify_all()
        if self._thread:
            self._thread.join(1.0)  # to clean up; a thread that waits for a provider ends with the process
        self._tell_problem()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="voice", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no room for another thread
            self._next, self._problem = "", f"{error}."
        else:
            self._thread = thread

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next or self._closed)
                if self._closed:
                    return
                text, self._next, self._speaking = self._next, "", True
            try:
                with self._source.utter(text) as utterance:
                    self._run(utterance)
            except (CommandError, OSError) as error:
                self._problem = str(error)
            finally:
                with self._changed:
                    self._speaking = False
                    self._changed.notify_all()

    def _run(self, utterance: Utterance) -> None:
        """Run the program to its end, unless the voice was closed meanwhile. Raises CommandError if it fails."""
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        with self._changed:
            if self._closed:
                return
            # No shell, and the text is not an argument.
            self._program = subprocess.Popen(  # noqa: S603
                utterance.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C is meant for the agent
            )
        name = Path(utterance.argv[0]).name
        with self._program as program:
            try:
                _, complaint = program.communicate(utterance.data, SPOKEN_SECONDS)
            except subprocess.TimeoutExpired as error:
                program.kill()
                raise CommandError(f"{name} did not finish within {SPOKEN_SECONDS:.0f} s.") from error
        if program.returncode and not self._closed:
            lines = complaint.decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "no reason given")
            raise CommandError(f"{name} ended with status {program.returncode}: {last[:200]}")

    def _tell_problem(self) -> None:
        """Report the problem in the thread of the caller, whose screen it is."""
        if self._problem and not self._reported:
            self._reported = True
            self._tell(f"Nothing is said aloud: {self._problem}")


class SpokenRun(RunPart):
    """Make the voice a part of a run: speak the words of each thought that are for the user."""

    def __init__(self, setting: Setting, say: Callable[[str], None]) -> None:
        self._setting = setting
        self._say = say
        self._voice: Voice | None = None

    def begin(self, complete: Callable[[str], str], run: Callable[[str, Mapping[str, Any]], str]) -> None:
        self._voice = voice_of(self._setting, self._say)
        if self._setting("speech_provider") != "offline":
            self._say("The cost of the voice is not part of the cost of the run.")

    def hear(self, event: Event) -> None:
        if self._voice is not None and isinstance(event, Thought) and event.thoughts.speak:
            self._voice.say(event.thoughts.speak)
        elif isinstance(event, Ended):
            self.end(at_once=event.status == Status.INTERRUPTED)

    def end(self, at_once: bool = False) -> None:
        """Let the voice finish, unless it is to stop at once."""
        if self._voice is not None:
            self._voice.close(0.0 if at_once else LAST_WORDS_SECONDS)
            self._voice = None


def voice_of(setting: Setting, tell: Callable[[str], None]) -> Voice:
    """Return the voice that the settings choose. Nothing is asked or opened."""
    return Voice(_source(setting), tell, silent=silence(os.environ))


def silence(env: Mapping[str, str], root: Path = Path("/")) -> str:
    """Explain why nothing can be heard on this machine, or '' if it has a sound device, or that cannot be told.

    On Linux it has one where ALSA has a device that plays, or where a sound server's socket is there or named.
    """
    if sys.platform != "linux" or env.get("PULSE_SERVER") or env.get("PIPEWIRE_REMOTE"):
        return ""
    sockets = ("pulse/native", "pipewire-0")
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime and any(Path(runtime, name).exists() for name in sockets):
        return ""
    return "" if any((root / "dev/snd").glob("pcm*p")) else "this machine has no sound device."


def _source(setting: Setting) -> SpeechSource:
    match setting("speech_provider"):
        case "elevenlabs":
            key = setting("elevenlabs_api_key")
            provider = ApiProvider(
                name="ElevenLabs",
                url=setting("elevenlabs_url"),
                url_variable="ELEVENLABS_URL",
                key=key,
                key_variable="ELEVENLABS_API_KEY",
                headers={"xi-api-key": key} if key else {},
            )
            return ElevenLabsVoice(provider, setting("elevenlabs_voice"))
        case "streamelements":
            provider = ApiProvider("StreamElements", setting("streamelements_url"), "STREAMELEMENTS_URL")
            return StreamElementsVoice(provider, setting("streamelements_voice"))
        case _:
            return OfflineVoice()


def _first_installed(programs: Sequence[Sequence[str]], install: str) -> list[str]:
    for name, *options in programs:
        if path := shutil.which(name):
            return [path, *options]
    names = ", ".join(name for name, *_ in programs)
    raise CommandError(f"none of {names} is installed ({install}).")


@contextmanager
def _sound_file(provider: str, sound: bytes) -> Iterator[str]:
    """Keep a sound in a file while it is played. Raises CommandError for anything else, as `recognised` does."""
    recognised(f"The sound of {provider}", sound)
    with tempfile.NamedTemporaryFile(suffix=".mp3") as file:
        file.write(sound)
        file.flush()
        yield file.name
