"""Plan a run: its first event, model, commands and limits, before anything is written."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent import __version__
from autoagent.agent.budget import RunLimits, requests_for
from autoagent.agent.history import History
from autoagent.core import command_schema
from autoagent.core.errors import SettingsError
from autoagent.core.events import Changed, Resumed, RunStarted
from autoagent.core.frozen import dataclass
from autoagent.core.model import FILE, reply_tokens
from autoagent.core.protocols import Authorizer, Model
from autoagent.core.task import Goal, Task
from autoagent.prompt import Guidance, system_prompt
from autoagent.registry.parts import PromptParts
from autoagent.session import build
from autoagent.session.attachments import PIPED
from autoagent.session.build import protected_paths
from autoagent.session.folder_texts import FolderTexts, folder_texts
from autoagent.session.load import one_line
from autoagent.session.run_parts import RunParts, open_run_parts
from autoagent.session.session import Session
from autoagent.session.task_file import read_prompt_settings
from autoagent.settings import Settings
from autoagent.terminal.console import Console
from autoagent.text.tokens import TOKENS_PER_MESSAGE, Count, counter, shorten

if TYPE_CHECKING:
    from autoagent.commands.registry import Command, Registry
    from autoagent.safety.rules import Rulebook
    from autoagent.safety.typed_answers import Steering

INSTRUCTIONS_DIVISOR = 8  # the instructions take at most an eighth of the window

# Never taken from a log, since only the user chooses the place of a memory
MEMORY_PLACE = ("memory_backend", "memory_index", "memory_url", "memory_user")

# Settings that a resumed run takes from its log, with absolute paths. Permission to run without asking, and its
# limit, have to be given again.
KEPT_SETTINGS = (
    "model", "smart_llm", "fast_llm", "hierarchical", "planner_llm", "executor_llm", "thinker_llm",
    "unanswered_text", "temperature", "window", "fast_window", "asking", "reply_tokens", "context",
    "prompt_settings_file", "embedding_model", "openai_base_url", "workspace", "memory_backend", "memory_index",
    *(name for name in Settings.__dataclass_fields__ if name.startswith("memory_") and name not in MEMORY_PLACE),
    "budget", "max_tokens", "max_seconds", "verify", "verifier_llm", "accept_claims", "prompt_style", "commands",
    "disabled_command_categories",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Describe a run before it starts. `attended` is whether a person can be asked.

    `guidance` is the user's part of its system prompt, or None for the default. At most `workers` agents run beside its
    own (0: as many as the setting says). With `workers_resume`, an earlier process's workers are restarted by their
    starters. `user_texts` begin or continue the run, and `piped_text` came on standard input.
    """

    start: RunStarted
    model: Model
    registry: Registry
    settings: Settings
    console: Console
    attended: bool
    texts: FolderTexts
    extensions: RunParts
    workers: int = 0
    workers_resume: bool = False
    guidance: Guidance | None = None
    user_texts: tuple[str, ...] = ()
    piped_text: str = ""

    def authorizer(self, rulebook: Rulebook, steering: Steering | None = None) -> Authorizer:
        """Build the authorizer for an agent of the run. The user may change the run by `steering`."""
        user = build.authorizer_of(self.settings, self.console, rulebook, attended=self.attended, steering=steering)
        return user if self.settings.continuous else self.extensions.authorizer(user)


@dataclass(frozen=True, slots=True)
class ExternalParts:
    """The external parts of a run: the folder's texts, the extensions and their commands."""

    texts: FolderTexts
    commands: tuple[Command, ...]
    extensions: RunParts


@contextmanager
def open_external_parts(
    session: Session, console: Console, extensions: RunParts | None = None
) -> Iterator[ExternalParts]:
    """Open and close the parts that the folder and the user add to a run. Raises SettingsError, SetupError."""
    with ExitStack() as stack:
        extensions = extensions or stack.enter_context(open_run_parts(session, console.say, console.warn))
        commands = extensions.commands(console.say, console.warn)
        texts = folder_texts(session.place, console.say)
        yield ExternalParts(texts, (*commands, *texts.commands), extensions)


def plan_run(
    session: Session,
    console: Console,
    parts: ExternalParts,
    model: Model,
    task: Task,
    earlier_start: RunStarted | None = None,
    set_up_answers: Sequence[str] = (),
) -> RunPlan:
    """Plan a new run with the `set_up_answers` of the user, or resume that of `earlier_start`. Raises SettingsError."""
    settings, attended = session.settings, build.is_attended(session.settings)
    guidance = load_guidance(settings)
    if settings.prompt_settings_file and not session.is_named("prompt_settings_file"):
        console.say(f"The agent is told what {settings.prompt_settings_file} says.")
    shaped_task, guidance, added_commands = apply_extensions(parts.extensions, task, guidance)
    task = task if earlier_start else shaped_task  # that of a resumed run was shaped when it began
    extra_commands = (*parts.commands, *added_commands)
    with console.busy(f"asking {model.name} what it can do"):  # on the first run with it
        registry = build.open_registry(settings, model, attended=attended, extras=extra_commands)
        own_registry = build.own_registry(registry, settings)
        start = start_event(task, settings, model, own_registry, earlier_start, parts.texts, guidance)
    start = replace(start, settings=logged_settings(settings, earlier_start, session))
    if not earlier_start:
        build.report_selection(registry, settings, model.window, console.say, extra_commands)
    user_texts = (*filter(None, (session.flags.get("wish"),)), *(session.flags.get("ai_goals") or ()), *set_up_answers)
    return RunPlan(
        start, model, registry, settings, console, attended, parts.texts, parts.extensions, guidance=guidance,
        user_texts=user_texts, piped_text=session.flags.get(PIPED, ""),
    )  # fmt: skip


