"""Define the screen's colours: a theme for dark or light terminals, and the user's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from colorama import Fore, Style

from autoagent.core.errors import SettingsError
from autoagent.core.frozen import dataclass

Ink = Literal[
    "thought", "action", "system", "user", "quiet", "alarm", "added", "removed", "hunk", "label",
    "read", "write", "run", "network", "irreversible",
]  # fmt: skip

_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_CODES: Mapping[str, str] = {
    "default": "", "bold": Style.BRIGHT, "dim": Style.DIM,
    **{name: f"\x1b[{30 + number}m" for number, name in enumerate(_NAMES)},
    **{f"bright-{name}": f"\x1b[{90 + number}m" for number, name in enumerate(_NAMES)},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Palette:
    """The colour codes by ink, and the name of rich's theme for code."""

    codes: Mapping[Ink, str]
    code_theme: str


DARK = Palette(
    {
        "thought": Fore.YELLOW, "action": Fore.CYAN, "system": Fore.BLUE, "user": Fore.GREEN, "quiet": Style.DIM,
        "alarm": Style.BRIGHT + Fore.RED, "added": Fore.GREEN, "removed": Fore.RED, "hunk": Fore.CYAN,
        "label": Style.BRIGHT, "read": Fore.GREEN, "write": Fore.YELLOW, "run": Fore.MAGENTA, "network": Fore.BLUE,
        "irreversible": Style.BRIGHT + Fore.RED,
    },
    "ansi_dark",
)  # fmt: skip
LIGHT = Palette({**DARK.codes, "thought": Fore.BLUE, "system": Fore.MAGENTA, "write": Fore.CYAN}, "ansi_light")


def palette_of(theme: Sequence[str], env: Mapping[str, str], isatty: bool) -> Palette | None:
    """Return the colours to use, or None: by NO_COLOR, CLICOLOR_FORCE, CLICOLOR=0, then by the terminal.

    `theme` is `auto`, `dark`, `light` or `none`, plus colours of single inks, such as `thought=bright-cyan`. `auto` is
    light if COLORFGBG says so. Raises SettingsError for anything else.
    """
    is_light = env.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    palette: Palette | None = LIGHT if is_light else DARK
    codes: dict[Ink, str] = {}
    for word in theme:
        name, separator, colors = (part.strip() for part in word.partition("="))
        ink = next((ink for ink in get_args(Ink) if ink == name), None)
        if not separator and name in ("auto", "dark", "light", "none"):
            palette = {"dark": DARK, "light": LIGHT, "none": None}.get(name, palette)
        elif ink is None or not colors:
            inks = ", ".join(get_args(Ink))
            raise SettingsError(f"AUTOAGENT_THEME: {word!r} is not auto, dark, light, none or NAME=COLOUR ({inks}).")
        else:
            codes[ink] = "".join(map(_code, colors.split()))
    has_colors = isatty and env.get("TERM", "") not in ("", "dumb")
    is_forced = env.get("CLICOLOR_FORCE", "0") not in ("", "0")
    if palette is None or env.get("NO_COLOR") or not (is_forced or (has_colors and env.get("CLICOLOR") != "0")):
        return None
    return Palette({**palette.codes, **codes}, palette.code_theme)


def _code(color: str) -> str:
    if re.fullmatch(r"\d{1,3}", color) and int(color) < 256:
        return f"\x1b[38;5;{color}m"
    if color not in _CODES:
        raise SettingsError(f"AUTOAGENT_THEME: {color!r} is not a colour; use 0 to 255, {', '.join(_CODES)}.")
    return _CODES[color]
