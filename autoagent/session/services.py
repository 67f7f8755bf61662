"""Opens the context of an agent's commands, with a memory and a sandbox of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoagent.core.model import Usage
from autoagent.core.protocols import Model
from autoagent.session import build
from autoagent.session.extension_hooks import hooked_memory
from autoagent.settings import Settings
from autoagent.workspace.gate import Workspace

if TYPE_CHECKING:
    from autoagent.commands.context import Context
    from autoagent.core.protocols import Embedder
    from autoagent.memory.living_memory import LivingMemory
    from autoagent.memory.none import NoMemory
    from autoagent.memory.tick_clock import TickClock
    from autoagent.memory.wider import WiderMemory
    from autoagent.safety.exfiltration_guard import ExfiltrationGuard
    from autoagent.session.user_memory import Consent, UserMemory


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The parts of an agent's memory. Without an embedder it opens its own.

    `ranker` orders its results. `ticks`, shared by the agents of a run, replace the time of day. `user` is the user's
    own memory, if the agent has it beside the folder's. `consent` asks the user before the first text that an agent
    stores there, None if nobody can be asked. With `trusted_only` nothing from outside is recalled.
    """

    embedder: Embedder | None = None
    ranker: Model | None = None
    ticks: TickClock | None = None
    user: UserMemory | None = None
    consent: Consent | None = None
    trusted_only: bool = False


@contextmanager
def open_context(
    settings: Settings,
    workspace: Workspace,
    guard: ExfiltrationGuard,
    model: Model,
    fast: Model,
    parts: MemoryParts,
    *,
    ask: Callable[[str, float | None], str],
    say: Callable[[str], None],
) -> Iterator[Context]:
    """Open a context that names neither its run nor any agents. `ask` is as Context has it.

    `guard` is told whether programs are confined. `model` thinks, `fast` summarises. `parts` are the memory's. Raises
    SettingsError, SetupError, StateError if something cannot be opened.
    """
    from autoagent.commands.context import Context
    from autoagent.session.memories import open_memory
    from autoagent.session.services_factory import open_sandbox, reach

    mask = build.mask_of(settings)
    thinking, summarising = build.ModelCaller(model, mask), build.ModelCaller(fast, mask)
    ranking = build.ModelCaller(parts.ranker, mask) if parts.ranker else None
    trusted = parts.trusted_only
    opened = open_memory(settings, say, parts.embedder, trusted_only=trusted, rerank=ranking, ticks=parts.ticks)
    with (
        closing(_with_user(opened, parts, say)) as memory,
        closing(open_sandbox(settings, workspace)) as sandbox,
    ):
        guard.confined = sandbox.confines
        reached = reach(settings, workspace, sandbox)
        paid = (thinking, summarising, *([ranking] if ranking else []), reached["media"])
        yield Context(
            workspace,
            hooked_memory(memory),
            ask,
            complete=thinking,
            summarise=summarising,
            take_usage=lambda: sum((one.take_usage() for one in paid), Usage()),
            progress=say,
            origin=lambda: guard.origin,
            mask=mask,
            **reached,
        )


def _with_user(
    opened: LivingMemory | NoMemory, parts: MemoryParts, say: Callable[[str], None]
) -> LivingMemory | NoMemory | WiderMemory:
    """Return the memory with the user's own beside it, if the agent has that. One that keeps nothing stays alone."""
    from autoagent.memory.none import NoMemory

    if isinstance(opened, NoMemory):
        return opened
    from autoagent.session.user_memory import beside_folder_memory

    return beside_folder_memory(opened, parts.user, say, parts.consent)