def apply_extensions(extensions: RunParts, task: Task, guidance: Guidance) -> tuple[Task, Guidance, Sequence[Command]]:
    """Return the task and the guidance as changed by the extensions, and the commands that they add."""
    lists = ("constraints", "resources", "best_practices")
    goals = {goal.text: goal for goal in task.goals}
    original = PromptParts(task.name, task.role, tuple(goals), *(getattr(guidance, name) for name in lists))
    prompt, commands = extensions.shape(original)
    if prompt is original:
        return task, guidance, commands
    new_goals = tuple(goals.get(text, Goal(text)) for text in prompt.goals)
    guidance = replace(guidance, **{name: getattr(prompt, name) for name in lists})
    return replace(task, name=prompt.name, role=prompt.role, goals=new_goals), guidance, commands


def load_guidance(settings: Settings) -> Guidance:
    """Return the lists in the prompt: the user's, or our own in their place. Raises SettingsError."""
    path = settings.prompt_settings_file
    user_lists: dict[str, Any] = read_prompt_settings(path) if path else {}
    return Guidance(**user_lists)


def start_event(
    task: Task,
    settings: Settings,
    model: Model,
    registry: Registry,
    earlier_start: RunStarted | None = None,
    texts: FolderTexts | None = None,
    guidance: Guidance | None = None,
    change: str = "",
) -> RunStarted:
    """Build the event that begins the run, or resumes that of `earlier_start`, with everything that shapes its prompts.

    With `change`, the event records that change. Paths protected when the run began stay protected wherever it is
    resumed. Raises SettingsError if the system prompt leaves no room for a history in the model's window.
    """
    asking, style = model.asking, FILE if task.file else model.style
    guidance = guidance or load_guidance(settings)
    count = counter(model.name)
    if texts is not None:
        guidance = _with_texts(guidance, texts, registry, model)
    specs = [spec for spec in registry.specs if not spec.group]
    system = system_prompt(task, specs, asking, style, guidance)
    tokens = count(system) + TOKENS_PER_MESSAGE
    native = asking == "tools" and not style.writes_file
    if native:
        thoughts = command_schema.THOUGHTS if style.thinks else ()
        # counted in the form in which the tools are sent
        tokens += count(json.dumps(command_schema.tools(specs, thoughts), separators=(",", ":")))
    kind = partial(Changed, what=change) if change else Resumed if earlier_start else RunStarted
    room = min(settings.reply_tokens, model.window // 2) or reply_tokens(model.window)
    start: RunStarted = kind(
        version=__version__, task=task, model=model.name, host=settings.host, window=model.window, reply_tokens=room,
        context=settings.context, cached_part=model.price.cached_part if model.price else 0.0, system=system,
        system_tokens=tokens, asking=asking, native=native, prompt_style=style.name,
        commands=tuple(spec.name for spec in registry.specs),
        workspace=earlier_start.workspace if earlier_start else str(settings.workspace.absolute()),
        settings=logged_settings(settings, earlier_start), limits=dataclasses.asdict(limits_of(settings, task)),
    )  # fmt: skip
    _check_room(start, count)
    return start


def _check_room(start: RunStarted, count: Count) -> None:
    history = History(count)
    history.add(start)
    if history.shares.history < start.window // 8:
        raise SettingsError(
            f"The system prompt takes {start.system_tokens} of the model's {start.window} tokens and leaves no room to "
            "work: offer fewer commands (--commands), shorten the goals, or use a model with a larger window."
        )


def _with_texts(guidance: Guidance, texts: FolderTexts, registry: Registry, model: Model) -> Guidance:
    """Return the guidance with the folder's instructions, cut to their share, and its loadable skills."""
    can_load_skills = any(command.spec in registry.specs for command in texts.commands)
    instructions = shorten(texts.instructions, model.window // INSTRUCTIONS_DIVISOR, counter(model.name))
    return dataclasses.replace(guidance, instructions=instructions, skills=texts.skills if can_load_skills else ())


def logged_settings(
    settings: Settings, earlier_start: RunStarted | None = None, session: Session | None = None
) -> dict[str, Any]:
    """Return the settings for the log, including those that the run has logged.

    The `session` adds the run's name (--name), and under `said` the settings made without flags. Raises
    SettingsError for a name of several lines.
    """
    logged = earlier_start.settings if earlier_start else {}
    persistent = persistent_settings(session) if session else {}
    name = (session and session.flags.get("run_name")) or ""
    return {
        "run_name": one_line(name, "--name") or logged.get("run_name", ""),
        "said": {**logged.get("said", {}), **persistent},
        **to_logged({name: getattr(settings, name) for name in KEPT_SETTINGS}),
        "protected": list(dict.fromkeys([*logged.get("protected", ()), *protected_paths(settings)])),
    }


def persistent_settings(session: Session) -> dict[str, Any]:
    """Return the resumable settings that were not set by flags, in logged form."""
    values = session.loaded.persistent_values
    return to_logged({name: values[name] for name in KEPT_SETTINGS if name in values})


def to_logged(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in logged form: lists, and absolute paths."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {name: str(value.absolute()) if isinstance(value, Path) else value for name, value in plain.items()}


def limits_of(settings: Settings, task: Task) -> RunLimits:
    """Return the ceilings of a run. A budget given by a flag or variable takes precedence over that of the task."""
    commands = settings.continuous_limit if settings.continuous else 0
    return RunLimits(
        usd=settings.budget or task.budget, tokens=settings.max_tokens, seconds=settings.max_seconds,
        commands=commands, requests=requests_for(commands), deadline=settings.deadline,
    )  # fmt: skip
