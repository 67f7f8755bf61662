"""Markdown of a model's on the terminal: drawn by rich, with nothing in it left out, hidden, or turned into a link.

The text is escaped first. What would show other characters than it holds (entities, links, pictures, HTML) is not
Markdown here and stands as it was written. Each line stands behind an indent, so that none passes for the program's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO

from autoagent.text.sanitize import escape, fold_blanks

INDENT = "  "
_AS_WRITTEN = ("entity", "escape", "link", "image", "autolink", "html_inline", "html_block", "reference")
_MARKUP = re.compile(
    r"^ {0,3}(?:#{1,6} |[-*+] |\d{1,9}[.)] |>|```|~~~|\|.*\|)|\*\*\S|(?<!\w)[*_]\S[^\n]*\S[*_](?!\w)|`[^`\n]+`", re.M
)


def has_markup(text: str) -> bool:
    """Return whether a text holds anything that Markdown would draw."""
    return _MARKUP.search(text) is not None


def drawn(text: str, columns: int, *, color: bool) -> Iterator[str]:
    """Yield the lines of a text as Markdown draws it."""
    from markdown_it import MarkdownIt
    from rich.console import Console
    from rich.markdown import Markdown

    document = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    document.parsed = MarkdownIt().enable("table").disable(_AS_WRITTEN).parse(escape(fold_blanks(text)))
    lines = StringIO()
    Console(
        file=lines, width=max(20, columns - len(INDENT)), force_terminal=color, highlight=False,
        color_system="standard" if color else None, no_color=not color,
    ).print(document)  # fmt: skip
    blank = True
    for line in lines.getvalue().rstrip("\n").split("\n"):
        if line.strip() or not blank:
            yield f"{INDENT}{line.rstrip()}".rstrip()
        blank = not line.strip()
