"""`autoagent` and `autoagent run`: from the settings to a task, and from the task to a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from autoagent.app import run_factory
from autoagent.app.current import FolderSettings, claimed_state, look, trust_made, trusted_here
from autoagent.app.folder_texts import FolderTexts, folder_texts
from autoagent.app.plugins import RunPlugins, opened_plugins
from autoagent.app.run_driver import RunPlan, drive, told_as_event
from autoagent.app.tool_servers import opened_servers
from autoagent.commands.registry import Command
from autoagent.config.dotenv import store_variables
from autoagent.config.settings import Settings
from autoagent.config.task_file import is_saved, read_task, write_task
from autoagent.config.typed_goal import parse_goal
from autoagent.core.errors import SettingsError, StopRun
from autoagent.core.model import Usage
from autoagent.core.outcome import Outcome
from autoagent.core.protocols import Model
from autoagent.core.task import Task
from autoagent.models.servers import find_servers
from autoagent.registry.models import DEMO
from autoagent.registry.plugins import plugins
from autoagent.runs.event_log import EventLog
from autoagent.subcommands.flags import given_in, run_flags
from autoagent.subcommands.task_flags import check_flags, goals_of_flags, without_budget
from autoagent.terminal.click_terminal import ClickTerminal
from autoagent.terminal.console import Console
from autoagent.terminal.setup_wizard import (
    DEFAULT_NAME,
    PLAIN_ROLE,
    ask_task,
    choose_model,
    model_is_chosen,
    proposal_messages,
    task_of_wish,
    welcome_back,
)


@click.command("run")
@click.argument("wish", required=False)
@run_flags
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> None:
    """Start the agent: set-up where something is missing, then the run."""
    ctx.exit(start({**ctx.obj, **given_in(given)}))


def start(given: Mapping[str, Any]) -> int:
    """Start a new run from these flags; return the exit code."""
    with told_as_event(given):
        return _start(given)


def _start(given: Mapping[str, Any]) -> int:
    given = {**given, "model": DEMO.name} if given.get("demo") else given
    here = trusted_here(given, task=not any(given.get(name) for name in ("demo", "ai_goals", "wish")))
    settings = here.settings
    here.tell_notes()
    check_flags(given, settings)
    terminal = ClickTerminal(while_reading=partial(preload, settings))
    flag_task = _task_of_flags(given, here, terminal)
    with claimed_state(settings), opened_plugins(settings, given, terminal.say, terminal.say) as plugins:
        if not plugins.answer:
            settings = with_model(given, settings, terminal)
        console = run_factory.open_console(settings, json=bool(given.get("json_output")))
        with opened_servers(settings, given, console) as servers:
            texts = folder_texts(given, settings.workspace, console.say)
            brought = _Brought(texts, (*servers, *texts.commands), plugins)
            return _run(given, settings, flag_task, here, console, brought, terminal)


@dataclass(frozen=True, slots=True)
class _Brought:
    """What there is beside the program's own: texts of the folder, commands of it and of MCP servers, plug-ins."""

    texts: FolderTexts
    commands: Sequence[Command]
    plugins: RunPlugins


def _run(
    given: Mapping[str, Any],
    settings: Settings,
    flag_task: Task | None,
    here: FolderSettings,
    console: Console,
    brought: _Brought,
    terminal: ClickTerminal,
) -> int:
    texts, plugins = brought.texts, brought.plugins
    model = plugins.model(settings, lambda: run_factory.open_model(settings, console))
    proposals = _Proposals(model, console)
    task = without_budget(flag_task or _task(given, settings, here, terminal, proposals), given)
    attended = run_factory.is_attended(settings)
    task, guidance = plugins.shape(task, run_factory.guidance_of(settings))
    more = (*brought.commands, *plugins.commands)
    registry = run_factory.open_registry(settings, task, model.window, attended=attended, more=more)
    own = run_factory.own_registry(registry, settings)
    begin = run_factory.describe(task, settings, model, own, texts=texts, guidance=guidance)
    run_factory.tell_choice(registry, settings, model.window, console.say, more)
    plan = RunPlan(begin, model, registry, settings, console, attended, texts, plugins, guidance=guidance)
    mask = run_factory.mask_of(settings)
    return drive(plan, lambda tainted: EventLog.create(settings.state_dir, mask=mask), proposals.usage)


