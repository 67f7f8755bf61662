"""The providers of pictures and transcripts, as the settings choose them."""

from __future__ import annotations

import base64

from autoagent.core.errors import CommandError
from autoagent.core.model import Usage
from autoagent.services.api_client import Provider
from autoagent.services.media.images import draw_hugging_face, draw_openai, draw_web_ui, suffix_of
from autoagent.services.media.transcription import hear_hugging_face, hear_offline, hear_openai, recognised
from autoagent.settings import OPENAI_URL, Settings


class ChosenMedia:
    """Satisfies `protocols.Media` with the providers in the settings, opened on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        drawing, hearing = _DRAWING.get(settings.image_provider), _HEARING.get(settings.audio_provider)
        self._drawing = (drawing[0](settings), drawing[1]) if drawing else None
        self._hearing = (hearing[0](settings), hearing[1]) if hearing else None
        self._spent = Usage()

    @property
    def draws_at(self) -> str:
        """As Media has it."""
        return self._drawing[0].host if self._drawing else ""

    @property
    def listens_at(self) -> str:
        """As Media has it."""
        return self._hearing[0].host if self._hearing else ""

    def draw(self, prompt: str) -> tuple[bytes, str]:
        """As Media has it."""
        if self._drawing is None:
            raise CommandError("There is no provider of pictures; it is set in IMAGE_PROVIDER.")
        provider, draw = self._drawing
        picture, cost = draw(provider, self._settings, prompt)
        self._spent += Usage(cost=cost)
        return picture, suffix_of(provider.name, picture)

    def transcribe(self, name: str, recording: bytes) -> str:
        """As Media has it."""
        if self._settings.audio_provider == "offline":
            text, cost = hear_offline(recognised(name, recording))
        elif self._hearing is not None:
            provider, hear = self._hearing
            text, cost = hear(provider, self._settings, recognised(name, recording))
        else:
            raise CommandError("Nothing is there to read recordings; it is set in AUDIO_TO_TEXT_PROVIDER.")
        self._spent += Usage(cost=cost)
        return text

    def take_usage(self) -> Usage:
        """As Media has it."""
        spent, self._spent = self._spent, Usage()
        return spent


def _openai(settings: Settings) -> Provider:
    key, organization = settings.openai_api_key, settings.openai_organization
    headers = {"OpenAI-Organization": organization} if organization else {}
    return Provider(
        name="The OpenAI endpoint",
        url=settings.openai_base_url or OPENAI_URL,
        url_variable="OPENAI_BASE_URL",
        key=key,
        key_variable="OPENAI_API_KEY",
        headers={**headers, **_bearer(key)},
    )


def _hugging_face(settings: Settings) -> Provider:
    key = settings.huggingface_api_token
    return Provider(
        name="Hugging Face",
        url=settings.huggingface_url,
        url_variable="HUGGINGFACE_URL",
        key=key,
        key_variable="HUGGINGFACE_API_TOKEN",
        headers=_bearer(key),
    )


def _web_ui(settings: Settings) -> Provider:
    login = settings.sd_webui_auth  # USER:PASSWORD, which is what HTTP's basic scheme encodes
    return Provider(
        name="Stable Diffusion web UI",
        url=settings.sd_webui_url,
        url_variable="SD_WEBUI_URL",
        key=login,
        key_variable="SD_WEBUI_AUTH",
        headers={"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {},
    )


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


_DRAWING = {
    "dalle": (_openai, draw_openai),
    "huggingface": (_hugging_face, draw_hugging_face),
    "sdwebui": (_web_ui, draw_web_ui),
}
_HEARING = {"openai": (_openai, hear_openai), "huggingface": (_hugging_face, hear_hugging_face)}
