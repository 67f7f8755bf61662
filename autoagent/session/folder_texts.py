"""Read the instructions for an agent in a folder: the nearest AGENTS.md, and skills (folders with a SKILL.md).

Both are trusted by their content, which for a skill is that of all its files. The user's own files need no trust.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.core.errors import CommandError, SettingsError
from autoagent.core.frozen import dataclass
from autoagent.core.services import Skill
from autoagent.registry.parts import Place, UntrustedValue
from autoagent.settings import user_config_path
from autoagent.text.quoting import defuse
from autoagent.text.text_file import is_inside, is_there, open_regular, read_text
from autoagent.text.yaml_file import mapping_of

if TYPE_CHECKING:
    from autoagent.commands.registry import Command

AGENTS_FILE, SKILL_FILE = "AGENTS.md", "SKILL.md"
MAX_SKILLS = 50  # per folder of skills
MAX_FILES, MAX_BYTES = 200, 5_000_000  # per skill, with its folders and links
MAX_DESCRIPTION = 1024  # characters, as in the standard
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FolderTexts:
    """The instructions of an AGENTS.md, or '', and the skills."""

    instructions: str = ""
    skills: tuple[Skill, ...] = ()

    @property
    def commands(self) -> tuple[Command, ...]:
        """Return the command that loads skills, if there are any."""
        if not self.skills:
            return ()
        from autoagent.commands.skills import skill_commands

        return skill_commands(self.skills, _trusted_contents)


def user_skills_path() -> Path:
    """Return the folder of the user's own skills."""
    return user_config_path(os.environ).with_name("skills")


def folder_texts(here: Place, say: Callable[[str], None]) -> FolderTexts:
    """Return the trusted instructions of the folder and the user, and report them through `say`.

    Only the nearest AGENTS.md applies: in the workspace, a folder above it, else the user's. A user's skill takes
    precedence over the folder's with the same name.
    """
    user_skills = user_skills_path()
    skills = {skill.name: skill for skill in skills_in(user_skills, user_skills, say)}
    for skill in folder_skills(here.folder, say):
        if here.trusts(untrusted_skill(skill, here.folder)):
            skills.setdefault(skill.name, skill)
    instructions, location = "", ""
    path = nearest_agents_file(here.folder, here.setting("workspace"))
    user_agents_file = user_skills.with_name(AGENTS_FILE)
    try:
        if path is not None:
            untrusted = untrusted_agents_file(path, here.folder)
            if here.trusts(untrusted):
                instructions, location = untrusted.value.strip(), untrusted.file
        elif user_agents_file.is_file():
            instructions, location = read_text(user_agents_file).strip(), str(user_agents_file)
    except SettingsError as error:
        say(f"{error} The agent is not told its content.")
    if instructions:
        say(f"The agent is told what {location} says ({len(instructions.splitlines())} lines).")
    if skills:
        say(f"It may load these skills: {', '.join(skills)}.")
    return FolderTexts(defuse(instructions), tuple(skills.values()))


def _trusted_contents(skill: Skill) -> Mapping[str, bytes]:
    """Return the files of a skill. Raises CommandError if it has changed since the run began."""
    try:
        contents = skill_contents(skill.place)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    if digest_of(contents) != skill.digest:
        raise CommandError(f"The skill {skill.name} has changed since the run began; it is not loaded.")
    return contents


def nearest_agents_file(folder: Path, workspace: Path) -> Path | None:
    """Return the AGENTS.md nearest to the workspace, in it or above it, up to the folder, or None.

    A file behind a link out of the folder is ignored. Raises SettingsError if the search fails.
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
    """Return an AGENTS.md as a value that needs trust. Raises SettingsError if it cannot be read."""
    about = "what the agent is told in this folder"
    return UntrustedValue(file=_relative(path, folder), name="", value=read_text(path), about=about, additive=True)


def untrusted_skill(skill: Skill, folder: Path) -> UntrustedValue:
    """Return a skill as a value that needs trust."""
    value = f"{skill.description} [{len(skill.files)} further files, SHA-256 {skill.digest}]"
    return UntrustedValue(
        file=_relative(skill.place, folder), name="", value=value, about="how the agent does something", additive=True
    )


def untrusted_texts(folder: Path, workspace: Path) -> Iterator[UntrustedValue]:
    """Yield a folder's readable instructions for an agent. Unreadable ones are reported later."""
    path = nearest_agents_file(folder, workspace)
    try:
        if path is not None:
            yield untrusted_agents_file(path, folder)
    except SettingsError:
        pass
    for skill in folder_skills(folder, lambda problem: None):
        yield untrusted_skill(skill, folder)


