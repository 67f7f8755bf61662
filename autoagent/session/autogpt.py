"""Read AutoGPT's folders: files in their usual places, and variables with other names or no effect here.

Variables with the same name and meaning are declared in Settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from autoagent.core.errors import SettingsError
from autoagent.core.frozen import dataclass
from autoagent.registry.memory import UNSUPPORTED
from autoagent.session.dotenv import boolean, read_dotenv
from autoagent.settings import DOTENV, REMOVED, WORKSPACE
from autoagent.text.text_file import is_inside, is_there, read_text
from autoagent.text.yaml_file import read_mapping

PROMPT_SETTINGS = Path("prompt_settings.yaml")
WORKSPACES = (Path("auto_gpt_workspace"), Path("autogpt/auto_gpt_workspace"))
AGENTS = (Path("data/agents"), Path(".autogpt/agents"))  # from AutoGPT 0.5 on, each with a state and a workspace

_PLACEHOLDER = re.compile(
    r"your-[a-z0-9-]+|github_pat_123|api-version-for-azure|(?:[a-z0-9]+-)?deployment-id-for-azure\S*"
)
_HEADING = re.compile(r"^#+ *auto-?gpt - general settings", re.IGNORECASE | re.MULTILINE)
_AUTOGPT_VARIABLES = frozenset(
    {
        "RESTRICT_TO_WORKSPACE", "BROWSE_CHUNK_MAX_LENGTH", "FAST_TOKEN_LIMIT", "SMART_TOKEN_LIMIT",
        "PLUGINS_CONFIG_FILE", "ALLOWLISTED_PLUGINS", "WIPE_REDIS_ON_START", "USE_BRIAN_TTS", "SHELL_COMMAND_CONTROL",
    }
)  # fmt: skip
_AZURE_ADDRESSES = ("azure_api_base", "azure_endpoint")  # later versions write the second
_AZURE_KEYS = (*_AZURE_ADDRESSES, "azure_api_type", "azure_api_version", "azure_model_map")


@dataclass(frozen=True, slots=True)
class Meaning:
    """A setting's value from an AutoGPT variable or a key of azure.yaml. With `overrides`, it wins over our name."""

    setting: str
    variable: str
    value: str
    overrides: bool = False


@dataclass(frozen=True, slots=True)
class Unused:
    """The reason why a variable has no effect here. `harmless` values, in lower case, are not reported."""

    reason: str
    harmless: tuple[str, ...]


def is_blank(value: str | None) -> bool:
    """Return whether a variable is unset: empty, or a placeholder of AutoGPT's template."""
    return not (value and value.strip()) or _PLACEHOLDER.fullmatch(value.strip()) is not None


def is_from_autogpt(path: Path, names: Collection[str]) -> bool:
    """Return whether a `.env` with these variables was made for AutoGPT: it has its template's heading or variables."""
    return bool(names) and (bool(_HEADING.search(read_text(path))) or not _AUTOGPT_VARIABLES.isdisjoint(names))


REDIS = "redis"  # the backend with such an address
_DEFAULT_REDIS_URL = "redis://localhost:6379/0"  # also that of the template


def meanings(values: Mapping[str, str], folder: Path, *, redis: bool) -> Iterator[Meaning]:
    """Yield the settings that these variables set under other names. Raises SettingsError for an unusable value."""
    if is_true(values, "USE_AZURE"):
        yield from _azure(values, folder)
    if is_true(values, "OPENAI_FUNCTIONS"):
        yield Meaning("asking", "OPENAI_FUNCTIONS", "tools")
    for variable, provider in (("USE_BRIAN_TTS", "streamelements"), ("USE_MAC_OS_TTS", "offline")):
        if is_true(values, variable):
            yield Meaning("speech_provider", variable, provider)
    if redis and (redis_names := [name for name in ("REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD") if values.get(name)]):
        password = f":{quote(values['REDIS_PASSWORD'], safe='')}@" if values.get("REDIS_PASSWORD") else ""
        place = f"{values.get('REDIS_HOST') or 'localhost'}:{values.get('REDIS_PORT') or 6379}"
        yield Meaning("memory_url", redis_names[0], f"redis://{password}{place}/0")


