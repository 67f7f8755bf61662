"""Pictures from words: OpenAI's images API and servers like it, Hugging Face, Stable Diffusion web UI."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Protocol

from autoagent.core.errors import CommandError
from autoagent.services.api_client import Provider
from autoagent.services.media import charges

SMALLEST_GPT_IMAGE = 1024  # pixels a side; the models of that name draw no smaller square
GPT_IMAGE_STEP = 16  # their sides are multiples of it
STEPS = 20  # rounds of denoising in the web UI; its own 50 take long on a machine without a GPU

_SUFFIXES = ((b"\x89PNG\r\n\x1a\n", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif"))


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture file, and what it cost in USD; None where that is not known."""

    picture: bytes
    cost: float | None


class Pictures(Protocol):
    """A provider of pictures."""

    @property
    def provider(self) -> Provider: ...

    def draw(self, prompt: str) -> Drawn:
        """A picture from words. Raises CommandError, which names the provider and the reason."""


@dataclass(frozen=True, slots=True)
class OpenAIPictures:
    """`POST /images/generations`. `size` in pixels a side is what is asked for; OpenAI's own draw 1024 and more."""

    provider: Provider
    model: str
    size: int

    def draw(self, prompt: str) -> Drawn:
        """As Pictures has it."""
        body = {"model": self.model, "prompt": prompt, "n": 1, **self._form()}
        answer = self.provider.post("/images/generations", json=body).fields()
        data = answer.get("data")
        first = data[0] if isinstance(data, list) and data else None
        picture = _decoded(self.provider.name, first.get("b64_json") if isinstance(first, dict) else None)
        return Drawn(picture, charges.of_picture(self.provider, self.model, answer))

    def _form(self) -> dict[str, Any]:
        side = self.size
        if "gpt-image" not in self.model:  # Servers like it have DALL·E's form, whose usual answer is an address.
            return {"size": f"{side}x{side}", "response_format": "b64_json"}
        side = max(SMALLEST_GPT_IMAGE, -(-side // GPT_IMAGE_STEP) * GPT_IMAGE_STEP)
        return {"size": f"{side}x{side}"}


@dataclass(frozen=True, slots=True)
class HuggingFacePictures:
    """The inference API, `POST /models/MODEL`: the answer is the picture itself. `size` in pixels a side."""

    provider: Provider
    model: str
    size: int

    def draw(self, prompt: str) -> Drawn:
        """As Pictures has it."""
        body = {"inputs": prompt, "parameters": {"width": self.size, "height": self.size}}
        picture = self.provider.post(f"/models/{self.model}", json=body, headers={"Accept": "image/png"}).body
        return Drawn(picture, charges.elsewhere(self.provider))


@dataclass(frozen=True, slots=True)
class WebUIPictures:
    """Stable Diffusion web UI started with `--api`: `POST /sdapi/v1/txt2img`. `size` in pixels a side."""

    provider: Provider
    size: int

    def draw(self, prompt: str) -> Drawn:
        """As Pictures has it."""
        body = {"prompt": prompt, "width": self.size, "height": self.size, "steps": STEPS}
        images = self.provider.post("/sdapi/v1/txt2img", json=body).fields().get("images")
        picture = _decoded(self.provider.name, images[0] if isinstance(images, list) and images else None)
        return Drawn(picture, charges.elsewhere(self.provider))


def suffix_of(name: str, picture: bytes) -> str:
    """The file suffix of a picture, by its first bytes. Raises CommandError where the provider `name` sent none."""
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        return ".webp"
    for magic, suffix in _SUFFIXES:
        if picture.startswith(magic):
            return suffix
    raise CommandError(f"{name} sent {len(picture):,} bytes that are no picture (PNG, JPEG, GIF or WebP).")


def _decoded(name: str, encoded: Any) -> bytes:
    if not isinstance(encoded, str):
        raise CommandError(f"{name} sent no picture in its answer.")
    try:
        return base64.b64decode(encoded.rpartition(",")[2], validate=True)  # after `data:image/png;base64,`, if any
    except ValueError as error:
        raise CommandError(f"{name} sent a picture that is not valid base64.") from error
