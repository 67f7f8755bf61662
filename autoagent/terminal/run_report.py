"""Render the report of a run: at its end, and for /cost, /goals, /context and /memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from autoagent.core.events import Event, Prompted, Recalled, Returned, RunStarted, Thought
from autoagent.core.memory import memory_name
from autoagent.core.model import Thoughts
from autoagent.core.task import Status
from autoagent.terminal import markup, rendering
from autoagent.terminal.palette import Ink
from autoagent.terminal.rendering import MAX_RESULT_CHARACTERS, Page, at_host, cost_text
from autoagent.text.figures import counted, duration, money
from autoagent.text.sanitize import escape, shorten, width
from autoagent.text.wrapping import wrap

if TYPE_CHECKING:
    from autoagent.agent.stats import GoalStatus, RunStats

_GOAL_STATUSES: Mapping[GoalStatus, tuple[str, str, str]] = {  # label in the report, label and style in the table
    "checked": ("checked", "checked", "green"),
    "shown": ("shown", "shown", "green"),
    "claimed": ("only claimed", "claimed", "yellow"),
    "accepted": ("accepted", "accepted", "green"),
    "unmet": ("NOT met", "NOT met", "bold red"),
    "": ("", "-", "dim"),
}
MAX_FILES = 12  # changed files listed by name
MAX_GOAL_CHARACTERS = 300


def table(stats: RunStats, page: Page) -> Iterator[str]:
    """Yield the lines of the table."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")

    def add(label: str, state: str, text: str, style: str = "") -> None:
        grid.add_row(Text(label), Text(state, style=style), Text(escape(text)))

    for number, goal in enumerate(stats.task.goals if stats.task else ()):
        _, word, style = _GOAL_STATUSES[stats.goal_status(number)]
        check = f"\ncheck: {goal.check}" if goal.check else ""
        text = shorten(f"{number + 1}. {goal.text}{check}", MAX_GOAL_CHARACTERS)
        add("" if number else "Goals", word, text, style)
    files = list(stats.changed)
    for number, path in enumerate(files[:MAX_FILES]):
        plus, minus = stats.lines.get(path, (0, 0))
        add("" if number else "Files", f"+{plus} -{minus}" if plus or minus else "changed", path)
    if len(files) > MAX_FILES:
        add("", "", f"and {len(files) - MAX_FILES:,} more")
    if not files:
        add("Files", "-", "")
    names = ", ".join(f"{name} {count}" for name, count in sorted(stats.commands.items()))
    add("Commands", f"{sum(stats.commands.values()):,}", names)
    usage = stats.usage
    limit = f" of ${stats.budget:g}" if stats.budget else ""
    parts = f"{usage.prompt:,} in, {usage.cached:,} of them cached; {usage.completion:,} out"
    add("Tokens", f"{stats.tokens:,}", parts)
    add("Cost", money(usage.cost), f"{at_host(stats.model, stats.host)}{limit}")
    if len(stats.by_model) > 1 and usage.cost != 0:
        for name, part in stats.by_model.items():
            add("", money(part.cost), f"{name}, {part.prompt + part.completion:,} tokens")
    details = f"{counted(stats.step, 'step')}; {duration(stats.waited)} at questions or idle"
    add("Working", duration(stats.seconds), details)
    yield from markup.render_lines(grid, page.columns, page.code_theme)


WORDS: Mapping[str, str] = {
    "cost": "the cost of the run so far, and its budget",
    "goals": "the goals, and which of them their checks confirm",
    "context": "the parts of the last prompt, in tokens",
    "memory": "the memories recalled for this step",
    "thoughts": "all thoughts of this step",
    "full": "the whole last result, in a pager",
}


