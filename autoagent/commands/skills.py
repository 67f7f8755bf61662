"""Load a skill: return its SKILL.md, and copy its files to a place where programs can run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from autoagent.commands.context import Context
from autoagent.commands.registry import Command, command
from autoagent.core.commands import Effects
from autoagent.core.errors import CommandError
from autoagent.core.services import Skill

SKILLS_FOLDER = ".skills"  # the folder of the workspace for the files of loaded skills

Contents = Callable[[Skill], Mapping[str, bytes]]
"""Returns the trusted files of a skill. Raises CommandError if they have changed."""


def skill_commands(skills: Sequence[Skill], contents: Contents) -> tuple[Command, ...]:
    """Return the command that loads a skill, or nothing if there are no skills."""
    if not skills:
        return ()
    skills_by_name = {skill.name: skill for skill in skills}

    def find_skill(name: str) -> Skill:
        if name not in skills_by_name:
            raise CommandError(f"There is no skill {name!r}; there are: {', '.join(skills_by_name)}.")
        return skills_by_name[name]

    def preview(context: Context, name: str) -> str:
        skill = find_skill(name)
        note = f" Its {len(skill.files)} further files are copied to {SKILLS_FOLDER}/{name}." if skill.files else ""
        return f"{skill.description}{note}"

    @command(
        "load_skill",
        "Read how something is done, before you do it",
        risk="write",
        preview=preview,
        repeatable=True,
        effects=Effects(),
        always_offered=True,
        category="skills",
    )
    def load_skill(context: Context, name: Annotated[str, "one of the skills", "text"]) -> str:
        skill = find_skill(name)
        files = contents(skill)
        places = [f"{SKILLS_FOLDER}/{name}/{file}" for file in skill.files]
        for file, place in zip(skill.files, places, strict=True):
            context.workspace.write(place, files[file])
        file_list = "\n".join(f"- {place}" for place in places)
        return f"{skill.body}\n\nFiles of this skill, copied into the workspace:\n{file_list}" if places else skill.body

    return (load_skill,)
