"""Define `autoagent` and `autoagent run`: from the settings to a task, and from the task to a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import click

from autoagent.core.errors import SettingsError, SetupError, StopRun
from autoagent.core.model import Usage
from autoagent.core.protocols import Model
from autoagent.core.task import Outcome, Status, Task
from autoagent.log.event_log import EventLog
from autoagent.registry.memory import NOTHING
from autoagent.registry.models import DEMO
from autoagent.registry.plugins import plugins
from autoagent.session import build
from autoagent.session.attachments import with_piped_input
from autoagent.session.load import AS_WISH
from autoagent.session.plan import open_external_parts, plan_run
from autoagent.session.run_parts import open_run_parts
from autoagent.session.session import Session, claimed_state, one_line, save_task, save_variables
from autoagent.session.task_file import is_saved, read_task
from autoagent.settings import Settings
from autoagent.subcommands.flags import merge_flags, run_flags
from autoagent.subcommands.running import (
    Leg,
    check_flags,
    goals_of_flags,
    next_wish,
    report_failure_as_event,
    without_budget,
)
from autoagent.terminal import setup_wizard
from autoagent.terminal.answers import ClickTerminal
from autoagent.terminal.console import Console
from autoagent.terminal.output import echo
from autoagent.text.typed_goal import parse_goal

_NO_WISH = ("ai_name", "ai_role", "ai_goals", "ai_settings_file", "demo")  # flags that give the task otherwise


@click.command("run")
@click.argument("wish", metavar="[TASK]", required=False)
@run_flags
@click.pass_context
def run(ctx: click.Context, /, **flags: Any) -> None:
    """Start the agent, after a set-up if something is missing."""
    ctx.exit(start({**ctx.obj, **merge_flags(flags)}))


def start(flags: Mapping[str, Any]) -> int:
    """Start a new run from these flags. Return the exit code."""
    with report_failure_as_event(flags):
        if flags.get("newest") and any(flags.get(name) for name in ("workspace", "demo", "ai_settings_file")):
            raise click.UsageError("-r continues a run in its own workspace, on its task: leave out -w, -C and --demo.")
        if flags.get("demo") and flags.get("wish"):
            raise click.UsageError("--demo has a task of its own; leave out yours, or --demo.")
        flags = with_piped_input(flags)
        leg = None if flags.get("newest") else _start(flags)
        from autoagent.subcommands.resume import continue_run, resume_run  # not imported before the first question

        return continue_run(*leg) if leg else resume_run(flags)


def _start(flags: Mapping[str, Any]) -> tuple[Session, Leg]:
    if flags.get("demo"):
        if flags.get("hierarchical"):
            echo("The demo has one agent and ignores --hierarchical.", err=True)
        memory = flags.get("memory_backend") or NOTHING.name  # later runs are not to recall what was only played
        flags = {**flags, "model": DEMO.name, "hierarchical": None, "memory_backend": memory}
    flags = {**flags, AS_WISH: bool(flags.get("wish")) or not any(flags.get(name) for name in _NO_WISH)}
    session = Session.open(flags, task=not any(flags.get(name) for name in ("demo", "ai_goals", "wish")))
    settings = session.settings
    session.report_notes()
    check_flags(flags, settings)
    terminal = ClickTerminal(while_reading=partial(preload, settings))
    if session.works_in_folder:
        terminal.say(f"Working in this folder, {one_line(str(session.folder))} (-w DIR for another).")
    flag_task = _task_of_flags(flags, session, terminal)
    screen: ClickTerminal | Console = terminal

    def say(text: str) -> None:
        screen.say(text)

    with claimed_state(settings.state_dir), open_run_parts(session, say, say) as extensions:
        if not extensions.replaces_model:
            session = with_model(session, terminal)
        screen = console = build.console_of(session)
        settings, flags = session.settings, session.flags
        with open_external_parts(session, console, extensions) as parts:
            model = parts.extensions.model(lambda: build.open_model(settings, console))
            proposals = _Proposals(model, console)
            task = without_budget(flag_task or _choose_task(session, terminal, proposals), flags)
            is_saved_task = _skips_questions(flags) and not flags.get("wish")
            not_reviewed = flag_task or settings.model_choice.provider.task or is_saved_task
            console.agreed_task = None if not_reviewed or not (terminal.interactive and console.has_person) else task
            plan = plan_run(session, console, parts, model, task, set_up_answers=terminal.given_answers)
            from autoagent.session.drive import drive  # not imported before the first question

            mask = build.mask_of(settings)
            code = drive(plan, lambda tainted: EventLog.create(settings.state_dir, mask=mask), proposals.usage)
            return session, Leg(console.stats.run, code, next_wish(plan))


def preload(settings: Settings) -> None:
    """Import the modules of the first step. Runs while the user reads the first question."""
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
    """Ask the model to turn a wish into a task, and keep track of the cost."""

    def __init__(self, model: Model, console: Console) -> None:
        self._model = model
        self._console = console
        self.usage = Usage()

    def __call__(self, wish: str) -> str:
        with self._console.busy(f"{self._model.name} thinks about the task"):
            completion = self._model.complete(
                setup_wizard.proposal_messages(wish), max_tokens=600, listener=self._console
            )
        self.usage += completion.usage
        return completion.text


def with_model(session: Session, terminal: ClickTerminal) -> Session:
    """Return the session with a model: from the menu if none is named, or in place of a missing default."""
    settings, choice = session.settings, session.settings.model_choice
    if not setup_wizard.model_is_chosen(settings):
        if settings.continuous and not terminal.interactive:
            raise SetupError(setup_wizard.NO_MODEL)
        from autoagent.models.servers import find_servers

        answer = setup_wizard.choose_model(terminal, find_servers)
        if answer.save:
            save_variables(answer.env)
        return session.with_variables(answer.env)
    if not (choice.provider.endpoint and settings.openai_base_url):
        return session
    from autoagent.models.openai.diagnosis import alternatives, first_names

    named = bool(choice.argument) or session.loaded.origins["smart_llm"] != "default"
    available = alternatives(settings.model_settings, choice.argument or settings.smart_llm, named=named)
    if not available:
        return session
    if named:
        model = choice.argument or settings.smart_llm
        terminal.say(one_line(f"{settings.host} does not list the model {model}; it has {first_names(available)}."))
        return session
    try:
        asks = sys.stdin.isatty() and not settings.continuous
        model = setup_wizard.pick_model(terminal, available) if asks else available[0]
    except EOFError:
        raise SetupError("no model is named: set SMART_LLM, or pass --model") from None
    terminal.say(one_line(f"No model is named (SMART_LLM); using {model} of {settings.host}."))
    fast = {"FAST_LLM": model} if session.loaded.origins["fast_llm"] == "default" else {}
    return session.with_variables({"SMART_LLM": model, **fast})


def _choose_task(session: Session, terminal: ClickTerminal, proposals: _Proposals) -> Task:
    """Return the task: the demo's own, a wish, the saved task, or one that is asked for and then saved."""
    flags, path, provider = session.flags, session.settings.ai_settings_file, session.settings.model_choice.provider
    if provider.task is not None:
        if any(flags.get(name) for name in ("wish", "ai_goals", "ai_settings_file")):
            raise SettingsError(
                f"--model {session.settings.model} has a task of its own; leave out yours, or use another model."
            )
        return provider.task()
    proposing = proposals if provider.proposes else None
    if wish := flags.get("wish"):
        asks = not (flags.get("skip_reprompt") or flags.get("continuous"))
        try:
            task = setup_wizard.task_of_wish(terminal, proposing, wish, asks=asks)
        except EOFError:
            task = None
        if task is None:
            raise StopRun(Outcome(Status.STOPPED, "Nothing was started; rephrase the task, or pass --ai-goal."))
        return replace(task, name=flags.get("ai_name") or task.name, role=flags.get("ai_role") or task.role)
    task = None
    if is_saved(path):
        saved = _load_saved_task(session, terminal)
        if _skips_questions(flags):
            return saved
        if (task := setup_wizard.welcome_back(terminal, saved, path)) == saved:
            return saved
    task = task or setup_wizard.ask_task(terminal, proposing)
    if session.works_in_folder:  # no unrequested file appears in the user's own project
        return task
    save_task(path, task)
    terminal.say(f"Saved in {path}.")
    return task


