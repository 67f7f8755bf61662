"""The providers of models, and the parser of `--model`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from autoagent.registry.plugins import imported_when_called
from autoagent.registry.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from autoagent.config.settings import Settings
    from autoagent.core.events import Event
    from autoagent.core.finding import Finding
    from autoagent.core.protocols import Listener, Model
    from autoagent.core.task import Task


@dataclass(frozen=True, slots=True)
class ModelOpening:
    """What a provider is given to open a model.

    Attributes:
        settings: all of them.
        argument: what stands behind the provider's name and a colon, '' for nothing.
        listener: hears what cannot wait for the next event.
        show, ask: put a text before the user, and ask for a line (EOFError where there is none to come).
        answered: how many replies of a recording this run has had already.
        recording: the events of an earlier run, by a prefix of its id, of the agent that is to think.
        weights: the file of the embedded model, fetched where it is not there yet.
    """

    settings: Settings
    argument: str
    listener: Listener
    show: Callable[[str], None]
    ask: Callable[[str], str]
    answered: int
    recording: Callable[[str], Iterable[Event]]
    weights: Callable[[], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """All that is true of a provider of models.

    Attributes:
        name: what `--model` calls it.
        summary: one line of help.
        open: opens the model. Raises SetupError if it cannot be used, SettingsError for an argument that is none.
        forms: how it is written, where a colon and more may follow the name; empty: by its name alone.
        endpoint: prompts go to the OpenAI-compatible endpoint of the settings; what else it has, it may be asked too.
        recorded: its replies come in a fixed order, and a resumed run passes over those that it has had.
        shared: one model serves all agents of a run, from any thread; else each has one of its own.
        proposes: it writes freely, too: turns a wish into name, role and goals, a run into facts.
        task: the only task it does; None: any.
        one_agent: why it cannot answer for sub-agents too, '' if it can.
        names: the models it has, where they can be told without asking one of them; empty where it does not say.
        offered: its line in the menu of the first start, '' if that does not offer it.
        examine: what `autoagent doctor` looks at, given the settings, the argument and the environment.
    """

    name: str
    summary: str
    open: Callable[[ModelOpening], Model]
    forms: tuple[str, ...] = ()
    endpoint: bool = False
    recorded: bool = False
    shared: bool = False
    proposes: bool = True
    task: Callable[[], Task] | None = None
    one_agent: str = ""
    names: Callable[[Settings], Sequence[str]] | None = None
    offered: str = ""
    examine: Callable[[Settings, str, Mapping[str, str]], Iterable[Finding]] | None = None

    @property
    def aliases(self) -> tuple[str, ...]:
        """It has none."""
        return ()

    @property
    def takes_argument(self) -> bool:
        """Whether something may follow its name and a colon."""
        return any(":" in form for form in self.forms)


OPENAI = Provider(
    name="openai",
    summary="any OpenAI-compatible endpoint, with the model of SMART_LLM; a model's name alone is one of its models",
    open=imported_when_called("autoagent.models.openai.opening:open_model"),
    endpoint=True,
    names=imported_when_called("autoagent.models.openai.opening:model_names"),
    examine=imported_when_called("autoagent.models.openai.diagnosis:examine"),
)
LOCAL = Provider(
    name="local",
    summary="the embedded model on this machine, or another GGUF file",
    open=imported_when_called("autoagent.models.local.llama:open_model"),
    forms=("local", "local:FILE.gguf"),
    shared=True,  # too large to be loaded twice
    offered="the embedded model: no key, works offline; fetches 1.1 GB once",
    examine=imported_when_called("autoagent.models.local.diagnosis:examine"),
)
HUMAN = Provider(
    name="human",
    summary="you answer in the model's place",
    open=imported_when_called("autoagent.models.human:open_model"),
    proposes=False,
    one_agent="a person who answers as the model answers for one agent alone",
)
REPLAY = Provider(
    name="replay",
    summary="the replies of an earlier run once more",
    open=imported_when_called("autoagent.models.replay:open_model"),
    forms=("replay:RUN",),
    recorded=True,
    proposes=False,
)
DEMO = Provider(
    name="demo",
    summary="a scripted run that shows what one looks like",
    open=imported_when_called("autoagent.models.demo:open_model"),
    recorded=True,
    task=imported_when_called("autoagent.models.demo:demo_task"),
    offered="a scripted demo: no model, shows what a run looks like",
)

PROVIDERS = Table("models", Provider, (OPENAI, LOCAL, HUMAN, REPLAY, DEMO))


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A parsed `--model`: the name of a provider, and what it is to open ('' for its usual)."""

    name: str
    argument: str

    @property
    def provider(self) -> Provider:
        """Raises SetupError if it is a plug-in's that cannot be used."""
        return PROVIDERS.find(self.name)

    @property
    def is_harmless(self) -> bool:
        """Whether it opens no file and no run, and is no plug-in's: anybody may choose it."""
        return not PROVIDERS.is_added(self.name) and (self.name == OPENAI.name or not self.argument)


@cache
def parse_model(text: str) -> ModelChoice:
    """Parse a model choice. A name that is no provider's is a model at the endpoint; '' is the endpoint's usual one.

    Raises ValueError for something behind the name of a provider that takes nothing.
    """
    name, colon, argument = text.partition(":")
    if text in ("", OPENAI.name):
        return ModelChoice(OPENAI.name, "")
    if name == OPENAI.name or not PROVIDERS.knows(name):
        return ModelChoice(OPENAI.name, text)
    if colon and not PROVIDERS.is_added(name) and not PROVIDERS.find(name).takes_argument:
        raise ValueError(f"nothing may follow {name}, as in {text!r}.")
    return ModelChoice(name, argument)


def model_forms(*, recorded: bool = True) -> str:
    """Describe for help how to name a model: `openai, local, local:FILE.gguf, ..., or a model's name`.

    Without `recorded`, those are left out whose replies come in a fixed order.
    """
    providers = [provider for provider in PROVIDERS.own if recorded or not provider.recorded]
    forms = [form for provider in providers for form in provider.forms or (provider.name,)]
    return f"{', '.join(forms)}, or a model's name"
