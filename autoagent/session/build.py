"""Build the parts of a run from the settings."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from autoagent.core.commands import CommandSpec
from autoagent.core.errors import SettingsError
from autoagent.core.events import Event
from autoagent.core.levels import EXECUTOR, LEVELS, PLANNER
from autoagent.core.model import SMALL_WINDOW, Message, Usage
from autoagent.core.protocols import Authorizer, Model
from autoagent.log.reader import find_run, read
from autoagent.registry.memory import BACKENDS
from autoagent.registry.models import ModelChoice, ModelOpening, parse_model
from autoagent.registry.registrations import HOST_HOOKS
from autoagent.safety.approval import ContinuousAuthorizer, FailClosedAuthorizer, RuleAuthorizer
from autoagent.safety.rules import Rulebook, SavedRules
from autoagent.safety.typed_answers import Steering
from autoagent.session.extension_hooks import HookedModel, hooked_authorizer, hooked_registry, notify_listeners, render
from autoagent.session.session import Session, found_by_parts, place_in
from autoagent.settings import DOTENV, Settings, secrets_of, user_config_path, user_state_path
from autoagent.terminal.console import Console, EventHooks
from autoagent.terminal.output import ProgressBar, echo
from autoagent.terminal.palette import Palette, palette_of
from autoagent.terminal.screen import Style
from autoagent.terminal.shared_questions import THIS_TERMINAL, QuestionSettings
from autoagent.text.redaction import Redactor
from autoagent.text.tokens import TOKENS_PER_MESSAGE, counter

if TYPE_CHECKING:
    from autoagent.agent.budget import Budget
    from autoagent.commands.registry import Command, Registry

_LEVELS = "levels"  # the category of commands that delegate to the next level

MAX_COMMAND_REPLY_TOKENS = 600  # in reply to a command's own prompt, such as a dream


def open_console(settings: Settings, *, json: bool, replays: bool = False) -> Console:
    """Open the screen for this terminal and these settings. With `replays`, it shows a logged run."""
    screen = sys.stderr if json else sys.stdout
    color = palette(settings, screen.isatty())
    plain = settings.plain_output or not screen.isatty()
    folders = str(settings.workspace.absolute()), str(settings.state_dir.absolute())
    ends_run = settings.if_unanswered == "end" if settings.if_unanswered else not settings.continuous
    questions = (
        THIS_TERMINAL if replays else QuestionSettings(questions_path(), settings.answer_timeout, ends_run, *folders)
    )
    style = Style(
        color, plain=plain, thoughts=settings.thoughts, history=user_state_path(os.environ) / "history",
        notify=settings.notify, questions=questions, brief=settings.continuous,
    )  # fmt: skip
    mask, hooks = mask_of(settings), EventHooks(render) if replays else EventHooks(render, notify_listeners)
    return Console(sys.stdout, sys.stderr, sys.stdin, style=style, json=json, replays=replays, mask=mask, hooks=hooks)


def console_of(session: Session) -> Console:
    """Open the screen for a session's settings and flags."""
    return open_console(session.settings, json=bool(session.flags.get("json_output")))


def palette(settings: Settings, isatty: bool) -> Palette | None:
    """Return the colours of a screen, or None. Raises SettingsError for an unknown theme."""
    return None if settings.plain_output else palette_of(settings.theme, os.environ, isatty)


def questions_path() -> Path:
    """Return the folder of the user's open questions from all runs."""
    return user_state_path(os.environ) / "questions"


def is_attended(settings: Settings) -> bool:
    """Return whether somebody can be asked: without -c, at a terminal, or with time for late answers."""
    return not settings.continuous or sys.stdin.isatty() or bool(settings.answer_timeout)


def open_replay(settings: Settings, out: TextIO, style: Style) -> Console:
    """Open a screen that shows a logged run as text on `out`."""
    hooks = EventHooks(render)
    return Console(out, sys.stderr, sys.stdin, style=style, replays=True, mask=mask_of(settings), hooks=hooks)


def open_model(settings: Settings, console: Console, used_replies: int = 0, agent: str = "", name: str = "") -> Model:
    """Open the model of an agent. A recorded one continues after its first `used_replies`.

    `agent` is the key of a sub-agent, or ''. `name` is the endpoint's model that the sub-agent asks for, unless the
    user chose one for all. Raises SetupError if it is unusable, SettingsError or StateError without its recording.
    """
    choice = settings.model_choice
    argument = choice.argument
    if choice.provider.endpoint and not argument:
        argument = name
        if settings.hierarchical and not name:
            level = LEVELS[min(agent.count(".") + 1, len(LEVELS) - 1)] if agent else PLANNER
            default = settings.fast_llm if level is EXECUTOR else settings.smart_llm
            argument = getattr(settings, f"{level.name}_llm") or default
    return cast(Model, HookedModel(_open(settings, console, choice, argument, used_replies, agent)))


