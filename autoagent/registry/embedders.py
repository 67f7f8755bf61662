"""The embedders, which make vectors of texts for the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoagent.registry.plugins import imported_when_called
from autoagent.registry.table import Registered, Table

if TYPE_CHECKING:
    from autoagent.core.protocols import Embedder, Listener
    from autoagent.core.services import Finding
    from autoagent.registry.models import ModelSettings


@dataclass(frozen=True, slots=True)
class EmbedderOpening:
    """The arguments for opening an embedder.

    `argument` follows its name and a colon in EMBEDDING_MODEL. `listener` hears about long waits.
    """

    settings: ModelSettings
    argument: str
    listener: Listener | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderKind(Registered):
    """The properties of an embedder.

    Attributes:
        open: opens it. Raises SetupError if it cannot be used.
        shared: one instance serves all agents of a run from any thread; else each agent has its own.
        examine: the checks of `autoagent doctor`, given the settings and the argument.
        at_home: texts do not leave this machine.
        words: the default weight of words beside it in a recall. None: the general default.
    """

    open: Callable[[EmbedderOpening], Embedder]
    shared: bool = False
    examine: Callable[[ModelSettings, str], Iterable[Finding]] | None = None
    at_home: bool = False
    words: float | None = None


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
