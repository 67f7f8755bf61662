"""AutoGPT's folders: its files at their usual places, and its variables with other names or no effect here.

Variables with the same name and meaning are declared in Settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from autoagent.core.errors import SettingsError
from autoagent.session.dotenv import read_dotenv
from autoagent.text.text_file import is_inside, is_there, read_text

PROMPT_SETTINGS = Path("prompt_settings.yaml")
WORKSPACES = (Path("auto_gpt_workspace"), Path("autogpt/auto_gpt_workspace"))

_PLACEHOLDER = re.compile(
    r"your-[a-z0-9-]+|github_pat_123|api-version-for-azure|(?:[a-z0-9]+-)?deployment-id-for-azure\S*"
)
_HEADING = re.compile(r"^#+ *auto-?gpt - general settings", re.IGNORECASE | re.MULTILINE)
_ITS_OWN = frozenset(
    {
        "RESTRICT_TO_WORKSPACE", "BROWSE_CHUNK_MAX_LENGTH", "FAST_TOKEN_LIMIT", "SMART_TOKEN_LIMIT",
        "PLUGINS_CONFIG_FILE", "ALLOWLISTED_PLUGINS", "WIPE_REDIS_ON_START", "USE_BRIAN_TTS", "SHELL_COMMAND_CONTROL",
    }
)  # fmt: skip
_AZURE_KEYS = ("azure_api_type", "azure_api_base", "azure_api_version", "azure_model_map")


@dataclass(frozen=True, slots=True)
class Meaning:
    """The value that a variable of AutoGPT or a key of its azure.yaml gives to a setting. `over`: it overrides our own
    name.
    """

    setting: str
    variable: str
    value: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class Unused:
    """Why a variable does nothing here. `stock`: the values, in lower case, with which nothing is missed."""

    reason: str
    stock: tuple[str, ...]


def is_blank(value: str | None) -> bool:
    """Return whether a variable counts as not set: it is empty, or still holds the words of AutoGPT's template."""
    return not (value and value.strip()) or _PLACEHOLDER.fullmatch(value.strip()) is not None


def is_autogpts(text: str, names: Sequence[str]) -> bool:
    """Return whether a `.env` was made for AutoGPT: it has the heading of its template, or a variable of its own."""
    return _HEADING.search(text) is not None or not _ITS_OWN.isdisjoint(names)


REDIS = "redis"  # its backend that an address belongs to


def meanings(values: Mapping[str, str], folder: Path, *, redis: bool) -> Iterator[Meaning]:
    """Yield the settings that these variables set under other names. `redis`: the memory is in Redis.

    Raises SettingsError for a value that is not true or false, and for an unusable azure.yaml.
    """
    if _is_true(values, "USE_AZURE"):
        yield from _azure(values, folder)
    if _is_true(values, "OPENAI_FUNCTIONS"):
        yield Meaning("asking", "OPENAI_FUNCTIONS", "tools")
    for variable, provider in (("USE_BRIAN_TTS", "streamelements"), ("USE_MAC_OS_TTS", "offline")):
        if _is_true(values, variable):
            yield Meaning("speech_provider", variable, provider)
    if redis and (given := [name for name in ("REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD") if values.get(name)]):
        password = f":{quote(values['REDIS_PASSWORD'], safe='')}@" if values.get("REDIS_PASSWORD") else ""
        place = f"{values.get('REDIS_HOST') or 'localhost'}:{values.get('REDIS_PORT') or 6379}"
        yield Meaning("memory_url", given[0], f"redis://{password}{place}/0")


def _is_true(values: Mapping[str, str], name: str) -> bool:
    word = values.get(name, "").strip().lower()
    if word not in ("", "true", "1", "yes", "on", "false", "0", "no", "off"):
        raise SettingsError(f"{name}: must be true or false (1/0, yes/no, on/off), not {values[name]!r}.")
    return word in ("true", "1", "yes", "on")


AZURE_ADDRESS = "azure_api_base"
"""The key of azure.yaml that names an address. The file may come from others than the `.env` with the key beside it."""


