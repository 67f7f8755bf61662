"""What a small model is told of its workspace in each prompt: which files lie there, what its own hold now, and where
the goals' words stand in the others.

It would otherwise write them again, or take what it meant to write for what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from autoagent.core.commands import CODE, CommandSpec, Parameter
from autoagent.core.errors import CommandError
from autoagent.runs.final_review import FinalReview
from autoagent.steps.goal_words import endings_shown, left_to_delete, left_to_move, lines_shown, want_change
from autoagent.steps.run_state import RunState
from autoagent.text import code_block
from autoagent.text.file_forms import form_error
from autoagent.text.named_files import named_files
from autoagent.workspace.gate import NOT_ENTERED, Workspace, WorkspaceEntry, shown

_NAMES_SHOWN = 20  # files and folders
_WALKED = 100  # of which they are taken
_TEXTS_SHOWN = 3  # the newest of the files that the run has changed
_TEXT_SHOWN = 300  # bytes of each
_SEARCHED = 10  # files, for the words of the goals
_SEARCHED_SIZE = 50_000  # bytes of the largest of them
_LOOKS = 3  # commands at the beginning, among which it is to read what the goals name
_IDLE = 5  # commands in a row without a change, after which an agent may end with a file missing


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is there now.

    Attributes:
        names: of all that lies in the workspace; None if unknown, or too much to bind arguments to.
        text: for the prompt; without names from outside.
        unfinished: whether a file that the goals name is still missing, or one that they want deleted or moved still
            there, or one that was changed is not in the form its name promises, or nothing is changed where they want a
            change, or a check of theirs fails; and the agent has been at work until now.
        untouched: whether the goals name files, and the run has changed none.
        again: whether it is unfinished, and a call was made for a second time, with nothing changed in between.
        cut: whether a part of a result is left out, and the agent is told how to read it.
        asked: the goals, in lower case.
        unread: whether the run has begun and has not yet read the files that the goals name.
        left: the names of files that the goals want deleted and that are still there.
        program: whether a program that the goals name is not written yet.
    """

    names: tuple[str, ...] | None = None
    text: str = ""
    unfinished: bool = False
    untouched: bool = False
    again: bool = False
    cut: bool = True
    asked: str = ""
    unread: bool = False
    left: tuple[str, ...] = ()
    program: bool = False

    def bind(self, specs: Sequence[CommandSpec]) -> list[CommandSpec]:
        """Return the commands that make sense here, all if none does; where something
        must be there already, they take only the names of what is.
        """
        fitting = [self._bound(spec.in_brief()) for spec in specs if not self._rules_out(spec)]
        return fitting or list(specs)

    def advice(self, specs: Sequence[CommandSpec]) -> str:
        """Return what the commands that suit the goals say of their use, until all is there that the goals name.

        It is not for goals that name a program: that is to be written, not run.
        """
        if not (self.unfinished or self.untouched) or any(map(code_block.is_code, named_files(self.asked))):
            return ""
        return " ".join(spec.advice for spec in specs if spec.advice and spec.suits(self.asked))

    def _rules_out(self, spec: CommandSpec) -> bool:
        if self.unfinished and _ends(spec):
            return True
        if (self.unfinished or self.untouched) and spec.always_offered and spec.keywords and not spec.suits(self.asked):
            return True  # a small model notes what it has to do, and then looks for it in its memory
        if self.unread and _takes_for_known(spec):
            return True
        if self.program and any(parameter.code == CODE for parameter in spec.parameters):
            return True  # it would run the program instead of writing it
        if self.again and not _changes_files(spec):
            return True
        if not self.cut and spec.effects is not None and spec.effects.pages_results:
            return True
        return any(p.existing and p.required and self._names_for(p) == () for p in spec.parameters)

    def _bound(self, spec: CommandSpec) -> CommandSpec:
        if self.left and spec.risk == "irreversible":
            return replace(
                spec, parameters=tuple(replace(p, choices=self.left) if p.existing else p for p in spec.parameters)
            )
        return replace(
            spec, parameters=tuple(replace(p, choices=self._names_for(p) or p.choices) for p in spec.parameters)
        )

    def _names_for(self, parameter: Parameter) -> tuple[str, ...] | None:
        """Return the names that an argument can take; None if it can take others."""
        if not parameter.existing or self.names is None:
            return None
        return tuple(name for name in self.names if name.endswith(parameter.suffix))