class RunWords:
    """Answer words after a slash. Pass events of the run's own agent to `add`. `stats` folds those of all agents."""

    NOT_IN_CHECKPOINT = ("_stats", "_recalled")

    def __init__(self, stats: RunStats) -> None:
        self._stats = stats
        self._system_tokens = 0
        self._prompted: Prompted | None = None
        self._recalled: Recalled | None = None
        self._core: Recalled | None = None
        self._thoughts: Thoughts | None = None
        self.result = ""  # the text of the last result

    def add(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._system_tokens = event.system_tokens
            case Prompted():
                self._prompted = event
            case Recalled(core=True):
                self._core = event
            case Recalled():
                self._recalled = event
            case Thought():
                self._thoughts = event.thoughts
            case Returned():
                self.result = event.text

    def lines(self, word: str, page: Page) -> Iterator[str]:
        """Yield the lines that answer any of WORDS except `full`."""
        answers: Mapping[str, Callable[[Page], Iterator[str]]] = {
            "cost": lambda page: cost_lines(self._stats, page),
            "goals": lambda page: goal_lines(self._stats, page),
            "thoughts": lambda page: rendering.all_thoughts(self._thoughts, page) if self._thoughts else iter(()),
            "context": self._context,
            "memory": self._memories,
        }
        yield from answers[word](page)

    def _context(self, page: Page) -> Iterator[str]:
        if self._prompted is None:
            yield page.prose("Prompt:", "none was sent yet", "label")
            return
        tokens, window = self._prompted.tokens, self._stats.window
        memories = len(self._recalled.memories) if self._recalled else 0
        yield page.prose("Prompt:", f"{tokens:,} of {window:,} tokens, {tokens / max(1, window):.0%}", "label")
        yield page.prose("  goals, rules and commands:", f"{self._system_tokens:,}", "label")
        rest = f"{tokens - self._system_tokens:,}, in {counted(self._prompted.messages - 1, 'message')}"
        yield page.prose("  steps, memories and limits:", rest, "label")
        yield page.prose("Memories:", f"{memories or 'none'} recalled", "label")
        if self._prompted.left:
            yield page.prose("Limits:", self._prompted.left, "label")

    def _memories(self, page: Page) -> Iterator[str]:
        core = self._core.memories if self._core else ()
        memories = (*core, *(self._recalled.memories if self._recalled else ()))
        for memory in memories:
            yield page.prose(f"{memory_name(memory.id)}:", memory.text)
        if self._core and self._core.left_out:
            yield f"{len(self._core.left_out)} of the core do not fit; /memory core lists them."
        if not memories:
            yield "No memory was recalled for this step."


def report(stats: RunStats, page: Page) -> Iterator[str]:
    """Render the final report: goals, changes, costs."""
    commands = ", ".join(f"{name} {count}" for name, count in sorted(stats.commands.items()))
    goals = []
    for number, goal in enumerate(stats.task.goals if stats.task else ()):
        word = _GOAL_STATUSES[stats.goal_status(number)][0]
        goals.append(f"{number + 1}. {goal}{f' ({word})' if word else ''}")
    rows = {
        "Goals": "; ".join(goals),
        "Files changed": ", ".join(stats.changed) or "none",
        "Commands": f"{sum(stats.commands.values())} ({commands})" if commands else "none",
        "Model": at_host(stats.model, stats.host),
    }
    for label, text in rows.items():
        yield page.prose(f"{label}:", shorten(text, MAX_RESULT_CHARACTERS), "label")
    yield from cost_lines(stats, page)


def next_steps(stats: RunStats, log: str, page: Page) -> Iterator[str]:
    """Render where the log is, and how to continue an unfinished run."""
    yield from _copyable("Log:", log, page)
    if stats.outcome is None or stats.outcome.status != Status.FINISHED:
        yield from _copyable("Resume:", f"autoagent resume {stats.run}", page)


def cost_lines(stats: RunStats, page: Page) -> Iterator[str]:
    """Render the costs of the run so far."""
    usage = stats.usage
    parts = [f"{name} {money(part.cost)}" for name, part in stats.by_model.items()]
    by_model = f" ({', '.join(parts)})" if len(parts) > 1 else ""
    rows = {
        "Tokens": f"{stats.tokens:,} ({usage.prompt:,} in, {usage.cached:,} of them cached; {usage.completion:,} out)",
        "Cost": cost_text(stats) + by_model,
        "Time": f"{duration(stats.seconds)}, {counted(stats.step, 'step')}",
    }
    for label, text in rows.items():
        yield page.prose(f"{label}:", text, "label")


def goal_lines(stats: RunStats, page: Page) -> Iterator[str]:
    """Render a line for each goal, with the result of its check."""
    for number, goal in enumerate(stats.task.goals if stats.task else ()):
        met = stats.met.get(number)
        unknown = "not checked yet" if goal.check else "no check"
        word = {True: "met", False: "NOT met", None: unknown}[met]
        ink: Ink = "quiet" if met is None else "added" if met else "alarm"
        yield f"  {page.ink(ink, word)}: " + wrap(f"{number + 1}. {goal.text}", page.columns, at=4 + width(word))


def _copyable(label: str, text: str, page: Page) -> Iterator[str]:
    """Render a text to be copied, never broken: after its label, or on the next line if it does not fit there."""
    text = escape(text)
    if width(label) + 1 + width(text) <= page.columns:
        yield f"{page.ink('label', label)} {text}"
    else:
        yield page.ink("label", label)
        yield text
