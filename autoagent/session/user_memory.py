"""The user's own memory: facts about him and preferences of his, for the runs of all his folders.

It lies in the user's state folder, whatever backend a folder's memory has, and no folder names its place. Agents recall
it. They add to it only once the user has allowed that at a terminal, and never text from outside. Its texts are
embedded on this machine alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.core.errors import SettingsError, StateError
from autoagent.registry.embedders import EMBEDDED, EmbedderOpening
from autoagent.session.memories import lazy_embedder
from autoagent.settings import Settings, user_state_path
from autoagent.text.text_file import write_text

if TYPE_CHECKING:  # numpy and sqlite3 wait until a memory is opened
    from autoagent.core.protocols import Embedder
    from autoagent.memory.living_memory import LivingMemory
    from autoagent.memory.wider import WiderMemory

Consent = Callable[[str], bool | None]
"""Asks the user a question of yes or no; None where nobody can be asked."""

NOT_ALLOWED = (
    "You have not allowed agents to write into your own memory: `autoagent memory --user allow` does, or an answer at "
    "the terminal of a run."
)
ABSENT = "The user's own memory has no part in this (MEMORY_USER)."
DECLINED = "The user does not want that in his own memory."
_MARK = "agents-may-add"


@dataclass(frozen=True, slots=True)
class UserMemory:
    """Its place, the embedder of its texts, and the weight of words beside that in a recall (None: the usual)."""

    folder: Path
    embedder: Embedder
    words: float | None = None

    @property
    def is_there(self) -> bool:
        """Whether anything was ever put into it."""
        return (self.folder / "memory.db").exists()

    @property
    def takes_from_agents(self) -> bool:
        """Whether the user has allowed agents to put something into it."""
        return (self.folder / _MARK).is_file()

    def allow(self, *, agents: bool) -> None:
        """Keep whether agents may put something into it. Raises SettingsError if that cannot be kept."""
        mark = self.folder / _MARK
        try:
            if not agents:
                mark.unlink(missing_ok=True)
                return
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"{mark} cannot be written: {error.strerror}.") from error
        write_text(mark, "Agents may put something into this memory.\n", private=True)

    def open(self, listen: Callable[[str], None]) -> LivingMemory:
        """Open it, making it first if need be. The caller closes it. Raises StateError."""
        from autoagent.core.memory import LIVES
        from autoagent.memory.dreams import Journal
        from autoagent.memory.living_memory import LifeRules, LivingMemory
        from autoagent.memory.ranking import RankingWeights
        from autoagent.memory.sqlite.store import LocalStore

        store, journal = LocalStore(self.folder, self.embedder, listen), Journal(self.folder / "dreams.jsonl")
        # Not the numbers of a folder, which could let it fade or keep it out of every prompt:
        rules = LifeRules(lives=LIVES)
        weights = RankingWeights() if self.words is None else RankingWeights(words=self.words)
        return LivingMemory(store, journal, rules=rules, weights=weights)


def user_memory(settings: Settings, embedder: Embedder | None = None) -> UserMemory:
    """Return the user's own memory, with `embedder`, the one that the settings name, where that embeds at home."""
    from autoagent.memory.lazy import LazyEmbedder

    kind = settings.embedder[0]
    if not kind.at_home:
        kind = EMBEDDED
        embedder = LazyEmbedder(lambda: EMBEDDED.open(EmbedderOpening(settings.of_models, "", None)))
    return UserMemory(user_state_path(os.environ) / "memory", embedder or lazy_embedder(settings), kind.words)


def beside_folder_memory(
    own: LivingMemory, user: UserMemory | None, say: Callable[[str], None], consent: Consent | None
) -> WiderMemory:
    """Return a run's memory, the user's own, if any, beside the folder's. Without `consent` he cannot be asked."""
    from autoagent.memory.wider import WiderMemory

    declined = False

    def find(make: bool) -> LivingMemory | None:
        return user.open(say) if user and (make or user.is_there) else None

    def refusal(text: str) -> str:
        nonlocal declined
        if user is None:
            return ABSENT
        if user.takes_from_agents:
            return ""
        if declined:
            return DECLINED
        answer = consent(question(text)) if consent else None
        if answer is None:
            return NOT_ALLOWED
        if not answer:
            declined = True
            return DECLINED
        try:
            user.allow(agents=True)
        except SettingsError as error:
            raise StateError(str(error)) from error
        return ""

    return WiderMemory(own, find, refusal, say)


def question(text: str) -> str:
    """Return the question before the first text that an agent puts into the user's own memory."""
    quoted = "\n".join(f"  {line}" for line in text.strip().splitlines())
    return (
        f"The agent wants to put this into your own memory, which runs in all your folders recall:\n{quoted}\n"
        "May agents do so from now on, without being asked about it again?"
    )
