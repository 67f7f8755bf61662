"""Track the work of a run: files, programs and goals, and the point from which the run continues."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from autoagent.core import events
from autoagent.core.commands import Call, CommandSpec, ResultMeta
from autoagent.core.errors import CommandError
from autoagent.core.services import ProcessExit
from autoagent.core.task import Goal, GoalVerdict
from autoagent.text.facts import PURPOSE

MAX_OUTPUT_CHARACTERS = 1200  # from the end of a check's output
_MAX_COMPARED_CALLS = 8  # calls compared with the next
_MAX_PROGRAM_RUNS = 5
_WORD_SEPARATORS = re.compile(r"[\s'\"|&;()<>=]+")  # in a shell line


class Work:
    """Fold events into the state of the work.

    Attributes:
        changed: workspace paths that the run has changed, in order, as the keys.
        failed_paths: paths changed by a failed program, or that hold its code.
        known_paths: workspace paths that the run has read or changed.
        idle_commands: how many commands ran since the newest change, or since an end was rejected.
        has_repeat: whether one of these commands occurred twice.
        tree: the newest snapshot of the workspace.
        tree_before: the newest snapshot when the last command started.
        base: the snapshot when work on the present goals began, or ''.
        program_runs: calls that ran programs since files were last changed by other means, with their results.
        loaded_groups: command groups that the agent has loaded.
        met: for each goal, from 0, whether its check passed; unknown after the user restores the workspace.
        is_end_rejected: whether an end was rejected, and since then nothing changed and no program succeeded.
        verdicts: the verifier's newest verdicts, one per judged goal, unless something has happened since.
        was_warned: whether the agent was told, since the user last spoke, of a goal that the verifier finds unmet.
        draft_result: the newest result of drafts for the present goals, if there is one.
    """

    NOT_IN_CHECKPOINT = ("_specs",)

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self.changed: dict[str, None] = {}
        self.failed_paths: set[str] = set()
        self.known_paths: set[str] = set()
        self.idle_commands = 0
        self.has_repeat = False
        self.tree = self.tree_before = self.base = ""
        self.program_runs: deque[tuple[Call, events.Returned]] = deque(maxlen=_MAX_PROGRAM_RUNS)
        self.loaded_groups: set[str] = set()
        self.met: dict[int, bool] = {}
        self.is_end_rejected = False
        self.verdicts: tuple[GoalVerdict, ...] = ()
        self.was_warned = False
        self.draft_result: events.Drafted | None = None
        self._root = ""
        self._goals: tuple[Goal, ...] = ()
        self._outputs: dict[int, str] = {}  # of the checks, by goal
        self._has_unchecked_changes = False  # since the checks ran
        self._newest_call: Call | None = None  # the newest started call
        self._recent_calls: deque[int] = deque(maxlen=_MAX_COMPARED_CALLS)  # keys of the newest calls without a change
        self._newest_start = ("", "")  # the name of the newest started command, and who allowed it
        self._allowed_by = ""
        self._rejected_end = ("", "")  # the same for a rejected end, unless something has happened since

    def add(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self._begin(event)
            case events.Decided(allowed=True):
                self._allowed_by = event.by
            case events.Started():
                self.tree_before = self.tree
                self._newest_call = event.call
                self._newest_start = (event.call.name, self._allowed_by)
                self.has_repeat = self.has_repeat or event.call.key in self._recent_calls
                self._recent_calls.append(event.call.key)
            case events.Snapshot():
                self.tree = event.tree
                self.base = self.base or event.tree
            case events.Returned():
                self._add_returned(event)
            case events.Feedback():
                self._user_spoke()
                self._discard_drafts()
            case events.Undone():
                self._user_spoke()
                self._discard_drafts()
                self.tree_before = ""  # what an open call has changed may be undone
                self.met, self._has_unchecked_changes = {}, True
            case events.Rewound():
                self._discard_drafts()
                self.met, self._has_unchecked_changes = {}, True
            case events.AgentMessage():
                self._note_changes(event.meta.products, failed=event.meta.failed)
                if event.meta.products:
                    self.verdicts = ()
                    self.program_runs.clear()
            case events.Checked():
                self.met[event.goal], self._outputs[event.goal] = event.met, event.output
                self._has_unchecked_changes = False
            case events.Drafted():
                self.draft_result = event
                self.known_paths.update(event.shown if event.agree else ())
            case events.Verified():
                self.verdicts = event.verdicts

    def _begin(self, event: events.RunStarted) -> None:
        self._root = event.workspace.rstrip("/") + "/"
        if event.task.goals != self._goals:
            if not isinstance(event, events.Changed) and set(self._goals).isdisjoint(event.task.goals):
                self.base = self.tree  # the work for goals that are kept or reworded is to be judged, too
            self._goals, self.met, self.draft_result = event.task.goals, {}, None
        if isinstance(event, (events.Resumed, events.Changed)):
            self._user_spoke()

    def allowed_by(self, call: Call) -> str:
        """Return who allowed this call to end the run before it was rejected, or '' if anything has happened since."""
        name, allowed_by = self._rejected_end
        return allowed_by if call.name == name else ""

    def loaded_commands(self, specs: Sequence[CommandSpec]) -> list[CommandSpec]:
        """Return the commands that are offered from the start or belong to a loaded group."""
        return [spec for spec in specs if not spec.group or spec.group in self.loaded_groups]

    # Goals: a check is one of the user's shell commands, which exits 0 once its goal is met ---------------------------

    @property
    def has_stale_checks(self) -> bool:
        """Return whether there are checks and something has changed since they ran."""
        return self._has_unchecked_changes and any(goal.check for goal in self._goals)

    def check(
        self, run: Callable[[str], ProcessExit], labels: Callable[[], ResultMeta] = ResultMeta
    ) -> Iterator[events.Checked]:
        """Run the checks and yield each outcome. `run` raises CommandError if a check cannot run.

        `labels` returns the labels of the output of the program that just ran.
        """
        for number, goal in enumerate(self._goals):
            if goal.check is None:
                continue
            try:
                end = run(goal.check)
            except CommandError as error:
                yield events.Checked(goal=number, met=False, output=str(error))
                continue
            limit = f"stopped at the limit of {end.limit}" if end.limit else ""
            output = end.output.decode("utf-8", "replace").strip()
            tail = output if len(output) <= MAX_OUTPUT_CHARACTERS else f"…{output[-MAX_OUTPUT_CHARACTERS:]}"
            text = f"{limit or end.signal or f'exit status {end.status}'}. {tail}".strip()
            data = labels().to_json() if end.status != 0 and end.output.strip() else {}
            yield events.Checked(goal=number, met=end.status == 0, output=text, data=data)

    def change_notice(self, event: events.Checked, quote: Callable[[str], str] = str) -> str:
        """Describe the news in an outcome that is not added yet: a changed status or check output.

        `quote` puts marks around program output, which may come from outside.
        """
        was_met = self.met.get(event.goal)
        if event.met == was_met and (event.met or event.output == self._outputs[event.goal]):
            return ""
        goal = f"Goal {event.goal + 1} ({self._goals[event.goal].text})"
        if event.met:
            return f"{goal} is met now, as its check says."
        change = "was met and is not any more since this step" if was_met else "is not met yet"
        return f"{goal} {change}. Its check says: {quote(event.output)}"

    def failing(self, quote: Callable[[str], str] = str) -> str:
        """Name the goals with failing checks in one line, with any output that needs no marks."""
        sentences = []
        for number, met in self.met.items():
            if not met:
                output = self._outputs[number]
                detail = f": {' '.join(output.split())}" if quote(output) == output else "."
                sentences.append(f"The check of goal {number + 1} fails{detail}")
        return " ".join(sentences)

    def unmet(self, quote: Callable[[str], str] = str, abandoned: Collection[int] = ()) -> str:
        """Explain why the run may not end yet, with the checks' output, quoted as in `change_notice`.

        Returns '' if all passed except the goals in `abandoned` (counted from 0).
        """
        lines = [
            f"Goal {number + 1} ({goal.text}) is not met: its check `{goal.check}` says: {quote(self._outputs[number])}"
            for number, goal in enumerate(self._goals)
            if self.met.get(number) is False and number not in abandoned
        ]
        return "\n".join(["Not ended yet.", *lines, "Do what is missing, then finish."]) if lines else ""

    def _user_spoke(self) -> None:
        self.was_warned = self.is_end_rejected = False
        self.verdicts = ()
        self._newest_start = self._rejected_end = ("", "")

    def _discard_drafts(self) -> None:
        """Discard the results of drafts and failed tests: the user has said more or taken back work."""
        self.draft_result = self.draft_result and replace(self.draft_result, agree=0, failed=())

    def _add_returned(self, event: events.Returned) -> None:
        meta, call = event.meta, self._newest_call
        spec = self._specs.get(call.name) if call else None
        effects = spec.effects if spec else None
        self.is_end_rejected = self.is_end_rejected or meta.put_off
        self._rejected_end = self._newest_start if meta.put_off else ("", "")
        if meta.put_off:
            self.was_warned = self.was_warned or bool(self.verdicts)
        elif meta.products or spec is None or spec.risk != "read":
            self.verdicts = ()
        runs = effects is not None and effects.runs_programs
        if meta.products and not runs:
            self.program_runs.clear()
        if runs and call is not None:
            self.program_runs.append((call, event))
            self.is_end_rejected = self.is_end_rejected and (meta.failed or not event.ok)
        if event.ok and call is not None:
            if not meta.failed:
                self.known_paths.update(self._named_paths(call, spec))
            if effects is not None and effects.loads_commands:
                self.loaded_groups.update(value for value in call.args.values() if isinstance(value, str))
        self._note_changes(meta.products, failed=meta.failed)
        self.idle_commands = 0 if meta.put_off else self.idle_commands

    def _note_changes(self, paths: tuple[str, ...], *, failed: bool) -> None:
        self.changed.update(dict.fromkeys(paths))
        self.known_paths.update(paths)
        (self.failed_paths.update if failed else self.failed_paths.difference_update)(paths)
        self.idle_commands = 0 if paths else self.idle_commands + 1
        if paths:
            self.has_repeat = self.is_end_rejected = False
            self._has_unchecked_changes = True
            self._recent_calls.clear()

    def _named_paths(self, call: Call, spec: CommandSpec | None) -> Iterator[str]:
        """Yield the paths named in a call: its path arguments, and the words of a shell line."""
        for parameter in spec.parameters if spec is not None else ():
            value = call.args.get(parameter.name)
            if isinstance(value, str) and parameter.meaning in ("path", "shell"):
                for word in [value] if parameter.meaning == "path" else _WORD_SEPARATORS.split(value):
                    yield posixpath.normpath(word.removeprefix(self._root).removeprefix("/workspace/"))


class Continuation:
    """Fold events into the point from which the run continues, also after a resume.

    Attributes:
        step: the newest step.
        unusable_replies: how many consecutive replies of this process were unusable.
        open_call: the requested call, until it is refused or done.
        has_started: whether that call has started, so that its effects are unknown.
        further_calls: those of a reply that are still to be run. They are dropped if the user speaks or drops a memory
            behind them, or if the model has to check whether any of them ran.
        open_result: the result of a step that was not finished.
        has_memories: whether the run stored a memory.
        newest_memories: the highest id of its memories, by store.
        facts_answer: the model's answer with the facts of the run, after its end.
        facts_stored: how many of these facts were stored.
    """

    def __init__(self) -> None:
        self.step = 0
        self.unusable_replies = 0
        self.open_call: Call | None = None
        self.has_started = False
        self.further_calls: tuple[str, ...] = ()
        self.open_result: events.Returned | None = None
        self.has_memories = False
        self.newest_memories: dict[str, int] = {}
        self.facts_answer: events.Answered | None = None
        self.facts_stored = 0

    def add(self, event: events.Event) -> None:
        self.step = max(self.step, event.step)
        match event:
            case events.Resumed():
                self.unusable_replies = 0
            case events.Thought():
                self.open_call, self.has_started, self.open_result = event.call, False, None
                self.unusable_replies, self.facts_answer = 0, None
                self.further_calls = event.more or self.further_calls[1:]
            case events.Rejected():
                self.open_call, self.has_started, self.open_result = None, False, None
                self.unusable_replies = 0 if event.off else self.unusable_replies + 1  # 0: left to Standstill
                self.further_calls = self.further_calls[1:]
            case events.Decided(allowed=True):
                if self.open_call and event.args is not None:
                    self.open_call = replace(self.open_call, args=event.args)
            case events.Decided():
                self.open_call, self.has_started = None, False
            case events.Started():
                self.has_started = True
            case events.Returned():
                self.open_call, self.has_started, self.open_result = None, False, event
                self.further_calls = () if event.needs_review else self.further_calls
            case events.Prompted() | events.Ended():
                self.open_result = None
            case events.Feedback() | events.Dropped(ends_reply=True) | events.Undone():
                self.further_calls = ()
            case events.Rewound() | events.Forked():
                self.further_calls, self.open_result = (), None
            case events.Answered(purpose=purpose) if purpose == PURPOSE:
                self.facts_answer, self.facts_stored = event, 0
            case events.Remembered():
                self.has_memories, self.facts_stored = True, self.facts_stored + 1
                newest = self.newest_memories.get(event.store, 0)
                self.newest_memories[event.store] = max(newest, event.memory)
