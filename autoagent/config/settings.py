"""Every setting of the program, in one frozen record, and where each value came from.

Layers, later ones win: defaults < user config < `.env` < environment < flags. The task itself (name, role, goals)
is in `task_file`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from autoagent.config.autogpt_env import AZURE_ADDRESS, is_blank
from autoagent.config.autogpt_folder import AutoGPTFolder
from autoagent.config.dotenv import Variable
from autoagent.config.folder import Permission, UntrustedValue, may_set
from autoagent.config.scenario_bounds import hold
from autoagent.config.text_file import is_there
from autoagent.config.yaml_file import read_mapping
from autoagent.core.errors import SettingsError
from autoagent.registry.embedders import EMBEDDED
from autoagent.registry.memory import BACKENDS, parse_backend
from autoagent.registry.memory import LOCAL as LOCAL_MEMORY
from autoagent.registry.models import ModelChoice, model_forms, parse_model
from autoagent.registry.sandbox import AUTO, KINDS, parse_sandbox
from autoagent.registry.table import either
from autoagent.text.sanitize import shorten

EMBEDDER = "text-embedding-3-small"
"""What embeds at OpenAI's own endpoint where nobody names another model."""

WORKSPACE = Path("autoagent_workspace")

# ruff: noqa: RUF009 - `setting` is dataclasses.field with our metadata, and the paths in it cannot change


def setting(
    default: Any,
    *env: str,
    help: str = "",
    secret: bool = False,
    choices: Mapping[str, str] | None = None,
    parse: Callable[[str], object] | None = None,
    folder: Permission = "trust",
    scenario: Permission | None = None,
    keys: tuple[str, ...] = (),
) -> Any:
    """Declare a field of Settings: its default, the environment variables that set it (first wins), its help line.

    `choices` maps each word that is taken to what it means. `parse` raises ValueError, which says why, for a text that
    means nothing, and may give the text to keep in its place. `folder` is the permission of an untrusted folder to set
    it, `scenario` that of a scenario that is played (see scenario_bounds); None: the same. `keys` are the settings that
    are sent to this address.
    """
    declared = {"help": help, "secret": secret, "choices": choices, "parse": parse, "folder": folder, "keys": keys}
    declared["scenario"] = scenario or folder
    return field(default=default, metadata={"env": env, **declared})


free = partial(setting, folder="free")
"""A setting that reaches out nowhere, weakens nothing and runs nothing, whoever sets it."""

limit = partial(setting, folder="limit")
"""A limit, switched off by 0: anybody may tighten it."""

of_run_limit = partial(setting, folder="limit", scenario="free")
"""A limit of a single run, which bounds nothing beyond it: a scenario says what its own runs may take."""


