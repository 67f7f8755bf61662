"""Describe the workspace for a small model: its files, the contents of those it wrote, and matches of the goals' words.

Without this, small models write files again or assume that a file holds the intended text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from autoagent.agent.goal_words import describe_lines, mentioned_groups, mentioned_names
from autoagent.agent.state import State
from autoagent.core.commands import CommandSpec, Parameter
from autoagent.core.errors import CommandError
from autoagent.core.frozen import dataclass
from autoagent.text import code_block
from autoagent.text.file_formats import format_error
from autoagent.workspace.gate import MAX_COPIED_BYTES, NOT_ENTERED, WorkspaceEntry, shown

_MAX_NAMES = 20  # files and folders listed
_MAX_ENTRIES = 100  # entries to choose these from
_MAX_TEXTS = 3  # files whose text is shown, the last changed by the run
_MAX_TEXT_BYTES = 300
_MAX_SEARCHED_FILES = 10  # for the goals' words
_MAX_SEARCHED_BYTES = 50_000
_MAX_MENTIONED_FILES = 6  # named by the goals, read at the beginning
_SPARE_READS = 2  # spare commands for reading them, as one may fail
_MAX_IDLE_COMMANDS = 5  # consecutive commands without a change, after which an agent may end despite a fault


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The state of the workspace, which decides what commands make sense.

    Attributes:
        names: all workspace paths, or None if unknown or too many to bind arguments to.
        text: the description for the prompt, without names from outside.
        is_faulty: whether there is a fault to fix: a check fails, a changed file does not match its type, or an end
            was rejected and nothing has changed since.
        has_repeat: whether there is a fault, and a call was repeated with nothing changed in between.
        has_unread_parts: whether part of a result is omitted and the agent knows how to read it.
        unread: unread files that the goals mention. At first, the agent may only read these.
        goals: the number of goals.
        is_settled: whether a draft that others agree with was carried out, so that the run only has to end.
    """

    names: tuple[str, ...] | None = None
    text: str = ""
    is_faulty: bool = False
    has_repeat: bool = False
    has_unread_parts: bool = True
    unread: tuple[str, ...] = ()
    goals: int = 1
    is_settled: bool = False

    def bind(self, specs: Sequence[CommandSpec]) -> list[CommandSpec]:
        """Return the commands that make sense here, or else all. Bind arguments for existing files to their names."""
        possible = [self._bind_arguments(spec.brief()) for spec in specs if not self._excludes(spec)]
        return possible or list(specs)

    def _excludes(self, spec: CommandSpec) -> bool:
        ends_run = spec.effects is not None and spec.effects.ends_run
        if (self.is_settled and not ends_run) or (ends_run and (self.is_faulty or self.unread)):
            return True
        if self.unread and spec.risk != "read":  # a small model invents the contents of unread files
            return True
        if self.has_repeat and not changes_files(spec):
            return True
        if not self.has_unread_parts and spec.effects is not None and spec.effects.pages_results:
            return True
        return any(p.existing and p.required and self._names_for(p) == () for p in spec.parameters)

    def _bind_arguments(self, spec: CommandSpec) -> CommandSpec:
        parameters = [replace(p, choices=self._names_for(p) or p.choices) for p in spec.parameters]
        if spec.effects is not None and spec.effects.ends_run:  # only existing goals can be given up
            numbers = {"type": "array", "items": {"type": "integer", "enum": list(range(1, self.goals + 1))}}
            list_of_numbers = ("array", "integer")
            parameters = [replace(p, schema=numbers) if (p.kind, p.item) == list_of_numbers else p for p in parameters]
        return replace(spec, parameters=tuple(parameters))

    def _names_for(self, parameter: Parameter) -> tuple[str, ...] | None:
        """Return the names that an argument may take, or None if it is unrestricted."""
        if not parameter.existing or self.names is None:
            return None
        return tuple(name for name in self.unread or self.names if name.endswith(parameter.suffix))


def changes_files(spec: CommandSpec) -> bool:
    """Return whether a command changes files named in its arguments."""
    return spec.risk == "write" and any(p.meaning in ("path", "entry") for p in spec.parameters)


