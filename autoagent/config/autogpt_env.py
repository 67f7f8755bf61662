"""AutoGPT's environment variables that set nothing here, each with the reason; the others are named in Settings."""

from __future__ import annotations

from collections.abc import Mapping

_PAGES = "long pages are split by what fits the fast model's window"
_VOICE = "one voice speaks: TEXT_TO_SPEECH_PROVIDER says which"
_PLUGINS = "there are no plugins in this version"
_BACKEND = "MEMORY_BACKEND is local, postgres or redis"
_REDIS = "where Redis is, with its password, is told by MEMORY_URL: redis://:PASSWORD@HOST:PORT/0"
_AZURE = "Azure is reached by its OpenAI-compatible address: set OPENAI_API_BASE_URL and OPENAI_API_KEY"
_TOKENS = "the context length is asked from the model; AUTOAGENT_WINDOW overrides it"

NOT_USED: Mapping[str, str] = {
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
    "HEADLESS_BROWSER": "a browser never shows a window here",
    "BROWSE_CHUNK_MAX_LENGTH": _PAGES,
    "BROWSE_SUMMARY_MAX_TOKEN": _PAGES,
    "BROWSE_SPACY_LANGUAGE_MODEL": _PAGES,
    "ELEVENLABS_VOICE_2_ID": _VOICE,
    "USE_MAC_OS_TTS": _VOICE,
    "USE_BRIAN_TTS": _VOICE,
    "PLUGINS_CONFIG_FILE": _PLUGINS,
    "ALLOWLISTED_PLUGINS": _PLUGINS,
    "DENYLISTED_PLUGINS": _PLUGINS,
    "CHAT_MESSAGES_ENABLED": "there is no chat service to report to",
}
