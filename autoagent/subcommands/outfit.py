"""What an agent works with: the context of its commands, with a memory and a sandbox that are its alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from autoagent.messages import Usage
from autoagent.protocols import Embedder, Model
from autoagent.settings import Settings
from autoagent.subcommands import assembly
from autoagent.workspace import Workspace

if TYPE_CHECKING:
    from autoagent.commands.context import Context
    from autoagent.guard import Guard


@contextmanager
def open_context(
    settings: Settings,
    workspace: Workspace,
    guard: Guard,
    model: Model,
    fast: Model,
    embedder: Embedder | None,
    *,
    ask: Callable[[str, float | None], str],
    say: Callable[[str], None],
) -> Iterator[Context]:
    """A context that says neither which run it belongs to nor which agents there are; `ask` is as Context has it.

    `guard` is told whether programs are confined. `model` thinks, `fast` summarises; without an `embedder` the memory
    has one of its own. Raises SettingsError, SetupError, StateError for what cannot be opened.
    """
    from autoagent.commands.context import Context
    from autoagent.subcommands.memory_setup import open_memory
    from autoagent.subcommands.reach import open_sandbox, reach

    mask = assembly.mask_of(settings)
    thinking, summarising = assembly.Completing(model, mask), assembly.Completing(fast, mask)
    with (
        closing(open_memory(settings, say, embedder)) as memory,
        closing(open_sandbox(settings, workspace)) as sandbox,
    ):
        guard.confined = sandbox.confines
        reached = reach(settings, workspace, sandbox)
        paid = (thinking, summarising, reached["media"])
        yield Context(
            workspace,
            memory,
            ask,
            complete=thinking,
            summarise=summarising,
            take_usage=lambda: sum((one.take_usage() for one in paid), Usage()),
            progress=say,
            origin=lambda: guard.origin,
            mask=mask,
            **reached,
        )