def is_true(values: Mapping[str, str], name: str) -> bool:
    """Return whether a variable is on. Raises SettingsError for a value that is neither true nor false."""
    text = values.get(name, "")
    return bool(text.strip()) and boolean(text, name)


def _azure(values: Mapping[str, str], folder: Path) -> Iterator[Meaning]:
    """Yield address and deployments from azure.yaml or AutoGPT's older variables."""
    path = folder / azure_file(values)
    entries = read_mapping(path, _AZURE_KEYS) if is_there(path) else {}
    addresses = {key: text for key in _AZURE_ADDRESSES if key in entries and (text := entries[key].text())}
    members = entries["azure_model_map"].members() if "azure_model_map" in entries else {}
    models = {key: entry.text() for key, entry in members.items()}
    variable, base = next(iter({**addresses, "OPENAI_AZURE_API_BASE": values.get("OPENAI_AZURE_API_BASE", "")}.items()))
    if is_blank(base):
        raise SettingsError(
            "USE_AZURE is set without an address: write azure_endpoint into azure.yaml, or set OPENAI_BASE_URL to "
            "https://NAME.openai.azure.com/openai/v1 in place of USE_AZURE."
        )
    address = base.rstrip("/")
    if not address.endswith("/openai/v1"):
        address = f"{address.removesuffix('/openai')}/openai/v1"
    yield Meaning("openai_base_url", variable, address, overrides=True)
    chat = values.get("OPENAI_AZURE_CHAT_DEPLOYMENT_ID") or values.get("OPENAI_AZURE_DEPLOYMENT_ID")
    embedding = values.get("OPENAI_AZURE_EMBEDDINGS_DEPLOYMENT_ID")
    for setting, deployment in (("smart_llm", chat), ("fast_llm", chat), ("embedding_model", embedding)):
        keys = (f"{setting}_deployment_id", f"{setting}_model_deployment_id", values.get(setting.upper(), ""))
        key = next((key for key in keys if not is_blank(models.get(key))), keys[0])
        if not is_blank(value := models.get(key, deployment)):
            yield Meaning(setting, key, str(value), overrides=True)


def azure_file(values: Mapping[str, str]) -> Path:
    """Return the path of azure.yaml, relative to the folder."""
    return Path(values.get("AZURE_CONFIG_FILE") or "azure.yaml")