_PROGRAM = re.compile(
    r"([\w.+@:/-]*/)?([\w.+@:-]*[\w+]|\[)"
)  # a name or a path, with nothing in it that a shell would read as more


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The program's settings. A tuple is written comma-separated in a variable; paths are relative to the start."""

    # the models
    model: str = setting(
        "",
        "AUTOAGENT_MODEL",
        help=model_forms(),
        parse=parse_model,
        folder="model",
        scenario="own model",
    )
    smart_llm: str = free("gpt-6.1-sol", "SMART_LLM", "SMART_LLM_MODEL", help="the model that thinks")
    fast_llm: str = free("gpt-6-luna", "FAST_LLM", "FAST_LLM_MODEL", help="used for everything with --gpt3only")
    hierarchical: bool = free(False, "AUTOAGENT_HIERARCHICAL", help="a planner, an executor and a thinker at work")
    planner_llm: str = free("", "PLANNER_LLM", help="the model of the planner; empty: SMART_LLM")
    executor_llm: str = free("", "EXECUTOR_LLM", help="the model of the executor; empty: FAST_LLM")
    thinker_llm: str = free("", "THINKER_LLM", help="the model of the thinker; empty: SMART_LLM")
    answer_timeout: float = free(
        0.0, "AUTOAGENT_ANSWER_TIMEOUT", help="seconds that a question waits for an answer; 0: as long as it takes"
    )
    if_unanswered: str = free(
        "",
        "AUTOAGENT_IF_UNANSWERED",
        help="then the run is to: end or go-on; empty: end, but go on with -c",
        choices={"": "", "end": "end", "go-on": "go-on"},
    )
    unanswered_text: str = setting(
        "用户暂未回复",
        "AUTOAGENT_UNANSWERED",
        help="what a planner, or a team for a person, is told of a question that nobody answers in time",
    )
    temperature: float = free(0.0, "TEMPERATURE", help="0 is the most repeatable")
    window: int = free(
        0, "AUTOAGENT_WINDOW", "SMART_TOKEN_LIMIT", help="context length in tokens; 0: as the model has it"
    )
    fast_window: int = free(0, "FAST_TOKEN_LIMIT", help="that of the fast model; 0: as of the other")
    reply_tokens: int = free(
        0, "AUTOAGENT_REPLY_TOKENS", help="tokens of a reply, thinking apart; 0: a fifth of the window, at most 4096"
    )
    context: int = free(
        24_000, "AUTOAGENT_CONTEXT", help="tokens of history in a prompt (--context); 0: as much as the window holds"
    )
    embedding_model: str = setting(
        "",
        "EMBEDDING_MODEL",
        help=f"the endpoint's embedder, or {EMBEDDED.name}; empty: {EMBEDDER}, where it is OpenAI's own",
        folder="own embedder",
    )
    openai_api_key: str = free("", "OPENAI_API_KEY", help="the key of the endpoint", secret=True)
    openai_base_url: str = setting(
        "",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE_URL",
        help="an OpenAI-compatible endpoint; empty: OpenAI's own",
        keys=("openai_api_key", "openai_organization"),
        folder="paired",
        scenario="free",
    )
    openai_organization: str = free("", "OPENAI_ORGANIZATION", help="the organization billed")
    silence: float = free(
        0.0,
        "AUTOAGENT_SILENCE",
        "AUTOAGENT_PATIENCE",
        help="seconds that one request may go without a word; 0: 60, or 300 for a server of one's own",
    )
    asking: str = free(
        "",
        "AUTOAGENT_ASKING",
        help="how an endpoint's model is asked for commands: tools, schema or text; empty: as it is found to take it",
        choices={"": "", "tools": "tools", "schema": "schema", "text": "text"},
    )
    outage: float = free(
        0.0,
        "AUTOAGENT_OUTAGE",
        help="seconds for which an endpoint that fails is asked again (--patience); 0: 600 with -c, else 60",
    )

    # the files
    ai_settings_file: Path = setting(
        Path("ai_settings.yaml"), "AI_SETTINGS_FILE", help="name, role and goals", folder="inside"
    )
    prompt_settings_file: Path | None = setting(
        None, "PROMPT_SETTINGS_FILE", help="constraints, resources, best practices", folder="inside"
    )
    workspace: Path = setting(WORKSPACE, "AUTOAGENT_WORKSPACE", help="the only folder it works in", folder="inside")
    state_dir: Path = setting(Path(".autoagent"), "AUTOAGENT_STATE_DIR", help="runs and memory", folder="inside")

    mcp_servers_file: Path = setting(
        Path(".mcp.json"),
        "AUTOAGENT_MCP_SERVERS",
        help="a list of MCP servers, whose tools it may use",
        folder="inside",
    )
    mcp_seconds: float = limit(60.0, "AUTOAGENT_MCP_SECONDS", help="seconds that one call of an MCP server may take")

    # memory
    memory_backend: str = setting(
        LOCAL_MEMORY.name,
        "MEMORY_BACKEND",
        help=either(backend.name for backend in BACKENDS.own),
        parse=parse_backend,
        folder="own memory",
    )
    memory_index: str = free("", "MEMORY_INDEX", help="the name of the memory; empty: the default one")
    memory_url: str = setting("", "MEMORY_URL", help="postgresql://... or redis://..., with its password", secret=True)
    memory_trust: str = setting(
        "",
        "MEMORY_TRUST",
        help="trusted: a run recalls no memory whose text comes from outside; all: any (--memory); empty: trusted "
        "where its goals need commands that act outward",
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
        help="whether a run that is over is put down in facts by its model, with one call (--distil)",
        folder="only false",
        scenario="free",
    )
    memory_life: str = free(
        "",
        "MEMORY_LIFE",
        help="kinds: steps fade, facts slowly, notes and feedback do not; source: all alike, also by being pushed; "
        "empty: source with --hierarchical, else kinds",
        choices={"": "", "kinds": "kinds", "source": "source"},
    )
    memory_rerank: str = setting(
        "",
        "MEMORY_RERANK",
        help="the model that puts what `recall` finds in order, as for --model; empty: none",
        parse=parse_model,
        folder="model",
        scenario="own model",
    )
    memory_ticks: int = free(
        0, "MEMORY_TICKS", help="replies of models in which a new memory fades, in place of days; 0: days"
    )
    memory_fade_days: float = free(7.0, "MEMORY_FADE_DAYS", help="days in which a new memory fades")
    memory_growth: float = free(2.0, "MEMORY_GROWTH", help="how many times longer each level lasts; 1 or more")
    memory_levels: int = free(3, "MEMORY_LEVELS", help="the last level that fades; those above are for ever")
    memory_trash_days: float = free(30.0, "MEMORY_TRASH_DAYS", help="days in which the forgotten can be restored")
    memory_sleep: int = free(100, "MEMORY_SLEEP", help="memories that a sleep meets")
    memory_alike: float = free(0.97, "MEMORY_ALIKE", help="the cosine from which memories are near-duplicates")
    memory_breadth: int = free(4, "MEMORY_BREADTH", help="candidates looked at for each memory recalled; 1 or more")
    memory_words: float = free(0.4, "MEMORY_WORDS", help="how much words count in a recall beside meaning, 0 to 1")
    memory_recency: float = free(0.05, "MEMORY_RECENCY", help="how much being recent counts in a recall, 0 to 1")
    memory_half_life_days: float = free(30.0, "MEMORY_HALF_LIFE_DAYS", help="days in which being recent halves")
    memory_firmness: float = free(0.05, "MEMORY_FIRMNESS", help="how much the level counts in a recall, 0 to 1")
    memory_diversity: float = free(0.1, "MEMORY_DIVERSITY", help="how much being unlike the others counts, 0 to 1")
    memory_floor: float = free(0.3, "MEMORY_FLOOR", help="too far: a cosine below this part of the best, 0 to 1")

    # limits
    strict: bool = setting(
        False,
        "AUTOAGENT_STRICT",
        help="do not finish on the agent's mere word: a check, or evidence, for each goal (--strict)",
        folder="only true",
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
        (), "AUTOAGENT_COMMANDS", help="names or categories to offer; empty: chosen", folder="narrower"
    )
    disabled_command_categories: tuple[str, ...] = setting(
        (), "DISABLED_COMMAND_CATEGORIES", help="categories never offered", folder="more"
    )
    allow: tuple[str, ...] = setting(
        (), help="rules of what runs without a question, such as write_to_file:notes/*", scenario="free"
    )

    # programs
    execute_local_commands: bool = setting(
        True, "EXECUTE_LOCAL_COMMANDS", help="whether there are shell commands", folder="only false"
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
        (), "SHELL_ALLOWLIST", "ALLOW_COMMANDS", help="the only programs that are run", folder="allowed"
    )
    python: str = setting("", "AUTOAGENT_PYTHON", help="the interpreter of Python commands; empty: the agent's own")
    sandbox: str = setting(
        AUTO,
        "AUTOAGENT_SANDBOX",
        help=either((AUTO, *(kind.name for kind in KINDS.own))),
        parse=parse_sandbox,
        folder="never",
        scenario="stronger",
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
    sandbox_file: int = limit(1024, "AUTOAGENT_SANDBOX_FILE", help="MB of the largest file that a program may write")

    # the web
    allow_hosts: tuple[str, ...] = setting(
        (), "AUTOAGENT_ALLOW_HOSTS", help="HOST:PORT of private addresses that may be reached", folder="fewer"
    )
    allow_downloads: bool = setting(
        False, "ALLOW_DOWNLOADS", help="whether files may be downloaded", folder="only false"
    )
    download_limit: int = limit(1024, "AUTOAGENT_DOWNLOAD_LIMIT", help="MB of the largest download")
    browser_name: str = free(
        "",
        "USE_WEB_BROWSER",
        help="chromium or firefox: pages through a headless browser; empty: without",
        choices={
            **{"": "", "none": "", "chromium": "chromium", "firefox": "firefox"},
            **dict.fromkeys(("chrome", "edge", "safari"), "chromium"),
        },
    )
    user_agent: str = free("", "USER_AGENT", help="what web pages are told; empty: autoagent and its version")
    search_url: str = setting(
        "", "AUTOAGENT_SEARCH_URL", help="a SearXNG server's address to search with; empty: DuckDuckGo and others"
    )
    google_api_key: str = free("", "GOOGLE_API_KEY", help="for Google's Custom Search", secret=True)
    google_engine: str = free(
        "", "GOOGLE_CUSTOM_SEARCH_ENGINE_ID", "CUSTOM_SEARCH_ENGINE_ID", help="the search engine made there"
    )
    github_username: str = free("", "GITHUB_USERNAME", help="for cloning private repositories")
    github_api_key: str = free("", "GITHUB_API_KEY", help="the token that goes with it", secret=True)

    # pictures, recordings, speech
    image_provider: str = free(
        "",
        "IMAGE_PROVIDER",
        help="dalle, huggingface or sdwebui; empty: no pictures",
        choices={"": "", "dalle": "dalle", "openai": "dalle", "huggingface": "huggingface", "sdwebui": "sdwebui"},
    )
    image_size: int = free(256, "IMAGE_SIZE", help="width and height in pixels")
    openai_image_model: str = free("gpt-image-2.5-flare", "OPENAI_IMAGE_MODEL", help="the endpoint's model that draws")
    huggingface_api_token: str = free("", "HUGGINGFACE_API_TOKEN", help="the key of Hugging Face", secret=True)
    huggingface_url: str = setting(
        "https://router.huggingface.co/hf-inference",
        "HUGGINGFACE_URL",
        help="where its models answer",
        keys=("huggingface_api_token",),
    )
    huggingface_image_model: str = free(
        "CompVis/stable-diffusion-v1-4", "HUGGINGFACE_IMAGE_MODEL", help="the model that draws"
    )
    sd_webui_url: str = setting(
        "http://localhost:7860", "SD_WEBUI_URL", help="where Stable Diffusion web UI answers", keys=("sd_webui_auth",)
    )
    sd_webui_auth: str = free("", "SD_WEBUI_AUTH", help="USER:PASSWORD of it", secret=True)
    audio_provider: str = free(
        "",
        "AUDIO_TO_TEXT_PROVIDER",
        help="openai, huggingface or offline; empty: recordings are not read",
        choices={"": "", "openai": "openai", "huggingface": "huggingface", "offline": "offline"},
    )
    openai_audio_model: str = free("gpt-transcribe", "OPENAI_AUDIO_MODEL", help="the endpoint's model that listens")
    huggingface_audio_model: str = free(
        "openai/whisper-large-v3", "HUGGINGFACE_AUDIO_TO_TEXT_MODEL", help="the model that listens at Hugging Face"
    )
    speak: bool = free(False, "AUTOAGENT_SPEAK", help="say the thoughts meant for the user aloud")
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
        "", "ELEVENLABS_VOICE_ID", "ELEVENLABS_VOICE_1_ID", help="the voice there; empty: its first one"
    )
    elevenlabs_url: str = setting(
        "https://api.elevenlabs.io", "ELEVENLABS_URL", help="where ElevenLabs answers", keys=("elevenlabs_api_key",)
    )
    streamelements_voice: str = free("Brian", "STREAMELEMENTS_VOICE", help="the voice at StreamElements")
    streamelements_url: str = setting(
        "https://api.streamelements.com", "STREAMELEMENTS_URL", help="where StreamElements answers"
    )
    twitter_url: str = setting(
        "https://api.x.com",
        "TW_URL",
        help="where tweets are sent",
        keys=("twitter_consumer_key", "twitter_consumer_secret", "twitter_access_token", "twitter_access_secret"),
    )
    twitter_consumer_key: str = free("", "TW_CONSUMER_KEY", help="of the app that tweets", secret=True)
    twitter_consumer_secret: str = free("", "TW_CONSUMER_SECRET", help="of the app that tweets", secret=True)
    twitter_access_token: str = free("", "TW_ACCESS_TOKEN", help="of the account that tweets", secret=True)
    twitter_access_secret: str = free("", "TW_ACCESS_TOKEN_SECRET", help="of the account that tweets", secret=True)

    # plug-ins of AutoGPT's
    plugins_config_file: Path = setting(
        Path("plugins_config.yaml"), "PLUGINS_CONFIG_FILE", help="which plug-ins are enabled", folder="inside"
    )
    allowlisted_plugins: tuple[str, ...] = free((), "ALLOWLISTED_PLUGINS", help="plug-ins that are enabled besides")
    denylisted_plugins: tuple[str, ...] = setting(
        (), "DENYLISTED_PLUGINS", help="plug-ins that are not, whatever else says so", folder="more"
    )
    chat_messages: bool = setting(
        False, "CHAT_MESSAGES_ENABLED", help="whether plug-ins may answer for the user, and are reported to"
    )

    # other agents
    agents_at_once: int = setting(5, "AUTOAGENT_AGENTS", help="sub-agents that may run at once; 0: none", folder="less")
    agents_depth: int = setting(
        2, "AUTOAGENT_AGENTS_DEPTH", help="how deep sub-agents may start further ones", folder="less"
    )

    # the screen
    authorise_command_key: str = setting(
        "y", "AUTHORISE_COMMAND_KEY", help="the answer that runs a command", scenario="free"
    )
    exit_key: str = setting("n", "EXIT_KEY", help="the answer that saves and stops", scenario="free")
    plain_output: bool = free(False, "PLAIN_OUTPUT", help="no colours, no live lines")
    thoughts: str = free(
        "auto",
        "AUTOAGENT_THOUGHTS",
        help="how much of the thoughts is shown: auto, full, short or none",
        choices={"auto": "auto", "full": "full", "short": "short", "none": "none"},
    )
    notify: str = setting(
        "", "AUTOAGENT_NOTIFY", help="a shell line that gets a waiting question, or the end of the run, as JSON"
    )
    run_name: str = free("", help="what `autoagent runs` calls the run (--name); empty: its goals")
    debug: bool = setting(False, help="show tracebacks", scenario="free")

    @property
    def model_choice(self) -> ModelChoice:
        """The choice that `model` names. Raises SettingsError if it names none."""
        try:
            return parse_model(self.model)
        except ValueError as error:
            raise SettingsError(f"The model: {error}") from None