def describe_workspace(state: State) -> Surroundings:
    """Describe the workspace in its present state."""
    try:
        entries = list(islice(state.tools.context.workspace.walk(".", NOT_ENTERED), _MAX_ENTRIES + 1))
    except CommandError:  # commands that need the folder will report the problem
        return Surroundings()
    work = state.work
    own_entries = [entry for entry in entries if not state.guard.tainted.source_of(entry.path)]
    names = [entry.path for entry in own_entries if entry.kind == "file"]
    newest = [  # a small model would write a failed program again unchanged
        path
        for path in reversed(work.changed)
        if state.guard.may_show(path) and not (path in work.failed_paths and code_block.is_code(path))
    ]
    malformed = [
        f"{shown(path)} {problem}."
        for path in newest[:_MAX_TEXTS]
        if (problem := format_error(path, _read_text(path, state, _MAX_SEARCHED_BYTES)))
    ]
    is_faulty = (
        bool(state.history.failing or malformed or work.is_end_rejected) and work.idle_commands < _MAX_IDLE_COMMANDS
    )
    texts = [(path, _read_text(path, state)) for path in newest[:_MAX_TEXTS]]
    goals = " ".join(goal.text for goal in state.start.task.goals)
    files = [entry for entry in own_entries if entry.kind == "file" and entry.size]
    mentioned = mentioned_names(goals, [entry.path for entry in files])[:_MAX_MENTIONED_FILES]
    unread = tuple(path for path in mentioned if path not in work.known_paths)
    groups = [f"{title}: {', '.join(map(shown, group))}." for title, group in mentioned_groups(goals, names).items()]
    matches = [*groups, *describe_lines(goals, _searchable_texts(own_entries, state))]
    contents = [f"{shown(path)} now holds:\n{text.rstrip()}" for path, text in texts if text]
    has_agreement = work.draft_result is not None and work.draft_result.agree > 0
    return Surroundings(
        names=tuple(entry.path for entry in entries) if len(entries) <= _MAX_ENTRIES else None,
        text="\n".join([_file_list(own_entries), *matches, *contents, *malformed]),
        is_faulty=is_faulty,
        has_repeat=is_faulty and work.has_repeat,
        has_unread_parts=state.history.mentions_paging,
        unread=unread if not work.changed and work.idle_commands < len(mentioned) + _SPARE_READS else (),
        goals=len(state.start.task.goals),
        is_settled=not is_faulty and has_agreement and work.idle_commands == 0 and bool(work.changed),
    )


def texts_for_drafts(entries: Sequence[WorkspaceEntry], state: State) -> dict[str, str]:
    """Return the texts by path of the files that the goals mention, or else of all; {} if one may not be shown."""
    names = [entry.path for entry in entries if entry.kind == "file" and entry.size]
    goals = " ".join(goal.text for goal in state.start.task.goals)
    mentioned = mentioned_names(goals, names) or names
    too_large = len(entries) > _MAX_ENTRIES or sum(entry.size for entry in entries) > MAX_COPIED_BYTES
    if too_large or len(mentioned) > _MAX_MENTIONED_FILES or any(map(state.guard.tainted.source_of, mentioned)):
        return {}
    texts = {path: _read_text(path, state, _MAX_SEARCHED_BYTES) for path in mentioned}
    return texts if all(texts.values()) else {}


def _file_list(entries: Sequence[WorkspaceEntry]) -> str:
    if not entries:
        return "In the workspace: nothing yet."
    names = []
    for entry in entries[:_MAX_NAMES]:
        name = shown(f"{entry.path}/" if entry.kind == "folder" else entry.path)
        names.append(f"{name} (empty)" if entry.kind == "file" and not entry.size else name)
    suffix = ", and more" if len(entries) > _MAX_NAMES else ""
    return f"In the workspace: {', '.join(names)}{suffix}."


def _searchable_texts(entries: Sequence[WorkspaceEntry], state: State) -> dict[str, str]:
    """Return the texts by path of files that the run did not write itself and that may be shown."""
    files = (entry.path for entry in entries if entry.kind == "file" and 0 < entry.size <= _MAX_SEARCHED_BYTES)
    others = (path for path in files if path not in state.work.changed and state.guard.may_show(path))
    texts = {path: _read_text(path, state, _MAX_SEARCHED_BYTES) for path in islice(others, _MAX_SEARCHED_FILES)}
    return {path: text for path, text in texts.items() if text}


def _read_text(path: str, state: State, max_bytes: int = _MAX_TEXT_BYTES) -> str:
    """Return the text of a file, or '' if it is missing, empty, not text, or larger than `max_bytes`."""
    try:
        data = state.tools.context.workspace.read(path, max_bytes + 1)
        text: str = state.log.masked(data.decode()) if len(data) <= max_bytes else ""
    except (CommandError, UnicodeDecodeError):
        return ""
    return text if text.strip() else ""
