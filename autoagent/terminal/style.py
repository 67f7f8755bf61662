"""How a screen looks: colours, width, and what is kept and told beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autoagent.terminal.question_desk import NOWHERE_ELSE, Terms


@dataclass(frozen=True, slots=True)
class Style:
    """How the screen looks. `columns` None follows the terminal. `plain`: nothing streams, thoughts come whole.

    `whole`: nothing is cut. `thoughts`: `full`, `short` (in a line), `none`, or `auto`: the first, and the others in a
    line where t can show them. `history` is the file that keeps what is typed, for later runs; `notify` the command
    that is told of questions, `terms` what holds for these.
    """

    color: bool = False
    columns: int | None = None
    plain: bool = False
    whole: bool = False
    thoughts: str = "auto"
    history: Path | None = None
    notify: str = ""
    terms: Terms = NOWHERE_ELSE


AS_USUAL = Style()


def decide_color(env: Mapping[str, str], isatty: bool) -> bool:
    """Return whether to write colour codes: NO_COLOR, CLICOLOR_FORCE, CLICOLOR=0, then what the terminal is."""
    if env.get("NO_COLOR"):
        return False
    if env.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    if not isatty or env.get("CLICOLOR") == "0":
        return False
    return env.get("TERM", "" if os.name == "posix" else "windows") not in ("", "dumb")
