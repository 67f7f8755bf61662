"""Provide pictures and transcripts by the providers in the settings."""

from __future__ import annotations

import base64
from collections.abc import Callable

from autoagent.extension import ApiProvider, CommandError, Setting
from autoagent_media.images import decoded, draw_hugging_face, draw_openai, draw_web_ui, suffix_of
from autoagent_media.transcription import hear_hugging_face, hear_offline, hear_openai, recognised, text_of

_OPENAI_URL = "https://api.openai.com/v1"


class ChosenMedia:
    """Use the providers in the settings. `spend` receives the cost of each use in USD, None if unknown."""

    def __init__(self, setting: Setting, spend: Callable[[float | None], None]) -> None:
        self._setting = setting
        self._spend = spend
        drawing, hearing = _DRAWING.get(setting("image_provider")), _HEARING.get(setting("audio_provider"))
        self._drawing = (drawing[0](setting), drawing[1]) if drawing else None
        self._hearing = (hearing[0](setting), hearing[1]) if hearing else None

    @property
    def draws_at(self) -> str:
        """The host that draws, as `host_of` has it, or '' for this machine or none."""
        return self._drawing[0].host if self._drawing else ""

    @property
    def listens_at(self) -> str:
        """The host that listens, as `host_of` has it, or '' for this machine or none."""
        return self._hearing[0].host if self._hearing else ""

    def draw(self, prompt: str) -> tuple[bytes, str]:
        """Draw a picture. Return its bytes and file suffix (`.png`). Raises CommandError."""
        if self._drawing is None:
            raise CommandError("There is no provider of pictures; it is set in IMAGE_PROVIDER.")
        provider, draw = self._drawing
        sent, cost = draw(provider, self._setting, prompt)
        self._spend(cost)
        picture = decoded(provider.name, sent)
        return picture, suffix_of(provider.name, picture)

    def transcribe(self, name: str, recording: bytes) -> str:
        """Return the words spoken in a recording with the file name `name`. Raises CommandError."""
        if self._setting("audio_provider") == "offline":
            return str(hear_offline(recognised(name, recording))[0])
        if self._hearing is not None:
            provider, hear = self._hearing
            sent, cost = hear(provider, self._setting, recognised(name, recording))
            self._spend(cost)
            return text_of(provider.name, sent)
        raise CommandError("Nothing is there to read recordings; it is set in AUDIO_TO_TEXT_PROVIDER.")


def _openai(setting: Setting) -> ApiProvider:
    key, organization = setting("openai_api_key"), setting("openai_organization")
    headers = {"OpenAI-Organization": organization} if organization else {}
    return ApiProvider(
        name="The OpenAI endpoint",
        url=setting("openai_base_url") or _OPENAI_URL,
        url_variable="OPENAI_BASE_URL",
        key=key,
        key_variable="OPENAI_API_KEY",
        headers={**headers, **_bearer(key)},
    )


def _hugging_face(setting: Setting) -> ApiProvider:
    key = setting("huggingface_api_token")
    return ApiProvider(
        name="Hugging Face",
        url=setting("huggingface_url"),
        url_variable="HUGGINGFACE_URL",
        key=key,
        key_variable="HUGGINGFACE_API_TOKEN",
        headers=_bearer(key),
    )


def _web_ui(setting: Setting) -> ApiProvider:
    login = setting("sd_webui_auth")  # USER:PASSWORD, which is what HTTP's basic scheme encodes
    return ApiProvider(
        name="Stable Diffusion web UI",
        url=setting("sd_webui_url"),
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
