"""A run that is described and not yet begun: from a session and a task to a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent import __version__
from autoagent.agent.budget import RunLimits, requests_for
from autoagent.core.errors import SettingsError
from autoagent.core.events import Changed, Resumed, RunStarted
from autoagent.core.task import Goal, Task
from autoagent.registry.parts import PromptParts
from autoagent.session import build
from autoagent.session.attachments import PIPED
from autoagent.session.build import protected_paths
from autoagent.session.run_parts import RunParts, opened_run_parts
from autoagent.settings import Settings
from autoagent.terminal.console import Console

if TYPE_CHECKING:
    from autoagent.commands.registry import Command, Registry
    from autoagent.core.protocols import Authorizer, Model
    from autoagent.prompt import Guidance
    from autoagent.safety.approval import Steering
    from autoagent.safety.rules import Rulebook
    from autoagent.session.folder_texts import FolderTexts
    from autoagent.session.session import Session
    from autoagent.text.tokens import Count

INSTRUCTIONS_SHARE = 8  # of the window, one part may be what AGENTS.md says

MEMORY_PLACE = ("memory_backend", "memory_index", "memory_url", "memory_user")  # the last is for the user alone to say

# What a resumed run takes over from the run itself, its paths absolute. Permission to run without asking,
# and its limit, must be given again.
KEPT_SETTINGS = (
    "run_name",
    "model",
    "smart_llm",
    "fast_llm",
    "hierarchical",
    "planner_llm",
    "executor_llm",
    "thinker_llm",
    "unanswered_text",
    "temperature",
    "window",
    "fast_window",
    "asking",
    "reply_tokens",
    "context",
    "prompt_settings_file",
    "embedding_model",
    "openai_base_url",
    "workspace",
    "memory_backend",
    "memory_index",
    *(name for name in Settings.__dataclass_fields__ if name.startswith("memory_") and name not in MEMORY_PLACE),
    "budget",
    "max_tokens",
    "max_seconds",
    "verify",
    "verifier_llm",
    "accept_claims",
    "prompt_style",
    "commands",
    "disabled_command_categories",
)


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
    extensions: RunParts = field(default_factory=RunParts)
    workers: int = 0
    workers_resume: bool = False
    guidance: Guidance | None = None
    said: tuple[str, ...] = ()
    piped: str = ""

    def authorizer(self, rulebook: Rulebook, steering: Steering | None = None) -> Authorizer:
        """Make the authorizer for an agent of the run. It may change the run by `steering`."""
        asked = build.authorizer_of(self.settings, self.console, rulebook, attended=self.attended, steering=steering)
        return asked if self.settings.continuous else self.extensions.authorizer(asked)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a run from outside: the texts of the folder, the extensions, and the commands that both add."""

    texts: FolderTexts
    commands: tuple[Command, ...]
    extensions: RunParts


@contextmanager
def opened_parts(session: Session, console: Console, extensions: RunParts | None = None) -> Iterator[Parts]:
    """Open the parts that the folder and the user add to a run, and close them. `extensions` if they are open already.

    Raises SettingsError, SetupError.
    """
    from autoagent.session.folder_texts import folder_texts
    from autoagent.session.tool_servers import opened_servers

    with ExitStack() as stack:
        servers = stack.enter_context(opened_servers(session, console))
        extensions = extensions or stack.enter_context(opened_run_parts(session, console.say, console.warn))
        commands = extensions.commands(console.say, console.warn)
        texts = folder_texts(session, console.say)
        yield Parts(texts, (*servers, *commands, *texts.commands), extensions)


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
    guidance = guidance_of(settings)
    if settings.prompt_settings_file and not session.is_named("prompt_settings_file"):
        console.say(f"The agent is told what {settings.prompt_settings_file} says.")
    shaped, guidance, added = shaped_by(parts.extensions, task, guidance)
    task = task if began else shaped  # a run that began has its task as the extensions have made it
    more = (*parts.commands, *added)
    registry = build.open_registry(settings, model, attended=attended, more=more)
    own = build.own_registry(registry, settings)
    start = describe(task, settings, model, own, began, parts.texts, guidance)
    kept = kept_settings(settings, began, said_settings(session))
    if not began:
        build.tell_choice(registry, settings, model.window, console.say, more)
    start = replace(start, settings=kept)
    said = (*filter(None, (session.flags.get("wish"),)), *(session.flags.get("ai_goals") or ()), *typed)
    return RunPlan(
        start, model, registry, settings, console, attended, parts.texts, parts.extensions, guidance=guidance,
        said=said, piped=session.flags.get(PIPED, ""),
    )  # fmt: skip


def shaped_by(extensions: RunParts, task: Task, guidance: Guidance) -> tuple[Task, Guidance, Sequence[Command]]:
    """Return the task and the lists of the prompt as the extensions change them, and the commands that they add."""
    lists = ("constraints", "resources", "best_practices")
    goals = {goal.text: goal for goal in task.goals}
    given = PromptParts(task.name, task.role, tuple(goals), *(getattr(guidance, name) for name in lists))
    prompt, commands = extensions.shape(given)
    if prompt is given:
        return task, guidance, commands
    changed = tuple(goals.get(text, Goal(text)) for text in prompt.goals)
    guidance = replace(guidance, **{name: getattr(prompt, name) for name in lists})
    return replace(task, name=prompt.name, role=prompt.role, goals=changed), guidance, commands


