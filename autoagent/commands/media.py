"""The commands on pictures and recordings. Who draws and listens is chosen in the settings."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated

from autoagent.commands.context import Context
from autoagent.commands.files import Filename
from autoagent.commands.registry import Command, CommandOutput, command
from autoagent.commands.support.extras import OFFLINE_AUDIO
from autoagent.core.commands import Effects, ResultMeta
from autoagent.core.errors import CommandError
from autoagent.settings import Settings

PROMPT_LIMIT = 4_000  # characters of a prompt for a picture; providers refuse more, or silently drop it
RECORDING_LIMIT = 25_000_000  # bytes, which is what OpenAI's endpoint takes
NAME_LIMIT = 40  # characters of a picture's name that come from its prompt


@command(
    "generate_image",
    "Generate an image",
    risk="network",
    rare=True,
    available=lambda settings: _no_provider("IMAGE_PROVIDER", settings.image_provider, settings),
    effects=Effects(),
    autogpt=["image_gen"],
)
def generate_image(context: Context, prompt: Annotated[str, "what is to be seen in it", "text"]) -> CommandOutput:
    if not prompt.strip():
        raise CommandError("The prompt is empty; say what is to be seen in the picture.")
    if len(prompt) > PROMPT_LIMIT:
        raise CommandError(f"The prompt has {len(prompt):,} characters; {PROMPT_LIMIT:,} are the most.")
    context.progress(f"{context.media.draws_at} draws; that can take a minute")
    picture, suffix = context.media.draw(prompt)
    words = "-".join(re.findall(r"\w+", prompt.lower()))[:NAME_LIMIT].strip("-") or "picture"
    name = f"{words}-{hashlib.sha256(picture).hexdigest()[:8]}{suffix}"
    context.workspace.write(name, picture)
    return CommandOutput(f"Saved the picture as {name} ({len(picture):,} bytes).", ResultMeta(changed=(name,)))


def _no_listener(settings: Settings) -> str:
    return OFFLINE_AUDIO.reason(settings) or _no_provider("AUDIO_TO_TEXT_PROVIDER", settings.audio_provider, settings)


@command(
    "read_audio_from_file",
    "Convert audio to text",
    risk="network",
    rare=True,
    aliases=["read_audio"],
    available=_no_listener,
    assess=lambda context, filename: "network" if context.media.listens_at else "read",
    effects=Effects(from_outside=True),
    autogpt=["audio_text"],
)
def read_audio_from_file(context: Context, filename: Filename) -> CommandOutput:
    recording = context.workspace.read(filename, RECORDING_LIMIT + 1)
    if len(recording) > RECORDING_LIMIT:
        raise CommandError(f"{filename} is larger than {RECORDING_LIMIT // 1_000_000} MB; cut it into shorter ones.")
    context.progress(f"{context.media.listens_at or 'This machine'} listens to {filename}")
    name = context.workspace.display(filename)
    words = context.media.transcribe(name, recording)
    return CommandOutput(words or f"No words are spoken in {name}.", ResultMeta(untrusted=f"recording {name}"))


def _no_provider(variable: str, provider: str, settings: Settings) -> str:
    """Explain why a provider cannot be used, or '' if it can. A self-hosted server may need no key."""
    if not provider:
        return f"{variable} is not set"
    if provider in ("dalle", "openai") and not (settings.openai_api_key or settings.openai_base_url):
        return "OPENAI_API_KEY is not set"
    if provider == "huggingface" and not settings.huggingface_api_token:
        return "HUGGINGFACE_API_TOKEN is not set"
    return ""


COMMANDS: tuple[Command, ...] = (generate_image, read_audio_from_file)
