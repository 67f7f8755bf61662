"""The long-term memory that the settings name, opened: for the agents of a run and for the user."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.core.errors import SettingsError
from autoagent.registry.embedders import EmbedderOpening
from autoagent.registry.memory import BACKENDS, StoreOpening
from autoagent.session.session import claimed_state
from autoagent.settings import Settings
from autoagent.terminal.output import echo

if TYPE_CHECKING:  # numpy and sqlite3 wait until a memory is opened
    from autoagent.core.protocols import Embedder, Listener
    from autoagent.memory.living_memory import LifeRules, LivingMemory
    from autoagent.memory.none import NoMemory
    from autoagent.memory.ranking import RankingWeights
    from autoagent.memory.tick_clock import TickClock

DAY = 86_400.0
MINUTE = 60.0


def say(line: str) -> None:
    """Print what the memory has to tell the user to standard error."""
    echo(line, err=True)


def open_memory(
    settings: Settings,
    listen: Callable[[str], None] = say,
    embedder: Embedder | None = None,
    *,
    trusted_only: bool = False,
    rerank: Callable[[str], str] | None = None,
    ticks: TickClock | None = None,
) -> LivingMemory | NoMemory:
    """Open the memory that the settings name, and their embedder if none is given. The caller closes it.

    With `trusted_only` it recalls nothing that comes from outside. `rerank` asks the model that puts in order what is
    recalled. `ticks` takes the place of the time of day.

    Raises SettingsError, SetupError, StateError.
    """
    backend = BACKENDS.find(settings.memory_backend)
    if backend.open is None:
        from autoagent.memory.none import NoMemory

        return NoMemory()
    from autoagent.memory.dreams import Journal
    from autoagent.memory.living_memory import LivingMemory
    from autoagent.text.tokens import counter

    folder = memory_folder(settings)
    if backend.needs_url and not settings.memory_url:
        raise SettingsError(f"MEMORY_BACKEND={backend.name} needs MEMORY_URL, which says where it is.")
    own = embedder or lazy_embedder(settings)
    store = backend.open(StoreOpening(settings.memory_url, settings.memory_index, folder, own, listen))
    return LivingMemory(
        store,
        Journal(folder / "dreams.jsonl"),
        rules=_rules(settings, in_ticks=ticks is not None),
        weights=weights_of(settings),
        clock=ticks.over(store) if ticks else time.time,
        count=counter(settings.model or settings.smart_llm),
        trusted_only=trusted_only,
        rerank=rerank,
    )


def memory_folder(settings: Settings) -> Path:
    """Return the local folder of the memory, or of what goes with it. Raises SettingsError for an invalid name."""
    name = settings.memory_index
    if name and not re.fullmatch(r"\w[\w.-]{0,63}", name):
        raise SettingsError(f"MEMORY_INDEX is {name!r}; a name is made of letters, digits, '_', '-' and '.'.")
    return settings.state_dir / "memory" / name if name else settings.state_dir / "memory"


@contextmanager
def memory_of_user(settings: Settings, embedder: Embedder | None = None) -> Iterator[LivingMemory]:
    """Open the memory for a command of the user's. Raises SettingsError also if it is switched off."""
    from autoagent.memory.none import NoMemory

    with claimed_state(settings):
        memory = open_memory(settings, embedder=embedder)
        if isinstance(memory, NoMemory):
            off = f"The memory is switched off (MEMORY_BACKEND={settings.memory_backend})"
            raise SettingsError(f"{off}; set it to the backend you mean.")
        with memory:
            yield memory


def _rules(settings: Settings, *, in_ticks: bool) -> LifeRules:
    from autoagent.core.memory import LIVES
    from autoagent.memory.living_memory import LifeRules

    by_kind = (settings.memory_life or ("source" if settings.hierarchical else "kinds")) == "kinds"
    return LifeRules(
        base=settings.memory_ticks if in_ticks else settings.memory_fade_days * DAY,
        growth=settings.memory_growth,
        cap=settings.memory_levels,
        trash=settings.memory_trash_days * DAY,
        sleep=settings.memory_sleep,
        alike=settings.memory_alike,
        lives=LIVES if by_kind else {},
        pushed_is_use=not by_kind,
        grain=1.0 if in_ticks else MINUTE,
    )


def weights_of(settings: Settings) -> RankingWeights:
    """Return the weights of a recall."""
    from autoagent.memory.ranking import RankingWeights

    words, own = settings.memory_words, settings.embedder[0].words
    if own is not None and words == RankingWeights().words:  # it was left as it is
        words = own
    return RankingWeights(
        words=words,
        recency=settings.memory_recency,
        half_life=settings.memory_half_life_days * DAY,
    )


def lazy_embedder(settings: Settings, listener: Listener | None = None) -> Embedder:
    """Return the embedder that the settings name, loaded when needed. `listener` hears of what takes long."""
    from autoagent.memory.lazy import LazyEmbedder

    def load() -> Embedder:
        kind, argument = settings.embedder
        return kind.open(EmbedderOpening(settings.of_models, argument, listener))

    return LazyEmbedder(load)
