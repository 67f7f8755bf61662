"""Build the report of a run: one HTML file that loads nothing.

The page holds the facts as JSON, and a script shows them as text: nothing from a model, a page or a file is ever HTML.
A content security policy allows only the page's own script and style, by their digests, and no loading.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

from autoagent.core.errors import StateError
from autoagent.core.events import Event
from autoagent.text.sanitize import escape
from autoagent.web.file_states import FileStates
from autoagent.web.highlight import colours, colours_of_diff
from autoagent.web.report import SHORT, Report, Text

MAX_TEXT = 8_000  # characters of a text in a short run
STEPS_BUDGET = 700_000  # characters for the texts of all steps together, or SHORT for each if that is more
PAGE_BUDGET = 1_700_000  # bytes of a page; prompts and files get what the steps leave, at least MIN_REST
MIN_REST = 200_000
MAX_PROMPTS = 100  # newest prompts shown in parts; the others are shown by their token counts
MAX_PROMPT_TEXT = 20_000  # characters of a text in a prompt
HIGHLIGHT_BUDGET = 60_000  # characters of the newest diffs and files that have colours


class Texts(dict[str, int]):
    """Map each shared text of a page to the index that stands for it, a new text to the next index."""

    def __missing__(self, text: str) -> int:
        self[text] = index = len(self)
        return index


def as_json(value: Any, most: int, texts: Texts | None = None) -> str:
    """Return facts as JSON, each text cut to `most` characters, and a shared one as its index in `texts`, if given."""

    def encode(text: Text) -> str | int:
        cut = text.cut(most)
        return cut if texts is None or not text.shared else texts[cut]

    return json.dumps(value, ensure_ascii=False, default=encode, separators=(",", ":"))


def fitting_length(lengths: Collection[int], room: int) -> int:
    """Return the length to cut texts of these lengths to, so that together they fit `room`; never less than SHORT."""
    left = room
    for done, length in enumerate(sorted(lengths)):
        if length * (len(lengths) - done) > left:
            return max(SHORT, min(MAX_TEXT, left // (len(lengths) - done)))
        left -= length
    return MAX_TEXT


def with_colours(step: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """Return a step with the colours of its diff, if it has one."""
    if not step.get("diff"):
        return step
    return {**step, "colours": colours_of_diff(step["preview"].cut(most))}


def report_page(events: Iterable[Event], state_dir: Path | None = None) -> str:
    """Render the events of a run, in log order, as one HTML file. They begin with its RunStarted.

    `state_dir` holds its snapshots, the source of the files at each step.
    """
    event_list = list(events)
    report = _report_of(event_list)
    texts = Texts()
    steps = _steps(report, texts)
    head = as_json(report.head, SHORT)
    size = sum(len(text.encode()) for text in (steps, head, *texts))
    room = max(MIN_REST, PAGE_BUDGET - size)
    states = _file_states(report, state_dir, room // 3, texts) if state_dir else {}
    prompts = _prompts(event_list, room // 2, texts)
    rest = json.dumps(
        {"states": states, "prompts": prompts, "texts": list(texts)}, ensure_ascii=False, separators=(",", ":")
    )
    return html_page(
        f"Run {report.head['run']}", ("pages.js", "timeline.js", "report.js"), f'{head[:-1]},"steps":{steps},{rest[1:]}'
    )


def comparison_page(one: Iterable[Event], other: Iterable[Event]) -> str:
    """Render two runs side by side from the step where they diverge."""
    reports = [_report_of(list(events)) for events in (one, other)]
    steps: list[list[dict[str, Any]]] = [json.loads(_steps(report, None)) for report in reports]
    pairs = zip(*steps, strict=False)
    same_steps = next((n for n, (a, b) in enumerate(pairs) if _actions(a) != _actions(b)), min(map(len, steps)))
    runs = [{**report.head, "steps": steps_of_run} for report, steps_of_run in zip(reports, steps, strict=True)]
    title = " and ".join(run["run"] for run in runs)
    return html_page(
        f"Runs {title}", ("pages.js", "timeline.js", "compare.js"), as_json({"runs": runs, "alike": same_steps}, SHORT)
    )


def _actions(step: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the actions of a step and their results."""
    return step["agent"], step.get("thoughts"), step.get("call"), step.get("decided"), step.get("result")


