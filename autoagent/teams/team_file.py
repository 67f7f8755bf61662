"""Read a team from a YAML file: its roles, with their actions and watched messages. docs/teams.md describes the file.

A file holds no Python. Its roles can only ask a model and use commands, each authorized.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoagent.core.errors import SettingsError, StateError
from autoagent.core.events import RunStarted
from autoagent.session.dotenv import boolean
from autoagent.teams.action import OUTSIDE_WORKSPACE, Action, leaves_workspace
from autoagent.teams.llm import KINDS
from autoagent.teams.message import END, REQUIREMENT
from autoagent.teams.role import Role, RoleReactMode
from autoagent.teams.team import Team
from autoagent.text.yaml_file import YamlEntry, read_mapping

TEAM_KEYS = ("name", "idea", "investment", "n_round", "roles")
ROLE_TEXTS = ("name", "profile", "goal", "constraints", "desc", "model")
ROLE_KEYS = (*ROLE_TEXTS, "is_human", "may_be_human", "watch", "react_mode", "max_react_loop", "actions")
ACTION_KEYS = ("name", "instruction", "commands", "file", "check", "model", "send_to", "when", "output")


def read_team(path: Path) -> dict[str, Any]:
    """Return the team's definition, for `team_of`. Raises SettingsError with the file, line and key of the problem."""
    if not path.is_file():
        raise SettingsError(f"{path}: no such file; examples are in examples/teams.")
    entries = read_mapping(path, TEAM_KEYS, "key of a team")
    if "roles" not in entries or not entries["roles"].items():
        raise SettingsError(f"{path}: roles: no role is given; list them under `roles:`.")
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


def change_warning(start: RunStarted) -> str:
    """Return a warning if the file of a run's team has changed or can no longer be read, else ''."""
    definition = start.settings["team"]["definition"]
    if "sha256" not in definition:
        return ""
    try:
        if read_team(Path(definition["file"]))["sha256"] == definition["sha256"]:
            return ""
        problem = f"{definition['file']} has changed since this run began."
    except SettingsError as error:
        problem = f"The file of this team can no longer be read: {error}"
    return f"{problem} The run goes on with the old team; `autoagent team` begins a run with the new file."


def team_of(definition: Mapping[str, Any], *, human: bool = False) -> Team:
    """Return the team of a definition. With `human`, a person takes the roles that are marked for it.

    Raises SettingsError if no role is marked.
    """
    roles = []
    for role in definition["roles"]:
        options = {key: value for key, value in role.items() if key != "may_be_human"}
        options["actions"] = [Action(**action) for action in role["actions"]]
        options["is_human"] = role["is_human"] or (human and role["may_be_human"])
        roles.append(Role(**options))
    if human and not any(role.is_human for role in roles):
        raise SettingsError(
            "No role of this team may be a person: set `may_be_human: yes` for a role, and use --human."
        )
    team = Team(definition["name"], roles=roles)
    team.definition = dict(definition)
    return team


def team_of_run(run: str, start: RunStarted) -> Team:
    """Return the team of a run from its log. Raises StateError if a Python program created the team."""
    team_settings = start.settings["team"]
    if not team_settings["definition"]:
        raise StateError(f"The run {run} was begun by a Python program; resume it there: team.run(resume={run!r}).")
    team = team_of(team_settings["definition"], human=team_settings["person"])
    team.name = start.task.name
    for goal in start.task.goals:
        team.run_project(goal.text)  # a known goal is ignored
    team.invest(team_settings["investment"])
    return team


def _role(entry: YamlEntry) -> dict[str, Any]:
    entries = entry.members(ROLE_KEYS, "key of a role")
    role: dict[str, Any] = {key: entries[key].text() for key in ROLE_TEXTS if key in entries}
    for key in ("name", "profile"):
        if not role.get(key):
            raise SettingsError(f"{entry.place}: a role has no {key}; add `{key}: ...`.")
    for key in ("is_human", "may_be_human"):
        role[key] = key in entries and boolean(entries[key].text(), entries[key].where)
    role["react_mode"] = RoleReactMode.REACT.value
    if mode := entries.get("react_mode"):
        role["react_mode"] = RoleReactMode.of(mode.text(), f"{mode.where}: {mode.text()!r}").value
    loop = entries.get("max_react_loop")
    role["max_react_loop"] = _number(loop, "a number of actions, 1 or more", int, 1) if loop else 1
    role["watch"] = entries["watch"].texts() if "watch" in entries else [REQUIREMENT]
    if "actions" not in entries or not entries["actions"].items():
        raise SettingsError(f"{entry.place}: {role['name']} has no actions; list them under `actions:`.")
    role["actions"] = [_action(item) for item in entries["actions"].items()]
    return role


