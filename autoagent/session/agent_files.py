"""A folder's instructions for an agent: the nearest AGENTS.md, and skills, which are folders with a SKILL.md.

Both are trusted by content: a skill by all of its files.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from autoagent.core.errors import SettingsError
from autoagent.core.services import Skill
from autoagent.registry.parts import UntrustedValue
from autoagent.text.text_file import is_inside, is_there, open_regular, read_text
from autoagent.text.yaml_file import mapping_of

AGENTS_FILE, SKILL_FILE = "AGENTS.md", "SKILL.md"
SKILL_FOLDERS = (Path(".agents/skills"), Path(".claude/skills"))
"""Where a folder keeps skills."""

SKILLS = 50  # of one folder of skills
FILES, BYTES = 200, 5_000_000  # of one skill
DESCRIPTION = 1024  # characters, as the standard has it
_HEAD = re.compile(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)", re.DOTALL)


def nearest_agents_file(folder: Path, workspace: Path) -> Path | None:
    """Return the AGENTS.md that is nearest to the workspace, in it or above it, up to the folder, or None.

    One that a link leads out of the folder to does not count. Raises SettingsError where that cannot be looked up.
    """
    work = (folder / workspace).absolute()
    within = work.is_relative_to(folder)
    places = [work, *(parent for parent in work.parents if parent.is_relative_to(folder))] if within else [work, folder]
    for place in places:
        path = place / AGENTS_FILE
        if is_there(path) and path.is_file() and is_inside(folder if within or place == folder else place, path):
            return path
    return None


def untrusted_agents_file(path: Path, folder: Path) -> UntrustedValue:
    """Return an AGENTS.md as a value to ask the user about. Raises SettingsError if it cannot be read."""
    about = "what the agent is told in this folder"
    return UntrustedValue(file=_shown(path, folder), name="", value=read_text(path), about=about, additive=True)


def untrusted_skill(skill: Skill, folder: Path) -> UntrustedValue:
    """Return a skill as a value to ask the user about."""
    value = f"{skill.description} [{len(skill.files)} further files, SHA-256 {skill.digest}]"
    return UntrustedValue(
        file=_shown(skill.place, folder), name="", value=value, about="how the agent does something", additive=True
    )


def untrusted_texts(folder: Path, workspace: Path) -> Iterator[UntrustedValue]:
    """Yield a folder's instructions for an agent, or nothing for unreadable ones, which are reported later."""
    path = nearest_agents_file(folder, workspace)
    try:
        if path is not None:
            yield untrusted_agents_file(path, folder)
    except SettingsError:
        pass
    for place in SKILL_FOLDERS:
        for skill in skills_in(folder / place, folder, lambda problem: None):
            yield untrusted_skill(skill, folder)


def skills_in(place: Path, folder: Path, tell: Callable[[str], None]) -> list[Skill]:
    """Return the skills of a folder of skills inside `folder`. `tell` hears the problems of the others."""
    try:
        names = sorted(entry.name for entry in os.scandir(place) if entry.is_dir() and entry.name.isprintable())
    except OSError:
        return []
    if not is_inside(folder, place):
        tell(f"{place} leads out of the folder; its skills are left out.")
        return []
    if len(names) > SKILLS:
        tell(f"{place} holds {len(names)} skills; the first {SKILLS} are taken.")
    found = []
    for name in names[:SKILLS]:
        if (place / name / SKILL_FILE).exists():
            try:
                found.append(read_skill(place / name))
            except SettingsError as error:
                tell(f"A skill is left out: {error}")
    return found


def read_skill(place: Path) -> Skill:
    """Read a skill. Raises SettingsError, which names the file, for one that is not in the standard's form."""
    name, description, body = skill_parts(read_text(place / SKILL_FILE), place / SKILL_FILE)
    contents = skill_contents(place)
    return Skill(name, description, body, place, tuple(sorted(contents.keys() - {SKILL_FILE})), digest_of(contents))


def skill_parts(text: str, path: Path) -> tuple[str, str, str]:
    """Return name, description and body of the text of a SKILL.md. Raises SettingsError, which names the file."""
    head = _HEAD.match(text)
    if head is None:
        raise SettingsError(f"{path}: must begin with `---`, then `name:` and `description:`, then `---`.")
    entries = mapping_of(head[1], path, None)
    said = {key: " ".join(entries[key].text().split()) if key in entries else "" for key in ("name", "description")}
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?", said["name"]):
        raise SettingsError(f"{path}: name: must be small letters, digits and '-', at most 64, not {said['name']!r}.")
    if not 0 < len(said["description"]) <= DESCRIPTION:
        raise SettingsError(f"{path}: description: must say in at most {DESCRIPTION} characters what the skill is for.")
    return said["name"], said["description"], text[head.end() :].strip()


def digest_of(contents: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the names and the contents of files."""
    lines = (f"{name}\0{hashlib.sha256(content).hexdigest()}\n" for name, content in sorted(contents.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def skill_contents(place: Path) -> dict[str, bytes]:
    """Return all files of a skill with their contents. Links are left out, but a SKILL.md that is one is read.

    Raises SettingsError for one that is too large or cannot be read.
    """
    contents: dict[str, bytes] = {}
    size = 0
    for folder, folders, names in os.walk(place):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink() and path != place / SKILL_FILE:
                continue
            try:
                with open_regular(path) as file:
                    content = file.read(BYTES - size + 1)
            except OSError as error:
                raise SettingsError(f"{path}: cannot be read: {error.strerror}.") from error
            size += len(content)
            contents[path.relative_to(place).as_posix()] = content
            if size > BYTES or len(contents) > FILES:
                raise SettingsError(f"{place}: holds more than {FILES} files or {BYTES // 1_000_000} MB.")
    return contents


def _shown(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
