"""Register the embedders, which turn the memory's texts into vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from autoagent.core.frozen import dataclass
from autoagent.registry.plugins import Registered, Table, lazy_function

if TYPE_CHECKING:
    from autoagent.core.protocols import Embedder, Listener
    from autoagent.core.services import Finding
    from autoagent.registry.models import ModelSettings


@dataclass(frozen=True, slots=True)
class EmbedderOpening:
    """The arguments for opening an embedder."""

    settings: ModelSettings
    argument: str  # the text after the name and a colon in EMBEDDING_MODEL
    listener: Listener | None  # is notified of long waits


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderKind(Registered):
    """Declare the properties of an embedder."""

    open: Callable[[EmbedderOpening], Embedder]  # raises SetupError if it cannot be used
    shared: bool = False  # one instance serves all agents of a run from any thread; else each agent has its own
    examine: Callable[[ModelSettings, str], Iterable[Finding]] | None = None  # for `doctor`, with the argument
    at_home: bool = False  # whether texts stay on this machine
    words: float | None = None  # the weight of word matches in a recall, or None for the default


OPENAI = EmbedderKind(
    name="openai",
    summary="a model of the endpoint; any other name is taken as one",
    open=lazy_function("autoagent.models.openai.opening:open_embedder"),
    examine=lazy_function("autoagent.models.openai.diagnosis:examine_embedder"),
)
EMBEDDED = EmbedderKind(
    name="embedded",
    summary="on this machine: WordLlama with autoagent[local], else hashed words",
    open=lazy_function("autoagent.memory.embedders.builtin:open_builtin"),
    shared=True,  # a large, immutable table
    at_home=True,
    examine=lazy_function("autoagent.memory.embedders.builtin:examine_wordllama"),
)
MINILM = EmbedderKind(
    name="minilm",
    summary="on this machine: MiniLM, with autoagent[minilm]; slower, but understands sentences",
    open=lazy_function("autoagent.memory.embedders.builtin:open_minilm"),
    shared=True,
    at_home=True,
    examine=lazy_function("autoagent.memory.embedders.builtin:examine_minilm"),
    words=0.2,
)

EMBEDDERS = Table("embedders", EmbedderKind, (OPENAI, EMBEDDED, MINILM))
