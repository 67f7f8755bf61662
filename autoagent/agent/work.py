"""The work of a run so far: the files it handled, the programs it ran, and the verifier's verdicts."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from autoagent.core.commands import Call, CommandSpec
from autoagent.core.events import (
    AgentMessage,
    Changed,
    Decided,
    Event,
    Feedback,
    Resumed,
    Returned,
    RunStarted,
    Snapshot,
    Started,
    Undone,
    Verified,
)
from autoagent.core.task import GoalVerdict

_CALLS_KEPT = 8  # that the next one is compared with
_OUTPUTS_KEPT = 5
_WORDS = re.compile(r"[\s'\"|&;()<>=]+")  # what separates the words of a shell line


class Work:
    """Add every event in order.

    Attributes:
        changed: workspace paths that the run has changed, in order, as the keys.
        failed: those of them that were changed by a program that failed, or hold its code.
        handled: workspace paths that the run has read or changed.
        idle: commands since the newest change.
        again: whether one of these was given twice.
        base: the snapshot of the workspace when work on the present goals began, or '' if there is none yet.
        ran: the calls that ran programs since files were last changed by other means, with their results.
        put_off: whether an end was put off, and since then nothing was changed and no program has succeeded.
        verdicts: the newest verdicts of the verifier, unless something has happened since. One for each judged goal.
        told: whether the agent was told that the verifier finds a goal unmet, since the user last spoke.
        loaded: the groups of commands that the agent has loaded.
    """

    NOT_KEPT = ("_specs",)  # in a checkpoint

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self.changed: dict[str, None] = {}
        self.failed: set[str] = set()
        self.handled: set[str] = set()
        self.idle = 0
        self.again = False
        self.base = ""
        self.ran: deque[tuple[Call, Returned]] = deque(maxlen=_OUTPUTS_KEPT)
        self.put_off = False
        self.verdicts: tuple[GoalVerdict, ...] = ()
        self.told = False
        self.loaded: set[str] = set()
        self._root = ""
        self._tree = ""
        self._goals: object = None
        self._call: Call | None = None
        self._since: deque[str] = deque(maxlen=_CALLS_KEPT)  # the newest calls without a change
        self._begun = ("", "")  # the newest command that began, and who allowed it
        self._by = ""
        self._ending = ("", "")  # the same for an end that was put off, if nothing has happened since

    def add(self, event: Event) -> None:
        """Take up one event."""
        if isinstance(event, RunStarted):
            self._begin(event)
        if isinstance(event, (Feedback, Resumed, Changed, Undone)):
            self.told = self.put_off = False
            self.verdicts = ()
            self._begun = self._ending = ("", "")
        match event:
            case Decided(allowed=True):
                self._by = event.by
            case Started():
                self._call = event.call
                self._begun = (event.call.name, self._by)
                self.again = self.again or event.call.key in self._since
                self._since.append(event.call.key)
            case Snapshot():
                self._tree = event.tree
                self.base = self.base or event.tree
            case Verified():
                self.verdicts = event.verdicts
            case Returned():
                self._returned(event)
            case AgentMessage():
                self._change(event.meta.changed, failed=event.meta.failed)

    def allowed_by(self, call: Call) -> str:
        """Return who allowed this end of the run before it was put off, or '' if anything has happened since."""
        name, by = self._ending
        return by if call.name == name else ""

    def loaded_of(self, specs: Sequence[CommandSpec]) -> list[CommandSpec]:
        """Return the commands that are offered from the start, or whose group is loaded."""
        return [spec for spec in specs if not spec.group or spec.group in self.loaded]

    def _begin(self, event: RunStarted) -> None:
        self._root = event.workspace.rstrip("/") + "/"
        if event.task.goals != self._goals:
            self._goals, self.base = event.task.goals, self._tree

    def _returned(self, event: Returned) -> None:
        meta, call = event.meta, self._call
        spec = self._specs.get(call.name) if call else None
        self.put_off = self.put_off or meta.put_off
        self._ending = self._begun if meta.put_off else ("", "")
        if meta.put_off:
            self.told = self.told or bool(self.verdicts)
        elif meta.changed or spec is None or spec.risk != "read":
            self.verdicts = ()
        runs = call is not None and spec is not None and spec.effects is not None and spec.effects.runs_programs
        if meta.changed and not runs:
            self.ran.clear()
        if runs and call is not None:
            self.ran.append((call, event))
            self.put_off = self.put_off and (meta.failed or not event.ok)
        if event.ok and not meta.failed and call is not None:
            self.handled.update(self._named(call, spec))
        if event.ok and spec is not None and spec.effects is not None and spec.effects.loads_commands and call:
            self.loaded.update(value for value in call.args.values() if isinstance(value, str))
        self._change(meta.changed, failed=meta.failed)

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
