"""Load the agent's instructions from the folder and the user: AGENTS.md and skills, if trusted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.core.errors import CommandError, SettingsError
from autoagent.core.frozen import dataclass
from autoagent.core.services import Skill
from autoagent.session.agent_files import (
    AGENTS_FILE,
    SKILL_FOLDERS,
    digest_of,
    nearest_agents_file,
    skill_contents,
    skills_in,
    untrusted_agents_file,
    untrusted_skill,
)
from autoagent.session.session import Session
from autoagent.settings import user_config_path
from autoagent.text.quoting import defuse
from autoagent.text.text_file import read_text

if TYPE_CHECKING:
    from autoagent.commands.registry import Command


@dataclass(frozen=True, slots=True)
class FolderTexts:
    """Hold the instructions of an AGENTS.md with its place, or '', and the skills."""

    instructions: str = ""
    place: str = ""
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


def folder_texts(session: Session, say: Callable[[str], None]) -> FolderTexts:
    """Return the trusted instructions of the folder and the user, and report them through `say`.

    Only the nearest AGENTS.md applies: in the workspace, a folder above it, else the user's. A user's skill takes
    precedence over the folder's with the same name.
    """
    folder = session.folder
    user_skills = user_skills_path()
    skills = {skill.name: skill for skill in skills_in(user_skills, user_skills, say)}
    for place in SKILL_FOLDERS:
        for skill in skills_in(folder / place, folder, say):
            if session.holds(untrusted_skill(skill, folder)):
                skills.setdefault(skill.name, skill)
    instructions, location = "", ""
    path = nearest_agents_file(folder, session.settings.workspace)
    user_agents_file = user_skills.with_name(AGENTS_FILE)
    try:
        if path is not None:
            untrusted = untrusted_agents_file(path, folder)
            if session.holds(untrusted):
                instructions, location = untrusted.value.strip(), untrusted.file
        elif user_agents_file.is_file():
            instructions, location = read_text(user_agents_file).strip(), str(user_agents_file)
    except SettingsError as error:
        say(f"{error} The agent is not told its content.")
    if instructions:
        say(f"The agent is told what {location} says ({len(instructions.splitlines())} lines).")
    if skills:
        say(f"It may load these skills: {', '.join(skills)}.")
    return FolderTexts(defuse(instructions), location, tuple(skills.values()))


def _trusted_contents(skill: Skill) -> Mapping[str, bytes]:
    """Return the files of a skill. Raises CommandError if it has changed since the run began."""
    try:
        contents = skill_contents(skill.place)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    if digest_of(contents) != skill.digest:
        raise CommandError(f"The skill {skill.name} has changed since the run began; it is not loaded.")
    return contents
