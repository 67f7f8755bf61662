"""Collect evidence for a verifier: net file changes since work on the goals began, and later program output."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from autoagent.agent.goal_words import mentioned_groups, names_in
from autoagent.agent.state import State
from autoagent.agent.trial_run import entries_of, run_tests
from autoagent.core.errors import CommandError, StateError
from autoagent.core.frozen import dataclass
from autoagent.text.file_formats import definitions_lost, format_error, format_of
from autoagent.text.quoting import mark_untrusted
from autoagent.text.tokens import shorten
from autoagent.workspace.gate import CODE_FOLDER, NOT_ENTERED, Workspace, shown

_MAX_NAMES = 30  # file names per list
_MAX_FILE_BYTES = 100_000
_MIN_SECTION_TOKENS = 60
_MAX_FAILURE_CHARACTERS = 400  # from the end of a failing test's output
_TITLE_START = re.compile(r"^(?=[ \t]*-{2,}[ \t].*[ \t]-{2,}[ \t\r]*$)", re.MULTILINE)
_EXCLUDED = NOT_ENTERED | {CODE_FOLDER}  # code that the agent ran is not part of the result


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence as `text` for a model, and the files `changed` since work began.

    `fault` describes obvious problems that need no judgement, or is '': failing tests, a failed last program, or a
    changed file whose content does not match its type. `absent` lists deleted files, and missing files that the goals
    name. `passed` lists the tests, and the programs named in the goals, that ran without an error.
    """

    text: str
    changed: tuple[str, ...]
    fault: str = ""
    absent: tuple[str, ...] = ()
    passed: frozenset[str] = frozenset()


def collect(state: State, workspace: Workspace, max_tokens: int) -> Evidence:
    """Collect the evidence in about `max_tokens` tokens, with secrets masked and text from outside marked.

    Tests run if files were changed, and always to show a small model the failures.
    """
    is_small, snapshots = not state.start.style.reasons, state.tools.snapshots
    entries = entries_of(workspace)
    changes = list(_changes(state, workspace))
    changed_paths = tuple(change.path for change in changes)
    deleted_paths = [change.path for change in changes if change.new is None]
    files = [entry.path for entry in entries if entry.kind == "file"]
    omitted = {*changed_paths, *(snapshots.byproducts(files) if snapshots is not None else ())}
    unchanged = [path for path in files if path not in omitted]
    basenames = {path.rpartition("/")[2].casefold() for path in files}
    goal_names = names_in("\n".join(goal.text for goal in state.start.task.goals))
    missing = [n for n in goal_names if n.rpartition("/")[2].casefold() not in basenames and n not in deleted_paths]
    form_errors = {c.path: format_error(c.path, c.new) for c in changes if c.new and format_of(c.path, c.new)}
    malformed = [f"{shown(path)} {error}." for path, error in form_errors.items() if error]
    runs = [(run, state.log.masked(run.output)) for run in (run_tests(state, entries) if changes or is_small else [])]

    facts = [
        "" if changes else "No file was changed.",
        _file_list("Changed", [c.path for c in changes if c.old is not None and c.new is not None]),
        _file_list("Made", [c.path for c in changes if c.old is None]),
        _file_list("Deleted", deleted_paths),
        _file_list("Not touched", unchanged),
        _file_list("Named in the goals, and not there", missing),
        *malformed,
        _file_list("Parsed without an error", [path for path, error in form_errors.items() if not error]),
        "" if state.work.program_runs else "No program was run after the last change.",
    ]
    sections = [
        *(section for change in changes for section in _change_sections(change, state)),
        *_source_sections(state, workspace, unchanged),
        *_output_sections(state),
        *((run.title, state.guard.quote(output)) for run, output in runs),
    ]
    faults = [*malformed]
    faults += [f"{run.fails}: …{output[-_MAX_FAILURE_CHARACTERS:].strip()}" for run, output in runs if run.fails]
    if is_small:
        faults += _likely_slips(state, changes, unchanged)
    if state.work.program_runs and (not (newest := state.work.program_runs[-1][1]).ok or newest.meta.failed):
        faults.append("The last program that was run failed.")

    text = "\n\n".join(["\n".join(filter(None, facts)), *_fit(sections, max_tokens, state)])
    passed = frozenset(path for run, _ in runs if run.passed for path in run.paths)
    return Evidence(text, changed_paths, " ".join(faults), (*missing, *deleted_paths), passed)


def contains(path: str, text: str, state: State, workspace: Workspace) -> bool | None:
    """Return whether a file contains a text, or None if the whole file cannot be read."""
    size = workspace.size(path)
    if size is None or size > _MAX_FILE_BYTES:
        return None
    content = _read_text(path, workspace, state)
    return text in content if content or not size else None


