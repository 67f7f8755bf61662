"""The work of a run so far: its files and programs, its goals, and the point at which a resumed run goes on."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from autoagent.core.commands import Call, CommandSpec, ResultMeta
from autoagent.core.errors import CommandError
from autoagent.core.events import (
    AgentMessage,
    Answered,
    Changed,
    Checked,
    Decided,
    Dropped,
    Ended,
    Event,
    Feedback,
    Forked,
    Prompted,
    Rejected,
    Remembered,
    Resumed,
    Returned,
    Rewound,
    RunStarted,
    Snapshot,
    Started,
    Thought,
    Undone,
    Verified,
)
from autoagent.core.services import ProcessExit
from autoagent.core.task import Goal, GoalVerdict
from autoagent.text.facts import PURPOSE

CHECK_SHOWN = 1200  # characters of what a check printed, its end
_CALLS_KEPT = 8  # that the next one is compared with
_OUTPUTS_KEPT = 5
_WORDS = re.compile(r"[\s'\"|&;()<>=]+")  # what separates the words of a shell line


class Work:
    """Add every event in order.

    Attributes:
        changed: workspace paths that the run has changed, in order, as the keys.
        failed: those of them that were changed by a program that failed, or hold its code.
        handled: workspace paths that the run has read or changed.
        idle: commands since the newest change, or since an end was put off.
        again: whether one of these was given twice.
        tree: the newest snapshot of the workspace.
        before: the newest snapshot when the last command began.
        base: the snapshot when work on the present goals began, or '' if there is none yet.
        ran: the calls that ran programs since files were last changed by other means, with their results.
        loaded: the groups of commands that the agent has loaded.

        met: of each goal, counted from 0, whether its check passed. Unknown once the user takes the workspace back.
        put_off: whether an end was put off, and since then nothing was changed and no program has succeeded.
        verdicts: the newest verdicts of the verifier, unless something has happened since. One for each judged goal.
        told: whether the agent was told that the verifier finds a goal unmet, since the user last spoke.

        step: the newest step.
        unusable: the unusable replies of this process since the last usable one.
        call: the call that was asked for and is neither refused nor done.
        started: whether it began to run, so that nobody can know whether it did.
        waiting: the further commands of a reply, until the user speaks or drops a memory that they were asked for
            with, or the model has to look whether one of them has run.
        returned: a result after which the step was not finished: remembered, and the run ended if it says so.
        remembers: whether something of the run was kept in the memory.
        newest_memory: the highest id of that, by store.
        distilled: the facts of the run, once it has come to its end.
        kept: how many of the facts were kept.
    """

    NOT_KEPT = ("_specs",)  # in a checkpoint

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self.changed: dict[str, None] = {}
        self.failed: set[str] = set()
        self.handled: set[str] = set()
        self.idle = 0
        self.again = False
        self.tree = self.before = self.base = ""
        self.ran: deque[tuple[Call, Returned]] = deque(maxlen=_OUTPUTS_KEPT)
        self.loaded: set[str] = set()
        self.met: dict[int, bool] = {}
        self.put_off = False
        self.verdicts: tuple[GoalVerdict, ...] = ()
        self.told = False
        self.step = 0
        self.unusable = 0
        self.call: Call | None = None
        self.started = False
        self.waiting: tuple[str, ...] = ()
        self.returned: Returned | None = None
        self.remembers = False
        self.newest_memory: dict[str, int] = {}
        self.distilled: Answered | None = None
        self.kept = 0
        self._root = ""
        self._goals: tuple[Goal, ...] = ()
        self._outputs: dict[int, str] = {}  # of the checks
        self._unchecked = False  # something has changed since the checks were run
        self._ran: Call | None = None  # the newest that began
        self._since: deque[str] = deque(maxlen=_CALLS_KEPT)  # the newest calls without a change
        self._begun = ("", "")  # the newest command that began, and who allowed it
        self._by = ""
        self._ending = ("", "")  # the same for an end that was put off, if nothing has happened since

    def add(self, event: Event) -> None:
        """Take up one event."""
        self.step = max(self.step, event.step)
        match event:
            case RunStarted():
                self._root = event.workspace.rstrip("/") + "/"
                if event.task.goals != self._goals:
                    self._goals, self.base, self.met = event.task.goals, self.tree, {}
                if isinstance(event, Resumed):
                    self.unusable = 0
                if isinstance(event, (Resumed, Changed)):
                    self._user_spoke()
            case Thought():
                self.call, self.started, self.returned, self.unusable = event.call, False, None, 0
                self.distilled = None
                self.waiting = event.more or self.waiting[1:]
            case Rejected():
                self.call, self.started, self.returned = None, False, None
                self.unusable = 0 if event.off else self.unusable + 1  # well formed: the standstill ends it
                self.waiting = self.waiting[1:]
            case Decided(allowed=True):
                self._by = event.by
                if self.call and event.args is not None:
                    self.call = replace(self.call, args=event.args)
            case Decided():
                self.call, self.started = None, False
            case Started():
                self.started, self.before, self._ran = True, self.tree, event.call
                self._begun = (event.call.name, self._by)
                self.again = self.again or event.call.key in self._since
                self._since.append(event.call.key)
            case Snapshot():
                self.tree = event.tree
                self.base = self.base or event.tree
            case Returned():
                self.call, self.started, self.returned = None, False, event
                self._returned(event)
            case Prompted() | Ended():
                self.returned = None
            case Feedback():
                self._user_spoke()
                self.waiting = ()
            case Dropped():
                self.waiting = ()
            case Undone():
                self._user_spoke()
                self.waiting, self.met, self._unchecked = (), {}, True
            case Rewound():
                self.waiting, self.returned, self.met, self._unchecked = (), None, {}, True
            case Forked():
                self.waiting, self.returned = (), None
            case AgentMessage():
                self._change(event.meta.products, failed=event.meta.failed)
            case Checked():
                self.met[event.goal], self._outputs[event.goal] = event.met, event.output
                self._unchecked = False
            case Verified():
                self.verdicts = event.verdicts
            case Answered(purpose=purpose) if purpose == PURPOSE:
                self.distilled, self.kept = event, 0
            case Remembered():
                self.remembers, self.kept = True, self.kept + 1
                newest = self.newest_memory.get(event.store, 0)
                self.newest_memory[event.store] = max(newest, event.memory)

    def doubt(self) -> None:
        """Count the open call as begun: the event that is missing may have said so."""
        if not self.started:
            self.started, self.before = True, self.tree

    def allowed_by(self, call: Call) -> str:
        """Return who allowed this end of the run before it was put off, or '' if anything has happened since."""
        name, by = self._ending
        return by if call.name == name else ""

    def loaded_of(self, specs: Sequence[CommandSpec]) -> list[CommandSpec]:
        """Return the commands that are offered from the start, or whose group is loaded."""
        return [spec for spec in specs if not spec.group or spec.group in self.loaded]

    # Goals: a check is a shell command of the user's that exits 0 once its goal is met --------------------------------

    @property
    def stale(self) -> bool:
        """Whether there are checks, and something has changed since they were run."""
        return self._unchecked and any(goal.check for goal in self._goals)

    def check(
        self, run: Callable[[str], ProcessExit], labels: Callable[[], ResultMeta] = ResultMeta
    ) -> Iterator[Checked]:
        """Run the checks and yield the outcome of each. `run` raises CommandError if a check cannot be run.

        `labels` returns the labels of the output of a program that has just run.
        """
        for number, goal in enumerate(self._goals):
            if goal.check is None:
                continue
            try:
                end = run(goal.check)
            except CommandError as error:
                yield Checked(goal=number, met=False, output=str(error))
                continue
            how = (end.limit and f"stopped at the limit of {end.limit}") or end.signal or f"exit status {end.status}"
            printed = end.output.decode("utf-8", "replace").strip()
            cut = printed if len(printed) <= CHECK_SHOWN else f"…{printed[-CHECK_SHOWN:]}"
            data = labels().to_json() if end.status != 0 and end.output.strip() else {}
            yield Checked(goal=number, met=end.status == 0, output=f"{how}. {cut}".strip(), data=data)

    def change_notice(self, event: Checked, quote: Callable[[str], str] = str) -> str:
        """Describe the news in an outcome not yet added: a goal whose state changed, or whose check printed other text.

        `quote` puts marks around the output of programs, which may come from outside.
        """
        before = self.met.get(event.goal)
        if event.met == before and (event.met or event.output == self._outputs[event.goal]):
            return ""
        named = f"Goal {event.goal + 1} ({self._goals[event.goal].text})"
        if event.met:
            return f"{named} is met now, as its check says."
        how = "was met and is not any more since this step" if before else "is not met yet"
        return f"{named} {how}. Its check says: {quote(event.output)}"

    def failing(self, quote: Callable[[str], str] = str) -> str:
        """Name in one line the goals whose checks fail, with their output if it needs no marks."""
        outputs = {number: self._outputs[number] for number, met in self.met.items() if not met}
        said = {number: f": {told}" if quote(told) == told else "." for number, told in outputs.items()}
        return " ".join(
            f"The check of goal {number + 1} fails{' '.join(what.split())}" for number, what in said.items()
        )

    def unmet(self, quote: Callable[[str], str] = str, given_up: Collection[int] = ()) -> str:
        """Explain why the run may not end yet, with the output of the checks, quoted as in `change_notice`.

        '' if all passed, not counting the goals `given_up`, by numbers from 0.
        """
        lines = [
            f"Goal {number + 1} ({goal.text}) is not met: its check `{goal.check}` says: {quote(self._outputs[number])}"
            for number, goal in enumerate(self._goals)
            if self.met.get(number) is False and number not in given_up
        ]
        return "\n".join(["Not ended yet.", *lines, "Do what is missing, then finish."]) if lines else ""

    # ------------------------------------------------------------------------------------------------------------------

    def _user_spoke(self) -> None:
        self.told = self.put_off = False
        self.verdicts = ()
        self._begun = self._ending = ("", "")

    def _returned(self, event: Returned) -> None:
        meta, call = event.meta, self._ran
        if event.wants_a_look:
            self.waiting = ()
        self._unchecked = self._unchecked or bool(meta.products)
        spec = self._specs.get(call.name) if call else None
        effects = spec.effects if spec else None
        self.put_off = self.put_off or meta.put_off
        self._ending = self._begun if meta.put_off else ("", "")
        if meta.put_off:
            self.told = self.told or bool(self.verdicts)
        elif meta.products or spec is None or spec.risk != "read":
            self.verdicts = ()
        runs = effects is not None and effects.runs_programs
        if meta.products and not runs:
            self.ran.clear()
        if runs and call is not None:
            self.ran.append((call, event))
            self.put_off = self.put_off and (meta.failed or not event.ok)
        if event.ok and call is not None:
            if not meta.failed:
                self.handled.update(self._named(call, spec))
            if effects is not None and effects.loads_commands:
                self.loaded.update(value for value in call.args.values() if isinstance(value, str))
        self._change(meta.products, failed=meta.failed)
        self.idle = 0 if meta.put_off else self.idle

    def _change(self, paths: tuple[str, ...], *, failed: bool) -> None:
        self.changed.update(dict.fromkeys(paths))
        self.handled.update(paths)
        (self.failed.update if failed else self.failed.difference_update)(paths)
        self.idle = 0 if paths else self.idle + 1
        if paths:
            self.again = self.put_off = False
            self._since.clear()

    def _named(self, call: Call, spec: CommandSpec | None) -> Iterator[str]:
        """Yield the paths that a call names: its arguments that are paths, and the words of a shell line."""
        for parameter in spec.parameters if spec is not None else ():
            value = call.args.get(parameter.name)
            if isinstance(value, str) and parameter.meaning in ("path", "shell"):
                for word in [value] if parameter.meaning == "path" else _WORDS.split(value):
                    yield posixpath.normpath(word.removeprefix(self._root).removeprefix("/workspace/"))
