"""Instructions for the agent from the folder and the user: AGENTS.md and skills, if trusted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autoagent.commands.registry import Command
from autoagent.commands.skills import skill_commands
from autoagent.core.errors import CommandError, SettingsError
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


@dataclass(frozen=True, slots=True)
class FolderTexts:
    """The instructions of an AGENTS.md with its place, '' for none, and the skills."""

    instructions: str = ""
    place: str = ""
    skills: tuple[Skill, ...] = ()

    @property
    def commands(self) -> tuple[Command, ...]:
        """The command that loads the skills, where there are any."""
        return skill_commands(self.skills, _trusted_contents)


def user_skills_path() -> Path:
    """Return the folder of the user's own skills."""
    return user_config_path(os.environ).with_name("skills")


def folder_texts(session: Session, say: Callable[[str], None]) -> FolderTexts:
    """Return the trusted instructions of the folder, and the user's own. `say` hears which.

    The nearest AGENTS.md counts alone: that of the workspace, of a folder above it, else the user's. A skill of the
    user's counts before one of the folder with the same name.
    """
    folder = session.folder
    own = user_skills_path()
    skills = {skill.name: skill for skill in skills_in(own, own, say)}
    for place in SKILL_FOLDERS:
        for skill in skills_in(folder / place, folder, say):
            if session.holds(untrusted_skill(skill, folder)):
                skills.setdefault(skill.name, skill)
    instructions, shown = "", ""
    path = nearest_agents_file(folder, session.settings.workspace)
    of_user = own.with_name(AGENTS_FILE)
    try:
        if path is not None:
            offered = untrusted_agents_file(path, folder)
            if session.holds(offered):
                instructions, shown = offered.value.strip(), offered.file
        elif of_user.is_file():
            instructions, shown = read_text(of_user).strip(), str(of_user)
    except SettingsError as error:
        say(f"{error} The agent is not told what it says.")
    if instructions:
        say(f"The agent is told what {shown} says ({len(instructions.splitlines())} lines).")
    if skills:
        say(f"It may load these skills: {', '.join(skills)}.")
    return FolderTexts(defuse(instructions), shown, tuple(skills.values()))


def _trusted_contents(skill: Skill) -> Mapping[str, bytes]:
    """Return the files of a skill. Raises CommandError if it has changed since the run began."""
    try:
        contents = skill_contents(skill.place)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    if digest_of(contents) != skill.digest:
        raise CommandError(f"The skill {skill.name} has changed since the run began; it is not loaded.")
    return contents