def _report_of(events: Iterable[Event]) -> Report:
    report = Report()
    for event in events:
        report.add(event)
    if report.began is None:
        raise StateError("The log does not say how the run began.")
    return report


def _steps(report: Report, texts: Texts | None) -> str:
    """Return the steps as JSON. The newest diffs have colours."""
    most = fitting_length([len(text.text) for text in report.texts if not text.shared], STEPS_BUDGET)
    steps = [{name: value for name, value in step.items() if name != "tree"} for step in report.steps]
    left = HIGHLIGHT_BUDGET
    for place in reversed(range(len(steps))):
        if steps[place].get("diff") and left > 0:
            left -= min(most, len(steps[place]["preview"].text))
            steps[place] = dict(with_colours(steps[place], most))
    return as_json(steps, most, texts)


def _file_states(report: Report, state_dir: Path, room: int, texts: Texts) -> dict[str, Any]:
    """Return the files changed by each step, and the text of as many as fit, newest first."""
    store, head = FileStates(state_dir), report.head
    changes = list(store.changes(head["tree"], report.steps))
    contents: dict[str, list[Any]] = {}
    coloured = HIGHLIGHT_BUDGET
    for _, files in reversed(changes):
        for path, _, id in files:
            if not id or id in contents or room <= 0:
                continue
            contents[id] = []
            if (text := store.text(id, MAX_TEXT)) is not None:
                room -= len(text.encode())
                contents[id] = [texts[text], colours(text, path) if coloured > 0 else []]
                coloured -= len(text)
    return {"changes": changes, "contents": contents, "store": escape(str(state_dir / "snapshots"))}


def _prompts(events: Sequence[Event], room: int, texts: Texts) -> dict[int, Any]:
    """Return the parts of each prompt by its position in the log, with as many of the newest texts as fit."""
    from autoagent.web.prompt_parts import PARTS, parts_of_prompts

    prompts = list(parts_of_prompts(events, MAX_PROMPTS))
    counted: set[str] = set()
    for _, prompt in reversed(prompts):
        added = {text.text for part in prompt.get("texts", {}).values() for text in part} - counted
        room -= sum(min(MAX_PROMPT_TEXT, len(text)) * 11 // 10 for text in added)  # a tenth for quotes and escapes
        if room < 0:
            prompt.pop("texts", None)
        counted |= added
    for _, prompt in prompts:
        if "texts" in prompt:
            prompt["texts"] = [
                _ranges([texts[text.cut(MAX_PROMPT_TEXT)] for text in prompt["texts"][part]]) for part in PARTS
            ]
    return {seq: prompt if "texts" in prompt else [*prompt.values()] for seq, prompt in prompts}


def _ranges(places: Sequence[int]) -> list[list[int]]:
    """Return the positions as ranges from first to last, since most are consecutive."""
    groups = (list(group) for _, group in groupby(enumerate(places), lambda pair: pair[1] - pair[0]))
    return [[group[0][1], group[-1][1]] for group in groups]


def asset(name: str) -> str:
    """Return the text of a file from which the pages are built."""
    return (resources.files("autoagent.web") / name).read_text("utf-8")


def html_page(title: str, scripts: Iterable[str], data: str) -> str:
    """Return a page with this JSON and the scripts that show it."""
    data = data.replace("<", "\\u003c")  # no text may close the script element
    style, code = asset("pages.css"), "".join(map(asset, scripts))
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, code)]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{digests[0]}'; \
script-src 'sha256-{digests[1]}'">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript>This report needs JavaScript.</noscript>
<main id="report"></main>
<script type="application/json" id="facts">{data}</script>
<script>{code}</script>
</body>
</html>
"""