def folder_skills(folder: Path, say: Callable[[str], None]) -> Iterator[Skill]:
    """Yield the skills of a folder. `say` receives the problems of others."""
    for place in (".agents/skills", ".claude/skills"):
        yield from skills_in(folder / place, folder, say)


def skills_in(place: Path, folder: Path, say: Callable[[str], None]) -> list[Skill]:
    """Return the skills of a folder of skills inside `folder`. `say` receives the problems of others."""
    try:
        names = sorted(entry.name for entry in os.scandir(place) if entry.is_dir() and entry.name.isprintable())
    except OSError:
        return []
    if not is_inside(folder, place):
        say(f"{place} leads out of the folder; its skills are left out.")
        return []
    if len(names) > MAX_SKILLS:
        say(f"{place} holds {len(names)} skills; only the first {MAX_SKILLS} are used.")
    skills = []
    for name in names[:MAX_SKILLS]:
        path = place / name / SKILL_FILE
        if place != folder and not (is_inside(folder, path) and is_inside(folder, path.parent)):
            say(f"{path.parent} leads out of the folder; it is left out.")
        elif path.exists():
            try:
                skills.append(read_skill(place / name))
            except SettingsError as error:
                say(f"A skill is left out: {error}")
    return skills


def read_skill(place: Path) -> Skill:
    """Read a skill. Raises SettingsError naming the file if it violates the standard."""
    name, description, body = skill_parts(read_text(place / SKILL_FILE), place / SKILL_FILE)
    contents = skill_contents(place)
    description, body = defuse(description), defuse(body)
    return Skill(name, description, body, place, tuple(sorted(contents.keys() - {SKILL_FILE})), digest_of(contents))


def skill_parts(text: str, path: Path) -> tuple[str, str, str]:
    """Return the name, description and body of a SKILL.md. Raises SettingsError naming the file."""
    front_matter = _FRONT_MATTER.match(text)
    if front_matter is None:
        raise SettingsError(f"{path}: must begin with `---`, then `name:` and `description:`, then `---`.")
    entries = mapping_of(front_matter[1], path, None)
    texts = {key: " ".join(entries[key].text().split()) if key in entries else "" for key in ("name", "description")}
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?", texts["name"]):
        raise SettingsError(f"{path}: name: must be up to 64 lowercase letters, digits and '-', not {texts['name']!r}.")
    if not 0 < len(texts["description"]) <= MAX_DESCRIPTION:
        raise SettingsError(f"{path}: description: must describe the skill in at most {MAX_DESCRIPTION} characters.")
    return texts["name"], texts["description"], text[front_matter.end() :].strip()


def digest_of(contents: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the names and the contents of files."""
    lines = (f"{name}\0{hashlib.sha256(content).hexdigest()}\n" for name, content in sorted(contents.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def skill_contents(place: Path) -> dict[str, bytes]:
    """Return a skill's files, skipping symlinks except SKILL.md. Raises SettingsError if one is unreadable or large."""
    contents: dict[str, bytes] = {}
    too_large = SettingsError(f"{place}: holds more than {MAX_FILES} files and folders or {MAX_BYTES // 1_000_000} MB.")
    size = entries = 0
    for folder, folders, names in os.walk(place):
        folders.sort()
        entries += len(folders) + len(names)
        if entries > MAX_FILES:
            raise too_large
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink() and path != place / SKILL_FILE:
                continue
            try:
                with open_regular(path) as file:
                    content = file.read(MAX_BYTES - size + 1)
            except OSError as error:
                raise SettingsError(f"{path}: cannot be read: {error.strerror}.") from error
            size += len(content)
            contents[path.relative_to(place).as_posix()] = content
            if size > MAX_BYTES:
                raise too_large
    return contents


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
