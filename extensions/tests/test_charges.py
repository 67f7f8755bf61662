"""What pictures and transcripts cost, as the answers of the providers tell it."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from autoagent_media.providers import ChosenMedia
from provider_server import ProviderServer, Sent

from autoagent.core.model import Usage
from autoagent.extension import Setting
from autoagent.session.services import ReportedCosts
from autoagent.settings import all_settings

PNG = b"\x89PNG\r\n\x1a\n and so on"
WAV = b"RIFF\x24\0\0\0WAVEfmt and so on"
DRAWN = {"data": [{"b64_json": base64.b64encode(PNG).decode()}]}
TOKENS = {"input_tokens": 20, "output_tokens": 1000, "total_tokens": 1020, "input_tokens_details": {"text_tokens": 20}}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names under `.example` lead to this machine, where a test has its server."""
    real = socket.getaddrinfo

    def lookup(host: Any, *more: Any, **options: Any) -> Any:
        return real("127.0.0.1" if str(host).endswith(".example") else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    yield


def settings(server: ProviderServer, host: str, **more: Any) -> Setting:
    url = server.url.replace("127.0.0.1", host)
    found = all_settings()(
        openai_base_url=url, openai_api_key="test-key", huggingface_url=url, sd_webui_url=url, **more
    )
    return partial(getattr, found)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("gpt-image-2.5-flare", TOKENS, 0.0301),
        ("gpt-image-2.6-sunburst-2026-11-02", TOKENS, 0.0301),
        ("gpt-image-2.5-flare", None, None),
        ("gpt-image-2.5-flare", {"input_tokens": -1, "output_tokens": True}, None),
        ("flux", TOKENS, None),
    ],
)
def test_a_picture_costs_what_its_answer_says_it_took(model: str, usage: Any, cost: float | None) -> None:
    spent = ReportedCosts()
    with ProviderServer({"POST /images/generations": Sent({**DRAWN, "usage": usage})}) as server:
        media = ChosenMedia(
            settings(server, "api.example", image_provider="dalle", openai_image_model=model), spent.add
        )
        media.draw("a red fox")
        media.draw("another")
    assert spent.take_usage().cost == (None if cost is None else pytest.approx(2 * cost))
    assert spent.take_usage() == Usage()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("gpt-transcribe", {"type": "duration", "seconds": 120}, 0.009),
        ("whisper-1", {"type": "duration", "seconds": 30}, 0.003),
        ("gpt-transcribe", {"type": "tokens", "input_tokens": 5, "output_tokens": 5}, None),
        ("parakeet", {"type": "duration", "seconds": 30}, None),
    ],
)
def test_a_transcript_costs_what_its_minutes_cost(model: str, usage: Any, cost: float | None) -> None:
    spent = ReportedCosts()
    with ProviderServer({"POST /audio/transcriptions": Sent({"text": "Hello.", "usage": usage})}) as server:
        media = ChosenMedia(
            settings(server, "api.example", audio_provider="openai", openai_audio_model=model), spent.add
        )
        media.transcribe("a.wav", WAV)
    assert spent.take_usage().cost == (None if cost is None else pytest.approx(cost))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("host", "cost"), [("127.0.0.1", 0.0), ("hub.example", None)])
def test_another_company_is_not_free_and_a_machine_of_ones_own_is(host: str, cost: float | None) -> None:
    spent = ReportedCosts()
    routes = {
        "POST /models/a/b": Sent(PNG, media_type="image/png"),
        "POST /models/c/d": Sent({"text": "Hello."}),
        "POST /images/generations": Sent(DRAWN),
    }
    with ProviderServer(routes) as server:
        hub = {"huggingface_api_token": "t", "huggingface_image_model": "a/b", "huggingface_audio_model": "c/d"}
        chosen = settings(server, host, image_provider="huggingface", audio_provider="huggingface", **hub)
        media = ChosenMedia(chosen, spent.add)
        media.draw("a red fox")
        assert spent.take_usage() == Usage(cost=cost)
        media.transcribe("a.wav", WAV)
        assert spent.take_usage() == Usage(cost=cost)
        media = ChosenMedia(settings(server, host, image_provider="dalle"), spent.add)
        media.draw("a red fox")
        assert spent.take_usage() == Usage(cost=cost)
