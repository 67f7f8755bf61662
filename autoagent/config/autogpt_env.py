"""AutoGPT's environment variables that set nothing here, each with the reason; the others are named in Settings."""

from __future__ import annotations

from collections.abc import Mapping

NOT_USED: Mapping[str, str] = {
    variable: reason
    for reason, variables in {
        "the agent never leaves its workspace; this cannot be switched off": "RESTRICT_TO_WORKSPACE",
        "Azure is reached by its OpenAI-compatible address: set OPENAI_API_BASE_URL and OPENAI_API_KEY": (
            "USE_AZURE AZURE_CONFIG_FILE OPENAI_AZURE_API_BASE OPENAI_AZURE_API_VERSION "
            "OPENAI_AZURE_DEPLOYMENT_ID OPENAI_AZURE_CHAT_DEPLOYMENT_ID OPENAI_AZURE_EMBEDDINGS_DEPLOYMENT_ID "
            "OPENAI_API_TYPE OPENAI_API_VERSION"
        ),
        "whether the model takes native tool calls is found out by asking it": "OPENAI_FUNCTIONS",
        "the context length is asked from the model; AUTOAGENT_WINDOW overrides it": (
            "FAST_TOKEN_LIMIT SMART_TOKEN_LIMIT"
        ),
        "MEMORY_BACKEND is local, postgres or redis": (
            "PINECONE_API_KEY PINECONE_ENV MILVUS_ADDR MILVUS_USERNAME MILVUS_PASSWORD MILVUS_SECURE "
            "MILVUS_COLLECTION WEAVIATE_HOST WEAVIATE_PORT WEAVIATE_PROTOCOL USE_WEAVIATE_EMBEDDED "
            "WEAVIATE_EMBEDDED_PATH WEAVIATE_USERNAME WEAVIATE_PASSWORD WEAVIATE_API_KEY"
        ),
        "where Redis is, with its password, is told by MEMORY_URL: redis://:PASSWORD@HOST:PORT/0": (
            "REDIS_HOST REDIS_PORT REDIS_PASSWORD"
        ),
        "a memory is never wiped by starting; another MEMORY_INDEX is an empty one": "WIPE_REDIS_ON_START",
        "a browser never shows a window here": "HEADLESS_BROWSER",
        "long pages are split by what fits the fast model's window": (
            "BROWSE_CHUNK_MAX_LENGTH BROWSE_SUMMARY_MAX_TOKEN BROWSE_SPACY_LANGUAGE_MODEL"
        ),
        "one voice speaks: TEXT_TO_SPEECH_PROVIDER says which": "ELEVENLABS_VOICE_2_ID USE_MAC_OS_TTS USE_BRIAN_TTS",
        "there are no plugins in this version": "PLUGINS_CONFIG_FILE ALLOWLISTED_PLUGINS DENYLISTED_PLUGINS",
        "there is no chat service to report to": "CHAT_MESSAGES_ENABLED",
    }.items()
    for variable in variables.split()
}