def may_distil(settings: Settings) -> bool:
    """Return whether the model may be asked for the facts of a finished run."""
    provider = settings.model_choice.provider
    remembers = BACKENDS.find(settings.memory_backend).open is not None
    return settings.memory_distil and remembers and provider.proposes and not provider.recorded


def model_of_worker(settings: Settings, console: Console, model: Model, key: str, name: str) -> Model:
    """Return the model of a sub-agent: `model` itself if it serves all threads, else a separate one."""
    return model if settings.model_choice.provider.shared else open_model(settings, console, agent=key, name=name)


def _open(
    settings: Settings, console: Console, choice: ModelChoice, argument: str, used_replies: int = 0, agent: str = ""
) -> Model:
    """Open a model, wrapped by the host program if there is one."""

    def recording(run: str) -> Iterator[Event]:
        events = read(settings.state_dir, find_run(settings.state_dir, run))
        return (event for event in events if event.agent == agent)

    opening = ModelOpening(
        settings.model_settings, argument, console, console.say, console.ask, used_replies, recording, ensure_weights
    )
    model = choice.provider.open(opening)
    return cast("Model", HOST_HOOKS["model"](model)) if "model" in HOST_HOOKS else model


def open_registry(settings: Settings, model: Model, *, attended: bool, extras: Sequence[Command]) -> Registry:
    """Return the commands that this run offers. Raises SettingsError if the model cannot answer for all levels."""
    from autoagent.commands import selection

    if settings.hierarchical and (reason := settings.model_choice.provider.one_agent):
        raise SettingsError(f"--hierarchical: {reason}.")

    registry = hooked_registry(selection.available(settings, extras))
    if not attended and not settings.hierarchical:
        asking_names = {spec.name for spec in registry.specs if spec.effects is not None and spec.effects.asks_user}
        registry = registry.without(asking_names, "nobody is there to answer")
    selected = selection.choose(registry, settings.commands, model.window, guided=model.style.guided)
    if not settings.hierarchical:
        return selected
    level_names = {spec.name for spec in registry.specs if spec.levels != (EXECUTOR.name,) or spec.category == _LEVELS}
    distracting_names = {spec.name for spec in registry.specs if spec.distracts and model.style.guided}
    names = {spec.name for spec in selected.specs} | level_names
    return registry.only(names - (set() if settings.commands else distracting_names), "it is not offered in this run")


def own_registry(registry: Registry, settings: Settings) -> Registry:
    """Return the commands of the run's own agent, among those of the run."""
    if not settings.hierarchical:
        return registry
    names = {spec.name for spec in registry.specs if PLANNER.name in spec.levels}
    return registry.only(names, "the planner has it done by execute_task")


def recalls_trusted_only(settings: Settings, specs: Iterable[CommandSpec]) -> bool:
    """Return whether an agent with these commands recalls only trusted memories, as set or because it can reach out."""
    reaches_out = any(spec.effects is None or spec.risk == "network" for spec in specs)
    return settings.memory_trust == "trusted" or (not settings.memory_trust and reaches_out)


def report_selection(
    registry: Registry, settings: Settings, window: int, say: Callable[[str], None], extras: Sequence[Command]
) -> None:
    """Tell the user if commands were left out to fit the window."""
    from autoagent.commands import selection

    offered_count, usable_count = len(registry.specs), len(selection.available(settings, extras).specs)
    if not settings.commands and offered_count < usable_count and window < SMALL_WINDOW:
        say(
            f"{offered_count} of {usable_count} commands are offered, chosen for the goals, as the window is small "
            f"({window:,} tokens); --commands all offers all."
        )


def protected_paths(settings: Settings) -> list[str]:
    """Return the absolute paths of the agent's own files, which no command may reach."""
    settings_files = (settings.ai_settings_file, settings.prompt_settings_file, Path(DOTENV))
    extension_files = found_by_parts("hides", place_in(Path.cwd(), settings))
    user_files = (user_config_path(os.environ), rules_path(), user_state_path(os.environ))
    own_files = (*settings_files, *extension_files, *user_files)
    return [str(path.absolute()) for path in (settings.state_dir, *own_files) if path]


