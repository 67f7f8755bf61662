"""The voice: real programs that speak and play, providers over the HTTP of the real ones, and what goes wrong."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import wave
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from autoagent_media.speech import (
    SPOKEN_LIMIT,
    ElevenLabsVoice,
    OfflineVoice,
    SpeechSource,
    StreamElementsVoice,
    Voice,
    silence,
    voice_of,
)
from driver import FINISH, GOAL, Home
from processes import wait_for
from provider_server import ProviderServer, Received, Sent
from server import ScriptedServer

from autoagent.extension import ApiProvider
from autoagent.settings import all_settings

KEY = "test-key-0123456789"
MP3 = b"\xff\xfb\x90\x64 and so on"


def program(folder: Path, name: str, body: str) -> tuple[str, ...]:
    """A program for the voice to run: a shell script."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return (str(file),)


def told_of(source: SpeechSource, *texts: str) -> list[str]:
    """Say the texts, each to its end; what the user was told."""
    told: list[str] = []
    for text in texts:
        voice = Voice(source, told.append)
        voice.say(text)
        voice.close(20)
    return told


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


# Offline ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")
def test_espeak_speaks(tmp_path: Path) -> None:
    file = tmp_path / "speech.wav"
    assert told_of(OfflineVoice([("espeak-ng", "--stdin", "-w", str(file))]), "I have written the report.") == []
    with wave.open(str(file)) as sound:
        assert sound.getnframes() / sound.getframerate() > 1.0  # seconds


def test_a_text_is_read_and_is_no_option_of_the_program(tmp_path: Path) -> None:
    speaker = program(tmp_path, "speaker", f'echo "$#" > {tmp_path}/heard; cat >> {tmp_path}/heard')
    assert told_of(OfflineVoice([speaker]), "-w /etc/passwd\n\x1b[2Jhere\a  $(id)") == []
    assert (tmp_path / "heard").read_text() == "0\n-w /etc/passwd [2Jhere $(id)"


def test_a_long_text_is_cut_and_an_empty_one_not_said(tmp_path: Path) -> None:
    speaker = program(tmp_path, "speaker", f"cat > {tmp_path}/heard")
    assert told_of(OfflineVoice([speaker]), " \n ") == []
    assert not (tmp_path / "heard").exists()
    assert told_of(OfflineVoice([speaker]), "long " * 1_000) == []
    assert len((tmp_path / "heard").read_text()) == SPOKEN_LIMIT


def test_the_first_installed_program_is_taken(tmp_path: Path) -> None:
    speaker = program(tmp_path, "speaker", f"cat > {tmp_path}/heard")
    assert told_of(OfflineVoice([("no-such-program",), speaker]), "Hello.") == []
    assert (tmp_path / "heard").read_text() == "Hello."


def test_no_key_is_in_the_environment_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    speaker = program(tmp_path, "speaker", f"env > {tmp_path}/heard")
    assert told_of(OfflineVoice([speaker]), "Hello.") == []
    assert "PATH=" in (tmp_path / "heard").read_text()
    assert KEY not in (tmp_path / "heard").read_text()


def test_a_run_says_the_words_meant_for_the_user_and_finishes_the_last_ones(
    served: Home, server: ScriptedServer, tmp_path: Path
) -> None:
    speaker = program(tmp_path, "espeak-ng", f"cat >> {tmp_path}/heard")
    path = os.pathsep.join((str(Path(*speaker).parent), os.environ["PATH"]))
    server.add(*FINISH)
    served.succeed("-c", "--speak", *GOAL, env={"PATH": path, "PULSE_SERVER": "unix:/run/pulse"})
    assert text_of(tmp_path / "heard").startswith("Acting.")


def test_what_a_paid_voice_costs_is_told_before_the_first_step(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    voice = {"TEXT_TO_SPEECH_PROVIDER": "streamelements", "PULSE_SERVER": "unix:/run/pulse", "PATH": "/nowhere"}
    done = served.succeed("-c", "--speak", "--sandbox", "none", *GOAL, env=voice)
    told = " ".join(done.text.split())
    assert "The cost of the voice is not part of the cost of the run." in told
    assert told.count("Nothing is said aloud: none of mpv") == 1


# Failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo some lines >&2; echo no such device >&2; exit 3", "speaker ended with status 3: no such device"),
        ("exit 1", "speaker ended with status 1: no reason given"),
    ],
)
def test_a_failure_is_told_once_and_in_a_line(tmp_path: Path, body: str, reason: str) -> None:
    told: list[str] = []
    voice = Voice(OfflineVoice([program(tmp_path, "speaker", f"echo >> {tmp_path}/runs; {body}")]), told.append)
    for count in (1, 2, 3):
        voice.say("Hello.")
        wait_for(lambda count=count: text_of(tmp_path / "runs").count("\n") == count)
    voice.close()
    assert told == [f"Nothing is said aloud: {reason}"]


