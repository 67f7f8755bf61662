"""Draw a model's Markdown, coloured code and tables with rich, imported when first used.

Markdown is escaped first, and nothing in it is left out, hidden, or turned into a link. Anything that would display
other characters than it contains (entities, links, pictures, HTML) is shown as written. Each line is indented, so that
none passes for the program's own.
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
    """Return whether a text contains anything for Markdown to draw."""
    return _MARKUP.search(text) is not None


def render_markdown(text: str, columns: int, theme: str) -> Iterator[str]:
    """Yield the lines of a text drawn as Markdown. `theme` is rich's theme for code, '' for no colours."""
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
    """Return the lines that rich draws, without trailing blanks."""
    from rich.console import Console
    from rich.theme import Theme

    lines = StringIO()
    Console(
        file=lines, width=columns, force_terminal=bool(theme), highlight=False,
        color_system="standard" if theme else None, no_color=not theme,
        theme=Theme({"markdown.code": "bold", "markdown.code_block": ""}),
    ).print(renderable)  # fmt: skip
    return [line.rstrip() for line in lines.getvalue().rstrip("\n").split("\n")]


LONGEST = 2_000  # characters per line; a lexer may be slow beyond that


def preload() -> None:
    """Import the code highlighter, which takes a quarter of a second."""
    import rich.console
    import rich.syntax  # noqa: F401


def highlighter(path: str, theme: str) -> Callable[[str], str]:
    """Return a function that colours a line of the file `path`, or None for unknown kinds of file."""
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
