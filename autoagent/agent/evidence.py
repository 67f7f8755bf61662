"""Evidence for a verifier: the net changes since work on the goals began, and what programs and tests printed after."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from autoagent.agent.goal_words import groups_meant, names_in
from autoagent.agent.state import State
from autoagent.agent.trial_run import TrialRun
from autoagent.core.errors import CommandError, StateError
from autoagent.core.protocols import Snapshots
from autoagent.text.file_forms import form_error, form_of
from autoagent.text.quoting import marked
from autoagent.text.tokens import shorten
from autoagent.workspace.gate import CODE_FOLDER, NOT_ENTERED, Workspace, WorkspaceEntry, shown

_NAMES = 30  # of files that were not touched
_READ = 100_000  # bytes of a file
_LEAST = 60  # tokens of one section
_FAILURE = 400  # characters of what failing tests printed, their end
_UNSEEN = NOT_ENTERED | {CODE_FOLDER}  # where code is kept that the agent ran, what lies there is no result


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence as `text` for a model. `changed`: whether files differ from when work began.

    `fault` is an obvious problem that needs no judgement: tests or the last program failed, or a changed file is not of
    the type that its name says, or '' for none. `absent` are the files that are not there though the goals name them,
    or that were deleted.
    """

    text: str
    changed: bool
    fault: str = ""
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    text: str


def collect(
    state: State,
    workspace: Workspace,
    snapshots: Snapshots | None,
    entries: Sequence[WorkspaceEntry],
    run_tests: Callable[[], list[TrialRun]],
    room: int,
) -> Evidence:
    """Collect the evidence in at most about `room` tokens. Secrets are masked, and text from outside is marked.

    `entries` are those of the workspace. The tests run if files were changed, and to show a small model what fails.
    """
    changes = list(_changes(state, workspace, snapshots))
    paths = {change.path for change in changes}
    faults = [f"{shown(c.path)} {wrong}." for c in changes if c.now and (wrong := form_error(c.path, c.now))]
    names = [entry.path for entry in entries if entry.kind == "file"]
    aside = snapshots.byproducts(names) if snapshots is not None else ()
    untouched = [path for path in names if path not in paths and path not in aside]
    gone = [change.path for change in changes if change.now is None]
    told = [_listed("Changed", [c.path for c in changes if c.before is not None and c.now is not None])]
    told += [_listed("Made", [c.path for c in changes if c.before is None])]
    told += [_listed("Deleted", gone)]
    told += [_listed("Not touched", untouched)]
    missing = [path for path in _missing(state, names) if path not in gone]
    told += [_listed("Named in the goals, and not there", missing), *faults]
    parsed = [c.path for c in changes if c.now and form_of(c.path, c.now) and not form_error(c.path, c.now)]
    told += [_listed("Parsed without an error", parsed)]
    sections = [section for change in changes for section in _shown_change(change, state)]
    sections += _shown_sources(state, workspace, untouched)
    sections += _shown_outputs(state)
    for run in run_tests() if changes or not state.start.style.reasons else ():
        printed = state.log.masked(run.printed)
        sections.append(_Section(run.title, state.guard.quote(printed)))
        if run.fails:
            faults.append(f"{run.fails}: …{printed[-_FAILURE:].strip()}")
    if not changes:
        told.insert(0, "No file was changed.")
    elif not state.start.style.reasons:
        faults += _left_of_groups(state, paths, untouched)
    if not state.work.ran:
        told.append("No program was run after the last change.")
    body = _fitted(sections, room, state)
    if state.work.ran and (not (newest := state.work.ran[-1][1]).ok or newest.meta.failed):
        faults.append("The last program that was run failed.")
    text = "\n\n".join(["\n".join(line for line in told if line), *body])
    return Evidence(text, bool(changes), " ".join(faults), (*missing, *gone))


def holds(path: str, text: str, state: State, workspace: Workspace) -> bool | None:
    """Return whether a file holds a text, None where it cannot be read whole."""
    size = workspace.size(path)
    if size is None or size > _READ:
        return None
    content = _text(path, workspace, state)
    return text in content if content or not size else None


def _missing(state: State, names: Sequence[str]) -> Iterator[str]:
    """Yield the files that the goals name and that are nowhere in the workspace, not even in another folder."""
    there = {path.rpartition("/")[2].casefold() for path in names}
    for name in names_in("\n".join(goal.text for goal in state.start.task.goals)):
        if name.rpartition("/")[2].casefold() not in there:
            yield name


