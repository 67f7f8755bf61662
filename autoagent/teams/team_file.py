"""A team in a YAML file: who is in it, what each does and watches for. docs/teams.md describes the file.

A file holds no Python: what it can have a role do is ask a model, and use commands, which are authorized one by one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoagent.core.errors import SettingsError, StateError
from autoagent.core.events import RunStarted
from autoagent.teams.action import OUTSIDE, Action, leaves_workspace
from autoagent.teams.llm import KINDS
from autoagent.teams.message import END, REQUIREMENT
from autoagent.teams.role import Role, RoleReactMode
from autoagent.teams.team import Team
from autoagent.text.yaml_file import YamlEntry, read_mapping

TEAM_KEYS = ("name", "idea", "investment", "n_round", "roles")
ROLE_TEXTS = ("name", "profile", "goal", "constraints", "desc", "model")
ROLE_KEYS = (*ROLE_TEXTS, "is_human", "may_be_human", "watch", "react_mode", "max_react_loop", "actions")
ACTION_KEYS = ("name", "instruction", "commands", "file", "check", "model", "send_to", "when", "output")
_YES, _NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")


def read_team(path: Path) -> dict[str, Any]:
    """Read the file. Return what it says, as `team_of` takes it. Raises SettingsError naming file, line and key."""
    if not path.is_file():
        raise SettingsError(f"{path}: there is no such file; examples are in examples/teams.")
    entries = read_mapping(path, TEAM_KEYS, "key of a team")
    if "roles" not in entries or not entries["roles"].items():
        raise SettingsError(f"{path}: roles: there is none; list them under `roles:`.")
    roles = [_role(entry) for entry in entries["roles"].items()]
    definition: dict[str, Any] = {"name": path.stem, "idea": "", "roles": roles}
    definition |= {key: entries[key].text() for key in ("name", "idea") if key in entries}
    if "investment" in entries:
        definition["investment"] = _number(entries["investment"], "an amount of USD such as 1.50", float)
    if "n_round" in entries:
        definition["n_round"] = _number(entries["n_round"], "a number of rounds, 1 or more", int, 1)
    _check_receivers(entries["roles"], roles)
    _check_watched(entries["roles"], roles)
    sha256 = hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
    return {**definition, "file": str(path.absolute()), "sha256": sha256}


def told_if_changed(began: RunStarted) -> str:
    """Return a line that says that the file of a run's team says something else by now, '' if not."""
    made = began.settings["team"]["definition"]
    if "sha256" not in made:
        return ""
    try:
        if read_team(Path(made["file"]))["sha256"] == made["sha256"]:
            return ""
        changed = f"{made['file']} has changed since this run began."
    except SettingsError as error:
        changed = f"The file of this team cannot be read any more: {error}"
    return f"{changed} The run goes on with the team as it was; `autoagent team` begins one with the file as it is."


def team_of(definition: Mapping[str, Any], *, human: bool = False) -> Team:
    """Return the team of a definition; with `human` a person takes the roles that a person may take.

    Raises SettingsError if there is none of those.
    """
    if human and not any(role["may_be_human"] or role["is_human"] for role in definition["roles"]):
        raise SettingsError("No role of this team may be a person: say `may_be_human: yes` of one, and use --human.")
    team = Team(definition["name"], roles=[_made(role, human=human) for role in definition["roles"]])
    team.definition = dict(definition)
    return team


def team_of_run(run: str, began: RunStarted) -> Team:
    """Return the team of a run, as its log has it. Raises StateError if a Python program has made it."""
    made = began.settings["team"]
    if not made["definition"]:
        raise StateError(f"The run {run} was begun by a Python program; go on there: team.run(resume={run!r}).")
    team = team_of(made["definition"], human=made["person"])
    team.name = began.task.name
    for goal in began.task.goals:
        team.run_project(goal.text)  # unless it is published already
    team.invest(made["investment"])
    return team


def _made(given: Mapping[str, Any], *, human: bool) -> Role:
    actions = [Action(**action) for action in given["actions"]]
    rest = {key: value for key, value in given.items() if key not in ("actions", "may_be_human", "is_human")}
    is_human = given["is_human"] or (human and given["may_be_human"])
    return Role(**rest, is_human=is_human, actions=actions)


def _role(entry: YamlEntry) -> dict[str, Any]:
    found = entry.members(ROLE_KEYS, "key of a role")
    role: dict[str, Any] = {key: found[key].text() for key in ROLE_TEXTS if key in found}
    for key in ("name", "profile"):
        if not role.get(key):
            raise SettingsError(f"{entry.place}: a role has no {key}; add `{key}: ...`.")
    for key in ("is_human", "may_be_human"):
        role[key] = _truth(found[key]) if key in found else False
    mode = found["react_mode"].text() if "react_mode" in found else RoleReactMode.REACT.value
    if mode not in RoleReactMode.values():
        *most, last = RoleReactMode.values()
        raise SettingsError(f"{found['react_mode'].where}: {mode!r} is none; use {', '.join(most)} or {last}.")
    role["react_mode"] = mode
    loop = found.get("max_react_loop")
    role["max_react_loop"] = _number(loop, "a number of actions, 1 or more", int, 1) if loop else 1
    role["watch"] = found["watch"].texts() if "watch" in found else [REQUIREMENT]
    if "actions" not in found or not found["actions"].items():
        raise SettingsError(f"{entry.place}: {role['name']} has no actions; list them under `actions:`.")
    role["actions"] = [_action(item) for item in found["actions"].items()]
    return role


