"""Draw a model's Markdown, coloured code and tables with rich, imported when first used.

Markdown is escaped first, and nothing in it is left out, hidden, or turned into a link. Anything that
Markdown would show as something else (entities, links, images, HTML) is shown as written. Every line is indented, so
that none can pass for the program's own.
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
    for line in render_lines(document, max(20, columns - len(INDENT)), theme):
        if line or not blank:
            yield f"{INDENT}{line}".rstrip()
        blank = not line


def render_lines(renderable: RenderableType, columns: int, theme: str) -> list[str]:
    """Return the lines that rich draws, without trailing blanks."""
    from rich.console import Console
    from rich.theme import Theme

    buffer = StringIO()
    Console(
        file=buffer, width=columns, force_terminal=bool(theme), highlight=False,
        color_system="standard" if theme else None, no_color=not theme,
        theme=Theme({"markdown.code": "bold", "markdown.code_block": ""}),
    ).print(renderable)  # fmt: skip
    return [line.rstrip() for line in buffer.getvalue().rstrip("\n").split("\n")]


_MAX_COLOURED_CHARACTERS = 2_000  # of a line, as a lexer may be slow beyond that


def preload() -> None:
    """Import the code highlighter ahead of its first use, as that takes a quarter of a second."""
    import rich.console
    import rich.syntax  # noqa: F401


def highlighter(path: str, theme: str) -> Callable[[str], str]:
    """Return a function that colours a line of the file `path`. It changes no line of an unknown kind of file."""
    from rich.console import Console
    from rich.syntax import Syntax

    lexer = Syntax.guess_lexer(path)
    if lexer in ("default", "text"):
        return lambda line: line
    syntax = Syntax("", lexer, theme=theme)
    console = Console(force_terminal=True, color_system="standard", no_color=False, width=10_000)

    def colour(line: str) -> str:
        if len(line) > _MAX_COLOURED_CHARACTERS or not line.strip():
            return line
        code = syntax.highlight(line)
        code.rstrip()  # in place: the newline that highlight() adds
        blanks = line[len(line.rstrip()) :]
        with console.capture() as capture:
            console.print(code, end="", soft_wrap=True)
        return capture.get() + blanks

    return colour
