"""The end of a run as a table, drawn by rich: goals with their checks, files, commands, cost and time."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING

from autoagent.terminal.rendering import STANDINGS, Canvas, at_host, counted, duration, money
from autoagent.text.sanitize import escape, shorten

if TYPE_CHECKING:
    from autoagent.agent.stats import RunStats

MOST_FILES = 12  # named; of further ones the number is told
GOAL_CHARACTERS = 300
_STYLES = {
    "checked": "green", "shown": "green", "accepted": "green", "claimed": "yellow", "unmet": "bold red", "": "dim",
}  # fmt: skip


def table(tally: RunStats, page: Canvas) -> Iterator[str]:
    """Yield the lines of the table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")

    def add(label: str, state: str, text: str, style: str = "") -> None:
        grid.add_row(Text(label), Text(state, style=style), Text(escape(text)))

    for number, goal in enumerate(tally.task.goals if tally.task else ()):
        standing = tally.standing(number)
        word, style = {"claimed": "claimed", "": "-"}.get(standing, STANDINGS[standing]), _STYLES[standing]
        check = f"\ncheck: {goal.check}" if goal.check else ""
        text = shorten(f"{number + 1}. {goal.text}{check}", GOAL_CHARACTERS)
        add("" if number else "Goals", word, text, style)
    files = list(tally.changed)
    for number, path in enumerate(files[:MOST_FILES]):
        plus, minus = tally.lines.get(path, (0, 0))
        add("" if number else "Files", f"+{plus} -{minus}" if plus or minus else "changed", path)
    if len(files) > MOST_FILES:
        add("", "", f"and {len(files) - MOST_FILES:,} more")
    if not files:
        add("Files", "-", "")
    names = ", ".join(f"{name} {count}" for name, count in sorted(tally.commands.items()))
    add("Commands", f"{sum(tally.commands.values()):,}", names)
    usage, limit = tally.usage, f" of ${tally.budget:g}" if tally.budget else ""
    spent = f"{usage.prompt:,} in, {usage.cached:,} of them cached; {usage.completion:,} out"
    add("Tokens", f"{tally.tokens:,}", spent)
    add("Cost", money(usage.cost), f"{at_host(tally.model, tally.host)}{limit}")
    if len(tally.by_model) > 1:
        for name, part in tally.by_model.items():
            add("", money(part.cost), f"{name}, {part.prompt + part.completion:,} tokens")
    waited = f"{counted(tally.step, 'step')}; {duration(tally.waited)} at questions or idle"
    add("Working", duration(tally.seconds), waited)
    lines = StringIO()
    Console(
        file=lines, width=page.columns, force_terminal=page.color, highlight=False,
        color_system="standard" if page.color else None, no_color=not page.color,
    ).print(grid)  # fmt: skip
    for line in lines.getvalue().rstrip("\n").split("\n"):
        yield line.rstrip()
