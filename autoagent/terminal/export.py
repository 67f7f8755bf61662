"""A run as Markdown to hand on."""

from __future__ import annotations

EXPORTED_COLUMNS = 100


def exported(screen: str, title: str) -> str:
    """Return the text of a screen as a Markdown file."""
    fence = "`" * max(3, 1 + max((len(line) - len(line.lstrip("`")) for line in screen.split("\n")), default=0))
    return f"# {title}\n\n{fence}\n{screen.strip()}\n{fence}\n"
