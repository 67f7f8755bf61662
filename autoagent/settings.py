"""Define every setting of the program, in one frozen record. `session/load.py` puts one together."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from autoagent.core.declaration import free, limit, of_run_limit, setting
from autoagent.core.errors import SettingsError, SetupError
from autoagent.core.frozen import dataclass
from autoagent.registry.embedders import EMBEDDED, EMBEDDERS, EmbedderKind
from autoagent.registry.embedders import OPENAI as OPENAI_EMBEDDER
from autoagent.registry.memory import LOCAL as LOCAL_MEMORY
from autoagent.registry.memory import backend_names, parse_backend
from autoagent.registry.models import OPENAI as ENDPOINT
from autoagent.registry.models import ModelChoice, ModelSettings, model_forms, parse_model
from autoagent.registry.plugins import plugins
from autoagent.registry.sandbox import AUTO, parse_sandbox, sandbox_names
from autoagent.text.redaction import is_placeholder

EMBEDDER = "text-embedding-3-small"  # the default at OpenAI's own endpoint
OPENAI_URL = "https://api.openai.com/v1"

WORKSPACE = Path("autoagent_workspace")
DOTENV = ".env"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings. In a variable, commas separate a tuple. Paths are relative to the starting folder."""

    # the models
    model: str = setting(
        "", "AUTOAGENT_MODEL", help=model_forms(), parse=parse_model, folder="model", scenario="own model"
    )
    smart_llm: str = free("gpt-6.1-sol", "SMART_LLM", "SMART_LLM_MODEL", help="the main model")
    fast_llm: str = free("gpt-6-luna", "FAST_LLM", "FAST_LLM_MODEL", help="used for everything with --gpt3only")
    hierarchical: bool = free(False, "AUTOAGENT_HIERARCHICAL", help="run a planner, executors and a thinker")
    planner_llm: str = free("", "PLANNER_LLM", help="the model of the planner; empty: SMART_LLM")
    executor_llm: str = free("", "EXECUTOR_LLM", help="the model of the executor; empty: FAST_LLM")
    thinker_llm: str = free("", "THINKER_LLM", help="the model of the thinker; empty: SMART_LLM")
    answer_timeout: float = setting(
        0.0,
        "AUTOAGENT_ANSWER_TIMEOUT",
        help="seconds that a question waits for an answer; 0: no limit",
        scenario="free",
    )
    if_unanswered: str = setting(
        "",
        "AUTOAGENT_IF_UNANSWERED",
        help="what the run does after that: end or go-on; empty: end, or go-on with -c",
        choices={"": "", "end": "end", "go-on": "go-on"},
        scenario="free",
    )
    unanswered_text: str = setting(
        "用户暂未回复", "AUTOAGENT_UNANSWERED", help="what a planner or a team is told if nobody has answered"
    )
    temperature: float = free(0.0, "TEMPERATURE", help="0 is the most repeatable")
    window: int = free(0, "AUTOAGENT_WINDOW", "SMART_TOKEN_LIMIT", help="context length in tokens; 0: the model's own")
    fast_window: int = free(0, "FAST_TOKEN_LIMIT", help="context length of the fast model; 0: the same")
    reply_tokens: int = free(
        0, "AUTOAGENT_REPLY_TOKENS", help="tokens of a reply, without thinking; 0: a fifth of the window, at most 4096"
    )
    context: int = free(
        24_000, "AUTOAGENT_CONTEXT", help="tokens of history in a prompt (--context); 0: the whole window"
    )
    embedding_model: str = setting(
        "",
        "EMBEDDING_MODEL",
        help=f"the endpoint's embedder, or {EMBEDDED.name}; empty: {EMBEDDER}, if the endpoint is OpenAI's own",
        folder="own embedder",
    )
    openai_api_key: str = free("", "OPENAI_API_KEY", help="the key of the endpoint", secret=True)
    openai_base_url: str = setting(
        "",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE_URL",
        help="an OpenAI-compatible endpoint; empty: OpenAI's own",
        keys=("openai_api_key", "openai_organization"),
        scenario="free",
    )
    openai_organization: str = setting(
        "", "OPENAI_ORGANIZATION", help="the organization billed", folder="with openai key", scenario="free"
    )
    silence: float = free(
        0.0, "AUTOAGENT_SILENCE", help="seconds that one request may be silent; 0: 60, or 300 for a server of your own"
    )
    asking: str = free(
        "",
        "AUTOAGENT_ASKING",
        help="how an endpoint's model is asked for commands: tools, schema or text; empty: probed",
        choices={"": "", "tools": "tools", "schema": "schema", "text": "text"},
    )
    prompt_style: str = free(
        "",
        "AUTOAGENT_PROMPT_STYLE",
        help="how a model is prompted: full, or brief for small models; empty: by its size",
        choices={"": "", "full": "full", "brief": "brief"},
    )
    patience: float = free(
        0.0,
        "AUTOAGENT_PATIENCE",
        "AUTOAGENT_OUTAGE",
        help="seconds to keep retrying a failing endpoint (--patience); 0: 600 with -c, else 60",
    )

    # the files
    ai_settings_file: Path = setting(
        Path("ai_settings.yaml"), "AI_SETTINGS_FILE", help="name, role and goals", folder="inside"
    )
    prompt_settings_file: Path | None = setting(
        None, "PROMPT_SETTINGS_FILE", help="constraints, resources, best practices", folder="inside"
    )
    workspace: Path = setting(
        WORKSPACE, "AUTOAGENT_WORKSPACE", help="the only folder the agent works in", folder="inside"
    )
    state_dir: Path = setting(Path(".autoagent"), "AUTOAGENT_STATE_DIR", help="runs and memory", folder="inside")

    # memory
    memory_backend: str = setting(
        LOCAL_MEMORY.name, "MEMORY_BACKEND", help=backend_names(), parse=parse_backend, folder="own memory"
    )
    memory_index: str = free("", "MEMORY_INDEX", help="the name of the memory; empty: the default one")
    memory_url: str = setting("", "MEMORY_URL", help="postgresql://... or redis://..., with its password", secret=True)
    memory_trust: str = setting(
        "",
        "MEMORY_TRUST",
        help="trusted: recall no memory from outside; all: any (--memory); empty: trusted if the agent has "
        "commands that reach out",
        choices={"": "", "all": "all", "trusted": "trusted"},
    )
    memory_user: bool = setting(
        True,
        "MEMORY_USER",
        help="whether runs have your own memory, which all your folders share (`autoagent memory --user`)",
        folder="never",
    )
    memory_distil: bool = setting(
        True,
        "MEMORY_DISTIL",
        help="whether the model of a finished run writes down facts, in one call (--distil)",
        folder="only false",
        scenario="free",
    )
    memory_life: str = free(
        "",
        "MEMORY_LIFE",
        help="kinds: steps fade, facts slowly, notes and feedback not; source: all alike, and being pushed is use; "
        "empty: source with --hierarchical, else kinds",
        choices={"": "", "kinds": "kinds", "source": "source"},
    )
    memory_rerank: str = setting(
        "",
        "MEMORY_RERANK",
        help="the model that re-ranks what `recall` finds, as for --model; empty: none",
        parse=parse_model,
        folder="model",
        scenario="own model",
    )
    memory_ticks: int = free(
        0, "MEMORY_TICKS", help="replies of models in which a new memory fades, in place of days; 0: days"
    )
    memory_fade_days: float = free(7.0, "MEMORY_FADE_DAYS", help="days in which a new memory fades")
    memory_growth: float = free(2.0, "MEMORY_GROWTH", help="factor by which each level lasts longer; 1 or more")
    memory_levels: int = free(3, "MEMORY_LEVELS", help="the last level that fades; higher ones last for ever")

    # limits
    verify: bool = setting(
        True,
        "AUTOAGENT_VERIFY",
        help="have a verifier judge the goals before a run ends (--no-verify)",
        folder="only true",
    )
    verifier_llm: str = setting(
        "", "VERIFIER_LLM", help="the model at the same endpoint that judges the goals; empty: the run's own"
    )
    accept_claims: bool = setting(
        False,
        "AUTOAGENT_ACCEPT_CLAIMS",
        help="accept goals that only the agent says are met (--accept-claims)",
        folder="only false",
    )
    continuous: bool = setting(False, help="run without asking", scenario="free")
    continuous_limit: int = of_run_limit(
        0, "CONTINUOUS_LIMIT", help="at most N commands and 2 N + 3 requests; 0: no limit"
    )
    budget: float = of_run_limit(0.0, "AUTOAGENT_BUDGET", help="USD; 0: no limit")
    max_tokens: int = of_run_limit(0, "AUTOAGENT_MAX_TOKENS", help="tokens of all calls together; 0: no limit")
    max_seconds: float = of_run_limit(
        0.0, "AUTOAGENT_MAX_SECONDS", help="seconds of work, of all processes together; 0: no limit"
    )
    deadline: float = setting(0.0, help="seconds since the epoch; 0: no limit", scenario="free")

    # what it may do
    commands: tuple[str, ...] = setting(
        (), "AUTOAGENT_COMMANDS", help="names or categories to offer; empty: by the window", folder="narrower"
    )
    disabled_command_categories: tuple[str, ...] = setting(
        (), "DISABLED_COMMAND_CATEGORIES", "DISABLED_COMMANDS", help="categories never offered", folder="more"
    )
    allow: tuple[str, ...] = setting(
        (), help="rules for what runs without a question, such as write_to_file:notes/*", scenario="free"
    )

    protect: tuple[str, ...] = setting(
        (),
        "AUTOAGENT_PROTECT",
        help="more workspace files that are written only if you allow it; !NAME removes one of the usual ones",
        folder="more",
    )

    # programs
    execute_local_commands: bool = setting(
        True, "EXECUTE_LOCAL_COMMANDS", help="whether to offer the shell commands", folder="only false"
    )
    shell_command_control: str = setting(
        "",
        "SHELL_COMMAND_CONTROL",
        help="denylist or allowlist; empty: a shell, with the sandbox as its boundary",
        choices={"": "", "denylist": "denylist", "allowlist": "allowlist"},
        folder="shell",
    )
    shell_denylist: tuple[str, ...] = setting(
        (), "SHELL_DENYLIST", "DENY_COMMANDS", help="programs that are refused", folder="denied"
    )
    shell_allowlist: tuple[str, ...] = setting(
        (), "SHELL_ALLOWLIST", "ALLOW_COMMANDS", help="the only programs that may run", folder="allowed"
    )
    python: str = setting(
        "",
        "AUTOAGENT_PYTHON",
        help="the interpreter of Python commands; empty: your active virtual environment's, or the agent's own",
    )
    sandbox: str = setting(
        AUTO, "AUTOAGENT_SANDBOX", help=sandbox_names(), parse=parse_sandbox, folder="never", scenario="stronger"
    )
    require_sandbox: bool = setting(
        False, "AUTOAGENT_REQUIRE_SANDBOX", help="stop if no sandbox works", folder="only true"
    )
    sandbox_network: bool = setting(
        False,
        "AUTOAGENT_SANDBOX_NETWORK",
        help="whether programs reach the network",
        folder="never",
        scenario="only false",
    )
    sandbox_seconds: float = limit(120.0, "AUTOAGENT_SANDBOX_SECONDS", help="seconds one program may take")
    sandbox_memory: int = limit(2048, "AUTOAGENT_SANDBOX_MEMORY", help="MB that a program and its children may take")
    sandbox_processes: int = limit(256, "AUTOAGENT_SANDBOX_PROCESSES", help="processes at once")
    sandbox_file: int = limit(1024, "AUTOAGENT_SANDBOX_FILE", help="MB of the largest file written or downloaded")

    # the web
    allow_hosts: tuple[str, ...] = setting(
        (), "AUTOAGENT_ALLOW_HOSTS", help="HOST:PORT of private addresses to allow", folder="fewer"
    )
    allow_downloads: bool = setting(
        False, "ALLOW_DOWNLOADS", help="whether files may be downloaded", folder="only false"
    )
    browser_name: str = free(
        "",
        "USE_WEB_BROWSER",
        help="chromium or firefox: read pages through a headless browser; empty: without a browser",
        choices={
            **{"": "", "none": "", "chromium": "chromium", "firefox": "firefox"},
            **dict.fromkeys(("chrome", "edge", "safari"), "chromium"),
        },
    )
    user_agent: str = free("", "USER_AGENT", help="sent to web pages; empty: autoagent and its version")
    search_url: str = setting(
        "", "AUTOAGENT_SEARCH_URL", help="a SearXNG server's address to search with; empty: DuckDuckGo and others"
    )
    google_api_key: str = free("", "GOOGLE_API_KEY", help="the key of Google's Custom Search", secret=True)
    google_engine: str = setting(
        "",
        "GOOGLE_CUSTOM_SEARCH_ENGINE_ID",
        "CUSTOM_SEARCH_ENGINE_ID",
        help="its search engine",
        folder="with google key",
        scenario="free",
    )

    # other agents
    agents_at_once: int = setting(5, "AUTOAGENT_AGENTS", help="sub-agents that may run at once; 0: none", folder="less")
    agents_depth: int = setting(2, "AUTOAGENT_AGENTS_DEPTH", help="how deep sub-agents may start others", folder="less")

    # the screen
    authorise_command_key: str = setting(
        "y", "AUTHORISE_COMMAND_KEY", help="the answer that runs a command", scenario="free"
    )
    exit_key: str = setting("n", "EXIT_KEY", help="the answer that saves and stops", scenario="free")
    plain_output: bool = free(False, "PLAIN_OUTPUT", help="show no colours and no live lines")
    theme: tuple[str, ...] = free(
        (),
        "AUTOAGENT_THEME",
        help="auto (the default), dark, light or none, and colours of your own: light, thought=bright-cyan",
    )
    thoughts: str = free(
        "auto",
        "AUTOAGENT_THOUGHTS",
        help="how much of the thoughts is shown: auto, full, short or none",
        choices={"auto": "auto", "full": "full", "short": "short", "none": "none"},
    )
    notify: str = setting(
        "", "AUTOAGENT_NOTIFY", help="a shell command that gets a waiting question, or the end of the run, as JSON"
    )
    debug: bool = setting(False, help="show tracebacks", scenario="free")

    @property
    def model_choice(self) -> ModelChoice:
        """Return the choice that `model` names. Raises SettingsError if it names none."""
        try:
            return parse_model(self.model)
        except ValueError as error:
            raise SettingsError(f"The model: {error}") from None

    @property
    def model_settings(self) -> ModelSettings:
        """Return the subset for models and embedders."""
        return ModelSettings(
            base_url=self.openai_base_url, api_key=self.openai_api_key, organization=self.openai_organization,
            smart=self.smart_llm, fast=self.fast_llm, window=self.window, fast_window=self.fast_window,
            temperature=self.temperature, asking=self.asking, style=self.prompt_style, silence=self.silence,
            patience=self.patience, continuous=self.continuous, state_dir=self.state_dir,
        )  # fmt: skip

    @property
    def embedder(self) -> tuple[EmbedderKind, str]:
        """Return the chosen embedder and its argument ('' for the default).

        The default is OpenAI's own endpoint if the run uses it, else the embedded one, so that no text leaves the
        machine for the memory alone. Another endpoint embeds if EMBEDDING_MODEL names a model. Raises SetupError as
        `Table.find` does.
        """
        name, _, argument = self.embedding_model.partition(":")
        if name and EMBEDDERS.knows(name):
            return EMBEDDERS.find(name), argument
        is_openai = self.openai_base_url.rstrip("/") in ("", OPENAI_URL)
        model_or_key = self.openai_api_key if is_openai else self.embedding_model
        at_endpoint = model_or_key and self.model_choice.provider.endpoint
        return (OPENAI_EMBEDDER, self.embedding_model) if at_endpoint else (EMBEDDED, "")

    @property
    def host(self) -> str:
        """Return the host and port that prompts are sent to, or '' without an endpoint."""
        if self.model_choice.name != ENDPOINT.name:
            return ""
        return re.sub(r"\A\w+://([^/?#]*@)?|[/?#].*", "", self.openai_base_url or OPENAI_URL)


