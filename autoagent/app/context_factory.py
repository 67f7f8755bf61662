"""Opens the context of an agent's commands, with a memory and a sandbox of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from autoagent.app import run_factory
from autoagent.app.extension_hooks import hooked_memory
from autoagent.config.settings import Settings
from autoagent.core.model import Usage
from autoagent.core.protocols import Model
from autoagent.workspace.gate import Workspace

if TYPE_CHECKING:
    from autoagent.app.memory_factory import MemoryParts
    from autoagent.commands.context import Context
    from autoagent.safety.exfiltration_guard import ExfiltrationGuard


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
    """Open a context that names neither its run nor any agents; `ask` is as Context has it.

    `guard` is told whether programs are confined. `model` thinks, `fast` summarises; `parts` are the memory's. Raises
    SettingsError, SetupError, StateError for what cannot be opened.
    """
    from autoagent.app.memory_factory import open_memory
    from autoagent.app.services_factory import open_sandbox, reach
    from autoagent.commands.context import Context

    mask = run_factory.mask_of(settings)
    thinking, summarising = run_factory.ModelCaller(model, mask), run_factory.ModelCaller(fast, mask)
    ranking = run_factory.ModelCaller(parts.ranker, mask) if parts.ranker else None
    trusted = settings.memory_trust == "trusted"
    opened = open_memory(settings, say, parts.embedder, trusted_only=trusted, rerank=ranking, ticks=parts.ticks)
    with (
        closing(opened) as memory,
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