def _action(entry: YamlEntry) -> dict[str, Any]:
    entries = entry.members(ACTION_KEYS, "key of an action")
    action: dict[str, Any] = {key: entries[key].text() if key in entries else "" for key in ("name", "instruction")}
    if empty_key := next((key for key, value in action.items() if not value), None):
        raise SettingsError(f"{entry.place}: an action has no {empty_key}; add `{empty_key}: ...`.")
    action |= {key: entries[key].text() for key in ("model", "file", "check") if key in entries}
    action |= {key: entries[key].texts() for key in ("send_to", "commands") if key in entries}
    if "when" in entries:
        if "file" in entries:
            raise SettingsError(f"{entries['when'].where}: an action with a file cannot have it.")
        action["when"] = {condition: receivers.texts() for condition, receivers in entries["when"].members().items()}
    if "output" in entries:
        action["output"] = {}
        for name, kind in entries["output"].members().items():
            action["output"][name] = kind.texts() if kind.is_list else kind.text()
            if not (kind.is_list or kind.text() in KINDS):
                raise SettingsError(
                    f"{kind.where}: {kind.text()!r} is not a kind; use {', '.join(KINDS)} or a list of choices."
                )
        if "commands" in entries or "file" in entries:
            raise SettingsError(f"{entries['output'].where}: an action with commands or a file cannot have it.")
    if "file" in entries:
        if "commands" in entries:
            raise SettingsError(f"{entries['file'].where}: an action has commands or a file, not both.")
        if leaves_workspace(action["file"]):
            raise SettingsError(f"{entries['file'].where}: {action['file']!r} {OUTSIDE_WORKSPACE}")
    if "check" in entries and "commands" not in entries and "file" not in entries:
        raise SettingsError(f"{entries['check'].where}: only an action with commands or a file can have a check.")
    return action


def _check_receivers(entry: YamlEntry, roles: list[dict[str, Any]]) -> None:
    """Raise SettingsError for an unknown receiver."""
    role_names = [role["name"] for role in roles]
    for role, item in zip(roles, entry.items(), strict=True):
        for action in role["actions"]:
            others = {name for to in action.get("when", {}).values() for name in to} - {END}
            if unknown := [name for name in (*action.get("send_to", ()), *others) if name not in role_names]:
                raise SettingsError(
                    f"{item.place}: {action['name']} is sent to {unknown[0]!r}, who is not a role; there are "
                    f"{', '.join(role_names)}, and under `when:` also {END}, which ends the work."
                )


def _check_watched(entry: YamlEntry, roles: list[dict[str, Any]]) -> None:
    """Raise SettingsError for a role that watches for an unknown action, or that no message can wake."""
    names = {action["name"] for role in roles for action in role["actions"]} | {REQUIREMENT}
    for role, item in zip(roles, entry.items(), strict=True):
        if unknown := [name for name in role["watch"] if name not in names]:
            known = ", ".join(sorted(names))
            raise SettingsError(
                f"{item.place}: {role['name']} watches for {unknown[0]!r}, which no role does; there are {known}."
            )
    woken: list[dict[str, Any]] = []
    published, addressees = {REQUIREMENT}, set[str]()
    while new_roles := [
        role for role in roles if role not in woken and (role["name"] in addressees or published & set(role["watch"]))
    ]:
        woken += new_roles
        for role in new_roles:  # except for react, only the last action's result is published
            for action in role["actions"] if role["react_mode"] == RoleReactMode.REACT else role["actions"][-1:]:
                addressees.update(action.get("send_to", ()), *action.get("when", {}).values())
                published.update(() if action.get("send_to") else (action["name"],))
    if not woken:
        raise SettingsError(
            f"{entry.where}: no role watches for {REQUIREMENT}, which starts the work; put it under `watch:` of "
            "the role that begins."
        )
    for role, item in zip(roles, entry.items(), strict=True):
        if role not in woken:
            raise SettingsError(
                f"{item.place}: watch: nothing wakes {role['name']}, which watches for "
                f"{', '.join(role['watch']) or 'nothing'}; this team publishes {', '.join(sorted(published))}."
            )


def _number(entry: YamlEntry, description: str, kind: type[Any], minimum: float = 0) -> Any:
    try:
        number = kind(entry.text())
    except ValueError:
        number = float("nan")
    if not minimum <= number <= sys.float_info.max:
        raise SettingsError(f"{entry.where}: must be {description}, not {entry.text()!r}.")
    return number