@cache
def all_settings() -> type[Settings]:
    """Return the class of all settings: those of the program, and those that extensions declare.

    An extension's settings are a dataclass of the group `autoagent.settings`, with a title as its docstring. A name
    that is taken stays with its owner. An extension that cannot be imported declares nothing; `doctor` names it.
    """
    declared: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    for plugin in plugins("settings"):
        try:
            kind = plugin.load()
            types = typing.get_type_hints(kind)
        except (SetupError, TypeError, NameError):
            continue
        for setting_field in dataclasses.fields(kind):
            name = setting_field.name
            if name not in declared and name not in Settings.__dataclass_fields__:
                metadata = {**setting_field.metadata, "group": str(kind.__doc__).rstrip(".")}
                declared[name], hints[name] = field(default=setting_field.default, metadata=metadata), types[name]
    combined = type("Settings", (Settings,), {"__annotations__": hints, "__module__": __name__, **declared})
    return dataclass(frozen=True, slots=True, kw_only=True)(combined)


GROUPS = {  # titles of the groups of settings, each by its first setting
    "model": "The models", "ai_settings_file": "The files", "memory_backend": "Memory", "verify": "Limits",
    "commands": "What it may do", "execute_local_commands": "Programs", "allow_hosts": "The web",
    "agents_at_once": "Other agents", "authorise_command_key": "The screen",
}  # fmt: skip


