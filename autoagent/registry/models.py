"""Register the model providers, and parse `--model`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from autoagent.core.frozen import dataclass
from autoagent.registry.plugins import Registered, Table, lazy_function

if TYPE_CHECKING:
    from pathlib import Path

    from autoagent.core.events import Event
    from autoagent.core.protocols import Listener, Model
    from autoagent.core.services import Finding
    from autoagent.core.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The settings that models and embedders need. 0 and '' mean the default."""

    base_url: str = ""
    api_key: str = ""
    organization: str = ""
    smart: str = ""
    fast: str = ""
    window: int = 0
    fast_window: int = 0
    temperature: float = 0.0
    asking: str = ""
    style: str = ""
    silence: float = 0.0  # seconds without an answer to a request
    patience: float = 0.0  # seconds for which a failing endpoint is retried
    continuous: bool = False  # the run is unattended
    state_dir: Path


@dataclass(frozen=True, slots=True)
class ModelOpening:
    """The arguments for opening a model."""

    settings: ModelSettings  # the endpoint and how its models are asked
    argument: str  # the text after the provider's name and a colon, or ''
    listener: Listener
    show: Callable[[str], None]  # shows a text to the user
    ask: Callable[[str], str]  # asks the user for a line; EOFError at the end of the input
    answered: int  # how many replies of a recording this run has already used
    recording: Callable[[str], Iterable[Event]]  # returns the events of an earlier run, by a prefix of its id
    weights: Callable[[], Path]  # returns the file of the embedded model, downloading it if needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider(Registered):
    """Declare the properties of a model provider.

    `open` raises SetupError if the model cannot be used, and SettingsError for an invalid argument. `examine` makes the
    checks of `autoagent doctor`, given the settings, the argument and the environment.
    """

    open: Callable[[ModelOpening], Model]
    forms: tuple[str, ...] = ()  # how to write the choice, if an argument may follow the name and a colon
    endpoint: bool = False  # whether it sends prompts to the OpenAI-compatible endpoint of the settings
    sees: bool = False  # whether it passes images on
    recorded: bool = False  # whether its replies come in a fixed order: a resumed run skips those it has used
    shared: bool = False  # one model serves all agents of a run from any thread; else each agent has its own
    proposes: bool = True  # whether it writes free text: names, roles and goals from a wish, facts from a run
    task: Callable[[], Task] | None = None  # the only task it does
    one_agent: str = ""  # why it cannot serve sub-agents, or '' if it can
    names: Callable[[ModelSettings], Sequence[str]] | None = None  # lists the known models without a request
    offered: str = ""  # its line in the menu of the first start, or '' if it is not in the menu
    examine: Callable[[ModelSettings, str, Mapping[str, str]], Iterable[Finding]] | None = None


OPENAI = Provider(
    name="openai",
    summary="any OpenAI-compatible endpoint, with the model of SMART_LLM; a model's name alone chooses that model",
    open=lazy_function("autoagent.models.openai.opening:open_model"),
    endpoint=True,
    sees=True,
    names=lazy_function("autoagent.models.openai.opening:model_names"),
    examine=lazy_function("autoagent.models.openai.diagnosis:examine"),
)
LOCAL = Provider(
    name="local",
    summary="the embedded model on this machine, or another GGUF file",
    open=lazy_function("autoagent.models.local.llama:open_model"),
    forms=("local", "local:FILE.gguf"),
    shared=True,  # too large to be loaded twice
    offered="the embedded model: no key, works offline; fetches 1.1 GB once",
    examine=lazy_function("autoagent.models.local.weights:examine"),
)
HUMAN = Provider(
    name="human",
    summary="you answer in the model's place",
    open=lazy_function("autoagent.models.human:open_model"),
    proposes=False,
    one_agent="a person who answers as the model answers for one agent alone",
)
REPLAY = Provider(
    name="replay",
    summary="the replies of an earlier run",
    open=lazy_function("autoagent.models.replay:open_model"),
    forms=("replay:RUN",),
    recorded=True,
    proposes=False,
)
DEMO = Provider(
    name="demo",
    summary="a scripted run",
    open=lazy_function("autoagent.models.demo:open_model"),
    recorded=True,
    task=lazy_function("autoagent.models.demo:demo_task"),
    offered="a scripted demo of a run, without a model",
)

PROVIDERS = Table("models", Provider, (OPENAI, LOCAL, HUMAN, REPLAY, DEMO))


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A parsed `--model`: the provider's name and its argument ('' for the default)."""

    name: str
    argument: str

    @property
    def provider(self) -> Provider:
        """Return the provider. Raises SetupError for an unusable plug-in."""
        return PROVIDERS.find(self.name)

    @property
    def is_harmless(self) -> bool:
        """Return whether it opens no file or run and is not from a plug-in, so that anybody may choose it."""
        return not PROVIDERS.is_third_party(self.name) and (self.name == OPENAI.name or not self.argument)


@cache
def parse_model(text: str) -> ModelChoice:
    """Parse a model choice. Any other name is a model of the endpoint; '' is the endpoint's default.

    Raises ValueError for an argument of a provider that takes none.
    """
    name, colon, argument = text.partition(":")
    if text in ("", OPENAI.name):
        return ModelChoice(OPENAI.name, "")
    if name == OPENAI.name or not PROVIDERS.knows(name):
        return ModelChoice(OPENAI.name, text)
    if colon and not PROVIDERS.is_third_party(name) and not any(":" in form for form in PROVIDERS.find(name).forms):
        raise ValueError(f"nothing may follow {name}, as in {text!r}.")
    return ModelChoice(name, argument)


def model_forms(*, recorded: bool = True) -> str:
    """Describe for help how to name a model: `openai, local, local:FILE.gguf, ..., or a model's name`.

    Without `recorded`, leave out providers whose replies come in a fixed order.
    """
    providers = [provider for provider in PROVIDERS.builtin if recorded or not provider.recorded]
    forms = [form for provider in providers for form in provider.forms or (provider.name,)]
    return f"{', '.join(forms)}, or a model's name"