def _action(entry: YamlEntry) -> dict[str, Any]:
    found = entry.members(ACTION_KEYS, "key of an action")
    action: dict[str, Any] = {key: found[key].text() if key in found else "" for key in ("name", "instruction")}
    for key, value in action.items():
        if not value:
            raise SettingsError(f"{entry.place}: an action has no {key}; add `{key}: ...`.")
    if "model" in found:
        action["model"] = found["model"].text()
    if "send_to" in found:
        action["send_to"] = found["send_to"].texts()
    if "when" in found:
        if "file" in found:
            raise SettingsError(f"{found['when'].where}: an action with a file cannot have it.")
        action["when"] = {said: to.texts() for said, to in found["when"].members().items()}
    if "output" in found:
        action["output"] = {}
        for name, kind in found["output"].members().items():
            action["output"][name] = kind.texts() if kind.is_list else kind.text()
            if not (kind.is_list or kind.text() in KINDS):
                raise SettingsError(
                    f"{kind.where}: {kind.text()!r} is none; use {', '.join(KINDS)} or a list of choices."
                )
        if "commands" in found or "file" in found:
            raise SettingsError(f"{found['output'].where}: an action with commands or a file cannot have it.")
    if "commands" in found:
        action["commands"] = found["commands"].texts()
    if "file" in found:
        if "commands" in found:
            raise SettingsError(f"{found['file'].where}: an action has commands or a file, not both.")
        action["file"] = found["file"].text()
        if leaves_workspace(action["file"]):
            raise SettingsError(f"{found['file'].where}: {action['file']!r} {OUTSIDE}")
    if "check" in found:
        if "commands" not in found and "file" not in found:
            raise SettingsError(f"{found['check'].where}: only an action with commands or a file can have a check.")
        action["check"] = found["check"].text()
    return action


def _check_receivers(entry: YamlEntry, roles: list[dict[str, Any]]) -> None:
    """Raise SettingsError for a receiver that there is not."""
    known = [role["name"] for role in roles]
    for role, place in zip(roles, entry.items(), strict=True):
        for action in role["actions"]:
            handed_on = {name for to in action.get("when", {}).values() for name in to} - {END}
            if unknown := [name for name in (*action.get("send_to", ()), *handed_on) if name not in known]:
                raise SettingsError(
                    f"{place.place}: {action['name']} is sent to {unknown[0]!r}, who is no role; there are "
                    f"{', '.join(known)}, and under `when:` also {END}, which ends the work."
                )


def _check_watched(entry: YamlEntry, roles: list[dict[str, Any]]) -> None:
    """Raise SettingsError for a role that watches for an action that nobody has, or that nothing can wake."""
    names = {action["name"] for role in roles for action in role["actions"]} | {REQUIREMENT}
    for role, place in zip(roles, entry.items(), strict=True):
        if unknown := [name for name in role["watch"] if name not in names]:
            known = ", ".join(sorted(names))
            raise SettingsError(
                f"{place.place}: {role['name']} watches for {unknown[0]!r}, which nobody does; there are {known}."
            )
    woken: list[dict[str, Any]] = []
    published, named = {REQUIREMENT}, set[str]()
    while new := [
        role for role in roles if role not in woken and (role["name"] in named or published & set(role["watch"]))
    ]:
        woken += new
        for role in new:  # but for react, the last action's result alone is published
            for action in role["actions"] if role["react_mode"] == RoleReactMode.REACT else role["actions"][-1:]:
                named.update(action.get("send_to", ()), *action.get("when", {}).values())
                published.update(() if action.get("send_to") else (action["name"],))
    if not woken:
        raise SettingsError(
            f"{entry.where}: nobody watches for {REQUIREMENT}, which starts the work; "
            f"put it under `watch:` of the role that is to begin."
        )
    for role, place in zip(roles, entry.items(), strict=True):
        if role not in woken:
            can = ", ".join(sorted(published))
            raise SettingsError(
                f"{place.place}: watch: nothing wakes {role['name']}, which watches for "
                f"{', '.join(role['watch']) or 'nothing'}; what is published here is {can}."
            )


def _number(entry: YamlEntry, what: str, kind: type[Any], least: float = 0) -> Any:
    try:
        number = kind(entry.text())
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= least):
        raise SettingsError(f"{entry.where}: must be {what}, not {entry.text()!r}.")
    return number


def _truth(entry: YamlEntry) -> bool:
    text = entry.text().lower()
    if text not in (*_YES, *_NO):
        raise SettingsError(f"{entry.where}: must be yes or no, not {text!r}.")
    return text in _YES
