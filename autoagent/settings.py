"""Every setting of the program, in one frozen record, and where each value came from.

Layers, later ones win: defaults < user config < `.env` < environment < flags. The task itself (name, role, goals)
is `ai_settings.yaml`, read and written here too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def setting(default: Any, *env: str, help: str = "", secret: bool = False) -> Any:
    """A field of Settings: its default, the environment variables that set it (first wins), its one line of help."""
    return field(default=default, metadata={"env": env, "help": help, "secret": secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The program's settings. A tuple is written comma-separated in a variable; paths are relative to the start."""

    # the models
    model: str = setting("", "AUTOAGENT_MODEL", help="openai, local, human, replay:RUN, demo, or a model's name")
    smart_llm: str = setting("gpt-5", "SMART_LLM", "SMART_LLM_MODEL", help="the model that thinks")
    fast_llm: str = setting("gpt-5-mini", "FAST_LLM", "FAST_LLM_MODEL", help="the model that summarises")
    temperature: float = setting(0.0, "TEMPERATURE", help="0 is the most repeatable")
    window: int = setting(0, "AUTOAGENT_WINDOW", help="context length in tokens; 0: as the model has it")
    embedding_model: str = setting("text-embedding-3-small", "EMBEDDING_MODEL", help="the endpoint's embedder")
    openai_api_key: str = setting("", "OPENAI_API_KEY", help="the key of the endpoint", secret=True)
    openai_base_url: str = setting(
        "", "OPENAI_BASE_URL", "OPENAI_API_BASE_URL", help="an OpenAI-compatible endpoint; empty: OpenAI's own"
    )
    openai_organization: str = setting("", "OPENAI_ORGANIZATION", help="the organization billed")

    # the files
    ai_settings_file: Path = setting(Path("ai_settings.yaml"), "AI_SETTINGS_FILE", help="name, role and goals")
    prompt_settings_file: Path | None = setting(
        None, "PROMPT_SETTINGS_FILE", help="constraints, resources, best practices"
    )
    workspace: Path = setting(Path("autoagent_workspace"), "AUTOAGENT_WORKSPACE", help="the only folder it works in")
    state_dir: Path = setting(Path(".autoagent"), "AUTOAGENT_STATE_DIR", help="runs and memory")

    # memory
    memory_backend: str = setting("local", "MEMORY_BACKEND", help="local or none")
    memory_index: str = setting("", "MEMORY_INDEX", help="the name of the memory; empty: the default one")

    # limits
    continuous: bool = setting(False, help="run without asking")
    continuous_limit: int = setting(0, "CONTINUOUS_LIMIT", help="at most so many commands; 0: no limit")
    budget: float = setting(0.0, "AUTOAGENT_BUDGET", help="USD; 0: no limit")
    max_tokens: int = setting(0, "AUTOAGENT_MAX_TOKENS", help="tokens of all calls together; 0: no limit")
    max_seconds: float = setting(0.0, "AUTOAGENT_MAX_SECONDS", help="seconds of all processes together; 0: no limit")

    # what it may do
    commands: tuple[str, ...] = setting((), "AUTOAGENT_COMMANDS", help="names or categories to offer; empty: chosen")
    disabled_command_categories: tuple[str, ...] = setting(
        (), "DISABLED_COMMAND_CATEGORIES", help="categories never offered"
    )

    # the screen
    authorise_command_key: str = setting("y", "AUTHORISE_COMMAND_KEY", help="the answer that runs a command")
    exit_key: str = setting("n", "EXIT_KEY", help="the answer that saves and stops")
    plain_output: bool = setting(False, "PLAIN_OUTPUT", help="no colours, no live lines")
    debug: bool = setting(False, help="show tracebacks")
