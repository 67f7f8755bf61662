"""The workspace as a small model's prompts describe it: its files, the contents of those it wrote, and where the
goals' words occur in the others.

Without this, small models write files again, or believe that a file holds the text they meant to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from autoagent.agent.goal_words import groups_shown, lines_shown, names_meant
from autoagent.agent.state import State
from autoagent.core.commands import CommandSpec, Parameter
from autoagent.core.errors import CommandError
from autoagent.text import code_block
from autoagent.text.file_forms import form_error
from autoagent.workspace.gate import NOT_ENTERED, Workspace, WorkspaceEntry, shown

_NAMES_SHOWN = 20  # files and folders
_WALKED = 100  # of which they are taken
_TEXTS_SHOWN = 3  # the newest of the files that the run has changed
_TEXT_SHOWN = 300  # bytes of each
_SEARCHED = 10  # files, for the words of the goals
_SEARCHED_SIZE = 50_000  # bytes of the largest of them
_MEANT = 6  # files that are read at the beginning, as the goals name them
_LOOKS = 2  # commands beside these, as one may fail
_IDLE = 5  # commands in a row without a change, after which an agent may end in spite of a fault


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The workspace as it is now, and which commands make sense in it.

    Attributes:
        names: all paths in the workspace, or None if unknown, or too many to bind arguments to.
        text: for the prompt. Without names from outside.
        faulty: whether a check fails, a changed file is not of the type that its name says, or an end was put off and
            nothing has changed since; and the agent has not stopped working.
        again: whether it is faulty, and a call was repeated with nothing changed in between.
        cut: whether a part of a result is left out, and the agent is told how to read it.
        unread: the files that the goals name, or mean by an ending, and the run has not read yet. It may do nothing
            but read these, at its beginning.
        goals: how many there are.
    """

    names: tuple[str, ...] | None = None
    text: str = ""
    faulty: bool = False
    again: bool = False
    cut: bool = True
    unread: tuple[str, ...] = ()
    goals: int = 1

    def bind(self, specs: Sequence[CommandSpec]) -> list[CommandSpec]:
        """Return the commands that make sense here, or all. Arguments for existing files take only their names."""
        fitting = [self._bound(spec.in_brief()) for spec in specs if not self._rules_out(spec)]
        return fitting or list(specs)

    def _rules_out(self, spec: CommandSpec) -> bool:
        if (self.faulty or self.unread) and spec.effects is not None and spec.effects.ends_run:
            return True
        if self.unread and spec.risk != "read":  # a small model makes up what a file holds
            return True
        if self.again and not changes_files(spec):
            return True
        if not self.cut and spec.effects is not None and spec.effects.pages_results:
            return True
        return any(p.existing and p.required and self._names_for(p) == () for p in spec.parameters)

    def _bound(self, spec: CommandSpec) -> CommandSpec:
        bound = [replace(p, choices=self._names_for(p) or p.choices) for p in spec.parameters]
        if spec.effects is not None and spec.effects.ends_run:  # the goals given up are goals that there are
            numbers = {"type": "array", "items": {"type": "integer", "enum": list(range(1, self.goals + 1))}}
            bound = [replace(p, schema=numbers) if (p.kind, p.item) == ("array", "integer") else p for p in bound]
        return replace(spec, parameters=tuple(bound))

    def _names_for(self, parameter: Parameter) -> tuple[str, ...] | None:
        """Return the names that an argument can take, or None if it can take others."""
        if not parameter.existing or self.names is None:
            return None
        return tuple(name for name in self.unread or self.names if name.endswith(parameter.suffix))


def changes_files(spec: CommandSpec) -> bool:
    """Return whether a command is there to change files that it names."""
    return spec.risk == "write" and any(p.meaning in ("path", "entry") for p in spec.parameters)


def look_around(workspace: Workspace, state: State) -> Surroundings:
    """Look at the workspace as it is now."""
    try:
        entries = list(islice(workspace.walk(".", NOT_ENTERED), _WALKED + 1))
    except CommandError:  # the commands that need the folder say what is wrong with it
        return Surroundings()
    work = state.work
    own = [entry for entry in entries if not state.guard.source_of(entry.path)]
    names = [entry.path for entry in own if entry.kind == "file"]
    newest = [  # a small model would write a program that failed again as it is
        path
        for path in reversed(work.changed)
        if state.guard.may_show(path) and not (path in work.failed and code_block.is_code(path))
    ]
    malformed = list(_malformed(newest[:_TEXTS_SHOWN], workspace, state))
    faulty = bool(state.history.failing or malformed or work.put_off) and work.idle < _IDLE
    texts = [(path, _text_of(path, workspace, state)) for path in newest[:_TEXTS_SHOWN]]
    asked = " ".join(goal.text for goal in state.start.task.goals)
    sized = [entry for entry in own if entry.kind == "file" and entry.size]
    meant = names_meant(asked, [entry.path for entry in sized])[:_MEANT]
    unread = tuple(path for path in meant if path not in work.handled)
    found = [*groups_shown(asked, names), *lines_shown(asked, _readable(own, workspace, state))]
    return Surroundings(
        tuple(entry.path for entry in entries) if len(entries) <= _WALKED else None,
        "\n".join([_listed(own), *found, *(f"{shown(p)} now holds:\n{t.rstrip()}" for p, t in texts if t), *malformed]),
        faulty,
        faulty and work.again,
        state.history.reads_on,
        unread if not work.changed and work.idle < len(meant) + _LOOKS else (),
        len(state.start.task.goals),
    )


def _listed(entries: Sequence[WorkspaceEntry]) -> str:
    if not entries:
        return "In the workspace: nothing yet."
    names = [_as_listed(entry) for entry in entries[:_NAMES_SHOWN]]
    more = ", and more" if len(entries) > _NAMES_SHOWN else ""
    return f"In the workspace: {', '.join(names)}{more}."


def _as_listed(entry: WorkspaceEntry) -> str:
    name = shown(f"{entry.path}/" if entry.kind == "folder" else entry.path)
    return f"{name} (empty)" if entry.kind == "file" and not entry.size else name


def _readable(entries: Sequence[WorkspaceEntry], workspace: Workspace, state: State) -> dict[str, str]:
    """Return the texts that the run did not write itself and may be shown, by path."""
    files = (entry.path for entry in entries if entry.kind == "file" and 0 < entry.size <= _SEARCHED_SIZE)
    others = (path for path in files if path not in state.work.changed and state.guard.may_show(path))
    texts = {path: _text_of(path, workspace, state, _SEARCHED_SIZE) for path in islice(others, _SEARCHED)}
    return {path: text for path, text in texts.items() if text}


def _malformed(paths: Iterable[str], workspace: Workspace, state: State) -> Iterator[str]:
    """Yield a line for each file that is not in the form its name promises."""
    for path in paths:
        if wrong := form_error(path, _text_of(path, workspace, state, _SEARCHED_SIZE)):
            yield f"{shown(path)} {wrong}."


def _text_of(path: str, workspace: Workspace, state: State, most: int = _TEXT_SHOWN) -> str:
    """Return the text of a file, or '' if it is gone, empty, not text, or larger than `most` bytes."""
    try:
        data = workspace.read(path, most + 1)
        text: str = state.log.masked(data.decode()) if len(data) <= most else ""
    except (CommandError, UnicodeDecodeError):
        return ""
    return text if text.strip() else ""
