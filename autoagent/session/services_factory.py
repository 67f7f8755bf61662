"""Opens the services of a run's commands besides the workspace: programs, the web, media."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from autoagent.core.protocols import Sandbox, Web
from autoagent.settings import Settings
from autoagent.workspace.gate import Workspace

if TYPE_CHECKING:
    from autoagent.services.web import Search

MB = 1024 * 1024


def open_sandbox(settings: Settings, workspace: Workspace) -> Sandbox:
    """Open the sandbox for this workspace. Raises SetupError if the one asked for, or required, does not work here."""
    from autoagent.sandbox.limits import ProcessLimits
    from autoagent.sandbox.select import open_sandbox

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
