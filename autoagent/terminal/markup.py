"""Draw a model's Markdown, coloured code and tables with rich, which is imported when used.

The text of Markdown is escaped first, and nothing in it is left out, hidden, or turned into a link. What would show
other characters than it holds (entities, links, pictures, HTML) stands as it was written. Each line stands behind an
indent, so that none passes for the program's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import StringIO
from typing import TYPE_CHECKING

from autoagent.text.sanitize import escape, fold_blanks

if TYPE_CHECKING:
    from rich.console import RenderableType

INDENT = "  "
_AS_WRITTEN = ("entity", "escape", "link", "image", "autolink", "html_inline", "html_block", "reference")
_MARKUP = re.compile(
    r"^ {0,3}(?:#{1,6} |[-*+] |\d{1,9}[.)] |>|```|~~~|\|.*\|)|\*\*\S|(?<!\w)[*_]\S[^\n]*\S[*_](?!\w)|`[^`\n]+`", re.M
)


def has_markup(text: str) -> bool:
    """Return whether a text holds anything that Markdown would draw."""
    return _MARKUP.search(text) is not None


def drawn(text: str, columns: int, theme: str) -> Iterator[str]:
    """Yield the lines of a text as Markdown draws it. `theme` is the one of rich for code, '' for no colours."""
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    document = Markdown("", code_theme=theme or "ansi_dark", hyperlinks=False)
    document.parsed = MarkdownIt().enable("table").disable(_AS_WRITTEN).parse(escape(fold_blanks(text)))
    blank = True
    for line in lines_of(document, max(20, columns - len(INDENT)), theme):
        if line or not blank:
            yield f"{INDENT}{line}".rstrip()
        blank = not line


def lines_of(renderable: RenderableType, columns: int, theme: str) -> list[str]:
    """Return the lines that rich draws, without blanks at their ends."""
    from rich.console import Console
    from rich.theme import Theme

    lines = StringIO()
    Console(
        file=lines, width=columns, force_terminal=bool(theme), highlight=False,
        color_system="standard" if theme else None, no_color=not theme,
        theme=Theme({"markdown.code": "bold", "markdown.code_block": ""}),
    ).print(renderable)  # fmt: skip
    return [line.rstrip() for line in lines.getvalue().rstrip("\n").split("\n")]


LONGEST = 2_000  # characters of a line; a lexer may take long for more


def preload() -> None:
    """Import the code highlighter, which takes a quarter of a second."""
    import rich.console
    import rich.syntax  # noqa: F401


def highlighter(path: str, theme: str) -> Callable[[str], str]:
    """Return a function that colours a line of the file `path` in the terminal's colours, if its kind is known."""
    from rich.console import Console
    from rich.syntax import Syntax

    lexer = Syntax.guess_lexer(path)
    if lexer in ("default", "text"):
        return lambda line: line
    syntax = Syntax("", lexer, theme=theme)
    screen = Console(force_terminal=True, color_system="standard", no_color=False, width=10_000)

    def colored(line: str) -> str:
        if len(line) > LONGEST or not line.strip():
            return line
        code = syntax.highlight(line)
        code.rstrip()
        blanks = line[len(line.rstrip()) :]
        with screen.capture() as capture:
            screen.print(code, end="", soft_wrap=True)
        return capture.get() + blanks

    return colored