def test_a_program_that_is_missing_is_told_with_how_to_install_it() -> None:
    told = told_of(OfflineVoice([("no-such-program", "--stdin")]), "Hello.")
    assert told == ["Nothing is said aloud: none of no-such-program is installed (apt install espeak-ng)."]


def test_where_nothing_can_be_heard_nothing_is_asked() -> None:
    told: list[str] = []
    with ProviderServer({}) as server:
        source = StreamElementsVoice(ApiProvider("StreamElements", server.url, "STREAMELEMENTS_URL"), "Brian")
        voice = Voice(source, told.append, silent="this machine has no sound device.")
        voice.say("Hello.")
        voice.say("Hello again.")
        voice.close()
        assert server.received == []
    assert told == ["Nothing is said aloud: this machine has no sound device."]


# Time ------------------------------------------------------------------------------------------------------------


def test_saying_something_does_not_wait_and_of_what_waits_the_newest_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    heard = tmp_path / "heard"
    speaker = program(tmp_path, "speaker", f"cat >> {heard}; echo >> {heard}; read go < {tmp_path}/go")
    voice = Voice(OfflineVoice([speaker]), pytest.fail)
    voice.say("one")
    wait_for(lambda: text_of(heard) == "one\n")
    for text in ("two", "three", "four"):
        voice.say(text)
    (tmp_path / "go").write_text("\n")
    wait_for(lambda: text_of(heard).count("\n") == 2)
    (tmp_path / "go").write_text("\n")
    voice.close()
    assert heard.read_text() == "one\nfour\n"


def test_closing_ends_what_takes_too_long(tmp_path: Path) -> None:
    speaker = program(tmp_path, "speaker", f"echo $$ > {tmp_path}/pid; exec sleep 60")
    told: list[str] = []
    voice = Voice(OfflineVoice([speaker]), told.append)
    voice.say("A long story.")
    wait_for(lambda: text_of(tmp_path / "pid").endswith("\n"))
    began = time.monotonic()
    voice.close(seconds=0.1)
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int(text_of(tmp_path / "pid")), 0)
    assert told == []


def test_a_voice_that_was_closed_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    told_of(OfflineVoice([program(tmp_path, "speaker", "cat > /dev/null")]), "Hello.")
    assert threading.active_count() == before


# Providers -------------------------------------------------------------------------------------------------------


def eleven_labs(received: Received) -> Sent:
    """As the API behaves with a right key and with a wrong one."""
    if received.headers.get("xi-api-key") != KEY:
        return Sent({"detail": {"status": "invalid_api_key", "message": "Invalid API key"}}, 401)
    if received.path == "/v1/voices":
        return Sent({"voices": [{"voice_id": "21m00Tcm4TlvDq8ikWAM", "name": "Rachel"}, {"voice_id": "other"}]})
    if not received.json["text"] or not received.json["model_id"].startswith("eleven_"):
        return Sent({"detail": [{"loc": ["body", "text"], "msg": "field required"}]}, 422)
    return Sent(MP3, media_type="audio/mpeg")


RACHEL = "/v1/text-to-speech/21m00Tcm4TlvDq8ikWAM"
ELEVEN_LABS = {
    "GET /v1/voices": eleven_labs,
    f"POST {RACHEL}": eleven_labs,
    "POST /v1/text-to-speech/a%2Fb": eleven_labs,
}


def eleven_labs_voice(
    server: ProviderServer, players: Sequence[Sequence[str]], key: str = KEY, voice: str = ""
) -> ElevenLabsVoice:
    provider = ApiProvider("ElevenLabs", server.url, "ELEVENLABS_URL", key, "ELEVENLABS_API_KEY", {"xi-api-key": key})
    return ElevenLabsVoice(provider, voice, players)


