"""The settings of pictures, recordings and the voice."""

from __future__ import annotations

from autoagent.core.declaration import free, setting
from autoagent.core.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSettings:
    """Pictures, recordings, speech."""

    image_provider: str = free(
        "",
        "IMAGE_PROVIDER",
        help="dalle, huggingface or sdwebui; empty: no pictures",
        choices={"": "", "dalle": "dalle", "openai": "dalle", "huggingface": "huggingface", "sdwebui": "sdwebui"},
    )
    image_size: int = free(256, "IMAGE_SIZE", help="width and height in pixels")
    openai_image_model: str = free("gpt-image-2.5-flare", "OPENAI_IMAGE_MODEL", help="the endpoint's image model")
    huggingface_api_token: str = free("", "HUGGINGFACE_API_TOKEN", help="the key of Hugging Face", secret=True)
    huggingface_url: str = setting(
        "https://router.huggingface.co/hf-inference",
        "HUGGINGFACE_URL",
        help="the address of Hugging Face",
        keys=("huggingface_api_token",),
    )
    huggingface_image_model: str = free(
        "CompVis/stable-diffusion-v1-4", "HUGGINGFACE_IMAGE_MODEL", help="its image model"
    )
    sd_webui_url: str = setting(
        "http://localhost:7860", "SD_WEBUI_URL", help="the address of Stable Diffusion web UI", keys=("sd_webui_auth",)
    )
    sd_webui_auth: str = free("", "SD_WEBUI_AUTH", help="its USER:PASSWORD", secret=True)
    audio_provider: str = free(
        "",
        "AUDIO_TO_TEXT_PROVIDER",
        help="openai, huggingface or offline; empty: recordings are not read",
        choices={"": "", "openai": "openai", "huggingface": "huggingface", "offline": "offline"},
    )
    openai_audio_model: str = free("gpt-transcribe", "OPENAI_AUDIO_MODEL", help="the endpoint's transcription model")
    huggingface_audio_model: str = free(
        "openai/whisper-large-v3", "HUGGINGFACE_AUDIO_TO_TEXT_MODEL", help="the transcription model of Hugging Face"
    )
    speak: bool = free(False, "AUTOAGENT_SPEAK", help="speak the thoughts meant for the user")
    speech_provider: str = setting(
        "offline",
        "TEXT_TO_SPEECH_PROVIDER",
        help="offline, elevenlabs or streamelements",
        choices={
            "offline": "offline",
            "gtts": "offline",
            "macos": "offline",
            "elevenlabs": "elevenlabs",
            "streamelements": "streamelements",
        },
    )
    elevenlabs_api_key: str = free("", "ELEVENLABS_API_KEY", help="the key of ElevenLabs", secret=True)
    elevenlabs_voice: str = free(
        "", "ELEVENLABS_VOICE_ID", "ELEVENLABS_VOICE_1_ID", help="the voice of ElevenLabs; empty: its first"
    )
    elevenlabs_url: str = setting(
        "https://api.elevenlabs.io", "ELEVENLABS_URL", help="the address of ElevenLabs", keys=("elevenlabs_api_key",)
    )
    streamelements_voice: str = free("Brian", "STREAMELEMENTS_VOICE", help="the voice of StreamElements")
    streamelements_url: str = setting(
        "https://api.streamelements.com", "STREAMELEMENTS_URL", help="the address of StreamElements"
    )