_GONE_STORES = "memories are kept in SQLite (local), redis or postgres: set MEMORY_BACKEND"
_UNUSED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "the agent never leaves its workspace; -w names another folder": {"RESTRICT_TO_WORKSPACE": ("true",)},
    "Azure's address needs neither: azure.yaml, or OPENAI_BASE_URL, is enough": {
        "OPENAI_AZURE_API_VERSION": (), "OPENAI_API_TYPE": ("azure", "open_ai"), "OPENAI_API_VERSION": (),
    },
    "other endpoints are reached by OPENAI_BASE_URL, with their key in OPENAI_API_KEY": {
        "ANTHROPIC_API_KEY": (), "GROQ_API_KEY": (), "LLAMAFILE_API_BASE": (),
        "AZURE_OPENAI_AD_TOKEN": (), "AZURE_OPENAI_ENDPOINT": (),
    },
    "files stay in the workspace, on this machine; -w names another folder": {
        "FILE_STORAGE_BACKEND": ("local",), "STORAGE_BUCKET": ("autogpt",), "S3_ENDPOINT_URL": (),
        "AGENT_WORKSPACE": ("agbenchmark_config/workspace",),
    },
    "`web_search` needs no key, `google` those of Google": {"TAVILY_API_KEY": (), "SERPER_API_KEY": ()},
    "nothing is reported to anybody": {"TELEMETRY_OPT_IN": ("true", "false")},
    "there are no components; `autoagent config` lists the settings": {"COMPONENT_CONFIG_FILE": ()},
    "each run keeps its own log: `autoagent show`": {
        "LOG_LEVEL": ("info", "debug"), "LOG_FORMAT": ("simple",), "LOG_FILE_FORMAT": ("simple",),
    },
    "no agent protocol is served; `autoagent mcp serve` and `autoagent view` are": {
        "AP_SERVER_PORT": ("8000",), "AP_SERVER_DB_URL": ("sqlite:///data/ap_server.db",), "PORT": ("8000",),
        "AP_SERVER_CORS_ALLOWED_ORIGINS": (), "DATABASE_STRING": ("sqlite:///agent.db",),
    },
    _GONE_STORES: {
        "PINECONE_API_KEY": (), "PINECONE_ENV": (),
        "MILVUS_ADDR": ("localhost:19530",), "MILVUS_USERNAME": (), "MILVUS_PASSWORD": (),
        "MILVUS_SECURE": ("false",), "MILVUS_COLLECTION": ("autogpt",),
        "WEAVIATE_HOST": ("127.0.0.1", "localhost"), "WEAVIATE_PORT": ("8080",), "WEAVIATE_PROTOCOL": ("http",),
        "USE_WEAVIATE_EMBEDDED": ("false",), "WEAVIATE_EMBEDDED_PATH": ("/home/me/.local/share/weaviate",),
        "WEAVIATE_USERNAME": (), "WEAVIATE_PASSWORD": (), "WEAVIATE_API_KEY": (),
    },
    "a start never wipes a memory; another MEMORY_INDEX is empty": {"WIPE_REDIS_ON_START": ("false",)},
    "a browser never shows a window here": {"HEADLESS_BROWSER": ("true",)},
    "a long page is split to fit the window: AUTOAGENT_WINDOW": {
        "BROWSE_CHUNK_MAX_LENGTH": ("8192", "3000"), "BROWSE_SUMMARY_MAX_TOKEN": ("300",),
        "BROWSE_SPACY_LANGUAGE_MODEL": ("en_core_web_sm",),
    },
    "only one voice speaks: ELEVENLABS_VOICE_ID": {"ELEVENLABS_VOICE_2_ID": ()},
}  # fmt: skip
UNUSED: Mapping[str, Unused] = {
    variable: Unused(reason, values) for reason, variables in _UNUSED.items() for variable, values in variables.items()
} | {variable: Unused(instead, ()) for variable, instead in REMOVED.items()}

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
    "OPENAI_FUNCTIONS": "true: the model is asked by tool calls; else the program probes it",
    "USE_BRIAN_TTS": "true: StreamElements speaks",
    "USE_MAC_OS_TTS": "true: this machine speaks",
    **dict.fromkeys(("REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD"), "where Redis is, with MEMORY_BACKEND=redis"),
}  # fmt: skip
"""AutoGPT's variables that have another name here, with a description."""


def agents_in(folder: Path) -> list[Path]:
    """Return the folders of AutoGPT's agents (from 0.5 on) in a folder, sorted. Links are not followed."""
    states = sorted(state for place in AGENTS for state in (folder / place).glob("*/state.json") if state.is_file())
    return [state.parent for state in states if not any(map(Path.is_symlink, (state, *state.parents[:3])))]


def memories_in(folder: Path, index: str) -> list[Path]:
    """Return the files of AutoGPT's JSON memories. `index` is its MEMORY_INDEX, or ''."""
    names = dict.fromkeys(f"{name}.json" for name in (index, "auto-gpt", "AutoGpt") if name and "/" not in name)
    paths = (folder / place / name for place in (Path(), *WORKSPACES) for name in names)
    return [path for path in paths if path.is_file()]


