"""Pictures from each provider, over the HTTP that the real one speaks."""

from __future__ import annotations

import base64
import struct
import zlib
from functools import partial
from typing import Any

import pytest
from autoagent_media.images import suffix_of
from autoagent_media.providers import ChosenMedia
from provider_server import ProviderServer, Received, Sent

from autoagent.core.errors import CommandError
from autoagent.services import api_client
from autoagent.settings import Settings, all_settings

KEY = "test-key-0123456789"


def chosen(settings: Settings, spent: list[float | None]) -> ChosenMedia:
    return ChosenMedia(partial(getattr, settings), spent.append)


def png(side: int = 2) -> bytes:
    """A black square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (side + 1) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


ENCODED = base64.b64encode(png()).decode()


def draw(server: ProviderServer, kind: str, spent: list[float | None] | None = None, **more: Any) -> tuple[bytes, str]:
    """A fox from the provider of that kind, which is on this server."""
    settings = all_settings()(
        image_provider=kind,
        openai_base_url=f"{server.url}/v1",
        openai_api_key=KEY,
        huggingface_url=f"{server.url}/hf-inference",
        huggingface_api_token=KEY,
        sd_webui_url=server.url,
        **more,
    )
    return chosen(settings, [] if spent is None else spent).draw("a red fox")


def failure(server: ProviderServer, kind: str, **more: Any) -> str:
    with pytest.raises(CommandError) as raised:
        draw(server, kind, **more)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# OpenAI's images API ---------------------------------------------------------------------------------------------

IMAGES = "POST /v1/images/generations"


def openai_images(received: Received) -> Sent:
    """As the API behaves: a key, a model, and for its own models no other form of answer than base64."""
    if received.headers.get("authorization") != f"Bearer {KEY}":
        error = {"message": "Incorrect API key provided: wrong", "type": "invalid_request_error"}
        return Sent({"error": error}, 401)
    asked = received.json
    own = asked["model"].startswith("gpt-image")
    if own and "response_format" in asked:
        return Sent({"error": {"message": "Unknown parameter: 'response_format'.", "param": "response_format"}}, 400)
    if own and int(asked["size"].partition("x")[0]) < 1024:
        return Sent({"error": {"message": f"Invalid size '{asked['size']}'."}}, 400)
    return Sent({"created": 1, "data": [{"b64_json": ENCODED}]})


def test_openai_draws_with_its_own_model_in_the_size_it_has() -> None:
    with ProviderServer({IMAGES: openai_images}) as server:
        assert draw(server, "dalle") == (png(), ".png")
        assert server.received[0].json == {
            "model": "gpt-image-2.5-flare",
            "prompt": "a red fox",
            "n": 1,
            "size": "1024x1024",
        }


@pytest.mark.parametrize(
    ("model", "size", "asked"),
    [("gpt-image-2", 1500, "1504x1504"), ("sd-turbo", 256, "256x256"), ("dall-e-2", 512, "512x512")],
)
def test_the_size_is_asked_for_as_far_as_the_model_can_draw_it(model: str, size: int, asked: str) -> None:
    with ProviderServer({IMAGES: openai_images}) as server:
        draw(server, "dalle", openai_image_model=model, image_size=size)
        assert server.received[0].json["size"] == asked
        assert ("response_format" in server.received[0].json) is not model.startswith("gpt-image")


def test_a_refused_key_is_named_by_its_variable_and_not_shown() -> None:
    def echo(received: Received) -> Sent:
        return Sent({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401)

    with ProviderServer({IMAGES: echo}) as server:
        said = failure(server, "dalle")
    assert said == (
        "The OpenAI endpoint answered 401: Incorrect API key provided: [masked]; set another key in OPENAI_API_KEY."
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Sent({"error": {"message": "Rejected by\nthe safety system."}}, 400), "400: Rejected by the safety system."),
        (Sent({"error": "out of memory"}, 500), "500: out of memory."),
        (Sent(b"<html><h1>Bad gateway</h1></html>", 502, "text/html"), "502: no reason given."),
        (Sent(b"", 503), "503: no reason given."),
        (Sent(b"", 302, headers={"Location": "http://127.0.0.1:1/"}), "redirect, which is not followed: check OPENAI_"),
        (Sent({"data": []}), "sent no picture in its answer"),
        (Sent({"data": [{"url": "http://127.0.0.1:1/fox.png"}]}), "sent no picture in its answer"),
        (Sent({"data": [{"b64_json": "%%%"}]}), "not valid base64"),
        (Sent({"data": [{"b64_json": base64.b64encode(b"<svg/>").decode()}]}), "6 bytes that are no picture"),
        (Sent(b"fox"), "did not answer with JSON but with 3 bytes of application/json"),
        (Sent([1]), "did not answer with a JSON object"),
    ],
)
def test_whatever_else_it_answers_is_said_in_a_line(answer: Sent, reason: str) -> None:
    with ProviderServer({IMAGES: answer}) as server:
        assert reason in failure(server, "dalle")
        assert len(server.received) == 1


def test_a_picture_that_cannot_be_used_is_paid_for() -> None:
    spent: list[float | None] = []
    answer = Sent({"data": [{"url": "http://127.0.0.1:1/fox.png"}]})
    with ProviderServer({IMAGES: answer}) as server, pytest.raises(CommandError, match="sent no picture"):
        draw(server, "dalle", spent)
    assert len(spent) == 1


def test_an_answer_without_end_is_dropped() -> None:
    with ProviderServer({IMAGES: Sent(b" " * (api_client.ANSWER_LIMIT + 1))}) as server:
        assert failure(server, "dalle") == "The OpenAI endpoint sent more than 64 MB; the answer was dropped."


# Hugging Face ----------------------------------------------------------------------------------------------------


def hugging_face(received: Received) -> Sent:
    """As the inference API behaves: the picture itself, or an object with an `error`."""
    if received.headers.get("authorization") != f"Bearer {KEY}":
        return Sent({"error": "Invalid username or password."}, 401)
    if received.headers["accept"] != "image/png" or set(received.json) != {"inputs", "parameters"}:
        return Sent({"error": ["Error in `inputs`: field required"]}, 400)
    return Sent(b"\xff\xd8\xff\xe0 and so on", media_type="image/jpeg")


def test_hugging_face_sends_the_picture_itself() -> None:
    with ProviderServer({"POST /hf-inference/models/black-forest-labs/FLUX.1-dev": hugging_face}) as server:
        drawn = draw(server, "huggingface", huggingface_image_model="black-forest-labs/FLUX.1-dev", image_size=512)
        assert drawn == (b"\xff\xd8\xff\xe0 and so on", ".jpg")
        assert server.received[0].json == {"inputs": "a red fox", "parameters": {"width": 512, "height": 512}}


def test_a_model_that_still_loads_says_so() -> None:
    loading = Sent({"error": "Model a/b is currently loading", "estimated_time": 20.0}, 503)
    with ProviderServer({"POST /hf-inference/models/a/b": loading}) as server:
        said = failure(server, "huggingface", huggingface_image_model="a/b")
    assert said == "Hugging Face answered 503: Model a/b is currently loading."


# Stable Diffusion web UI -----------------------------------------------------------------------------------------


def web_ui(received: Received) -> Sent:
    """As the web UI behaves with `--api --api-auth me:secret-word`."""
    if received.headers.get("authorization") != "Basic " + base64.b64encode(b"me:secret-word").decode():
        return Sent({"detail": "Incorrect username or password"}, 401, headers={"WWW-Authenticate": "Basic"})
    if not isinstance(received.json["width"], int):
        return Sent({"detail": [{"loc": ["body", "width"], "msg": "value is not a valid integer"}]}, 422)
    return Sent({"images": [ENCODED], "parameters": {}, "info": "{}"})


def test_the_web_ui_draws_for_the_user_it_knows() -> None:
    with ProviderServer({"POST /sdapi/v1/txt2img": web_ui}) as server:
        assert draw(server, "sdwebui", sd_webui_auth="me:secret-word", image_size=512) == (png(), ".png")
        assert server.received[0].json == {"prompt": "a red fox", "width": 512, "height": 512, "steps": 20}
        assert failure(server, "sdwebui", sd_webui_auth="me:wrong-word") == (
            "Stable Diffusion web UI answered 401: Incorrect username or password; set another key in SD_WEBUI_AUTH."
        )
        assert "set a key in SD_WEBUI_AUTH" in failure(server, "sdwebui")


def test_where_nothing_answers_the_variable_of_the_address_is_named() -> None:
    with ProviderServer({}) as server:
        url = server.url
    settings = all_settings()(image_provider="sdwebui", sd_webui_url=url)
    with pytest.raises(CommandError, match=r"nothing answers at 127\.0\.0\.1:\d+ .*SD_WEBUI_URL"):
        chosen(settings, []).draw("a red fox")


@pytest.mark.parametrize("url", ["localhost:7860", "ftp://localhost", "http://", "http://[::1"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(CommandError, match="SD_WEBUI_URL"):
        chosen(all_settings()(image_provider="sdwebui", sd_webui_url=url), []).draw("a red fox")


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with ProviderServer({IMAGES: openai_images}) as server:
        assert draw(server, "dalle") == (png(), ".png")


# Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("picture", "suffix"),
    [(png(), ".png"), (b"\xff\xd8\xff\xe1", ".jpg"), (b"GIF89a", ".gif"), (b"RIFF\x10\0\0\0WEBPVP8 ", ".webp")],
)
def test_the_suffix_is_that_of_the_bytes(picture: bytes, suffix: str) -> None:
    assert suffix_of("X", picture) == suffix


def test_a_recording_is_no_picture() -> None:
    with pytest.raises(CommandError, match="X sent 12 bytes that are no picture"):
        suffix_of("X", b"RIFF\x10\0\0\0WAVE")
