"""Collect evidence for a verifier: net file changes since work on the goals began, and later program output."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from autoagent.agent.goal_words import mentioned_groups, names_in
from autoagent.agent.state import State
from autoagent.agent.trial_run import TrialRun
from autoagent.core.errors import CommandError, StateError
from autoagent.core.frozen import dataclass
from autoagent.text.file_forms import definitions_lost, form_error, form_of
from autoagent.text.quoting import marked
from autoagent.text.tokens import shorten
from autoagent.workspace.gate import CODE_FOLDER, NOT_ENTERED, Workspace, WorkspaceEntry, shown
from autoagent.workspace.snapshots import Snapshots

_MAX_NAMES = 30  # unchanged files listed by name
_MAX_FILE_BYTES = 100_000  # per file
_MIN_SECTION_TOKENS = 60  # per section
_MAX_FAILURE_OUTPUT = 400  # last characters of a failing test
_TITLE = re.compile(r"^(?=[ \t]*-{2,}[ \t].*[ \t]-{2,}[ \t\r]*$)", re.MULTILINE)
_EXCLUDED = NOT_ENTERED | {CODE_FOLDER}  # the code that the agent ran is not part of the result


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold the evidence as `text` for a model, and the files `changed` since work began.

    `fault` is an obvious problem that needs no judgement, or '': failing tests, a failed last program, or a changed
    file whose content does not match its type. `absent` lists files that the goals name but that are missing or were
    deleted. `passed` are the tests, and the programs named in the goals, that ran without an error.
    """

    text: str
    changed: tuple[str, ...]
    fault: str = ""
    absent: tuple[str, ...] = ()
    passed: frozenset[str] = frozenset()


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
    """Collect the evidence in at most about `room` tokens, with secrets masked and outside text marked.

    `entries` is the workspace listing. Tests run if files were changed, and to show a small model the failures.
    """
    changes = list(_changes(state, workspace, snapshots))
    paths = {change.path for change in changes}
    faults = [f"{shown(c.path)} {error}." for c in changes if c.new and (error := form_error(c.path, c.new))]
    names = [entry.path for entry in entries if entry.kind == "file"]
    byproducts = snapshots.byproducts(names) if snapshots is not None else ()
    unchanged = [path for path in names if path not in paths and path not in byproducts]
    deleted = [change.path for change in changes if change.new is None]
    facts = [_file_list("Changed", [c.path for c in changes if c.old is not None and c.new is not None])]
    facts += [_file_list("Made", [c.path for c in changes if c.old is None])]
    facts += [_file_list("Deleted", deleted)]
    facts += [_file_list("Not touched", unchanged)]
    missing = [path for path in _missing(state, names) if path not in deleted]
    facts += [_file_list("Named in the goals, and not there", missing), *faults]
    well_formed = [c.path for c in changes if c.new and form_of(c.path, c.new) and not form_error(c.path, c.new)]
    facts += [_file_list("Parsed without an error", well_formed)]
    sections = [section for change in changes for section in _change_sections(change, state)]
    sections += _source_sections(state, workspace, unchanged)
    sections += _output_sections(state)
    runs = run_tests() if changes or not state.start.style.reasons else []
    for run in runs:
        output = state.log.masked(run.output)
        sections.append(_Section(run.title, state.guard.quote(output)))
        if run.fails:
            faults.append(f"{run.fails}: …{output[-_MAX_FAILURE_OUTPUT:].strip()}")
    if not changes:
        facts.insert(0, "No file was changed.")
    elif not state.start.style.reasons:
        faults += _partial_groups(state, paths, unchanged)
        for change in changes:
            if change.new and (lost := definitions_lost(change.path, change.old or "", change.new)):
                faults.append(f"{shown(change.path)} no longer has {', '.join(lost)}. If that is right, finish again.")
    if not state.work.ran:
        facts.append("No program was run after the last change.")
    body = _fit(sections, room, state)
    if state.work.ran and (not (newest := state.work.ran[-1][1]).ok or newest.meta.failed):
        faults.append("The last program that was run failed.")
    text = "\n\n".join(["\n".join(line for line in facts if line), *body])
    passed = frozenset(path for run in runs if run.passed for path in run.paths)
    return Evidence(text, tuple(c.path for c in changes), " ".join(faults), (*missing, *deleted), passed)


def contains(path: str, text: str, state: State, workspace: Workspace) -> bool | None:
    """Return whether a file contains a text, or None if the whole file cannot be read."""
    size = workspace.size(path)
    if size is None or size > _MAX_FILE_BYTES:
        return None
    content = _text(path, workspace, state)
    return text in content if content or not size else None


