"""The providers of pictures and transcripts and the account for tweets, as the settings choose them."""

from __future__ import annotations

import base64

from autoagent.config.settings import Settings
from autoagent.core.errors import CommandError
from autoagent.core.model import Usage
from autoagent.services.api_client import Provider
from autoagent.services.media.images import HuggingFacePictures, OpenAIPictures, Pictures, WebUIPictures, suffix_of
from autoagent.services.media.transcription import (
    HuggingFaceTranscriber,
    OfflineTranscriber,
    OpenAITranscriber,
    Transcriber,
    recognised,
)
from autoagent.services.twitter import Twitter

OPENAI = "https://api.openai.com/v1"


class ChosenMedia:
    """Satisfies `protocols.Media` with what was chosen; None where nothing was."""

    def __init__(self, pictures: Pictures | None, transcriber: Transcriber | None, twitter: Twitter) -> None:
        self._pictures = pictures
        self._transcriber = transcriber
        self._twitter = twitter
        self._spent = Usage()

    @property
    def draws_at(self) -> str:
        """As Media has it."""
        return self._pictures.provider.host if self._pictures else ""

    @property
    def listens_at(self) -> str:
        """As Media has it."""
        return self._transcriber.host if self._transcriber else ""

    @property
    def tweets_at(self) -> str:
        """As Media has it."""
        return self._twitter.host

    def draw(self, prompt: str) -> tuple[bytes, str]:
        """As Media has it."""
        if self._pictures is None:
            raise CommandError("There is no provider of pictures; it is set in IMAGE_PROVIDER.")
        drawn = self._pictures.draw(prompt)
        self._spent += Usage(cost=drawn.cost)
        return drawn.picture, suffix_of(self._pictures.provider.name, drawn.picture)

    def transcribe(self, name: str, recording: bytes) -> str:
        """As Media has it."""
        if self._transcriber is None:
            raise CommandError("Nothing is there to read recordings; it is set in AUDIO_TO_TEXT_PROVIDER.")
        heard = self._transcriber.transcribe(recognised(name, recording))
        self._spent += Usage(cost=heard.cost)
        return heard.text

    def tweet(self, text: str) -> str:
        """As Media has it."""
        return self._twitter.send(text)

    def take_usage(self) -> Usage:
        """As Media has it."""
        spent, self._spent = self._spent, Usage()
        return spent


def media_of(settings: Settings) -> ChosenMedia:
    """What the settings choose. Nothing is asked or opened."""
    return ChosenMedia(_pictures(settings), _transcriber(settings), _twitter(settings))


def _pictures(settings: Settings) -> Pictures | None:
    match settings.image_provider:
        case "dalle":
            return OpenAIPictures(_openai(settings), settings.openai_image_model, settings.image_size)
        case "huggingface":
            return HuggingFacePictures(_hugging_face(settings), settings.huggingface_image_model, settings.image_size)
        case "sdwebui":
            return WebUIPictures(_web_ui(settings), settings.image_size)
        case _:
            return None


def _transcriber(settings: Settings) -> Transcriber | None:
    match settings.audio_provider:
        case "openai":
            return OpenAITranscriber(_openai(settings), settings.openai_audio_model)
        case "huggingface":
            return HuggingFaceTranscriber(_hugging_face(settings), settings.huggingface_audio_model)
        case "offline":
            return OfflineTranscriber()
        case _:
            return None


def _twitter(settings: Settings) -> Twitter:
    keys = {
        "TW_CONSUMER_KEY": settings.twitter_consumer_key,
        "TW_CONSUMER_SECRET": settings.twitter_consumer_secret,
        "TW_ACCESS_TOKEN": settings.twitter_access_token,
        "TW_ACCESS_TOKEN_SECRET": settings.twitter_access_secret,
    }
    return Twitter(settings.twitter_url, keys)


def _openai(settings: Settings) -> Provider:
    key, organization = settings.openai_api_key, settings.openai_organization
    headers = {"OpenAI-Organization": organization} if organization else {}
    return Provider(
        name="The OpenAI endpoint",
        url=settings.openai_base_url or OPENAI,
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
