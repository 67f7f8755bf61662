"""Lines of code in colours, by rich and its lexers, which are imported with the first line."""

from __future__ import annotations

from collections.abc import Callable

LONGEST = 2_000  # characters of a line; a lexer may take long for more


def preload() -> None:
    """Import the code highlighter, which takes a quarter of a second."""
    import rich.console
    import rich.syntax  # noqa: F401


def highlighter(path: str) -> Callable[[str], str]:
    """Return what colours a line of the file `path`, by the terminal's own colours. A kind not known stays as it is."""
    from rich.console import Console
    from rich.syntax import Syntax

    lexer = Syntax.guess_lexer(path)
    if lexer in ("default", "text"):
        return lambda line: line
    syntax = Syntax("", lexer, theme="ansi_dark")
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
