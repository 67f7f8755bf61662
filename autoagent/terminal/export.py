"""A run as a file to hand on: Markdown, or a page with its colours that loads nothing."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.terminal_theme import TerminalTheme

EXPORTED_COLUMNS = 100
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="UTF-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>TITLE</title>
<style>
body {{ margin: 0; color: {foreground}; background: {background} }}
pre {{ margin: 2em auto; padding: 0 1em; width: max-content; max-width: 100%; box-sizing: border-box; overflow-x: auto;
  font: 14px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
</style>
</head>
<body>
<pre>{code}</pre>
</body>
</html>
"""


def exported(screen: str, *, html: bool, title: str) -> str:
    """Return the text of a screen, with its colours if it is to be `html`, as a file of its own."""
    if not html:
        fence = "`" * max(3, 1 + max((len(line) - len(line.lstrip("`")) for line in screen.split("\n")), default=0))
        return f"# {title}\n\n{fence}\n{screen.strip()}\n{fence}\n"
    from html import escape

    from rich.console import Console
    from rich.text import Text

    console = Console(file=StringIO(), record=True, width=EXPORTED_COLUMNS, force_terminal=True, highlight=False)
    console.print(Text.from_ansi(screen.strip("\n")), soft_wrap=True)
    form = _PAGE.replace("TITLE", escape(title).replace("{", "{{").replace("}", "}}"))
    return console.export_html(theme=theme(), inline_styles=True, code_format=form)


def theme() -> TerminalTheme:
    """Return the colours of an export: those of a dark terminal."""
    from rich.terminal_theme import TerminalTheme

    usual = [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)]
    usual += [(88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)]
    bright = [(125, 133, 144), (255, 161, 152), (86, 211, 100), (227, 179, 65)]
    bright += [(121, 192, 255), (210, 168, 255), (86, 212, 221), (240, 246, 252)]
    return TerminalTheme((22, 27, 34), (201, 209, 217), usual, bright)