def authorizer_of(
    settings: Settings, console: Console, rulebook: Rulebook, *, attended: bool, steering: Steering | None
) -> Authorizer:
    """Return the authorizer of a run. At its questions, the user may change the run by `steering`."""
    inner: Authorizer = ContinuousAuthorizer()
    if attended or not settings.continuous:
        from autoagent.safety.question_dialog import InteractiveAuthorizer

        keys = settings.authorise_command_key, settings.exit_key
        ask = InteractiveAuthorizer(console, *keys, rulebook, mask_of(settings), steering)
        inner = ContinuousAuthorizer(ask) if settings.continuous else ask
    return FailClosedAuthorizer(hooked_authorizer(RuleAuthorizer(rulebook, inner)))


def open_fast_model(settings: Settings, console: Console, model: Model) -> Model:
    """Open the model for summaries: the endpoint's fast model, or the main one if the user named it."""
    choice = settings.model_choice
    if not choice.provider.endpoint or choice.argument or settings.fast_llm == settings.smart_llm:
        return model
    return _open(settings, console, choice, settings.fast_llm)


def open_verifier(settings: Settings, console: Console, model: Model) -> Model | None:
    """Open the model that judges the goals at the end, by default `model` itself, or return None."""
    choice = settings.model_choice
    if not settings.verify or not (choice.provider.proposes or choice.provider.recorded):
        return None
    if not choice.provider.endpoint or not settings.verifier_llm:
        return model
    return _open(settings, console, choice, settings.verifier_llm)


def open_ranker(settings: Settings, console: Console, model: Model) -> Model | None:
    """Open the model that re-ranks memories, possibly `model` itself, or return None. Raises SettingsError."""
    if not settings.memory_rerank:
        return None
    choice = parse_model(settings.memory_rerank)
    if choice.provider.recorded or choice.provider.one_agent:
        raise SettingsError(f"MEMORY_RERANK: the model {settings.memory_rerank!r} cannot re-rank memories.")
    if choice == settings.model_choice:
        return model
    return _open(settings, console, choice, choice.argument)


class ModelCaller:
    """Answer single prompts, with secrets masked, for commands that need a model. Add up the usage.

    A call that the `budget` does not cover raises StopRun. It covers the usage since the last `take_usage`, too.
    """

    def __init__(self, model: Model, mask: Callable[[str], str], budget: Budget) -> None:
        self._model = model
        self._mask = mask
        self._budget = budget
        self._usage = Usage()

    def __call__(self, prompt: str) -> str:
        model, budget, text = self._model, self._budget, self._mask(prompt)
        prompt_tokens = counter(model.name)(text) + TOKENS_PER_MESSAGE
        reply_tokens = min(MAX_COMMAND_REPLY_TOKENS + model.reasoning_room, budget.expected_reply)
        budget.check_time(time.time())
        budget.check_size(prompt_tokens, reply_tokens, model.price, self._usage)
        completion = model.complete([Message("user", text)], max_tokens=MAX_COMMAND_REPLY_TOKENS)
        self._usage += completion.usage
        return completion.text

    def take_usage(self) -> Usage:
        """Return the usage since the last call, including interrupted replies."""
        usage, self._usage = self._usage + self._model.take_usage(), Usage()
        return usage


def mask_of(settings: Settings) -> Callable[[Any], Any]:
    """Return a function that masks the program's own keys, and likely secrets, in a JSON value."""
    return Redactor(secrets_of(settings)).mask_json


def rules_path() -> Path:
    """Return the file with the user's saved rules for all folders."""
    return user_config_path(os.environ).with_name("rules.json")


def saved_rules() -> SavedRules:
    """Return the rules for the current folder."""
    return SavedRules(rules_path(), Path.cwd())


def warn_of_old_rules(settings: Settings, say: Callable[[str], None]) -> None:
    """Warn about an earlier version's rules, as they no longer apply."""
    path = settings.state_dir / "rules.json"
    if os.path.lexists(path):
        say(f"{path} is ignored: rules are kept in {rules_path()}. Save the rules you want with `autoagent rules add`.")


def ensure_weights() -> Path:
    """Return the file of the embedded model, downloading it with a progress bar if missing. Raises SetupError."""
    from autoagent.models.local import weights

    if weights.is_installed():
        return weights.path()
    echo(f"Fetching {weights.EMBEDDED.name} ({weights.EMBEDDED.size / 1e9:.1f} GB), once.", err=True)
    bar = ProgressBar()
    try:
        return weights.fetch(bar.show, notice=bar.note)
    finally:
        bar.close()
