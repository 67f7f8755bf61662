"""Open the boundaries of a run, and the context of an agent's commands: its memory, its sandbox and the web."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from autoagent.agent.budget import Budget
from autoagent.commands.context import Context
from autoagent.commands.selection import all_names, all_specs
from autoagent.commands.support.extras import BROWSER
from autoagent.commands.support.shell_lines import shell_rule
from autoagent.core.commands import CommandSpec
from autoagent.core.events import RunStarted
from autoagent.core.frozen import dataclass
from autoagent.core.model import Usage
from autoagent.core.protocols import Model, Sandbox, Web
from autoagent.registry.plugins import lazy_function
from autoagent.safety.exfiltration_guard import ExfiltrationGuard
from autoagent.safety.rules import Rulebook
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.sandbox import programs
from autoagent.sandbox.mounts import search_path
from autoagent.sandbox.process import MB, ProcessLimits
from autoagent.session import build
from autoagent.session.extension_hooks import hooked_memory
from autoagent.session.memories import MemoryParts, open_agent_memory
from autoagent.session.permissions import enforce_inside
from autoagent.session.session import found_by_parts, place_in
from autoagent.settings import Settings
from autoagent.workspace.gate import Workspace

_SEARCH = lazy_function("autoagent.services.search:search")
_SEARXNG = lazy_function("autoagent.services.search:searxng")
_GOOGLE = lazy_function("autoagent.services.search:google")
_RENDER = lazy_function("autoagent.services.browser:render")  # imports asyncio, which few runs need
_FIND_BROWSER = lazy_function("autoagent.services.browser:find_browser")


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The boundaries of a run: its workspace, the labels of the files there, the rules, and the guard."""

    workspace: Workspace
    tainted: TaintedFiles
    rulebook: Rulebook
    guard: ExfiltrationGuard


def boundaries_of(start: RunStarted, settings: Settings, offered: Iterable[CommandSpec]) -> Boundaries:
    """Open the boundaries of a run for all commands and those `offered`.

    Raises SettingsError for a workspace out of reach, SettingsError or StateError for an invalid rule.
    """
    enforce_inside(Path(start.workspace), f"The workspace {start.workspace} of the run")
    protected = [Path(path) for path in start.settings["protected"]]
    changes = (*settings.protect, *found_by_parts("guards", place_in(Path.cwd(), settings)))
    quarantine = settings.state_dir.absolute() / "held"
    workspace = Workspace(Path(start.workspace), protected, changes=changes, quarantine=quarantine)
    tainted, specs = TaintedFiles(settings.state_dir / "taint.jsonl", workspace.root), (*offered, *all_specs())
    rulebook = Rulebook(specs, settings.allow, build.saved_rules(), resolve=workspace.display)
    guard = ExfiltrationGuard(tainted, specs, network=settings.sandbox_network)
    guard.find_rule = rulebook.find_rule
    return Boundaries(workspace, tainted, rulebook, guard)


class ReportedCosts:
    """Add up the costs that commands report."""

    def __init__(self) -> None:
        self._usage = Usage()

    def add(self, usd: float | None) -> None:
        """Add USD, or None if unknown. Anything else counts as unknown, since it could lift the limits of the run."""
        is_amount = isinstance(usd, int | float) and 0 <= usd < float("inf")
        self._usage += Usage(cost=usd if is_amount else None)

    def take_usage(self) -> Usage:
        """Return the usage since the last call."""
        usage, self._usage = self._usage, Usage()
        return usage


@contextmanager
def open_context(
    settings: Settings,
    workspace: Workspace,
    guard: ExfiltrationGuard,
    models: tuple[Model, Model],
    parts: MemoryParts,
    budget: Budget,
    *,
    ask: Callable[[str, float | None], str],
    say: Callable[[str], None],
) -> Iterator[Context]:
    """Open a context that has no run and no agents yet, and tell the `guard` whether programs are confined.

    `models` are the main model and the one for summaries. The `budget` bounds the calls of commands to them.

    Raises SettingsError, SetupError, StateError if something cannot be opened.
    """
    mask, python = build.mask_of(settings), settings.python or sys.executable
    thinking, summarising = (build.ModelCaller(model, mask, budget) for model in models)
    ranking = build.ModelCaller(parts.ranker, mask, budget) if parts.ranker else None
    with (
        closing(open_agent_memory(settings, parts, say, ranking)) as memory,
        closing(open_sandbox(settings, workspace)) as sandbox,
    ):
        guard.confined = sandbox.confines
        costs = ReportedCosts()
        metered = (thinking, summarising, *([ranking] if ranking else []))
        yield Context(
            workspace, hooked_memory(memory), ask, complete=thinking, summarise=summarising,
            take_usage=lambda: sum((service.take_usage() for service in metered), costs.take_usage()),
            spend=costs.add, progress=say, origin=lambda: guard.origin, mask=mask, sandbox=sandbox, python=python,
            shell_rule=shell_rule(settings, workspace.root, search_path(python), all_names()),
            web=open_web(settings), setting=partial(getattr, settings),
        )  # fmt: skip


def open_sandbox(settings: Settings, workspace: Workspace) -> Sandbox:
    """Open the sandbox for this workspace. Raises SetupError if the requested one does not work here."""
    limits = ProcessLimits(
        seconds=settings.sandbox_seconds, memory_bytes=settings.sandbox_memory * MB,
        processes=settings.sandbox_processes, file_bytes=settings.sandbox_file * MB,
    )  # fmt: skip
    return programs.open_sandbox(
        workspace, limits, kind=settings.sandbox, required=settings.require_sandbox, network=settings.sandbox_network,
        python=settings.python,
    )  # fmt: skip


def report_browser(settings: Settings, say: Callable[[str], None]) -> None:
    """Report if the configured browser is missing."""
    configured = settings.browser_name
    available = configured and _FIND_BROWSER(configured)
    if available != configured:
        no_driver = BROWSER.is_missing(settings)
        reason = f"{BROWSER.problem}: {BROWSER.remedy}" if no_driver else f"{configured} is not installed"
        substitute = f"with {available}" if available else "without a browser, so their scripts do not run"
        say(f"{reason}. Pages are read {substitute}.")


def open_web(settings: Settings) -> Web:
    """Return the web behind the network guard. Raises SettingsError for an invalid allowed host."""
    from autoagent.network.addresses import NetworkGuard, parse_allowed_hosts
    from autoagent.network.client import HttpClient
    from autoagent.services.web import GuardedWeb

    guard = NetworkGuard(parse_allowed_hosts(settings.allow_hosts))
    client = HttpClient(guard, settings.user_agent) if settings.user_agent else HttpClient(guard)
    name = settings.browser_name and _FIND_BROWSER(settings.browser_name)
    return GuardedWeb(
        client,
        partial(_SEARXNG, url=settings.search_url) if settings.search_url else _SEARCH,
        partial(_GOOGLE, key=settings.google_api_key, engine=settings.google_engine),
        browser=partial(_RENDER, fetch=client.fetch, name=name) if name else None,
        download_limit=settings.sandbox_file * MB,
    )
