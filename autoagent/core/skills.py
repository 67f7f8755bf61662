"""A skill as a record: how something is done, written down for an agent, with files that help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Skill:
    """A folder with a SKILL.md.

    Attributes:
        name, description: the part shown in every prompt.
        body: the text the agent gets when it loads the skill.
        place: the folder.
        files: its other files, relative to the folder, sorted.
        digest: the SHA-256 of the names and contents of all its files.
    """

    name: str
    description: str
    body: str
    place: Path
    files: tuple[str, ...]
    digest: str
