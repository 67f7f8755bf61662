"""Draw pictures with OpenAI's images API and compatible servers, Hugging Face, or Stable Diffusion web UI."""

from __future__ import annotations

import base64
from typing import Any

from autoagent.core.errors import CommandError
from autoagent.extension import ApiProvider, Setting
from autoagent_media import charges

SMALLEST_GPT_IMAGE = 1024  # pixels a side; the models of that name draw no smaller square
GPT_IMAGE_STEP = 16  # their sides are multiples of it
STEPS = 20  # rounds of denoising in the web UI; its own 50 take long on a machine without a GPU

_SUFFIXES = ((b"\x89PNG\r\n\x1a\n", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif"))


Drawn = tuple[Any, float | None]
"""A picture as the provider sent it, for `decoded`, and its cost in USD, None if unknown: charged whatever was sent."""


def draw_openai(provider: ApiProvider, setting: Setting, prompt: str) -> Drawn:
    """Draw with `POST /images/generations`, in the set size. OpenAI's own models draw 1024 pixels a side and more.

    Raises CommandError, as all of them: it names the provider and the reason.
    """
    model, side = setting("openai_image_model"), setting("image_size")
    body = {"model": model, "prompt": prompt, "n": 1}
    if "gpt-image" in model:
        side = max(SMALLEST_GPT_IMAGE, -(-side // GPT_IMAGE_STEP) * GPT_IMAGE_STEP)
    else:  # Servers like it have DALL·E's form, whose usual answer is an address.
        body["response_format"] = "b64_json"
    answer = provider.post("/images/generations", json={**body, "size": f"{side}x{side}"}).fields()
    data = answer.get("data")
    first = data[0] if isinstance(data, list) and data else None
    return first.get("b64_json") if isinstance(first, dict) else None, charges.of_picture(provider, model, answer)


def draw_hugging_face(provider: ApiProvider, setting: Setting, prompt: str) -> Drawn:
    """Draw with the inference API, `POST /models/MODEL`, whose answer is the picture itself."""
    body = {"inputs": prompt, "parameters": {"width": setting("image_size"), "height": setting("image_size")}}
    path = f"/models/{setting('huggingface_image_model')}"
    return provider.post(path, json=body, headers={"Accept": "image/png"}).body, charges.elsewhere(provider)


def draw_web_ui(provider: ApiProvider, setting: Setting, prompt: str) -> Drawn:
    """Draw with the Stable Diffusion web UI started with `--api`: `POST /sdapi/v1/txt2img`."""
    body = {"prompt": prompt, "width": setting("image_size"), "height": setting("image_size"), "steps": STEPS}
    images = provider.post("/sdapi/v1/txt2img", json=body).fields().get("images")
    return images[0] if isinstance(images, list) and images else None, charges.elsewhere(provider)


def suffix_of(name: str, picture: bytes) -> str:
    """Return the file suffix of a picture, by its first bytes. Raises CommandError if the provider `name` sent none."""
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        return ".webp"
    for magic, suffix in _SUFFIXES:
        if picture.startswith(magic):
            return suffix
    raise CommandError(f"{name} sent {len(picture):,} bytes that are no picture (PNG, JPEG, GIF or WebP).")


def decoded(name: str, encoded: Any) -> bytes:
    """Return the bytes of a picture that the provider `name` sent, as they are or in base64. Raises CommandError."""
    if isinstance(encoded, bytes):
        return encoded
    if not isinstance(encoded, str):
        raise CommandError(f"{name} sent no picture in its answer.")
    try:
        return base64.b64decode(encoded.rpartition(",")[2], validate=True)  # after `data:image/png;base64,`, if any
    except ValueError as error:
        raise CommandError(f"{name} sent a picture that is not valid base64.") from error
