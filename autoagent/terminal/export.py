"""A run as a file to hand on: Markdown, or a page with its colours that loads nothing."""

from __future__ import annotations

from io import StringIO

EXPORTED_COLUMNS = 100


def exported(screen: str, *, html: bool, title: str) -> str:
    """Return the text of a screen, with its colours if it is to be `html`, as a file of its own."""
    if not html:
        fence = "`" * max(3, 1 + max((len(line) - len(line.lstrip("`")) for line in screen.split("\n")), default=0))
        return f"# {title}\n\n{fence}\n{screen.strip()}\n{fence}\n"
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    console = Console(file=StringIO(), record=True, width=EXPORTED_COLUMNS, force_terminal=True, highlight=False)
    console.print(Text.from_ansi(screen.strip("\n")), soft_wrap=True)
    page = console.export_html(theme=MONOKAI, inline_styles=True)
    return page.replace("<head>", f"<head>\n<title>{title}</title>", 1)