_RANKING = "a recall weighs words, meaning and age as docs/memory.md says; MEMORY_RERANK names a model that orders them"
REMOVED: Mapping[str, str] = {  # earlier settings, and what to use instead
    "AUTOAGENT_DOWNLOAD_LIMIT": "AUTOAGENT_SANDBOX_FILE limits downloads, too",
    "MEMORY_SLEEP": "`autoagent memory sleep -n N` sets how many memories it meets",
    "MEMORY_ALIKE": "near-duplicates have a cosine of at least 0.97",
    "MEMORY_TRASH_DAYS": "forgotten memories can be restored for 30 days",
    **dict.fromkeys(("MEMORY_WORDS", "MEMORY_RECENCY", "MEMORY_HALF_LIFE_DAYS"), _RANKING),
}
REMOVED_KEYS: Mapping[str, str] = {  # by their keys in a file
    **{variable.removeprefix("AUTOAGENT_").lower(): instead for variable, instead in REMOVED.items()},
    "run_name": "--name names a run",
}


def user_config_path(env: Mapping[str, str]) -> Path:
    """Return `autoagent/config.yaml` under XDG_CONFIG_HOME, which is `~/.config` if it is not set."""
    return _of_user(env, "XDG_CONFIG_HOME", ".config") / "config.yaml"


