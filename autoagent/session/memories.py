"""Open the folder's long-term memory, for a run or a subcommand, and the user's own, which all folders share.

The user's own memory holds facts about the user, and preferences, for runs in all folders. It is kept in the user's
state folder, whatever backend a folder uses, and no folder can choose its place. Agents recall from it, but may add to
it only once the user has allowed that (see `consent`), and may never add text from outside. Its texts are embedded on
this machine only.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import SettingsError
from autoagent.core.frozen import dataclass
from autoagent.core.memory import LIVES
from autoagent.core.protocols import Embedder, Listener, MemoryStore, Model
from autoagent.memory.dreams import Journal
from autoagent.memory.embedders.lazy import LazyEmbedder
from autoagent.memory.none import NoMemory, TickClock
from autoagent.registry.embedders import EMBEDDED, EmbedderOpening
from autoagent.registry.memory import BACKENDS, StoreOpening
from autoagent.session.consent import Consent, ConsentDialog
from autoagent.session.extension_hooks import notify_memory_hooks, recall_hooks
from autoagent.session.session import claimed_state
from autoagent.settings import Settings, user_state_path
from autoagent.terminal.output import echo

if TYPE_CHECKING:  # these load numpy
    from autoagent.memory.combined import CombinedMemory
    from autoagent.memory.living_memory import LifeRules, LivingMemory

DAY = 86_400.0
MINUTE = 60.0

print_message = partial(echo, err=True)


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The parts of an agent's memory. Without an `embedder`, the memory opens its own.

    `ranker` orders the results. `ticks`, shared by the agents of a run, replaces the clock. `user` is the user's own
    memory, if the agent has access. `consent` asks the user before an agent first stores there, and is None if nobody
    can be asked. `trusted_only` excludes text from outside, and `hides(place)` tells whether to leave out that
    place's memories.
    """

    embedder: Embedder | None = None
    ranker: Model | None = None
    ticks: TickClock | None = None
    user: UserMemory | None = None
    consent: Consent | None = None
    trusted_only: bool = False
    hides: Callable[[str], bool] = lambda place: False


def open_memory(
    settings: Settings,
    parts: MemoryParts,
    listen: Callable[[str], None] = print_message,
    rerank: Callable[[str], str] | None = None,
) -> LivingMemory | NoMemory:
    """Open the configured memory. The caller closes it. `rerank` asks the ranking model.

    Raises SettingsError, SetupError, StateError.
    """
    backend = BACKENDS.find(settings.memory_backend)
    if backend.open is None:
        return NoMemory()
    from autoagent.memory.ranking import order_by_model

    folder = memory_folder(settings)
    url = settings.memory_url or backend.usual_url
    if backend.needs_url and not url:
        raise SettingsError(f"MEMORY_BACKEND={backend.name} needs its address in MEMORY_URL.")
    embedder = LazyEmbedder(lambda: parts.embedder or lazy_embedder(settings))
    store = backend.open(StoreOpening(url, settings.memory_index, folder, embedder, listen))
    memory = _living_memory(
        store,
        folder,
        settings.embedder[0].words,
        embedder,
        rules=_life_rules(settings, in_ticks=parts.ticks is not None),
        clock=parts.ticks.over(store) if parts.ticks else time.time,
        trusted_only=parts.trusted_only,
        hooks=replace(recall_hooks(), on_request=(partial(order_by_model, rerank),) if rerank else ()),
        notify=notify_memory_hooks,
    )
    memory.hides = parts.hides
    return memory


def memory_folder(settings: Settings) -> Path:
    """Return the local folder of the memory and its files. Raises SettingsError for an invalid name."""
    name = settings.memory_index
    if name and not re.fullmatch(r"\w[\w.-]{0,63}", name):
        raise SettingsError(f"MEMORY_INDEX is {name!r}; a name consists of letters, digits, '_', '-' and '.'.")
    return settings.state_dir / "memory" / name if name else settings.state_dir / "memory"


@contextmanager
def open_memory_for_subcommand(settings: Settings, embedder: Embedder | None = None) -> Iterator[LivingMemory]:
    """Open the memory for a subcommand. Raises SettingsError, for example if the memory is switched off."""
    with claimed_state(settings.state_dir):
        ticks = TickClock() if settings.memory_ticks else None
        memory = open_memory(settings, MemoryParts(embedder, ticks=ticks))
        if isinstance(memory, NoMemory):
            message = f"The memory is switched off (MEMORY_BACKEND={settings.memory_backend})"
            raise SettingsError(f"{message}; set it to the backend that you want.")
        with memory:
            yield memory