def _skips_questions(flags: Mapping[str, Any]) -> bool:
    """Return whether to use the saved task without a question."""
    return bool(flags.get("skip_reprompt") or flags.get("ai_settings_file"))


def _load_saved_task(session: Session, terminal: ClickTerminal) -> Task:
    """Load the saved task. Warn about goals that look as if they should have a check. Raises SettingsError."""
    path = session.settings.ai_settings_file
    task = session.without_untrusted_checks(read_task(path))
    if any(parse_goal(goal.text).check for goal in task.goals):
        terminal.say(
            f"{path}: ` :: ` in a goal is text here, not a check. Write a check on a line of its own: "
            "`- text: ...`, and below it `  check: ...`."
        )
    return task


def _task_of_flags(flags: Mapping[str, Any], session: Session, terminal: ClickTerminal) -> Task | None:
    """Return the task described by the flags, completed from the saved one, or None if they describe none.

    Raises click.UsageError and SettingsError for invalid flags, before anything is asked.
    """
    path = session.settings.ai_settings_file
    if flags.get("wish") or not any(flags.get(name) for name in ("ai_name", "ai_role", "ai_goals")):
        if flags.get("ai_settings_file") and not path.exists():
            raise SettingsError(f"{path}: no such file; leave out -C to be asked for name, role and goals.")
        return None
    default = Task(setup_wizard.DEFAULT_NAME, setup_wizard.PLAIN_ROLE, ())
    saved = _load_saved_task(session, terminal) if is_saved(path) else default
    goals = goals_of_flags(flags, terminal.say) or saved.goals
    if not goals:
        raise click.UsageError("No goal is given; pass at least one --ai-goal.")
    name, role = flags.get("ai_name") or saved.name, flags.get("ai_role") or saved.role
    return Task(name, role, goals, budget=saved.budget)
