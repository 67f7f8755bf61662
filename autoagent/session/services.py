"""The context of an agent's commands: a memory and a sandbox of its own, the web and media."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from autoagent.core.model import Usage
from autoagent.core.protocols import Model, Sandbox, Web
from autoagent.session import build
from autoagent.session.extension_hooks import hooked_memory
from autoagent.settings import Settings
from autoagent.workspace.gate import Workspace

if TYPE_CHECKING:
    from autoagent.commands.context import Context
    from autoagent.core.protocols import Embedder
    from autoagent.memory.living_memory import LivingMemory
    from autoagent.memory.none import NoMemory, TickClock
    from autoagent.memory.wider import WiderMemory
    from autoagent.safety.exfiltration_guard import ExfiltrationGuard
    from autoagent.services.web import Search
    from autoagent.session.memories import Consent, UserMemory


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The parts of an agent's memory. Without an embedder it opens its own.

    `ranker` orders its results. `ticks`, shared by the agents of a run, replace the time of day. `user` is the user's
    own memory, if the agent has it beside the folder's. `consent` asks the user before the first text that an agent
    stores there, None if nobody can be asked. With `trusted_only` nothing from outside is recalled, and never what an
    agent stored whose place it `hides`.
    """

    embedder: Embedder | None = None
    ranker: Model | None = None
    ticks: TickClock | None = None
    user: UserMemory | None = None
    consent: Consent | None = None
    trusted_only: bool = False
    hides: Callable[[str], bool] = lambda place: False


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
    opened.hides = parts.hides
    from autoagent.session.memories import beside_folder_memory

    return beside_folder_memory(opened, parts.user, say, parts.consent)


MB = 1024 * 1024


def open_sandbox(settings: Settings, workspace: Workspace) -> Sandbox:
    """Open the sandbox for this workspace. Raises SetupError if the one asked for, or required, does not work here."""
    from autoagent.sandbox.process import ProcessLimits
    from autoagent.sandbox.programs import open_sandbox

    limits = ProcessLimits(
        seconds=settings.sandbox_seconds,
        memory=settings.sandbox_memory * MB,
        processes=settings.sandbox_processes,
        file=settings.sandbox_file * MB,
    )
    return open_sandbox(
        workspace,
        limits,
        kind=settings.sandbox,
        required=settings.require_sandbox,
        network=settings.sandbox_network,
        python=settings.python,
    )


def tell_gaps(sandbox: Sandbox, say: Callable[[str], None]) -> None:
    """Warn of the sandbox's gaps, if there are any."""
    if sandbox.gaps:
        say(f"Programs run under the sandbox {sandbox.name!r}, which does not hold everything:")
        for gap in sandbox.gaps:
            say(f"- {gap}")


def browser_of(settings: Settings) -> str:
    """Return the browser that shows pages: the one that is wanted, another one that is here, or '' for none."""
    if not settings.browser_name:
        return ""
    from autoagent.services.browser import usable  # and with it asyncio, which few runs need

    return usable(settings.browser_name)


def tell_browser(settings: Settings, say: Callable[[str], None]) -> None:
    """Say so if the browser that is wanted is not here."""
    from autoagent.commands.support.extras import BROWSER

    wanted, there = settings.browser_name, browser_of(settings)
    if there != wanted:
        why = f"{BROWSER.problem}: {BROWSER.remedy}" if BROWSER.is_missing(settings) else f"{wanted} is not installed"
        say(f"{why}. Pages are read {f'with {there}' if there else 'without a browser, so their scripts do not run'}.")


def reach(settings: Settings, workspace: Workspace, sandbox: Sandbox) -> dict[str, Any]:
    """Return the fields of a Context that the agents of a run share. Nothing is asked or opened yet.

    Raises SettingsError for an allowed host that is none.
    """
    import sys

    from autoagent.commands.git import github_authorization
    from autoagent.commands.selection import all_names
    from autoagent.commands.support.shell_lists import shell_rule
    from autoagent.sandbox.mounts import search_path
    from autoagent.services.media.media import ChosenMedia

    python = settings.python or sys.executable
    return {
        "sandbox": sandbox,
        "python": python,
        "shell_rule": shell_rule(settings, workspace.root, search_path(python), all_names()),
        "web": web_of(settings),
        "git_authorization": github_authorization(settings),
        "media": ChosenMedia(settings),
        "setting": partial(getattr, settings),
    }


def web_of(settings: Settings) -> Web:
    """Return the web behind the network guard. Raises SettingsError for an allowed host that is none."""
    from autoagent.network.addresses import NetworkGuard, exceptions
    from autoagent.network.client import HttpClient
    from autoagent.services import search
    from autoagent.services.web import GuardedWeb

    guard = NetworkGuard(exceptions(settings.allow_hosts))
    client = HttpClient(guard, settings.user_agent) if settings.user_agent else HttpClient(guard)
    engine: Search = partial(search.searxng, url=settings.search_url) if settings.search_url else search.search

    name = browser_of(settings)

    def render(url: str, limit: int) -> Any:
        from autoagent.services import browser  # and with it asyncio, which few runs need

        return browser.render(url, limit=limit, fetch=client.fetch, name=name)

    return GuardedWeb(
        client,
        engine,
        partial(search.google, key=settings.google_api_key, engine=settings.google_engine),
        browser=render if name else None,
        download_limit=settings.download_limit * MB,
    )