GROUPS = {  # of the settings, each by the first in it
    "model": "The models",
    "ai_settings_file": "The files",
    "memory_backend": "Memory",
    "continuous": "Limits",
    "commands": "What it may do",
    "execute_local_commands": "Programs",
    "allow_hosts": "The web",
    "image_provider": "Pictures, recordings, speech",
    "plugins_config_file": "Plug-ins of AutoGPT's",
    "agents_at_once": "Other agents",
    "authorise_command_key": "The screen",
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in effect, and by name where each came from: `.env:3`, `default`, `flag`.

    `untrusted` is what the folder would set but does not count, as the user has not trusted it; `unsent` says in a line
    each which keys of the user's are not sent to an address that only the folder names, `notes` what of an AutoGPT
    folder does nothing here, or something else.
    """

    settings: Settings
    origins: Mapping[str, str]
    untrusted: tuple[UntrustedValue, ...] = ()
    unsent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Raw = tuple[str, str, Any, str]
"""One value of a layer: the setting, what messages call it, the value (text is still to be parsed), its origin."""

Layer = dict[str, tuple[Any, str]]
"""Values by setting, parsed, each with its origin."""

DOTENV = ".env"
_PATH, _NAME = 2048, 255  # bytes of a path, half of what systems take, and of a name in it


def user_config_path(env: Mapping[str, str]) -> Path:
    """Return `autoagent/config.yaml` under XDG_CONFIG_HOME, which is `~/.config` if it is not set."""
    return _of_user(env, "XDG_CONFIG_HOME", ".config") / "config.yaml"


def user_state_path(env: Mapping[str, str]) -> Path:
    """Return `autoagent` under XDG_STATE_HOME, which is `~/.local/state` if it is not set: what is kept of the user."""
    return _of_user(env, "XDG_STATE_HOME", ".local/state")


def _of_user(env: Mapping[str, str], variable: str, usual: str) -> Path:
    """Return a folder of the user's. A relative path counts as unset, as
    the XDG specification requires: it would lead into the current folder.
    """
    base = Path(env.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / usual) / "autoagent"


def load(
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    cwd: Path,
    user_config: Path | None = None,
    *,
    trusts: Callable[[UntrustedValue], bool] = lambda untrusted: False,
) -> Loaded:
    """Load all layers into one record; nothing is created, and only `.env` in `cwd` and the user config are read.

    `flags` holds settings by field name; None and () stand for a flag that was not given, other names are ignored but
    for AutoGPT's `gpt3only` and `gpt4only`, and KEPT, what a run has kept: that goes next below the flags. An empty
    variable counts as not set. What `.env` may not set by itself counts if `trusts` says so.

    Raises:
        SettingsError: names the variable or flag, or file, line and key, of a value that cannot be used.
    """
    config = user_config if user_config is not None else user_config_path(env)
    below, above = _parsed(_from_config(config)), _parsed(itertools.chain(_from_env(env), _from_flags(flags)))
    held = {**below, **above}
    autogpt = AutoGPTFolder(cwd, env, held)
    folders, untrusted = _judged(cwd, held, above, trusts, autogpt)
    usual = autogpt.usual_places(WORKSPACE)
    taken = {**usual, **below, **folders, **above}
    unsent = _pair(taken, folders, {name: one for name, one in held.items() if one[1] != RUN}, trusts)
    settings = Settings(**{name: value for name, (value, _) in taken.items()})
    origins = {name: taken[name][1] if name in taken else "default" for name in _kinds()}
    fast, smart = ("fast_llm", "fast_window"), ("smart_llm", "window")
    for flag, winners, losers in (("gpt3only", fast, smart), ("gpt4only", smart, fast)):
        for winner, loser in zip(winners, losers, strict=True):
            if flags.get(flag) and getattr(settings, winner):
                settings = dataclasses.replace(settings, **{loser: getattr(settings, winner)})
                origins[loser] = f"--{flag}"
    _check_together(settings)
    hold(settings, origins, env, cwd)
    return Loaded(settings, origins, tuple(untrusted), tuple(unsent), tuple(autogpt.notes(taken)))


def _parsed(values: Iterable[Raw]) -> Layer:
    return {
        name: (parse(name, value, called) if isinstance(value, str) else value, origin)
        for name, called, value, origin in values
    }


def _judged(
    cwd: Path, outside: Layer, above: Layer, trusts: Callable[[UntrustedValue], bool], autogpt: AutoGPTFolder
) -> tuple[Layer, list[UntrustedValue]]:
    """Return what `.env` sets, and what it would set if it were trusted; `outside` is what holds without it."""
    held = Settings(**{name: value for name, (value, _) in outside.items()})
    layer: Layer = {}
    left: list[UntrustedValue] = []
    written = list(autogpt.translated(_from_dotenv(autogpt.variables)))
    raw = {name: (called, value) for name, called, value, _ in written}
    values = _parsed(written)
    for name, (value, origin) in values.items():
        declared, now = Settings.__dataclass_fields__[name].metadata, getattr(held, name)
        permission: Permission = declared["folder"]
        keyed = permission == "paired" and _has_its_key(raw[name][0], declared["keys"][0], values, held)
        untrusted = UntrustedValue(
            file=DOTENV,
            line=int(origin.rpartition(":")[2]),
            name=raw[name][0].rpartition(" ")[2],
            value=raw[name][1],
            about=declared["help"].partition(";")[0],
            setting=name,
            secret=declared["secret"],
            never=permission == "never",
        )
        allowed = name in above or _is_same(value, now) or keyed or may_set(permission, value, now, held, cwd)
        if allowed or (permission != "never" and trusts(untrusted)):
            layer[name] = value, origin
        else:
            left.append(untrusted)
    return layer, left


def _has_its_key(called: str, key: str, values: Layer, held: Settings) -> bool:
    """Return whether an address of the folder stands beside its key in `.env`, or there is no key for it at all."""
    if key in values:
        return not called.endswith(AZURE_ADDRESS)
    return not getattr(held, key)


def _is_same(value: Any, now: Any) -> bool:
    """Return whether two values are the same; this machine has two names as the host of an address."""
    return bool(value == now) or (isinstance(value, str) and _spelled(value) == _spelled(str(now)))


def _spelled(address: str) -> str:
    return re.sub(r"\A(\w+://)127\.0\.0\.1(?=[:/]|\Z)", r"\1localhost", address)


def _pair(taken: Layer, folders: Layer, outside: Layer, trusts: Callable[[UntrustedValue], bool]) -> list[str]:
    """Let a key go to an address that only the folder or a run names where it comes from the folder too.

    There a key of the folder goes before one from outside: the two belong together. A line for each that is not sent.
    """
    unsent = []
    addresses = {name: f for name, f in Settings.__dataclass_fields__.items() if f.metadata["keys"]}
    for name, declared in addresses.items():
        address, origin = taken.get(name, (declared.default, "default"))
        of_folder = name in folders and origin == folders[name][1]
        if address == outside.get(name, (declared.default,))[0] or not (of_folder or origin == RUN):
            continue
        if origin == RUN and trusts(of_run(name, address)):
            continue
        for key in declared.metadata["keys"]:
            if key in folders:
                taken[key] = folders[key]
            elif key in taken:
                variable, other = (Settings.__dataclass_fields__[one].metadata["env"][0] for one in (key, name))
                unsent.append(
                    f"{variable} ({taken[key][1]}) is not sent to {address}, which only {origin} names: "
                    f"write the key for it into .env, or set {other} where you set that key."
                )
                del taken[key]
    return unsent


def of_run(name: str, address: str) -> UntrustedValue:
    """Return an address kept by a run: trusted if the user has named it himself in this folder."""
    return UntrustedValue(file="", name=f"{name} of runs", value=address, about="where your prompts go", setting=name)


def _from_config(path: Path) -> Iterator[Raw]:
    if not is_there(path):
        return
    kinds = _kinds()
    for name, entry in read_mapping(path, kinds).items():
        value = tuple(entry.texts()) if entry.is_list and kinds[name] is tuple else entry.text()
        if value:
            yield name, entry.where, value, entry.place


def _from_dotenv(variables: Mapping[str, Variable]) -> Iterator[Raw]:
    known = {variable for setting_field in dataclasses.fields(Settings) for variable in setting_field.metadata["env"]}
    used = {name: found.use(f".env:{found.line}: {name}") for name, found in variables.items() if name in known}
    for name, variable in _set_by(used):
        line = variables[variable].line
        yield name, f".env:{line}: {variable}", used[variable], f".env:{line}"


def _from_env(env: Mapping[str, str]) -> Iterator[Raw]:
    for name, variable in _set_by(env):
        yield name, variable, env[variable], f"environment: {variable}"


_FLAGS = {  # where the flag has another name than the setting
    "memory_backend": "use-memory",
    "memory_trust": "memory",
    "memory_distil": "distil",
    "workspace": "workspace-directory",
    "openai_base_url": "base-url",
    "ai_settings_file": "ai-settings",
    "prompt_settings_file": "prompt-settings",
    "plain_output": "plain",
    "outage": "patience",
    "run_name": "name",
}


RUN = "the run"  # an origin
KEPT = "kept"
"""Among the flags: the settings, by name, that a run which is taken up again has kept in its log."""


def _from_flags(flags: Mapping[str, Any]) -> Iterator[Raw]:
    kept = flags.get(KEPT, {})
    for name in _kinds():
        value = flags.get(name)
        if value not in (None, ()):
            yield name, f"--{_FLAGS.get(name, name).replace('_', '-')}", value, "flag"
        elif name in kept:
            yield name, f"{name} in the log of the run", kept[name], RUN


def _set_by(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each setting of which a variable is set, with that variable."""
    for setting_field in dataclasses.fields(Settings):
        for variable in setting_field.metadata["env"]:
            if not is_blank(variables.get(variable)):
                yield setting_field.name, variable
                break


@cache
def _kinds() -> dict[str, type]:
    """Return the type of every setting, without the `None` that stands for "not given"; lists are tuples of str."""
    kinds: dict[str, type] = {}
    for name, hint in typing.get_type_hints(Settings).items():
        if isinstance(hint, types.UnionType):
            hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
        kinds[name] = typing.get_origin(hint) or hint
    return kinds


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def parse(name: str, text: str, called: str) -> Any:
    """Convert the text to the setting's type. Raises SettingsError, which begins with `called`."""
    text = text.strip()
    kind, metadata = _kinds()[name], Settings.__dataclass_fields__[name].metadata
    choices: Mapping[str, str] | None = metadata["choices"]
    if metadata["secret"] and not re.fullmatch(r"[!-~]*", text):
        raise SettingsError(f"{called}: holds a space or a letter that no key has; copy the key again.")
    if kind is str and _CONTROL.search(text):
        raise SettingsError(f"{called}: holds a line end or another control character; write it on one line.")
    if choices is not None:
        if text.lower() not in choices:
            raise SettingsError(f"{called}: must be one of {', '.join(filter(None, choices))}, not {text!r}.")
        return choices[text.lower()]
    if metadata["parse"] is not None:
        try:
            meant = metadata["parse"](text)
        except ValueError as error:
            raise SettingsError(f"{called}: {error}") from None
        return meant if isinstance(meant, str) else text
    if kind is bool:
        if text.lower() not in _BOOLEANS:
            raise SettingsError(f"{called}: must be true or false (1/0, yes/no, on/off), not {text!r}.")
        return _BOOLEANS[text.lower()]
    if kind is int or kind is float:
        return _number(kind, text, called)
    if kind is tuple:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if text and not parts:
            raise SettingsError(f"{called}: {text!r} names nothing; separate names by commas, or leave it out.")
        return parts
    return _path(text, called) if kind is Path else text


def _path(text: str, called: str) -> Path:
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise SettingsError(f"{called}: there is no such user's home: {shorten(repr(text), 100)}.") from None
    if "\0" in text or len(os.fsencode(path)) > _PATH or any(len(os.fsencode(part)) > _NAME for part in path.parts):
        raise SettingsError(f"{called}: nothing can be called that: {shorten(repr(text), 100)}.")
    return path


def _number(kind: type[int] | type[float], text: str, called: str) -> int | float:
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        wanted = "a whole number" if kind is int else "a number"
        raise SettingsError(f"{called}: must be {wanted} of 0 or more, not {text!r}.")
    return number


def _check_together(settings: Settings) -> None:
    for part in ("alike", "words", "recency", "firmness", "diversity", "floor"):
        name = f"memory_{part}"
        if getattr(settings, name) > 1:
            raise SettingsError(f"{name.upper()}: must be from 0 to 1, not {getattr(settings, name):g}.")
    for name in ("memory_growth", "memory_breadth"):
        if getattr(settings, name) < 1:
            raise SettingsError(f"{name.upper()}: must be 1 or more, not {getattr(settings, name):g}.")
    if settings.authorise_command_key.lower() == settings.exit_key.lower():
        raise SettingsError(f"AUTHORISE_COMMAND_KEY and EXIT_KEY are both {settings.exit_key!r}; they must differ.")
    for name in ("shell_denylist", "shell_allowlist"):
        for entry in getattr(settings, name):
            if not _PROGRAM.fullmatch(entry):
                raise SettingsError(
                    f"{name.upper()}: {entry!r} is not the name or path of a program; write the program alone, such "
                    "as git or /usr/bin/git, without arguments or patterns."
                )
    for name, last in (("openai_organization", 0x7F), ("user_agent", 0xFF)):  # of what can be sent as a header
        if any(ord(letter) > last for letter in getattr(settings, name)):
            raise SettingsError(f"{name.upper()}: {getattr(settings, name)!r} holds a letter that cannot be sent.")
    if settings.search_url and not settings.search_url.startswith(("http://", "https://")):
        raise SettingsError(
            f"AUTOAGENT_SEARCH_URL: must begin with http:// or https://, not {settings.search_url!r}; "
            "a SearXNG server of this machine is usually http://127.0.0.1:8888."
        )
    if settings.openai_base_url and not settings.openai_base_url.startswith(("http://", "https://")):
        raise SettingsError(
            f"OPENAI_BASE_URL: must begin with http:// or https://, not {settings.openai_base_url!r}; "
            "a local server is usually http://127.0.0.1:PORT/v1."
        )