def _likely_slips(state: State, changes: Sequence[_Change], unchanged: Sequence[str]) -> Iterator[str]:
    """Yield typical slips of a small model: a group of files only partly changed, and lost definitions."""
    goals = "\n".join(goal.text for goal in state.start.task.goals)
    changed = dict.fromkeys(change.path for change in changes)
    for title, group in mentioned_groups(goals, [*changed, *unchanged]).items():
        rest = [path for path in group if path not in changed]
        if rest and len(rest) < len(group):
            yield f"{title}: {', '.join(map(shown, rest))} not changed, others are. If that is right, finish again."
    for change in changes:
        if change.new and (lost_names := definitions_lost(change.path, change.old or "", change.new)):
            yield f"{shown(change.path)} no longer has {', '.join(lost_names)}. If that is right, finish again."


@dataclass(frozen=True, slots=True)
class _Change:
    """A file's text at the start of the work and now: None if missing, '' if empty or binary."""

    path: str
    old: str | None
    new: str | None


def _changes(state: State, workspace: Workspace) -> Iterator[_Change]:
    """Yield the changed files except byproducts. Without snapshots, their old texts are unknown."""
    base, snapshots = state.work.base, state.tools.snapshots
    paths: Iterable[str] = state.work.changed
    originals: dict[str, bytes | None] = {}
    if snapshots is not None and base:
        with suppress(StateError):  # the user has deleted the snapshots
            changed = snapshots.changed(base, state.work.tree)
            byproducts = snapshots.byproducts(changed)
            paths = [path for path in changed if path not in byproducts]
            originals = {path: snapshots.read(base, path) for path in paths}
    for path in paths:
        if _EXCLUDED.isdisjoint(path.split("/")):
            original = originals.get(path)
            old = None if original is None else _decode(original, state)
            yield _Change(path, old, None if workspace.size(path) is None else _read_text(path, workspace, state))


def _change_sections(change: _Change, state: State) -> Iterator[tuple[str, str]]:
    """Show a file before and after, or as a diff if that is shorter and complete."""
    path, old, new = change.path, change.old, change.new
    if old and new:
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "before", "now", n=2, lineterm="")
        diff = "\n".join(islice(lines, 2000))
        if len(diff) < len(old):
            yield f"{shown(path)}, what changed", state.guard.quote(diff, path)
            old = None
    for text, when in (old, "before"), (new, "now"):
        if text is not None:
            yield f"{shown(path)} {when}", state.guard.quote(text, path) or "(empty, or no text)"


def _source_sections(state: State, workspace: Workspace, unchanged: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Show the unchanged files that were read or that the goals name."""
    goals = " ".join(goal.text for goal in state.start.task.goals).casefold()
    for path in unchanged:
        is_relevant = path in state.work.known_paths or path.rpartition("/")[2].casefold() in goals
        if is_relevant and (text := _read_text(path, workspace, state)):
            yield f"{shown(path)}, not touched", state.guard.quote(text, path)


def _output_sections(state: State) -> Iterator[tuple[str, str]]:
    """Show the output of programs. Their code is not evidence, since it only states intentions."""
    for call, result in state.work.program_runs:
        text, source = state.log.masked(result.text), result.meta.source
        text = mark_untrusted(text, source, run=result.run, step=result.step) if source else text
        yield f"Printed by {call.name}", text


def _fit(sections: Sequence[tuple[str, str]], max_tokens: int, state: State) -> list[str]:
    """Render as many sections (title and text) as fit, in order, and count the rest.

    Long ones share the space that short ones leave.
    """
    fitting = sections[: max_tokens // _MIN_SECTION_TOKENS]
    omitted_count = len(sections) - len(fitting)
    sizes = [state.count(text) + state.count(title) + 6 for title, text in fitting]
    shares = [0] * len(sizes)
    for done, n in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):  # the shortest first
        shares[n] = min(sizes[n], max(max_tokens // (len(sizes) - done), _MIN_SECTION_TOKENS))
        max_tokens -= shares[n]
    body = [
        f"--- {title} ---\n{defuse_titles(shorten(text, share, state.count))}"
        for (title, text), share in zip(fitting, shares, strict=True)
    ]
    return [*body, f"(There is no room for {omitted_count} more texts.)"] if omitted_count else body


def defuse_titles(text: str) -> str:
    """Prefix all lines of the text that look like a section title."""
    return _TITLE_START.sub("| ", text)


def _file_list(label: str, paths: Sequence[str]) -> str:
    if not paths:
        return ""
    suffix = f", and {len(paths) - _MAX_NAMES} more" if len(paths) > _MAX_NAMES else ""
    return f"{label}: {', '.join(map(shown, paths[:_MAX_NAMES]))}{suffix}."


def _read_text(path: str, workspace: Workspace, state: State) -> str:
    try:
        return _decode(workspace.read(path, _MAX_FILE_BYTES), state)
    except CommandError:  # too large, or gone
        return ""


def _decode(data: bytes, state: State) -> str:
    text: str = "" if b"\0" in data else state.log.masked(data[:_MAX_FILE_BYTES].decode("utf-8", "replace"))
    return text
