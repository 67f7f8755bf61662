"""Define the commands for pictures and recordings."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Annotated, Any

from autoagent.extension import Command, CommandError, CommandOutput, Context, Effects, Extra, ResultMeta, command

if TYPE_CHECKING:
    from autoagent_media.providers import ChosenMedia

Filename = Annotated[str, "path relative to the workspace", "path"]

PROMPT_LIMIT = 4_000  # characters of a prompt for a picture; providers refuse more, or silently drop it
RECORDING_LIMIT = 25_000_000  # bytes, the limit of OpenAI's endpoint
NAME_LIMIT = 40  # characters of a picture's name that come from its prompt


class Listener(Extra):
    """The extra for listening on this machine, which needs a provider in the settings in any case."""

    def reason(self, settings: Any) -> str:
        """Explain why nothing can listen with these settings, or '' if something can."""
        missing = super().reason(settings)
        return missing or _no_provider("AUDIO_TO_TEXT_PROVIDER", settings.audio_provider, settings)


OFFLINE_AUDIO = Listener(
    "offline-audio",
    "faster_whisper",
    "AUDIO_TO_TEXT_PROVIDER=offline",
    lambda settings: settings.audio_provider == "offline",
)


@command(
    "generate_image",
    "Generate an image",
    risk="network",
    rare=True,
    category="media",
    available=lambda settings: _no_provider("IMAGE_PROVIDER", settings.image_provider, settings),
    effects=Effects(),
    autogpt=["image_gen"],
)
def generate_image(context: Context, prompt: Annotated[str, "what is to be seen in it", "text"]) -> CommandOutput:
    if not prompt.strip():
        raise CommandError("The prompt is empty; say what is to be seen in the picture.")
    if len(prompt) > PROMPT_LIMIT:
        raise CommandError(f"The prompt has {len(prompt):,} characters; {PROMPT_LIMIT:,} are the most.")
    media = _media(context)
    context.progress(f"{media.draws_at} draws; that can take a minute")
    picture, suffix = media.draw(prompt)
    words = "-".join(re.findall(r"\w+", prompt.lower()))[:NAME_LIMIT].strip("-") or "picture"
    name = f"{words}-{hashlib.sha256(picture).hexdigest()[:8]}{suffix}"
    context.workspace.write(name, picture)
    return CommandOutput(f"Saved the picture as {name} ({len(picture):,} bytes).", ResultMeta(changed=(name,)))


@command(
    "read_audio_from_file",
    "Convert audio to text",
    risk="network",
    rare=True,
    category="media",
    aliases=["read_audio"],
    available=OFFLINE_AUDIO.reason,
    assess=lambda context, filename: "network" if _media(context).listens_at else "read",
    effects=Effects(from_outside=True),
    autogpt=["audio_text"],
)
def read_audio_from_file(context: Context, filename: Filename) -> CommandOutput:
    recording = context.workspace.read(filename, RECORDING_LIMIT + 1)
    if len(recording) > RECORDING_LIMIT:
        raise CommandError(f"{filename} is larger than {RECORDING_LIMIT // 1_000_000} MB; cut it into shorter ones.")
    media = _media(context)
    context.progress(f"{media.listens_at or 'This machine'} listens to {filename}")
    name = context.workspace.display(filename)
    words = media.transcribe(name, recording)
    return CommandOutput(words or f"No words are spoken in {name}.", ResultMeta(untrusted=f"recording {name}"))


def _media(context: Context) -> ChosenMedia:
    from autoagent_media.providers import ChosenMedia

    return ChosenMedia(context.setting, context.spend)


def _no_provider(variable: str, provider: str, settings: Any) -> str:
    """Explain why a provider cannot be used, or '' if it can. A self-hosted server may need no key."""
    if not provider:
        return f"{variable} is not set"
    if provider in ("dalle", "openai") and not (settings.openai_api_key or settings.openai_base_url):
        return "OPENAI_API_KEY is not set"
    if provider == "huggingface" and not settings.huggingface_api_token:
        return "HUGGINGFACE_API_TOKEN is not set"
    return ""


COMMANDS: tuple[Command, ...] = (generate_image, read_audio_from_file)
