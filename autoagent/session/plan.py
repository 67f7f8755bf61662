"""A run that is described and not yet begun: from a session and a task to a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autoagent.commands.registry import Command, Registry
from autoagent.core.events import RunStarted
from autoagent.core.protocols import Authorizer, Model
from autoagent.core.task import Task
from autoagent.session import build
from autoagent.session.attachments import PIPED
from autoagent.session.plugins import RunPlugins
from autoagent.settings import Settings
from autoagent.terminal.console import Console

if TYPE_CHECKING:
    from autoagent.prompt import Guidance
    from autoagent.safety.approval import Steering
    from autoagent.safety.rules import Rulebook
    from autoagent.session.folder_texts import FolderTexts
    from autoagent.session.session import Session


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run that is described and not yet begun. `attended`: a person is there to be asked.

    `guidance` is the user's part of its system prompt, None for the usual. At most `workers` agents run beside its own,
    0 for the setting; with `workers_resume`, those that an earlier process left are restarted by their starters. `said`
    are the user's words that begin or continue it, `piped` is the text on standard input.
    """

    start: RunStarted
    model: Model
    registry: Registry
    settings: Settings
    console: Console
    attended: bool
    texts: FolderTexts | None = None
    plugins: RunPlugins = field(default_factory=RunPlugins)
    workers: int = 0
    workers_resume: bool = False
    guidance: Guidance | None = None
    said: tuple[str, ...] = ()
    piped: str = ""

    def authorizer(self, rulebook: Rulebook, steering: Steering | None = None) -> Authorizer:
        """Make the authorizer for an agent of the run. It may change the run by `steering`."""
        asked = build.authorizer_of(self.settings, self.console, rulebook, attended=self.attended, steering=steering)
        return asked if self.settings.continuous else self.plugins.authorizer(asked)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a run from outside the program: the folder's texts, commands of skills and MCP servers, plug-ins."""

    texts: FolderTexts
    commands: tuple[Command, ...]
    plugins: RunPlugins


@contextmanager
def opened_parts(session: Session, console: Console, plugins: RunPlugins | None = None) -> Iterator[Parts]:
    """Open the parts that the folder and the user add to a run, and close them. `plugins` if they are open already.

    Raises SettingsError, SetupError.
    """
    from autoagent.session.folder_texts import folder_texts
    from autoagent.session.plugins import opened_plugins
    from autoagent.session.tool_servers import opened_servers

    with ExitStack() as stack:
        servers = stack.enter_context(opened_servers(session, console))
        plugins = plugins or stack.enter_context(opened_plugins(session, console.say, console.warn))
        texts = folder_texts(session, console.say)
        yield Parts(texts, (*servers, *texts.commands), plugins)


def planned(
    session: Session,
    console: Console,
    parts: Parts,
    model: Model,
    task: Task,
    began: RunStarted | None = None,
    typed: Sequence[str] = (),
) -> RunPlan:
    """Describe a run, or one that takes up the run that `began`. `typed`: answers of set-up. Raises SettingsError."""
    settings, attended = session.settings, build.is_attended(session.settings)
    guidance = build.guidance_of(settings)
    if settings.prompt_settings_file and not session.is_named("prompt_settings_file"):
        console.say(f"The agent is told what {settings.prompt_settings_file} says.")
    shaped, guidance = parts.plugins.shape(task, guidance)
    task = task if began else shaped  # a run that began has its task as the plug-ins have made it
    more = (*parts.commands, *parts.plugins.commands)
    registry = build.open_registry(settings, model, attended=attended, more=more)
    own = build.own_registry(registry, settings)
    start = build.describe(task, settings, model, own, began, parts.texts, guidance)
    kept = build.kept_settings(settings, began, build.said_settings(session))
    if not began:
        build.tell_choice(registry, settings, model.window, console.say, more)
    start = replace(start, settings=kept)
    said = (*filter(None, (session.flags.get("wish"),)), *(session.flags.get("ai_goals") or ()), *typed)
    return RunPlan(
        start, model, registry, settings, console, attended, parts.texts, parts.plugins, guidance=guidance,
        said=said, piped=session.flags.get(PIPED, ""),
    )  # fmt: skip