def user_state_path(env: Mapping[str, str]) -> Path:
    """Return `autoagent` under XDG_STATE_HOME (default `~/.local/state`), the folder of the user's own state."""
    return _of_user(env, "XDG_STATE_HOME", ".local/state")


def checkpoint_key(env: Mapping[str, str]) -> Path:
    """Return the file of the key that seals this user's checkpoints."""
    return user_state_path(env) / "checkpoints.key"


def _of_user(env: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a folder of the user. A relative path counts as unset (XDG), as it would lead into the current folder."""
    base = Path(env.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / default) / "autoagent"


_PASSWORD = re.compile(r"(?:^|://)[^\s/:@]*:([^\s/@]+)(?:@|$)")  # in USER:PASSWORD, alone or in an address


def secrets_of(settings: Settings) -> list[str]:
    """Return all secrets among the settings. For a value with a password, only the password."""
    values = [str(getattr(settings, f.name)) for f in dataclasses.fields(settings) if f.metadata["secret"]]
    secrets: list[str] = []
    for value in values:
        password = _PASSWORD.search(value)
        if password and is_placeholder(unquote(password[1])):
            continue
        if "://" in value and not re.search("[@?]", value):  # an address without a password
            continue
        secrets += [value, password[1], unquote(password[1])] if password else [value]
    return [secret for secret in dict.fromkeys(secrets) if not is_placeholder(secret)]
