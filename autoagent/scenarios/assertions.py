"""Compare the outcome of a session with the expected one. Each difference becomes a few lines for a person."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autoagent.core.events import Started
from autoagent.scenarios.loader import Expected, ExpectedFile, Part, ScenarioSession
from autoagent.scenarios.process import ProcessOutcome
from autoagent.scenarios.scripted_endpoint import ScriptedEndpoint
from autoagent.text.sanitize import escape, shorten, shorten_lines

_MAX_DIFF_LINES = 20  # per file
_MAX_PART_CHARACTERS = 200  # of a quoted part


def differences(
    session: ScenarioSession, end: ProcessOutcome, endpoint: ScriptedEndpoint, events: Mapping[str, int], folder: Path
) -> Iterator[str]:
    """Yield the differences of a session that ended by itself, each with the `file:line` of its expectation.

    `events` are counts by type. `folder` is the folder after the session.
    """
    expected = session.expected
    if end.code != expected.code:
        yield f"{expected.place}: exit: expected {expected.code}, but it ended with {end.code}."
    yield from _screen_differences(expected, end.screen)
    yield from _prompt_differences(expected, endpoint.prompts)
    for file in expected.files:
        yield from _file_differences(file, folder)
    commands = events.get(Started.type, 0)
    if expected.commands not in (None, commands):
        yield f"{expected.place}: commands: expected {expected.commands}, but {commands} ran."
    for kind, number in expected.events.items():
        if events.get(kind, 0) != number:
            yield f"{expected.place}: events: {kind}: expected {number}, but there were {events.get(kind, 0)}."
    replies = f"{expected.place}: replies:"
    if endpoint.surplus:
        yield f"{replies} the model was asked again after the last of the {len(session.replies)} replies."
    elif endpoint.replies:
        yield f"{replies} {len(endpoint.replies)} of {len(session.replies)} were not used."
    answers = len(session.answers)
    if end.answers_typed is not None and end.answers_typed < answers:
        yield f"{expected.place}: answers: {answers - end.answers_typed} of {answers} were not used."


def _screen_differences(expected: Expected, screen: str) -> Iterator[str]:
    position, previous = 0, ""
    for part in expected.screen:
        match = part.pattern.search(screen, position)
        if match is None:
            where = f" after {previous}" if previous else ""
            earlier = " It appears only before that." if part.pattern.search(screen) else ""
            yield f"{part.place}: screen: {_format_part(part)} did not appear{where}.{earlier}"
            break  # the position of further parts is unknown
        position, previous = match.end(), _format_part(part)
    for part in expected.not_on_screen:
        if part.pattern.search(screen):
            yield f"{part.place}: not_on_screen: {_format_part(part)} is there."


def _prompt_differences(expected: Expected, prompts: Sequence[str]) -> Iterator[str]:
    for part in expected.prompt:
        if not any(part.pattern.search(prompt) for prompt in prompts):
            yield f"{part.place}: prompt: {_format_part(part)} is in none of the {len(prompts)} prompts."
    for part in expected.not_in_prompt:
        for number, prompt in enumerate(prompts, 1):
            if part.pattern.search(prompt):
                yield f"{part.place}: not_in_prompt: {_format_part(part)} is in prompt {number} of {len(prompts)}."
                break


def _file_differences(expected: ExpectedFile, folder: Path) -> Iterator[str]:
    where, path = f"{expected.place}: files: {expected.path}", folder / expected.path
    if not path.is_file():
        if path.exists():
            yield f"{where} is not a file."
        elif not expected.absent:
            siblings = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
            hint = f"; beside it: {', '.join(siblings)}" if siblings else ""
            yield f"{where} is not there{hint}."
        return
    text = path.read_bytes().decode("utf-8", "replace")
    if expected.absent:
        yield f"{where} is there."
    elif expected.pattern is not None and not expected.pattern.search(text):
        yield f"{where}: {expected.pattern.pattern!r} is not in it. It holds:\n{_excerpt(text.splitlines())}"
    elif expected.content is not None and expected.content != text:
        # a missing final newline is a difference like any other
        old, new = (content.replace("\n", "\\n\n").splitlines() for content in (expected.content, text))
        diff = [*difflib.unified_diff(old, new, "expected", "found", n=1, lineterm="")]
        yield f"{where} is not as expected:\n{_excerpt(diff)}"


def _excerpt(lines: Sequence[str]) -> str:
    return "\n".join(f"  {escape(line)}" for line in shorten_lines(lines, _MAX_DIFF_LINES))


def _format_part(part: Part) -> str:
    return repr(shorten(part.source, _MAX_PART_CHARACTERS))