def preload(settings: Settings) -> None:
    """Import what the first step needs; runs while the user reads the first question."""
    import autoagent.loop
    import autoagent.memory.embedders.builtin
    import autoagent.memory.living_memory
    import autoagent.memory.sqlite.store
    import autoagent.models.openai.endpoint
    from autoagent.text.tokens import counter

    if settings.model_choice.provider.endpoint:
        autoagent.models.openai.endpoint.preload()
    counter("")("warm")
    plugins("commands")


class _Proposals:
    """Asks the model to turn a wish into a task; keeps the cost of that."""

    def __init__(self, model: Model, console: Console) -> None:
        self._model = model
        self._console = console
        self.usage = Usage()

    def __call__(self, wish: str) -> str:
        self._console.begins(f"{self._model.name} thinks about the wish")
        try:
            completion = self._model.complete(proposal_messages(wish), max_tokens=600, listener=self._console)
        finally:
            self._console.rests()
        self.usage += completion.usage
        return completion.text


def with_model(given: Mapping[str, Any], settings: Settings, terminal: ClickTerminal) -> Settings:
    """Return the settings with a model chosen; the menu asks if nothing names one."""
    if model_is_chosen(settings):
        return settings
    choice = choose_model(terminal, find_servers)
    if choice.save:
        store_variables(Path.cwd() / ".env", choice.env)
        trust_made(choice.env)
    return look(given, {**os.environ, **choice.env}).settings


def _task(
    given: Mapping[str, Any], settings: Settings, here: FolderSettings, terminal: ClickTerminal, proposals: _Proposals
) -> Task:
    """Return the model's own task (the demo's), the saved one, or one that is asked for and then saved."""
    path = settings.ai_settings_file
    provider = settings.model_choice.provider
    if provider.task is not None:
        return provider.task()
    proposing = proposals if provider.proposes else None
    if wish := given.get("wish"):
        return _task_of_wish(given, wish, terminal, proposing)
    task = None
    if is_saved(path):
        saved = _saved(here, terminal)
        if given.get("skip_reprompt") or given.get("ai_settings_file"):
            return saved
        if (task := welcome_back(terminal, saved, path)) == saved:
            return saved
    task = task or ask_task(terminal, proposing)
    write_task(path, task)
    trust_made({}, path, task)
    terminal.say(f"Saved in {path}.")
    return task


def _task_of_wish(
    given: Mapping[str, Any], wish: str, terminal: ClickTerminal, propose: Callable[[str], str] | None
) -> Task:
    """Return the task of a wish given as the argument, confirmed where somebody is to be asked; nothing is saved."""
    try:
        task = task_of_wish(terminal, propose, wish, asks=not (given.get("skip_reprompt") or given.get("continuous")))
    except EOFError:
        task = None
    if task is None:
        raise StopRun(Outcome("stopped", "Nothing was started; say the wish in other words, or pass --ai-goal."))
    return replace(task, name=given.get("ai_name") or task.name, role=given.get("ai_role") or task.role)


def _saved(here: FolderSettings, terminal: ClickTerminal) -> Task:
    """Load the saved task; warn of goals that look as if a check had been meant. Raises SettingsError."""
    path = here.settings.ai_settings_file
    task = here.allowed(read_task(path))
    if any(parse_goal(goal.text).check for goal in task.goals):
        terminal.say(
            f"{path}: ` :: ` in a goal is text here, not a check. A check is written on a line of its own: "
            "`- text: ...`, and below it `  check: ...`."
        )
    return task


def _task_of_flags(given: Mapping[str, Any], here: FolderSettings, terminal: ClickTerminal) -> Task | None:
    """Return the task that the flags tell, completed from the saved one, or None if they tell none.

    Raises click.UsageError and SettingsError for what cannot be used, before anything is asked.
    """
    path = here.settings.ai_settings_file
    if given.get("wish") or not any(given.get(name) for name in ("ai_name", "ai_role", "ai_goals")):
        if given.get("ai_settings_file") and not path.exists():
            raise SettingsError(f"{path}: there is no such file; leave out -C to be asked for name, role and goals.")
        return None
    saved = _saved(here, terminal) if is_saved(path) else None
    goals = goals_of_flags(given, terminal.say) or (saved.goals if saved else ())
    if not goals:
        raise click.UsageError("There is no goal; give at least one --ai-goal.")
    return Task(
        name=given.get("ai_name") or (saved.name if saved else DEFAULT_NAME),
        role=given.get("ai_role") or (saved.role if saved else PLAIN_ROLE),
        goals=goals,
        budget=saved.budget if saved else 0.0,
    )