def test_eleven_labs_speaks_with_its_first_voice_which_is_looked_up_once(tmp_path: Path) -> None:
    player = program(tmp_path, "player", f'cat "$1" > {tmp_path}/heard')
    with ProviderServer(ELEVEN_LABS) as server:
        assert told_of(eleven_labs_voice(server, [player]), "Hello.", "Good-bye.") == []
        assert [request.path for request in server.received] == ["/v1/voices", RACHEL, RACHEL]
        assert server.received[2].json["text"] == "Good-bye."
    assert (tmp_path / "heard").read_bytes() == MP3


def test_the_voice_of_the_settings_is_one_part_of_the_path(tmp_path: Path) -> None:
    with ProviderServer(ELEVEN_LABS) as server:
        player = program(tmp_path, "player", "exit 0")
        assert told_of(eleven_labs_voice(server, [player], voice="a/b"), "Hello.") == []
        assert [request.path for request in server.received] == ["/v1/text-to-speech/a%2Fb"]


def test_a_refused_key_of_eleven_labs_is_named_by_its_variable(tmp_path: Path) -> None:
    player = program(tmp_path, "player", "exit 0")
    with ProviderServer(ELEVEN_LABS) as server:
        told = told_of(eleven_labs_voice(server, [player], key="wrong-key-0123456789"), "Hello.")
    assert told == [
        "Nothing is said aloud: ElevenLabs answered 401: Invalid API key; set another key in ELEVENLABS_API_KEY."
    ]


def test_stream_elements_speaks(tmp_path: Path) -> None:
    player = program(tmp_path, "player", f'cat "$1" > {tmp_path}/heard')
    with ProviderServer({"GET /kappa/v2/speech": Sent(MP3, media_type="audio/mp3")}) as server:
        provider = ApiProvider("StreamElements", server.url, "STREAMELEMENTS_URL")
        assert told_of(StreamElementsVoice(provider, "Brian", [player]), "Hello & good-bye?") == []
        assert server.received[0].query == {"voice": "Brian", "text": "Hello & good-bye?"}
    assert (tmp_path / "heard").read_bytes() == MP3


def test_no_playlist_of_a_provider_is_played(tmp_path: Path) -> None:
    player = program(tmp_path, "player", f"touch {tmp_path}/played")
    playlist = b"#EXTM3U\nhttp://127.0.0.1:1/\nfile:///etc/passwd\n"  # a player would fetch its entries
    with ProviderServer({"GET /kappa/v2/speech": Sent(playlist, media_type="audio/mpeg")}) as server:
        provider = ApiProvider("StreamElements", server.url, "STREAMELEMENTS_URL")
        [told] = told_of(StreamElementsVoice(provider, "Brian", [player]), "Hello.")
    assert "The sound of StreamElements is not a recording" in told
    assert not (tmp_path / "played").exists()


def test_without_a_player_no_speech_is_paid_for() -> None:
    with ProviderServer(ELEVEN_LABS) as server:
        told = told_of(eleven_labs_voice(server, [("no-such-player",)]), "Hello.")
        assert server.received == []
    assert told == ["Nothing is said aloud: none of no-such-player is installed (apt install mpg123)."]


# The machine -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="looks for sound devices as Linux has them")
def test_a_sound_device_is_one_that_plays_or_a_sound_server(tmp_path: Path) -> None:
    assert silence({}, tmp_path) == "this machine has no sound device."
    devices = tmp_path / "dev/snd"
    devices.mkdir(parents=True)
    (devices / "pcmC0D0c").touch()  # it records
    assert silence({}, tmp_path) != ""
    (devices / "pcmC0D0p").touch()
    assert silence({}, tmp_path) == ""
    assert silence({"PULSE_SERVER": "unix:/run/pulse"}, tmp_path / "none") == ""
    (tmp_path / "pipewire-0").touch()
    assert silence({"XDG_RUNTIME_DIR": str(tmp_path)}, tmp_path / "none") == ""


@pytest.mark.parametrize("provider", ["offline", "elevenlabs", "streamelements"])
def test_a_voice_that_says_nothing_asks_nothing(provider: str) -> None:
    with ProviderServer({}) as server:
        settings = all_settings()(speech_provider=provider, elevenlabs_url=server.url, streamelements_url=server.url)
        voice = voice_of(partial(getattr, settings), lambda line: None)
        voice.say(" ")
        voice.close()
        assert server.received == []