def _life_rules(settings: Settings, *, in_ticks: bool) -> LifeRules:
    from autoagent.memory.living_memory import LifeRules

    fades_by_kind = (settings.memory_life or ("source" if settings.hierarchical else "kinds")) == "kinds"
    base, grain = (settings.memory_ticks, 1.0) if in_ticks else (settings.memory_fade_days * DAY, MINUTE)
    return LifeRules(
        base=base, growth=settings.memory_growth, cap=settings.memory_levels, grain=grain,
        lives=LIVES if fades_by_kind else {}, pushed_is_use=not fades_by_kind,
    )  # fmt: skip


def _living_memory(
    store: MemoryStore, folder: Path, words: float | None, embedder: LazyEmbedder, **options: Any
) -> LivingMemory:
    """Return the memory of a store, with the weight of `words` that suits its embedder (None: the default)."""
    from autoagent.memory.living_memory import LivingMemory
    from autoagent.memory.ranking import RankingWeights

    weights = RankingWeights() if words is None else RankingWeights(words=words)
    memory = LivingMemory(store, Journal(folder / "dreams.jsonl"), weights=weights, **options)
    memory.take_usage = embedder.take_usage
    return memory


def lazy_embedder(settings: Settings, listener: Listener | None = None) -> Embedder:
    """Return the configured embedder, loaded when needed. `listener` is notified of long operations."""

    def load() -> Embedder:
        kind, argument = settings.embedder
        return kind.open(EmbedderOpening(settings.model_settings, argument, listener))

    return LazyEmbedder(load)


_HOOK_SIGN = -1  # hooks see the user's own memories with negative ids, to tell them from the folder's


@dataclass(frozen=True, slots=True)
class UserMemory:
    """Give access to the user's own memory. `words` is the weight of words in a recall (None: the default)."""

    folder: Path
    embedder: Embedder
    words: float | None

    @property
    def exists(self) -> bool:
        return (self.folder / "memory.db").exists()

    def open(self, listen: Callable[[str], None]) -> LivingMemory:
        """Open it, creating it if necessary. The caller closes it. Raises StateError."""
        from autoagent.memory.living_memory import LifeRules
        from autoagent.memory.sqlite.store import LocalStore

        embedder = LazyEmbedder(lambda: self.embedder)
        store = LocalStore(self.folder, embedder, listen)
        # A folder's settings could let it fade or keep it out of every prompt, so they do not apply.
        rules = LifeRules(lives=LIVES)

        def notify(place: str, ids: Sequence[int], *dream: str) -> None:
            notify_memory_hooks(place, [_HOOK_SIGN * id for id in ids], *dream)

        hooks = recall_hooks(_HOOK_SIGN)
        return _living_memory(store, self.folder, self.words, embedder, rules=rules, hooks=hooks, notify=notify)


def user_memory(settings: Settings, embedder: Embedder | None = None) -> UserMemory:
    """Return the user's own memory, with an embedder that runs on this machine: the configured `embedder` or ours."""
    kind = settings.embedder[0]
    if not kind.at_home:
        kind = EMBEDDED
        embedder = LazyEmbedder(lambda: EMBEDDED.open(EmbedderOpening(settings.model_settings, "", None)))
    return UserMemory(user_state_path(os.environ) / "memory", embedder or lazy_embedder(settings), kind.words)


def open_agent_memory(
    settings: Settings, parts: MemoryParts, listen: Callable[[str], None], rerank: Callable[[str], str] | None
) -> NoMemory | CombinedMemory:
    """Open an agent's memory, combined with the user's own if any. Raises like `open_memory`."""
    from autoagent.memory.combined import CombinedMemory

    folder_memory = open_memory(settings, parts, listen, rerank)
    if isinstance(folder_memory, NoMemory):
        return folder_memory
    user = parts.user

    def find(create: bool) -> LivingMemory | None:
        return user.open(listen) if user and (create or user.exists) else None

    return CombinedMemory(
        folder_memory, find, ConsentDialog(user.folder if user else None, parts.consent).refusal, listen
    )