def _azure(values: Mapping[str, str], folder: Path) -> Iterator[Meaning]:
    """Yield address and deployments, of azure.yaml or of the variables that AutoGPT had before it."""
    base, models = _azure_file(values, folder)
    variable = AZURE_ADDRESS if base else "OPENAI_AZURE_API_BASE"
    base = base or values.get("OPENAI_AZURE_API_BASE", "")
    if is_blank(base):
        raise SettingsError(
            "USE_AZURE is set, but nothing says where: write azure_api_base into azure.yaml, or set OPENAI_BASE_URL to "
            "https://NAME.openai.azure.com/openai/v1 in place of USE_AZURE."
        )
    address = base.rstrip("/")
    if not address.endswith("/openai/v1"):
        address = f"{address.removesuffix('/openai')}/openai/v1"
    yield Meaning("openai_base_url", variable, address, over=True)
    chat = values.get("OPENAI_AZURE_CHAT_DEPLOYMENT_ID") or values.get("OPENAI_AZURE_DEPLOYMENT_ID")
    deployments = {
        "smart_llm": (models.get("smart_llm_deployment_id") or models.get("smart_llm_model_deployment_id"), chat),
        "fast_llm": (models.get("fast_llm_deployment_id") or models.get("fast_llm_model_deployment_id"), chat),
        "embedding_model": (
            models.get("embedding_model_deployment_id"),
            values.get("OPENAI_AZURE_EMBEDDINGS_DEPLOYMENT_ID"),
        ),
    }
    for setting, (named, older) in deployments.items():
        if not is_blank(value := named or older):
            yield Meaning(setting, f"{setting}_deployment_id", str(value), over=True)


def azure_file(values: Mapping[str, str]) -> Path:
    """Return where azure.yaml is, seen from the folder."""
    return Path(values.get("AZURE_CONFIG_FILE") or "azure.yaml")


def _azure_file(values: Mapping[str, str], folder: Path) -> tuple[str, dict[str, str]]:
    """Return the address and the deployments of azure.yaml, or nothing if the file is missing."""
    from autoagent.text.yaml_file import read_mapping  # few have one

    path = folder / azure_file(values)
    if not is_there(path):
        return "", {}
    entries = read_mapping(path, _AZURE_KEYS)
    models = entries["azure_model_map"].members() if "azure_model_map" in entries else {}
    base = entries["azure_api_base"].text() if "azure_api_base" in entries else ""
    return base, {key: entry.text() for key, entry in models.items()}


def notes(variables: Mapping[str, str]) -> list[str]:
    """Return a line for each reason for which some of these variables do nothing, where that is missed."""
    reasons: dict[str, list[str]] = {}
    for name, value in variables.items():
        unused = UNUSED.get(name)
        if unused and not is_blank(value) and value.strip().lower() not in unused.stock:
            reasons.setdefault(unused.reason, []).append(name)
    return [f"Not used of .env: {', '.join(names)}: {reason}." for reason, names in reasons.items()]


_GONE_STORES = "memories are kept in SQLite (local), redis or postgres: set MEMORY_BACKEND"
_UNUSED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "the agent never leaves its workspace; -w names another folder": {"RESTRICT_TO_WORKSPACE": ("true",)},
    "Azure's address needs neither: azure.yaml, or OPENAI_BASE_URL, is enough": {
        "OPENAI_AZURE_API_VERSION": (), "OPENAI_API_TYPE": ("azure", "open_ai"), "OPENAI_API_VERSION": (),
    },
    _GONE_STORES: {
        "PINECONE_API_KEY": (), "PINECONE_ENV": (),
        "MILVUS_ADDR": ("localhost:19530",), "MILVUS_USERNAME": (), "MILVUS_PASSWORD": (),
        "MILVUS_SECURE": ("false",), "MILVUS_COLLECTION": ("autogpt",),
        "WEAVIATE_HOST": ("127.0.0.1", "localhost"), "WEAVIATE_PORT": ("8080",), "WEAVIATE_PROTOCOL": ("http",),
        "USE_WEAVIATE_EMBEDDED": ("false",), "WEAVIATE_EMBEDDED_PATH": ("/home/me/.local/share/weaviate",),
        "WEAVIATE_USERNAME": (), "WEAVIATE_PASSWORD": (), "WEAVIATE_API_KEY": (),
    },
    "a memory is never wiped by starting; another MEMORY_INDEX is an empty one": {
        "WIPE_REDIS_ON_START": ("false",),
    },
    "a browser never shows a window here": {"HEADLESS_BROWSER": ("true",)},
    "a long page is split by what fits the window: AUTOAGENT_WINDOW": {
        "BROWSE_CHUNK_MAX_LENGTH": ("8192", "3000"), "BROWSE_SUMMARY_MAX_TOKEN": ("300",),
        "BROWSE_SPACY_LANGUAGE_MODEL": ("en_core_web_sm",),
    },
    "one voice speaks: ELEVENLABS_VOICE_ID": {"ELEVENLABS_VOICE_2_ID": ()},
}  # fmt: skip
UNUSED: Mapping[str, Unused] = {
    variable: Unused(reason, stock) for reason, variables in _UNUSED.items() for variable, stock in variables.items()
}