def _left_of_groups(state: State, changed: Collection[str], untouched: Sequence[str]) -> Iterator[str]:
    """Yield a line for each group of files of which only some were changed: a small model forgets the others."""
    goals = "\n".join(goal.text for goal in state.start.task.goals)
    for title, group in groups_meant(goals, [*changed, *untouched]).items():
        left = [path for path in group if path not in changed]
        if left and len(left) < len(group):
            yield f"{title}: {', '.join(map(shown, left))} not changed, others are. If that is right, finish again."


@dataclass(frozen=True, slots=True)
class _Change:
    """A file that differs from when work began, or None where it is not there, '' where it is empty or no text."""

    path: str
    before: str | None
    now: str | None


def _changes(state: State, workspace: Workspace, snapshots: Snapshots | None) -> Iterator[_Change]:
    base, tree = state.work.base, state.work.tree
    old: dict[str, bytes | None] = {}
    paths: Iterable[str] = state.work.changed
    if snapshots is not None and base:
        try:
            aside = snapshots.byproducts(changed := snapshots.changed(base, tree))
            paths = [path for path in changed if path not in aside]
            old = {path: snapshots.read(base, path) for path in paths}
        except StateError:  # the user has deleted the snapshots since
            old = {}
    for path in paths:
        if not _UNSEEN.isdisjoint(path.split("/")):
            continue
        there = workspace.size(path) is not None
        before = old.get(path)
        yield _Change(
            path,
            None if before is None else _decoded(before, state),
            _text(path, workspace, state) if there else None,
        )


def _shown_change(change: _Change, state: State) -> Iterator[_Section]:
    """Show a file before and after; as a diff if that is shorter and still says it all."""
    path, before, now = change.path, change.before, change.now
    if before and now:
        diff = "\n".join(
            islice(difflib.unified_diff(before.splitlines(), now.splitlines(), "before", "now", n=2, lineterm=""), 2000)
        )
        if len(diff) < len(before):
            yield _Section(f"{shown(path)}, what changed", state.guard.quote(diff, path))
            yield _Section(f"{shown(path)} now", state.guard.quote(now, path))
            return
    if before is not None:
        yield _Section(f"{shown(path)} before", state.guard.quote(before, path) or "(empty, or no text)")
    if now is not None:
        yield _Section(f"{shown(path)} now", state.guard.quote(now, path) or "(empty, or no text)")


def _shown_sources(state: State, workspace: Workspace, untouched: Sequence[str]) -> Iterator[_Section]:
    """Show the files that were read, or that the goals name, and not changed."""
    asked = " ".join(goal.text for goal in state.start.task.goals).casefold()
    for path in untouched:
        concerned = path in state.work.handled or path.rpartition("/")[2].casefold() in asked
        if concerned and (text := _text(path, workspace, state)):
            yield _Section(f"{shown(path)}, not touched", state.guard.quote(text, path))


def _shown_outputs(state: State) -> Iterator[_Section]:
    for call, result in state.work.ran:
        text, source = state.log.masked(result.text), result.meta.source
        shown_text = marked(text, source, run=result.run, step=result.step) if source else text
        # Only what a program did is evidence: the code that it was given says what it was meant to do.
        yield _Section(f"Printed by {call.name}", shown_text)


def _fitted(sections: Sequence[_Section], room: int, state: State) -> list[str]:
    """Render the sections in order. Short ones leave the rest of their share to longer ones.

    Shows as many as fit with a minimum of each, and counts the others.
    """
    sections, others = sections[: room // _LEAST], sections[room // _LEAST :]
    sizes = {n: state.count(section.text) + state.count(section.title) + 6 for n, section in enumerate(sections)}
    shares: dict[int, int] = {}
    left = room
    for done, (number, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shares[number] = min(size, max(left // (len(sizes) - done), _LEAST))
        left -= shares[number]
    body = [
        f"--- {section.title} ---\n{shorten(section.text, shares[number], state.count)}"
        for number, section in enumerate(sections)
    ]
    return [*body, f"(There is no room for {len(others)} more texts.)"] if others else body


def _listed(what: str, paths: Sequence[str]) -> str:
    if not paths:
        return ""
    more = f", and {len(paths) - _NAMES} more" if len(paths) > _NAMES else ""
    return f"{what}: {', '.join(map(shown, paths[:_NAMES]))}{more}."


def _text(path: str, workspace: Workspace, state: State) -> str:
    try:
        return _decoded(workspace.read(path, _READ), state)
    except CommandError:  # too large, or gone
        return ""


def _decoded(data: bytes, state: State) -> str:
    text: str = "" if b"\0" in data else state.log.masked(data[:_READ].decode("utf-8", "replace"))
    return text