def _missing(state: State, names: Sequence[str]) -> Iterator[str]:
    """Yield the files named in the goals that no workspace folder contains."""
    basenames = {path.rpartition("/")[2].casefold() for path in names}
    for name in names_in("\n".join(goal.text for goal in state.start.task.goals)):
        if name.rpartition("/")[2].casefold() not in basenames:
            yield name


def _partial_groups(state: State, changed: Collection[str], unchanged: Sequence[str]) -> Iterator[str]:
    """Yield a line for each group of files changed only in part, since a small model may forget the rest."""
    goals = "\n".join(goal.text for goal in state.start.task.goals)
    for title, group in mentioned_groups(goals, [*changed, *unchanged]).items():
        missing = [path for path in group if path not in changed]
        if missing and len(missing) < len(group):
            yield f"{title}: {', '.join(map(shown, missing))} not changed, others are. If that is right, finish again."


@dataclass(frozen=True, slots=True)
class _Change:
    """Hold a file's text at the start of work and now: None if it is missing, '' if it is empty or binary."""

    path: str
    old: str | None
    new: str | None


def _changes(state: State, workspace: Workspace, snapshots: Snapshots | None) -> Iterator[_Change]:
    base, tree = state.work.base, state.work.tree
    old_texts: dict[str, bytes | None] = {}
    paths: Iterable[str] = state.work.changed
    if snapshots is not None and base:
        try:
            byproducts = snapshots.byproducts(changed := snapshots.changed(base, tree))
            paths = [path for path in changed if path not in byproducts]
            old_texts = {path: snapshots.read(base, path) for path in paths}
        except StateError:  # the user has deleted the snapshots
            old_texts = {}
    for path in paths:
        if not _EXCLUDED.isdisjoint(path.split("/")):
            continue
        exists = workspace.size(path) is not None
        before = old_texts.get(path)
        yield _Change(
            path, None if before is None else _decoded(before, state), _text(path, workspace, state) if exists else None
        )


def _change_sections(change: _Change, state: State) -> Iterator[_Section]:
    """Show a file before and after, or as a diff if that is shorter and complete."""
    path, before, now = change.path, change.old, change.new
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


def _source_sections(state: State, workspace: Workspace, unchanged: Sequence[str]) -> Iterator[_Section]:
    """Show the unchanged files that were read or that the goals name."""
    goals = " ".join(goal.text for goal in state.start.task.goals).casefold()
    for path in unchanged:
        is_relevant = path in state.work.handled or path.rpartition("/")[2].casefold() in goals
        if is_relevant and (text := _text(path, workspace, state)):
            yield _Section(f"{shown(path)}, not touched", state.guard.quote(text, path))


def _output_sections(state: State) -> Iterator[_Section]:
    for call, result in state.work.ran:
        text, source = state.log.masked(result.text), result.meta.source
        shown_text = marked(text, source, run=result.run, step=result.step) if source else text
        # Only a program's output is evidence: its code states intentions.
        yield _Section(f"Printed by {call.name}", shown_text)


def _fit(sections: Sequence[_Section], room: int, state: State) -> list[str]:
    """Render as many sections as fit, in order, and count the rest.

    Longer sections get the room that short ones leave.
    """
    sections, others = sections[: room // _MIN_SECTION_TOKENS], sections[room // _MIN_SECTION_TOKENS :]
    sizes = {n: state.count(section.text) + state.count(section.title) + 6 for n, section in enumerate(sections)}
    shares: dict[int, int] = {}
    remaining = room
    for done, (number, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shares[number] = min(size, max(remaining // (len(sizes) - done), _MIN_SECTION_TOKENS))
        remaining -= shares[number]
    body = [
        f"--- {section.title} ---\n{defuse_titles(shorten(section.text, shares[number], state.count))}"
        for number, section in enumerate(sections)
    ]
    return [*body, f"(There is no room for {len(others)} more texts.)"] if others else body


def defuse_titles(text: str) -> str:
    """Return the text with all lines defused that look like the title of a section."""
    return _TITLE.sub("| ", text)


def _file_list(label: str, paths: Sequence[str]) -> str:
    if not paths:
        return ""
    suffix = f", and {len(paths) - _MAX_NAMES} more" if len(paths) > _MAX_NAMES else ""
    return f"{label}: {', '.join(map(shown, paths[:_MAX_NAMES]))}{suffix}."


def _text(path: str, workspace: Workspace, state: State) -> str:
    try:
        return _decoded(workspace.read(path, _MAX_FILE_BYTES), state)
    except CommandError:  # too large, or gone
        return ""


def _decoded(data: bytes, state: State) -> str:
    text: str = "" if b"\0" in data else state.log.masked(data[:_MAX_FILE_BYTES].decode("utf-8", "replace"))
    return text
