"""AutoGPT's environment variables that set nothing here, each with the reason; the others are named in Settings."""

from __future__ import annotations

from collections.abc import Mapping

_SHELL = "there is no shell command in this version"
_WEB = "there is no web command in this version"
_MEDIA = "there is no image, audio or tweet command in this version"
_SPEECH = "there is no speech in this version"
_PLUGINS = "there are no plugins in this version"
_BACKEND = "MEMORY_BACKEND is local, postgres or redis"
_REDIS = "where Redis is, with its password, is told by MEMORY_URL: redis://:PASSWORD@HOST:PORT/0"
_AZURE = "Azure is reached by its OpenAI-compatible address: set OPENAI_API_BASE_URL and OPENAI_API_KEY"
_TOKENS = "the context length is asked from the model; AUTOAGENT_WINDOW overrides it"

NOT_USED: Mapping[str, str] = {
    "EXECUTE_LOCAL_COMMANDS": _SHELL,
    "SHELL_COMMAND_CONTROL": _SHELL,
    "SHELL_ALLOWLIST": _SHELL,
    "SHELL_DENYLIST": _SHELL,
    "ALLOW_COMMANDS": _SHELL,
    "DENY_COMMANDS": _SHELL,
    "RESTRICT_TO_WORKSPACE": "the agent never leaves its workspace; this cannot be switched off",
    "USE_AZURE": _AZURE,
    "AZURE_CONFIG_FILE": _AZURE,
    "OPENAI_AZURE_API_BASE": _AZURE,
    "OPENAI_AZURE_API_VERSION": _AZURE,
    "OPENAI_AZURE_DEPLOYMENT_ID": _AZURE,
    "OPENAI_AZURE_CHAT_DEPLOYMENT_ID": _AZURE,
    "OPENAI_AZURE_EMBEDDINGS_DEPLOYMENT_ID": _AZURE,
    "OPENAI_API_TYPE": _AZURE,
    "OPENAI_API_VERSION": _AZURE,
    "OPENAI_FUNCTIONS": "whether the model takes native tool calls is found out by asking it",
    "FAST_TOKEN_LIMIT": _TOKENS,
    "SMART_TOKEN_LIMIT": _TOKENS,
    "PINECONE_API_KEY": _BACKEND,
    "PINECONE_ENV": _BACKEND,
    "REDIS_HOST": _REDIS,
    "REDIS_PORT": _REDIS,
    "REDIS_PASSWORD": _REDIS,
    "WIPE_REDIS_ON_START": "a memory is never wiped by starting; another MEMORY_INDEX is an empty one",
    "MILVUS_ADDR": _BACKEND,
    "MILVUS_USERNAME": _BACKEND,
    "MILVUS_PASSWORD": _BACKEND,
    "MILVUS_SECURE": _BACKEND,
    "MILVUS_COLLECTION": _BACKEND,
    "WEAVIATE_HOST": _BACKEND,
    "WEAVIATE_PORT": _BACKEND,
    "WEAVIATE_PROTOCOL": _BACKEND,
    "USE_WEAVIATE_EMBEDDED": _BACKEND,
    "WEAVIATE_EMBEDDED_PATH": _BACKEND,
    "WEAVIATE_USERNAME": _BACKEND,
    "WEAVIATE_PASSWORD": _BACKEND,
    "WEAVIATE_API_KEY": _BACKEND,
    "USER_AGENT": _WEB,
    "HEADLESS_BROWSER": _WEB,
    "USE_WEB_BROWSER": _WEB,
    "BROWSE_CHUNK_MAX_LENGTH": _WEB,
    "BROWSE_SUMMARY_MAX_TOKEN": _WEB,
    "BROWSE_SPACY_LANGUAGE_MODEL": _WEB,
    "GOOGLE_API_KEY": _WEB,
    "GOOGLE_CUSTOM_SEARCH_ENGINE_ID": _WEB,
    "CUSTOM_SEARCH_ENGINE_ID": _WEB,
    "GITHUB_API_KEY": "there is no git command in this version",
    "GITHUB_USERNAME": "there is no git command in this version",
    "IMAGE_PROVIDER": _MEDIA,
    "IMAGE_SIZE": _MEDIA,
    "HUGGINGFACE_API_TOKEN": _MEDIA,
    "HUGGINGFACE_IMAGE_MODEL": _MEDIA,
    "HUGGINGFACE_AUDIO_TO_TEXT_MODEL": _MEDIA,
    "SD_WEBUI_URL": _MEDIA,
    "SD_WEBUI_AUTH": _MEDIA,
    "AUDIO_TO_TEXT_PROVIDER": _MEDIA,
    "TW_CONSUMER_KEY": _MEDIA,
    "TW_CONSUMER_SECRET": _MEDIA,
    "TW_ACCESS_TOKEN": _MEDIA,
    "TW_ACCESS_TOKEN_SECRET": _MEDIA,
    "TEXT_TO_SPEECH_PROVIDER": _SPEECH,
    "STREAMELEMENTS_VOICE": _SPEECH,
    "ELEVENLABS_API_KEY": _SPEECH,
    "ELEVENLABS_VOICE_ID": _SPEECH,
    "ELEVENLABS_VOICE_1_ID": _SPEECH,
    "ELEVENLABS_VOICE_2_ID": _SPEECH,
    "USE_MAC_OS_TTS": _SPEECH,
    "USE_BRIAN_TTS": _SPEECH,
    "PLUGINS_CONFIG_FILE": _PLUGINS,
    "ALLOWLISTED_PLUGINS": _PLUGINS,
    "DENYLISTED_PLUGINS": _PLUGINS,
    "CHAT_MESSAGES_ENABLED": "there is no chat service to report to",
}
