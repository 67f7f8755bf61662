"""The embedders, which make vectors of texts for the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoagent.registry.plugins import imported_when_called
from autoagent.registry.table import Table

if TYPE_CHECKING:
    from autoagent.config.settings import Settings
    from autoagent.core.finding import Finding
    from autoagent.core.protocols import Embedder, Listener


@dataclass(frozen=True, slots=True)
class EmbedderOpening:
    """What an embedder is opened with.

    `argument` is what stands behind its name and a colon in EMBEDDING_MODEL; `listener`, if any, hears of what takes
    long.
    """

    settings: Settings
    argument: str
    listener: Listener | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderKind:
    """All that is true of an embedder.

    Attributes:
        name: what EMBEDDING_MODEL calls it.
        summary: one line of help.
        open: opens it. Raises SetupError if it cannot be used.
        shared: one serves all agents of a run, from any thread; else each has one of its own.
        examine: what `autoagent doctor` looks at, given the settings and the argument.
        at_home: texts do not leave this machine to be embedded.
        words: how much words count beside it in a recall, where MEMORY_WORDS does not say otherwise; None: the usual.
    """

    name: str
    summary: str
    open: Callable[[EmbedderOpening], Embedder]
    shared: bool = False
    examine: Callable[[Settings, str], Iterable[Finding]] | None = None
    at_home: bool = False
    words: float | None = None

    @property
    def aliases(self) -> tuple[str, ...]:
        """It has none."""
        return ()


OPENAI = EmbedderKind(
    name="openai",
    summary="the endpoint's; any name that is no embedder's is that of its model",
    open=imported_when_called("autoagent.models.openai.opening:open_embedder"),
    examine=imported_when_called("autoagent.models.openai.diagnosis:examine_embedder"),
)
EMBEDDED = EmbedderKind(
    name="embedded",
    summary="on this machine: WordLlama with autoagent[local], else hashed words",
    open=imported_when_called("autoagent.memory.embedders.builtin:open_embedder"),
    shared=True,  # a large table, which nothing changes
    at_home=True,
    examine=imported_when_called("autoagent.memory.embedders.builtin:examine"),
)
MINILM = EmbedderKind(
    name="minilm",
    summary="on this machine: MiniLM, with autoagent[minilm]; slower, and knows what a sentence says",
    open=imported_when_called("autoagent.memory.embedders.minilm:open_embedder"),
    shared=True,
    at_home=True,
    examine=imported_when_called("autoagent.memory.embedders.minilm:examine"),
    words=0.2,
)

EMBEDDERS = Table("embedders", EmbedderKind, (OPENAI, EMBEDDED, MINILM))


def embedder_of(settings: Settings) -> tuple[EmbedderKind, str]:
    """Return the embedder that the settings mean, and its argument ('' for the usual).

    OpenAI's own endpoint embeds, another one where EMBEDDING_MODEL names its model. Nothing leaves the machine for the
    sake of the memory where the model that thinks is no endpoint's. Raises SetupError as `Table.find` does.
    """
    named = settings.embedding_model
    name, _, argument = named.partition(":")
    if name and EMBEDDERS.knows(name):
        return EMBEDDERS.find(name), argument
    embeds = named if settings.openai_base_url else settings.openai_api_key
    return (OPENAI, named) if embeds and settings.model_choice.provider.endpoint else (EMBEDDED, "")