TRANSLATED: Mapping[str, str] = {
    "USE_AZURE": "azure.yaml says where the models are",
    "AZURE_CONFIG_FILE": "where azure.yaml is, with USE_AZURE",
    **dict.fromkeys(
        (
            "OPENAI_AZURE_API_BASE", "OPENAI_AZURE_DEPLOYMENT_ID", "OPENAI_AZURE_CHAT_DEPLOYMENT_ID",
            "OPENAI_AZURE_EMBEDDINGS_DEPLOYMENT_ID",
        ),
        "with USE_AZURE, where azure.yaml says nothing else",
    ),
    "OPENAI_FUNCTIONS": "true: the model is asked by tool calls; else as it is found to take it",
    "USE_BRIAN_TTS": "true: StreamElements speaks",
    "USE_MAC_OS_TTS": "true: this machine speaks",
    **dict.fromkeys(("REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD"), "where Redis is, with MEMORY_BACKEND=redis"),
}  # fmt: skip
"""AutoGPT's variables that set something under another name, each with what."""


DOTENV = ".env"


class AutoGPTFolder:
    """The `.env` of a folder and AutoGPT's files beside it. `held` are the settings that hold without the folder."""

    def __init__(self, folder: Path, env: Mapping[str, str], held: Mapping[str, tuple[Any, str]]) -> None:
        self.variables = read_dotenv(folder / DOTENV)
        self._folder = folder
        self._env = env
        self._held = held
        text = read_text(folder / DOTENV) if self.variables else ""
        self._is_autogpts = is_autogpts(text, list(self.variables))

    def translated(self, written: Iterable[tuple[str, str, str, str]]) -> Iterator[tuple[str, str, str, str]]:
        """Yield the values of `.env`, with those that AutoGPT's variables set under other names (see settings.Raw)."""
        own = {name: (called, value, origin) for name, called, value, origin in written}
        values = {name: found.value for name, found in self.variables.items() if not is_blank(found.value)}
        values |= {"USE_AZURE": self._env["USE_AZURE"]} if self._env.get("USE_AZURE") else {}
        if not is_inside(self._folder, azure_file(values)):
            raise SettingsError(f"AZURE_CONFIG_FILE: {azure_file(values)} leads out of this folder.")
        backend = (
            self._held["memory_backend"][0] if "memory_backend" in self._held else own.get("memory_backend", "  ")[1]
        )
        redis = backend.lower() == REDIS
        for meaning in meanings(values, self._folder, redis=redis):
            if meaning.over or meaning.setting not in own:
                line = self._line(meaning.variable) or self._line("USE_AZURE")
                own[meaning.setting] = (f".env:{line}: {meaning.variable}", meaning.value, f".env:{line}")
        local = "execute_local_commands"
        if self._is_autogpts and local not in own and local not in self._held:
            own[local] = (".env:1: EXECUTE_LOCAL_COMMANDS", "false", ".env:1")
        for name, (called, value, origin) in own.items():
            yield name, called, value, origin

    def _line(self, variable: str) -> int:
        return self.variables[variable].line if variable in self.variables else 0

    def usual_places(self, workspace: Path) -> dict[str, tuple[Path, str]]:
        """Return AutoGPT's usual files and folders that exist here, for settings that name no others.

        `workspace` is our own default, which has precedence.
        """
        places = {"prompt_settings_file": (PROMPT_SETTINGS,), "workspace": (workspace, *WORKSPACES)}
        found: dict[str, tuple[Path, str]] = {}
        for name, paths in places.items():
            there = [path for path in paths if (self._folder / path).exists() and is_inside(self._folder, path)]
            if there and there[0] != workspace:
                found[name] = there[0], "default"
        return found

    def is_in_use(self) -> bool:
        """Return whether AutoGPT, or a task of its kind, has a home here: its settings, its `.env`, its workspace."""
        ai_settings = self._env.get("AI_SETTINGS_FILE") or "ai_settings.yaml"
        names = (ai_settings, PROMPT_SETTINGS, *WORKSPACES)
        return self._is_autogpts or any(os.path.lexists(self._folder / name) for name in names)

    def notes(self, taken: Mapping[str, tuple[Any, str]]) -> list[str]:
        """Return a line for each thing the user might miss. `taken` are the settings in effect."""
        lines = notes({name: found.value for name, found in self.variables.items()})
        local = "EXECUTE_LOCAL_COMMANDS"
        if taken.get(local.lower()) == (False, ".env:1") and local not in self.variables:
            lines.append(
                f"Shell commands are off, as AutoGPT has it: {local}=true in .env switches them on, in the sandbox."
            )
        return lines