class AutoGPTFolder:
    """Read the `.env` of a folder and AutoGPT's files beside it. `outer` are the settings without the folder."""

    def __init__(self, folder: Path, env: Mapping[str, str], outer: Mapping[str, tuple[Any, str]]) -> None:
        self.variables = read_dotenv(folder / DOTENV)
        self._folder = folder
        self._env = env
        self._outer = outer
        self._is_from_autogpt = is_from_autogpt(folder / DOTENV, self.variables)

    def translated(self, layer: Iterable[tuple[str, str, str, str]]) -> Iterator[tuple[str, str, str, str]]:
        """Yield the values of `.env`, including settings under AutoGPT's names (see load.Raw)."""
        own_values = {name: (label, value, origin) for name, label, value, origin in layer}
        values = {name: variable.value for name, variable in self.variables.items() if not is_blank(variable.value)}
        values |= {"USE_AZURE": self._env["USE_AZURE"]} if self._env.get("USE_AZURE") else {}
        if not is_inside(self._folder, azure_file(values)):
            raise SettingsError(f"AZURE_CONFIG_FILE: {azure_file(values)} leads out of this folder.")
        if self._is_from_autogpt and own_values.get("memory_backend", ("", ""))[1].strip().lower() in UNSUPPORTED:
            del own_values["memory_backend"]  # see `notes`
        backend = self._outer.get("memory_backend") or own_values.get("memory_backend", "  ")[1:]
        redis = backend[0].lower() == REDIS
        for meaning in meanings(values, self._folder, redis=redis):
            if meaning.overrides or (meaning.setting not in own_values and meaning.value != _DEFAULT_REDIS_URL):
                names = (meaning.variable, "USE_AZURE")
                line = next((self.variables[name].line for name in names if name in self.variables), 0)
                own_values[meaning.setting] = (f".env:{line}: {meaning.variable}", meaning.value, f".env:{line}")
        local = "execute_local_commands"
        if self._is_from_autogpt and local not in own_values and local not in self._outer:
            own_values[local] = (".env:1: EXECUTE_LOCAL_COMMANDS", "false", ".env:1")
        yield from ((name, *entry) for name, entry in own_values.items())

    def usual_places(self) -> dict[str, tuple[Path, str]]:
        """Return AutoGPT's usual files and folders that exist here. Our own default workspace takes precedence."""
        places = {"prompt_settings_file": (PROMPT_SETTINGS,), "workspace": (WORKSPACE, *WORKSPACES)}
        paths_in_use: dict[str, tuple[Path, str]] = {}
        for name, paths in places.items():
            existing = [path for path in paths if (self._folder / path).exists() and is_inside(self._folder, path)]
            if existing and existing[0] != WORKSPACE:
                paths_in_use[name] = existing[0], "default"
        return paths_in_use

    def is_in_use(self) -> bool:
        """Return whether the folder belongs to AutoGPT or a similar task: its settings, `.env` or workspace."""
        ai_settings = self._env.get("AI_SETTINGS_FILE") or "ai_settings.yaml"
        names = (ai_settings, PROMPT_SETTINGS, *WORKSPACES)
        return self._is_from_autogpt or any(os.path.lexists(self._folder / name) for name in names)

    def removed(self) -> list[str]:
        """Return a line for each setting that no longer exists but is set by a variable, here or in the environment."""
        values = {**{name: variable.value for name, variable in self.variables.items()}, **self._env}
        return [f"Not used: {name}: {instead}." for name, instead in REMOVED.items() if not is_blank(values.get(name))]

    def notes(self, effective: Mapping[str, tuple[Any, str]], state_dir: Path) -> list[str]:
        """Return a line for each missing feature that the user may expect, given the settings in effect."""
        reasons: dict[str, list[str]] = {}
        for name, variable in self.variables.items():
            entry, value = UNUSED.get(name), variable.value
            if entry and name not in REMOVED and not is_blank(value) and value.strip().lower() not in entry.harmless:
                reasons.setdefault(entry.reason, []).append(name)
        lines = [f"Not used of .env: {', '.join(names)}: {reason}." for reason, names in reasons.items()]
        backend = self.variables.get("MEMORY_BACKEND")
        if self._is_from_autogpt and backend and backend.value.strip().lower() in UNSUPPORTED:
            lines.append(
                f"Not used of .env: MEMORY_BACKEND={backend.value}, which is gone; local, redis or postgres replace it."
            )
        if agents := agents_in(self._folder):
            workspaces = [path for agent in agents if (path := agent / "workspace").is_dir()] or [self._folder]
            lines.append(
                f"AutoGPT's agents here ({len(agents)}) are not continued: give the task anew. -w names the workspace "
                f"of one: {workspaces[0].relative_to(self._folder)}."
            )
        index = self.variables["MEMORY_INDEX"].value if "MEMORY_INDEX" in self.variables else ""
        if (memories := memories_in(self._folder, index)) and not (self._folder / state_dir).exists():
            paths = ", ".join(str(path.relative_to(self._folder)) for path in memories)  # at the first start
            lines.append(f"AutoGPT's memory is not read ({paths}): `autoagent migrate . --apply` takes it over.")
        local = "EXECUTE_LOCAL_COMMANDS"
        if effective.get(local.lower()) == (False, ".env:1") and local not in self.variables:
            lines.append(f"Shell commands are off, as in AutoGPT; {local}=true in .env switches them on, sandboxed.")
        return lines
