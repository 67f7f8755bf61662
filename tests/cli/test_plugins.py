"""A distribution that adds a command, a provider and a memory backend by entry points: the example of the docs."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from driver import GOAL, ROOT, Home

DOCS = (ROOT / "docs" / "extending.md").read_text()


def install(place: Path, name: str, groups: dict[str, dict[str, str]], text: str) -> None:
    """Put a distribution of one module where an installer would."""
    info = place / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    sections = [f"[{group}]\n" + "".join(f"{n} = {o}\n" for n, o in points.items()) for group, points in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(sections))
    (place / f"{name}.py").write_text(text)


@pytest.fixture
def gambler(home: Home, tmp_path: Path) -> Home:
    """A home with the example of the docs installed."""
    example, project = (re.findall(rf"```{kind}\n(.*?)```", DOCS, re.DOTALL)[-1] for kind in ("python", "toml"))
    install(tmp_path / "site", "gambler", tomllib.loads(project)["project"]["entry-points"], example)
    home.env["PYTHONPATH"] = f"{ROOT}:{tmp_path / 'site'}"
    return home


def test_one_file_adds_a_command_a_provider_and_a_memory_backend(gambler: Home) -> None:
    gambler.succeed("-c", "--model", "gambler:20", "-m", "home", "--no-verify", "--accept-claims", *GOAL)
    events = gambler.log()
    rolled = next(event for event in events if event["type"] == "returned")
    assert re.fullmatch(r"A \d+\.", rolled["text"])
    assert (gambler.folder / ".gambler-memory").is_dir()
    assert not list((gambler.state / "memory").glob("*.db"))


def test_doctor_and_commands_name_what_plugins_add(gambler: Home, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, "broken", {"autoagent.commands": {"broken": "broken"}}, "import a_package_that_is_missing\n")
    taking = {"autoagent.models": {"human": "taking:PROVIDER"}, "autoagent.model": {"x": "taking:PROVIDER"}}
    install(site, "taking", taking, "PROVIDER = None\n")
    install(site, "late", {"autoagent.memory": {"home": "late:x"}, "autoagent.commands": {"gambler": "late"}}, "x = 1")
    found = gambler.run("doctor", "--json")
    told = {row["found"]: row["status"] for row in json.loads(found.out) if row["check"] == "plug-in"}
    assert told == {
        "gambler of gambler 1.0 (models): a model that rolls a die and stops": "ok",
        "home of gambler 1.0 (memory): one SQLite memory for all folders": "ok",
        "gambler of gambler 1.0 (commands): roll_dice": "ok",
        "The plug-in broken of broken 1.0 (autoagent.commands) cannot be loaded: ModuleNotFoundError: No module named "
        "'a_package_that_is_missing'. Update broken, or remove it: pip uninstall broken.": "warn",
        "The plug-in human of taking 1.0 (autoagent.models) cannot be used: autoagent itself "
        "has this name. Update taking, or remove it: pip uninstall taking.": "warn",
        "The plug-in home of late 1.0 (autoagent.memory) cannot be used: home of gambler 1.0 already has this name. "
        "Update late, or remove it: pip uninstall late.": "warn",
        "The plug-in gambler of late 1.0 (autoagent.commands) cannot be used: it has no list of COMMANDS. Update late, "
        "or remove it: pip uninstall late.": "warn",
        "The plug-in x of taking 1.0 (autoagent.model) cannot be used: the groups are autoagent.commands, "
        "autoagent.folders, autoagent.runs, autoagent.settings, autoagent.subcommands, autoagent.models, "
        "autoagent.memory, autoagent.embedders, autoagent.sandbox. "
        "Update taking, or remove it: pip uninstall taking.": "warn",
    }
    listed = gambler.run("commands")
    assert "roll_dice(sides=6)\n      Roll a die (read)  plug-in: gambler of gambler 1.0" in listed.out
    assert listed.err.count("\n") == 2 and "broken of broken 1.0" in listed.err


def test_a_plugin_that_breaks_or_takes_a_name_costs_no_run(home: Home, tmp_path: Path) -> None:
    text = (
        "from autoagent.commands.registry import command\n"
        "@command('read_file', 'Read', risk='read')\ndef read(context) -> str:\n    return ''\n"
        "@command('look', 'Look', risk='read', aliases=['list_files'])\ndef look(context) -> str:\n    return ''\n"
        "@command('mcp__shop__buy', 'Buy', risk='read')\ndef buy(context) -> str:\n    return ''\n"
        "COMMANDS = [read, look, buy]\n"
    )
    site = tmp_path / "site"
    install(site, "taking", {"autoagent.commands": {"taking": "taking"}}, text)
    groups = {"autoagent.commands": {"b": "broken:x"}, "autoagent.memory": {"lost": "broken:x"}}
    install(site, "broken", groups, "exit('no licence')\n")
    home.env["PYTHONPATH"] = f"{ROOT}:{site}"
    done = home.succeed("--demo", "-c")
    said = " ".join(done.text.split())
    assert "(autoagent.commands) adds read_file, look, mcp__shop__buy, which is left out" in said
    assert "b of broken 1.0 (autoagent.commands) cannot be loaded: SystemExit: no licence." in said
    listed = home.run("commands", env={"MEMORY_BACKEND": "lost"})
    assert listed.code == 0 and "NOT HERE: The plug-in lost of broken 1.0" in listed.out
    chosen = home.run("--demo", "-c", "-m", "lost")
    assert chosen.code == 3
    assert chosen.err == (
        "autoagent: The plug-in lost of broken 1.0 (autoagent.memory) cannot be loaded: SystemExit: no licence. "
        "Update broken, or remove it: pip uninstall broken.\n"
    )


def test_no_folder_chooses_or_brings_a_plugin(gambler: Home) -> None:
    gambler.write(".env", "AUTOAGENT_MODEL=gambler\nMEMORY_BACKEND=home\nEMBEDDING_MODEL=plain\n")
    install(gambler.folder, "brought", {"autoagent.embedders": {"plain": "brought:x"}}, "x = print('brought')\n")
    held = {row["name"]: row["value"] for row in json.loads(gambler.run("config", "--json").out)}
    assert (held["model"], held["memory_backend"], held["embedding_model"]) == ("", "local", "plain")
    assert "brought" not in gambler.run("doctor").text
