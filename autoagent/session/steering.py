"""Change a run at the question before a command: model, budget, goals, and its last change of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autoagent.agent.budget import Budget
from autoagent.commands.registry import Registry
from autoagent.core.commands import Change
from autoagent.core.errors import ForUser, ModelError, SettingsError, StateError
from autoagent.core.events import AgentMessage, Changed, Dropped, SystemNotice
from autoagent.core.memory import memory_name
from autoagent.core.protocols import Memory, Model
from autoagent.core.task import MAX_GOALS, Task
from autoagent.log.reader import read
from autoagent.models.forwarding import SwitchableModel
from autoagent.registry.models import model_forms
from autoagent.safety.typed_answers import Steering
from autoagent.session import build
from autoagent.session.attachments import Attachments
from autoagent.session.plan import RunPlan, start_event, to_logged
from autoagent.session.restoring import RunWriter, history_of_run, undo
from autoagent.settings import Settings
from autoagent.text.typed_goal import format_goal, parse_and_explain
from autoagent.workspace.snapshots import Snapshots

Record = Callable[[Any], Any]

MAX_LISTED_MODELS = 20  # the rest are counted
_EDITS = "N TEXT replaces goal N, N - drops it, + TEXT adds a goal"


@dataclass
class RunSteering:
    """Let a person change a run.

    `model` is the model of the run's own agent. Its sub-agents keep theirs. A resumed run keeps each change: changes of
    the core are in the memory, all others are events.
    """

    plan: RunPlan
    registry: Registry
    model: SwitchableModel
    budget: Budget
    run: str
    snapshots: Snapshots
    attachments: Attachments
    memory: Memory

    def __post_init__(self) -> None:
        self._console = self.plan.console
        self._settings = self.plan.settings
        self._start = self.plan.start
        self._words: Mapping[str, tuple[str, Callable[[str], Change | None]]] = {
            "model": ("list the models; /model NAME: use another from now on", self._change_model),
            "budget": ("the money spent; /budget 0.50: set the limit of the run, in USD", self._change_budget),
            "goals": ("the goals, and which are met; change them", self._change_goals),
            "add": ("attach a file, as @path does; /drop removes it", self._attach),
            "drop": ("remove all attachments, or one file", self._detach),
            "memory": ("recalled memories; /memory core [[--public] TEXT, ID, -ID]: the core", self._change_core),
            "undo": ("undo the last change of files, then earlier ones (--redo, --force)", self._undo),
        }
        self.steering = Steering({word: summary for word, (summary, _) in self._words.items()}, self._run_word)

    def _run_word(self, word: str, rest: str) -> Change | None:
        try:
            return self._words[word][1](rest)
        except (ForUser, ModelError) as error:
            text = str(error)
            self._console.say(f"{text if text.endswith(('.', '?')) else f'{text}.'} Nothing was changed.")
            return None

    def _change_model(self, name: str) -> Change | None:
        if not name:
            self._console.say(f"The model is {self.model.name}. {self._available_models(self._settings)}")
            return None
        settings = replace(self._settings, model=name)
        choice = settings.model_choice
        provider = choice.provider
        if settings.hierarchical:
            raise SettingsError("In a hierarchical run each level has a model of its own.")
        if provider.recorded:
            raise SettingsError(f"{settings.model}: its replies belong to another run, in a fixed order.")
        own_names = (settings.smart_llm, settings.fast_llm)
        if provider.names is not None and choice.argument and choice.argument not in own_names:
            names = provider.names(settings.model_settings)
            if names and choice.argument not in names:
                raise SettingsError(f"There is no model {choice.argument!r}. {self._available_models(settings, names)}")
        model = self.plan.extensions.model(lambda: build.open_model(settings, self._console))
        change = f"the model is {model.name}, window {model.window:,} tokens"
        start = self._changed_start(self._start.task, settings, model, change)
        return partial(self._apply, start, settings, act=lambda: self.model.switch(model))

    def _available_models(self, settings: Settings, names: Sequence[str] | None = None) -> str:
        """List the available models, including the endpoint's."""
        list_names = settings.model_choice.provider.names
        if names is None:
            names = list_names(settings.model_settings) if list_names else ()
        suffix = f" and {len(names) - MAX_LISTED_MODELS:,} more" if len(names) > MAX_LISTED_MODELS else ""
        endpoint_models = f"The endpoint has {', '.join(names[:MAX_LISTED_MODELS])}{suffix}. " if names else ""
        return f"{endpoint_models}/model takes {model_forms(recorded=False)}."

    def _change_budget(self, amount: str) -> Change | None:
        if not amount:
            self._console.show_word("cost")
            return None
        try:
            usd = float(amount.removeprefix("$"))
        except ValueError:
            usd = 0.0
        if not 0 < usd < float("inf"):
            raise SettingsError(f"/budget takes an amount of USD above 0, such as 0.50, not {amount!r}.")
        settings = replace(self._settings, budget=usd)
        spent_note = f", of which ${self.budget.usd:.4f} is spent" if self.budget.usd else ""
        start = self._changed_start(self._start.task, settings, self.model, f"the budget is ${usd:g}{spent_note}")
        return partial(self._apply, start, settings, act=partial(self.budget.change_usd, usd))

    def _change_goals(self, edit: str) -> Change | None:
        old_goals = self._start.task.goals
        old_lines = [format_goal(goal) for goal in old_goals]
        lines = _apply_edit(old_lines, edit) if edit else self._edit_lines(old_lines)
        if lines is None:
            raise SettingsError(f"/goals takes a change: {_EDITS}.")
        goals_by_line = {format_goal(goal): goal for goal in old_goals}
        goals = tuple(goals_by_line.get(line) or parse_and_explain(line, self._console.say) for line in lines)
        if goals == old_goals:
            return None
        if not 0 < len(goals) <= MAX_GOALS:
            raise SettingsError(f"A run has 1 to {MAX_GOALS} goals, not {len(goals)}.")
        task = replace(self._start.task, goals=goals)
        start = self._changed_start(task, self._settings, self.model, "the goals")
        notice = f"The user has changed the goals. They are now: {task.numbered}"
        return partial(self._apply, start, self._settings, notice=notice)

    def _edit_lines(self, lines: list[str]) -> list[str]:
        """Return the lines edited by the person: in an editor, or one change at a time."""
        if (text := self._console.edit("".join(f"{line}\n" for line in lines), ".txt")) is not None:
            return [line.strip() for line in text.splitlines() if line.strip()]
        self._console.show_word("goals")
        while True:
            try:
                answer = self._console.ask(f"{_EDITS}, Enter = done").strip()
            except EOFError:
                return lines
            if not answer:
                return lines
            if (new_lines := _apply_edit(lines, answer)) is None:
                self._console.say("That is not an edit of the goals.")
                continue
            lines = new_lines
            self._console.say("\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1)) or "No goal.")

    def _change_core(self, rest: str) -> None:
        word, _, text = rest.partition(" ")
        text = text.strip()
        if public := text.split(maxsplit=1)[:1] == ["--public"]:
            text = text.removeprefix("--public").strip()
        if word != "core":
            self._console.show_word("memory")
        elif not text and public:
            raise SettingsError("/memory core --public takes TEXT or an ID.")
        elif not text:
            lines = [f"{memory_name(memory.id)}: {' '.join(memory.text.split())}" for memory in self.memory.core()]
            self._console.say("\n".join(lines) or "The core is empty. /memory core TEXT puts TEXT into every prompt.")
        elif text.startswith("-") and not public:
            name = text.removeprefix("-").strip()
            ids = [memory.id for memory in self.memory.core() if memory_name(memory.id) == name]
            if not ids or not self.memory.keep_in_core(ids[0], kept=False):
                raise SettingsError(f"There is no {name!r} in the core; /memory core lists it.")
            self._console.say(f"Later prompts no longer always show {name}.")
        else:
            id = int(text) if text.isdecimal() else self.memory.add(text, source="user")
            if id is None or not self.memory.keep_in_core(id, kept=True, public=public):
                problem = "There is no memory to keep it in (MEMORY_BACKEND)."
                raise SettingsError(problem if id is None else f"There is no memory {id}.")
            self._console.say(f"Kept as {memory_name(id)}: it is in every prompt from the next step on.")

    def _undo(self, rest: str) -> Change | None:
        flags = rest.split()
        if unknown := set(flags) - {"--redo", "--force"}:
            raise SettingsError(f"/undo takes --redo and --force, not {', '.join(sorted(unknown))}.")

        def undo_change(record: Record) -> None:
            history = history_of_run(self._settings.state_dir, self.run)
            log = RunWriter(self.run, record)
            try:
                outcome = undo(log, self.snapshots, history, redo="--redo" in flags, force="--force" in flags)
            except StateError as error:
                outcome = str(error)
            self._console.say(outcome)

        return undo_change

    def _attach(self, name: str) -> Change | None:
        if not name:
            self._console.say(f"Attached: {', '.join(self._attached_files()) or 'nothing'}. /add PATH attaches a file.")
            return None
        message = self.attachments.read(name)
        return lambda record: record(message)

    def _detach(self, name: str) -> Change | None:
        attachments = self._attached_files()
        dropped = [attachment for attachment in attachments if name in ("", attachment)]
        if not dropped:
            missing = f"There is no attachment {name!r}. " if name else ""
            raise SettingsError(f"{missing}Attached: {', '.join(attachments) or 'nothing'}.")

        def drop(record: Record) -> None:
            for attachment in dropped:
                record(Dropped(memory=-1, attachment=attachment))

        return drop

    def _attached_files(self) -> list[str]:
        names: dict[str, None] = {}
        for event in read(self._settings.state_dir, self.run, (AgentMessage, Dropped)):
            if isinstance(event, AgentMessage) and event.attached:
                names[event.sender] = None
            elif isinstance(event, Dropped):
                names.pop(event.attachment, None)
        return list(names)

    def _changed_start(self, task: Task, settings: Settings, model: Model, change: str) -> Changed:
        """Return the event of a change. Raises SettingsError if the prompt leaves no room in the model's window."""
        texts, guidance = self.plan.texts, self.plan.guidance
        start = start_event(task, settings, model, self.registry, self._start, texts, guidance, change)
        assert isinstance(start, Changed)
        values = to_logged({"model": settings.model, "budget": settings.budget})
        return replace(start, settings={**self._start.settings, **values})

    def _apply(
        self, start: Changed, settings: Settings, record: Record, act: Callable[[], Any] = str, notice: str = ""
    ) -> None:
        act()
        self._settings, self._start = settings, start
        record(start)
        if notice:
            record(SystemNotice(text=notice))


def _apply_edit(lines: Sequence[str], edit: str) -> list[str] | None:
    """Return the lines after a change as in `_EDITS`, or None if it is not understood."""
    selector, _, text = edit.partition(" ")
    text = " ".join(text.split())
    if selector == "+" and text:
        return [*lines, text]
    if selector.isdecimal() and 0 < int(selector) <= len(lines) and text:
        index = int(selector) - 1
        return [*lines[:index], *([] if text == "-" else [text]), *lines[index + 1 :]]
    return None