def _ends(spec: CommandSpec) -> bool:
    return spec.effects is not None and spec.effects.ends_run


def _takes_for_known(spec: CommandSpec) -> bool:
    """Whether it writes what may hang on a file that was not read: a small model makes up what that holds."""
    return _changes_files(spec) and all(p.meaning != "entry" for p in spec.parameters)


def _changes_files(spec: CommandSpec) -> bool:
    return spec.risk == "write" and any(p.meaning in ("path", "entry") for p in spec.parameters)


def look_around(workspace: Workspace, state: RunState) -> Surroundings:
    """Look at the workspace as it is now."""
    try:
        entries = list(islice(workspace.walk(".", NOT_ENTERED), _WALKED + 1))
    except CommandError:  # the commands that need the folder say what is wrong with it
        return Surroundings()
    goals, review = state.start.task.goals, state.review
    missing = list(review.missing(goals, workspace.size))
    own = [entry for entry in entries if not state.guard.source_of(entry.path)]
    names = [entry.path for entry in own if entry.kind == "file"]
    left = left_to_delete(goals, names)
    newest = [path for path in reversed(review.changed) if state.guard.may_show(path) and not _failed(path, review)]
    malformed = list(_malformed(newest[:_TEXTS_SHOWN], workspace, state))
    lacking = missing or left or left_to_move(goals, names, review.changed) or state.history.failing or malformed
    unfinished = bool(lacking or (not review.changed and want_change(goals))) and review.idle < _IDLE
    texts = [_now_holds(path, text) for path in newest[:_TEXTS_SHOWN] if (text := _text_of(path, workspace, state))]
    empty = [path for path in missing if workspace.size(path) == 0]
    asked = " ".join(goal.text for goal in goals)
    unread = any(workspace.size(path) and path not in state.evidence.handled for path in named_files(asked))
    states = {"Not there yet": [path for path in missing if path not in empty], "Empty so far": empty}
    needed = [f"{what}: {', '.join(map(shown, paths))}." for what, paths in states.items() if paths]
    found = [*endings_shown(asked, names), *lines_shown(asked, _readable(own, workspace, state))]
    return Surroundings(
        tuple(entry.path for entry in entries) if len(entries) <= _WALKED else None,
        "\n".join([_listed(own), *needed, *found, *texts, *malformed]),
        unfinished,
        not review.changed and review.lacks(goals, workspace.size) and review.idle < _IDLE,
        unfinished and review.again,
        state.history.reads_on,
        asked.lower(),
        unread and not review.changed and review.idle < _LOOKS,
        left,
        any(map(code_block.is_code, missing)),
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


def _readable(entries: Sequence[WorkspaceEntry], workspace: Workspace, state: RunState) -> dict[str, str]:
    """Return the texts that the run did not write itself and may be shown, by path."""
    files = (entry.path for entry in entries if entry.kind == "file" and 0 < entry.size <= _SEARCHED_SIZE)
    others = (path for path in files if path not in state.review.changed and state.guard.may_show(path))
    texts = {path: _text_of(path, workspace, state, _SEARCHED_SIZE) for path in islice(others, _SEARCHED)}
    return {path: text for path, text in texts.items() if text}


def _failed(path: str, review: FinalReview) -> bool:
    """Return whether a file holds a program that failed, which a small model would write again as it is."""
    return path in review.failed and code_block.is_code(path)


def _malformed(paths: Iterable[str], workspace: Workspace, state: RunState) -> Iterator[str]:
    """Yield a line for each file that is not in the form its name promises."""
    for path in paths:
        if wrong := form_error(path, _text_of(path, workspace, state, _SEARCHED_SIZE)):
            yield f"{shown(path)} {wrong}."


def _now_holds(path: str, text: str) -> str:
    return f"{shown(path)} now holds:\n{text.rstrip()}"


def _text_of(path: str, workspace: Workspace, state: RunState, most: int = _TEXT_SHOWN) -> str:
    """Return what a file holds now; '' if it is gone, empty, no text, or of more bytes than `most`."""
    try:
        data = workspace.read(path, most + 1)
        text: str = state.log.masked(data.decode()) if len(data) <= most else ""
    except (CommandError, UnicodeDecodeError):
        return ""
    return text if text.strip() else ""
