"""Styles of prompting, by the abilities of the model. Styles differ nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StyleName = Literal["full", "brief", "file"]


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """A way of prompting that suits a kind of model. The provider of the model chooses it.

    Attributes:
        name: its name in the setting and the log.
        thinks: ask for thoughts before the command. Small models repeat the thoughts that they are shown.
        guided: describe the workspace in each prompt and offer only arguments and commands that fit it.
        blocks: code follows the reply in a Markdown block instead of a JSON string. The provider's grammar must bind
            it.
        reasons: ask the model to judge goals as a verifier, and to extract facts at the end of a run.
        writes_file: each reply is the text of the one file that the task names.
    """

    name: StyleName
    thinks: bool = True
    guided: bool = False
    blocks: bool = False
    reasons: bool = True
    writes_file: bool = False


FULL = PromptStyle("full")
BRIEF = PromptStyle("brief", thinks=False, guided=True, reasons=False)
BRIEF_BLOCKS = PromptStyle("brief", thinks=False, guided=True, reasons=False, blocks=True)
FILE = PromptStyle("file", writes_file=True)

STYLES: dict[str, PromptStyle] = {style.name: style for style in (FULL, BRIEF, FILE)}

SMALL = 4e9
"""Models with fewer parameters are prompted in brief."""


def style_for(parameters: float | None, wanted: str = "", *, blocks: bool = False) -> PromptStyle:
    """Return the style for a model of so many parameters, None if unknown. `wanted` is the user's setting."""
    if wanted == "brief" or (not wanted and parameters is not None and parameters < SMALL):
        return BRIEF_BLOCKS if blocks else BRIEF
    return FULL