def guidance_of(settings: Settings) -> Guidance:
    """Return the lists of the prompt: the user's, or our own. Raises SettingsError."""
    from autoagent.prompt import Guidance
    from autoagent.session.task_file import read_prompt_settings

    own: dict[str, Any] = read_prompt_settings(settings.prompt_settings_file) if settings.prompt_settings_file else {}
    return Guidance(**own)


def describe(
    task: Task,
    settings: Settings,
    model: Model,
    registry: Registry,
    began: RunStarted | None = None,
    texts: FolderTexts | None = None,
    guidance: Guidance | None = None,
    what: str = "",
) -> RunStarted:
    """Return the event that begins the run, or resumes the one that `began`: everything that shapes its prompts.

    With `what` it is the event of a change of that within the run that `began`.

    Paths protected when the run began stay protected, wherever it is resumed. Raises SettingsError if the system prompt
    leaves no room for a history in the model's window.
    """
    import json

    from autoagent.core import command_schema
    from autoagent.core.model import FILE, reply_tokens
    from autoagent.prompt import system_prompt
    from autoagent.text.tokens import PER_MESSAGE, counter

    asking, style = model.asking, FILE if task.file else model.style
    guidance = guidance or guidance_of(settings)
    count = counter(model.name)
    if texts is not None:
        guidance = _with_texts(guidance, texts, registry, model)
    offered = [spec for spec in registry.specs if not spec.group]
    system = system_prompt(task, offered, asking, style, guidance)
    tokens = count(system) + PER_MESSAGE
    native = asking == "tools" and not style.writes_file
    if native:
        thoughts = command_schema.THOUGHTS if style.thinks else ()
        tokens += count(json.dumps(command_schema.tools(offered, thoughts), separators=(",", ":")))  # as it is sent
    kind = partial(Changed, what=what) if what else Resumed if began else RunStarted
    start: RunStarted = kind(
        version=__version__,
        task=task,
        model=model.name,
        host=settings.host,
        window=model.window,
        reply_tokens=min(settings.reply_tokens, model.window // 2) or reply_tokens(model.window),
        context=settings.context,
        cached_part=model.price.cached_part if model.price else 0.0,
        system=system,
        system_tokens=tokens,
        asking=asking,
        native=native,
        prompt_style=style.name,
        commands=tuple(spec.name for spec in registry.specs),
        workspace=began.workspace if began else str(settings.workspace.absolute()),
        settings=kept_settings(settings, began),
        limits=dataclasses.asdict(limits_of(settings, task)),
    )
    _check_room(start, count)
    return start


def _check_room(start: RunStarted, count: Count) -> None:
    """Raise SettingsError if the system prompt leaves no room for a history in the model's window."""
    from autoagent.agent.history import History
    from autoagent.core.model import is_workable

    history = History(count)
    history.add(start)
    if not is_workable(history.shares, start.window):
        raise SettingsError(
            f"The system prompt takes {start.system_tokens} of the model's {start.window} tokens and leaves no room to "
            "work: offer fewer commands (--commands), shorten the goals, or use a model with a larger window."
        )


def _with_texts(guidance: Guidance, texts: FolderTexts, registry: Registry, model: Model) -> Guidance:
    """Return the guidance with the folder's instructions, cut to their share, and its skills if one can be loaded."""
    from autoagent.text.tokens import counter, shorten

    loads = any(command.spec in registry.specs for command in texts.commands)
    instructions = shorten(texts.instructions, model.window // INSTRUCTIONS_SHARE, counter(model.name))
    return dataclasses.replace(guidance, instructions=instructions, skills=texts.skills if loads else ())


def kept_settings(
    settings: Settings, began: RunStarted | None, said: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings for the log, besides those that the run that `began` has kept already.

    `said` are those that hold without flags, as said_settings has them.
    """
    before = began.settings if began else {}
    return {
        "said": {**before.get("said", {}), **(said or {})},
        **as_kept({name: getattr(settings, name) for name in KEPT_SETTINGS}),
        "protected": list(dict.fromkeys([*before.get("protected", ()), *protected_paths(settings)])),
    }


def said_settings(session: Session) -> dict[str, Any]:
    """Return the settings that a resumed run takes over and that are set anywhere but by flags, as a log has them."""
    lasting = session.loaded.lasting
    return as_kept({name: lasting[name] for name in KEPT_SETTINGS if name in lasting})


def as_kept(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a log has them: lists, and paths that lead to the same place from everywhere."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {name: str(value.absolute()) if isinstance(value, Path) else value for name, value in plain.items()}


def limits_of(settings: Settings, task: Task) -> RunLimits:
    """Return the ceilings. A budget given by flag or variable takes precedence over the one saved with the task."""
    commands = settings.continuous_limit if settings.continuous else 0
    return RunLimits(
        usd=settings.budget or task.budget,
        tokens=settings.max_tokens,
        seconds=settings.max_seconds,
        commands=commands,
        requests=requests_for(commands),
        deadline=settings.deadline,
    )
