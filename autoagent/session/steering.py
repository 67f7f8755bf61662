"""Changes of a run at the question before a command: its model, budget, goals, and its last change of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import ForUser, ModelError, SettingsError, StateError
from autoagent.core.events import AgentMessage, Changed, Dropped, Event, SystemNotice
from autoagent.core.memory import memory_name
from autoagent.core.task import MOST_GOALS
from autoagent.log.reader import read
from autoagent.registry.models import model_forms
from autoagent.session import build
from autoagent.session.plan import as_kept, describe
from autoagent.session.restoring import RunWriter, history_of_run, undo
from autoagent.text.typed_goal import parse_goal, remark, typed

if TYPE_CHECKING:
    from autoagent.agent.budget import Budget
    from autoagent.commands.registry import Registry
    from autoagent.core.commands import Change
    from autoagent.core.protocols import Memory, Model
    from autoagent.core.task import Goal, Task
    from autoagent.models.switchable import SwitchableModel
    from autoagent.session.attachments import Attachments
    from autoagent.session.plan import RunPlan
    from autoagent.settings import Settings
    from autoagent.workspace.snapshots import Snapshots

Record = Callable[[Any], Any]

NAMED = 20  # models in a line; of further ones the number is told
_EDIT = "N TEXT replaces goal N, N - drops it, + TEXT adds one, Enter = done"


class RunSteering:
    """Satisfies approval.Steering for one run.

    `model` is that of the run's own agent: its sub-agents keep theirs. Each change is an event, so that a resumed run
    keeps it.
    """

    def __init__(
        self,
        plan: RunPlan,
        registry: Registry,
        model: SwitchableModel,
        budget: Budget,
        run: str,
        snapshots: Snapshots,
        attachments: Attachments,
        memory: Memory,
    ) -> None:
        self._plan = plan
        self._console = plan.console
        self._registry = registry
        self._model = model
        self._budget = budget
        self._run = run
        self._snapshots = snapshots
        self._attachments = attachments
        self._memory = memory
        self._settings = plan.settings
        self._start = plan.start
        self._words: Mapping[str, tuple[str, Callable[[str], Change | None]]] = {
            "model": (
                "which models there are; /model NAME: another one from now on",
                self._other,
            ),
            "budget": ("what was spent; /budget 0.50: the most that it may cost, in USD", self._ceiling),
            "goals": ("the goals, and which are met; change them", self._goals),
            "add": ("attach a file, as @path does; /drop takes it back", self._add),
            "drop": ("take back what is attached, or one file", self._take_back),
            "memory": (
                "what came to mind; /memory core [TEXT, -ID]: what each prompt shows",
                self._core,
            ),
            "undo": ("undo the last change of files, then the one before (--redo, --force)", self._undo),
        }

    @property
    def words(self) -> Mapping[str, str]:
        """See approval.Steering."""
        return {word: what for word, (what, _) in self._words.items()}

    def change(self, word: str, rest: str) -> Change | None:
        """See approval.Steering."""
        try:
            return self._words[word][1](rest)
        except (ForUser, ModelError) as error:
            self._console.say(f"{error} Nothing was changed.")
            return None

    # The model ---------------------------------------------------------------------------------------------------

    def _other(self, name: str) -> Change | None:
        if not name:
            self._console.say(f"The model is {self._model.name}. {self._there(self._settings)}")
            return None
        settings = replace(self._settings, model=name)
        self._check(settings)
        model = self._plan.extensions.model(lambda: build.open_model(settings, self._console))
        start = self._described(
            self._start.task, settings, model, f"the model is {model.name}, window {model.window:,} tokens"
        )
        return partial(self._take, start, settings, lambda: self._model.switch(model), None)

    def _check(self, settings: Settings) -> None:
        """Raise SettingsError for a model that is not there, or that cannot take over a run. No model is asked."""
        choice = settings.model_choice
        provider = choice.provider
        if settings.hierarchical:
            raise SettingsError("In a hierarchical run each level has a model of its own.")
        if provider.recorded:
            raise SettingsError(f"{settings.model}: its replies come in a fixed order, and belong to one run.")
        own = (settings.smart_llm, settings.fast_llm)
        if provider.names is not None and choice.argument and choice.argument not in own:
            names = provider.names(settings.of_models)
            if choice.argument not in names:
                raise SettingsError(f"There is no model {choice.argument!r}. {self._there(settings, names)}")

    def _there(self, settings: Settings, names: Sequence[str] | None = None) -> str:
        """Name the models that there are, those of the endpoint among them."""
        listing = settings.model_choice.provider.names
        if names is None:
            names = listing(settings.of_models) if listing else ()
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        listed = f"The endpoint has {', '.join(names[:NAMED])}{more}. " if names else ""
        return f"{listed}/model takes {model_forms(recorded=False)}."

    # The budget --------------------------------------------------------------------------------------------------

    def _ceiling(self, amount: str) -> Change | None:
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
        spent = f", of which ${self._budget.usd:.4f} is spent" if self._budget.usd else ""
        start = self._described(self._start.task, settings, self._model, f"the budget is ${usd:g}{spent}")

        def hold() -> None:
            self._budget.limits = replace(self._budget.limits, usd=usd)

        return partial(self._take, start, settings, hold, None)

    # The goals ---------------------------------------------------------------------------------------------------

    def _goals(self, rest: str) -> Change | None:
        before = self._start.task.goals
        lines = self._edited([typed(goal) for goal in before])
        known = {typed(goal): goal for goal in before}
        goals = tuple(known.get(line) or self._parsed(line) for line in lines)
        if goals == before:
            return None
        if not 0 < len(goals) <= MOST_GOALS:
            raise SettingsError(f"A run has 1 to {MOST_GOALS} goals, not {len(goals)}.")
        task = replace(self._start.task, goals=goals)
        start = self._described(task, self._settings, self._model, "the goals")
        listed = "; ".join(f"{number}. {goal}" for number, goal in enumerate(goals, 1))
        told = SystemNotice(text=f"The user has changed the goals. They are now: {listed}")
        return partial(self._take, start, self._settings, lambda: None, told)

    def _parsed(self, line: str) -> Goal:
        goal = parse_goal(line)
        if told := remark(line, goal):
            self._console.say(told)
        return goal

    def _edited(self, lines: list[str]) -> list[str]:
        """Return the lines as the person leaves them: in an editor, or by one change after the other."""
        if (text := self._console.edit("".join(f"{line}\n" for line in lines), ".txt")) is not None:
            return [line.strip() for line in text.splitlines() if line.strip()]
        self._console.show_word("goals")
        while True:
            try:
                answer = self._console.ask(_EDIT).strip()
            except EOFError:
                return lines
            if not answer:
                return lines
            which, _, text = answer.partition(" ")
            text = " ".join(text.split())
            if which == "+" and text:
                lines = [*lines, text]
            elif which.isdecimal() and 0 < int(which) <= len(lines) and text:
                at = int(which) - 1
                lines = [*lines[:at], *([] if text == "-" else [text]), *lines[at + 1 :]]
            else:
                self._console.say("That is none of these.")
                continue
            self._console.say("\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1)) or "No goal.")

    # The memory --------------------------------------------------------------------------------------------------

    def _core(self, rest: str) -> None:
        word, _, text = rest.partition(" ")
        text = text.strip()
        if word != "core":
            self._console.show_word("memory")
        elif not text:
            lines = [f"{memory_name(one.id)}: {' '.join(one.text.split())}" for one in self._memory.core()]
            self._console.say("\n".join(lines) or "Nothing yet. /memory core TEXT puts TEXT into every prompt.")
        elif text.startswith("-"):
            name = text.removeprefix("-").strip()
            ids = [one.id for one in self._memory.core() if memory_name(one.id) == name]
            if not ids or not self._memory.keep_in_core(ids[0], kept=False):
                raise SettingsError(f"There is no {name!r} in the core; /memory core lists it.")
            self._console.say(f"Later prompts do not show {name} as a matter of course.")
        else:
            id = self._memory.add(text, source="user")
            if id is None or not self._memory.keep_in_core(id, kept=True):
                raise SettingsError("The memory keeps nothing (MEMORY_BACKEND).")
            self._console.say(f"Kept as {memory_name(id)}: prompts show it from the next step on.")

    # The files ---------------------------------------------------------------------------------------------------

    def _undo(self, rest: str) -> Change | None:
        flags = rest.split()
        if unknown := set(flags) - {"--redo", "--force"}:
            raise SettingsError(f"/undo takes --redo and --force, not {', '.join(sorted(unknown))}.")

        def back(record: Record) -> None:
            history = history_of_run(self._settings.state_dir, self._run)
            log = RunWriter(self._run, record)
            try:
                done = undo(log, self._snapshots, history, redo="--redo" in flags, force="--force" in flags)
            except StateError as error:
                done = str(error)
            self._console.say(done)

        return back

    def _add(self, name: str) -> Change | None:
        if not name:
            self._console.say(f"Attached: {', '.join(self._attached()) or 'nothing'}. /add PATH attaches a file.")
            return None
        attached = self._attachments.attached(name)

        def add(record: Record) -> None:
            record(attached)

        return add

    def _take_back(self, name: str) -> Change | None:
        there = [one for one in self._attached() if name in ("", one)]
        if not there:
            raise SettingsError(f"Attached: {', '.join(self._attached()) or 'nothing'}.")

        def drop(record: Record) -> None:
            for one in there:
                record(Dropped(memory=-1, attachment=one))

        return drop

    def _attached(self) -> list[str]:
        found: dict[str, None] = {}
        for event in read(self._settings.state_dir, self._run, (AgentMessage, Dropped)):
            if isinstance(event, AgentMessage) and event.attached:
                found[event.sender] = None
            elif isinstance(event, Dropped):
                found.pop(event.attachment, None)
        return list(found)

    # What all have in common -------------------------------------------------------------------------------------

    def _described(self, task: Task, settings: Settings, model: Model, what: str) -> Changed:
        """Return the event of a change. Raises SettingsError if the prompt leaves no room in the model's window."""
        texts, guidance = self._plan.texts, self._plan.guidance
        start = describe(task, settings, model, self._registry, self._start, texts, guidance, what)
        assert isinstance(start, Changed)
        changed = as_kept({"model": settings.model, "budget": settings.budget})
        return replace(start, settings={**self._start.settings, **changed})

    def _take(
        self, start: Changed, settings: Settings, act: Callable[[], None], told: Event | None, record: Record
    ) -> None:
        act()
        self._settings, self._start = settings, start
        record(start)
        if told is not None:
            record(told)
