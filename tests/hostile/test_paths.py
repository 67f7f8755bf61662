"""D01 to D11: names of files that lead out, name nothing, or name too much; files that are not what they seem."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import Command, command

from .driver import SECRET, USERS, Room, Section, drive, room, write
from .traps import DOCUMENTS, unpackable

pytestmark = pytest.mark.slow  # a run of more than a hundred steps for each user

# What leads out of the workspace, or cannot be a name; with what the refusal has to name. More paths in test_workspace.
REFUSED: dict[str, tuple[Command, str]] = {
    "D01 up": (write("../x"), "../x"),
    "D01 append": (command("append_to_file", filename="../x", text="hostile"), "../x"),
    "D01 edit": (command("edit_file", filename="../x", old="mine", new="yours"), "../x"),
    "D01 delete": (command("delete_file", filename="../x"), "../x"),
    "D01 read": (command("read_file", filename="../.ssh/id_ed25519"), "../.ssh/id_ed25519"),
    "D01 list": (command("list_files", directory=".."), ".."),
    "D01 search": (command("search_in_files", pattern="user", directory="/etc"), "/etc"),
    "D01 link out": (write("way-out/new.txt"), "way-out/new.txt"),
    "D01 read by a link": (command("read_file", filename="way-out/secret.txt"), "way-out/secret.txt"),
    "D02 code": (command("execute_python_code", code="print(1)", name="../../../main.py"), "../../../main.py"),
    "D02 dots": (command("execute_python_code", code="print(1)", name=".."), "'..'"),
    "D03 empty": (write(""), "''"),
    "D03 null": (write("a\0b"), "\\x00"),
    "D03 newline": (write("a\nb"), "\\n"),
    "D05 over a folder": (write("full"), "full"),
    "D05 delete a folder": (command("delete_file", filename="full"), "full"),
    "D05 delete the workspace": (command("delete_file", filename="."), "'.'"),
    "D07 outside": (command("list_files", directory="/etc"), "/etc"),
    "D09 binary": (command("read_file", filename="binary.dat"), "binary.dat"),
    **{f"D10 {name}": (command("read_file", filename=name), named) for name, (_, named) in DOCUMENTS.items()},
    "D33 a link": (command("execute_python_file", filename="link.py"), "link.py"),
    "D33 a folder": (command("execute_python_file", filename="full"), "full"),
    "D33 no Python": (command("execute_python_file", filename="notes.txt"), "notes.txt"),
}

ODD_NAMES = ("-rf", "$(touch x)", "*")  # plain names to the commands; more of them in test_workspace

# What works, but only inside.
ALLOWED: dict[str, Command] = {
    **{f"D04 write {name}": write(name, f"in {name}\n") for name in ODD_NAMES},
    **{f"D04 append {name}": command("append_to_file", filename=name, text="more\n") for name in ODD_NAMES},
    **{f"D04 read {name}": command("read_file", filename=name) for name in ODD_NAMES},
    **{f"D04 edit {name}": command("edit_file", filename=name, old="more", new="less") for name in ODD_NAMES},
    **{f"D04 delete {name}": command("delete_file", filename=name) for name in ODD_NAMES},
    "D04 kept": command("list_files"),
    "D08 write": write("hard-1.txt", "mine now"),
    "D08 append": command("append_to_file", filename="hard-2.txt", text="mine now"),
    "D08 edit": command("edit_file", filename="hard-3.txt", old="may", new="must"),
    "D09 latin-1": command("read_file", filename="latin.txt"),
    "D09 UTF-16": command("read_file", filename="wide.txt"),
    "D09 mark": command("read_file", filename="mark.txt"),
    "D09 empty": command("read_file", filename="empty.txt"),
    "D11 many": command("list_files", directory="many"),
    "D11 deep": command("list_files", directory="deep"),
    "D11 circle": command("list_files", directory="circle"),
}

DEEP = "/".join(["deep", *("d" * 199)])
MANY = 2_000


def furnish(room: Room) -> None:
    """What a workspace may hold that is not what it seems."""
    ws = room.workspace
    (ws / "way-out").symlink_to(room.outside)
    (ws / "full").mkdir()
    (ws / "full/kept.txt").write_text("kept")
    for number in (1, 2, 3):
        (room.outside / f"linked-{number}.txt").write_text(SECRET)
        (ws / f"hard-{number}.txt").hardlink_to(room.outside / f"linked-{number}.txt")
    (ws / "latin.txt").write_bytes("Käse".encode("latin-1"))
    (ws / "wide.txt").write_bytes("Käse".encode("utf-16"))
    (ws / "mark.txt").write_bytes("Käse".encode("utf-8-sig"))
    (ws / "binary.dat").write_bytes(bytes(range(256)) * 8)
    (ws / "empty.txt").touch()
    (ws / "notes.txt").write_text("print(1)\n")
    (ws / "link.py").symlink_to("notes.txt")
    for name, (made, _) in DOCUMENTS.items():
        (ws / name).write_bytes(made())
    (ws / DEEP).mkdir(parents=True)
    (ws / "circle").mkdir()
    (ws / "circle/round").symlink_to("..")
    fill(ws / "many", MANY)


def fill(folder: Path, files: int) -> None:
    folder.mkdir()
    for number in range(files):
        os.mknod(folder / str(number))


@pytest.fixture(scope="module", params=USERS)
def section(request: pytest.FixtureRequest) -> Iterator[Section]:
    with room(request.param) as made:
        furnish(made)
        yield drive(made, {name: reply for name, (reply, _) in REFUSED.items()} | ALLOWED)


def test_the_run_went_on_and_nothing_outside_changed(section: Section) -> None:
    section.assert_went_on()
    assert {path.name for path in section.room.workspace.iterdir()} >= {"full", "hard-1.txt", "many"}
    assert (section.room.workspace / "full/kept.txt").read_text() == "kept"
    assert not any(SECRET in request.prompt for request in section.server.requests if "hard-" not in request.prompt)
    written = section.room.workspace / "executed_code"
    assert not written.exists() or not list(written.iterdir())


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(section: Section, name: str) -> None:
    section[name].assert_refused(REFUSED[name][1])


@pytest.mark.parametrize("name", [name for name in ALLOWED if name.startswith("D04")])
def test_odd_names_are_plain_names(section: Section, name: str) -> None:
    assert section[name].ok, section[name].text


def test_odd_names_touch_no_other_file(section: Section) -> None:
    listed = section["D04 kept"].text
    assert "hard-1.txt" in listed, "'*' was no pattern"
    assert not any(f"\n{name}\n" in f"\n{listed}\n" for name in ODD_NAMES)


def test_a_hard_link_is_not_written_through(section: Section) -> None:
    for number in (1, 2, 3):
        inside = section.room.workspace / f"hard-{number}.txt"
        assert inside.read_text() != SECRET
        assert (section.room.outside / f"linked-{number}.txt").read_text() == SECRET


def test_text_in_other_encodings_is_read(section: Section) -> None:
    for name in ("D09 UTF-16", "D09 mark"):
        assert section[name].text.startswith("Käse"), section[name].text
    assert section["D09 latin-1"].text.startswith(("Käse", "K\ufffdse"))
    assert section["D09 empty"].text == "[empty.txt: empty]"


def test_long_lists_are_cut_and_tell_how_long_they_are(section: Section) -> None:
    assert section["D11 many"].text.endswith(
        f"[{MANY - 500:,} more, {MANY:,} in all; name a folder to see what is in it]"
    )
    assert len(section["D11 deep"].text.splitlines()) == 199
    assert section["D11 circle"].text == "circle/round (symbolic link)"


# The agent's own files, where they lie in the workspace -----------------------------------------------------------

OWN_PLACES = (
    *(".autoagent/runs/x/events.jsonl", ".autoagent/new", ".autoagent", ".AutoAgent/x", ".env", "ai_settings.yaml"),
)
OWN = {f"D06 {place}": write(place) for place in OWN_PLACES} | {
    "D06 read": command("read_file", filename=".env"),
    "D06 delete": command("delete_file", filename="ai_settings.yaml"),
    "D06 append": command("append_to_file", filename=".env", text="OPENAI_BASE_URL=http://hostile/\n"),
    "D06 shell": command("execute_shell", command_line="echo x >.env; rm -f ai_settings.yaml; echo y >>.env"),
    "D06 shell state": command("execute_shell", command_line="rm -rf .autoagent; echo z >.autoagent/new"),
    "D06 Python": command("execute_python_code", name="out", code="open('ai_settings.yaml', 'w').write('x')"),
    "D07 link": command("execute_shell", command_line="ln -s / root && cd root && cat ../outside/secret.txt"),
}


@pytest.fixture(scope="module", params=USERS)
def own(request: pytest.FixtureRequest) -> Iterator[Section]:
    with room(request.param) as made:
        made.write(".env", "TEMPERATURE=0.5\n")
        yield drive(made, OWN, "-w", ".")


@pytest.mark.parametrize("name", [name for name, reply in OWN.items() if not reply.name.startswith("execute_")])
def test_the_agents_own_files_are_refused_there_or_not(own: Section, name: str) -> None:
    own[name].assert_refused()
    assert any(place.casefold() in own[name].text.casefold() for place in OWN_PLACES), own[name].text


def test_the_agents_own_files_are_as_they_were(own: Section) -> None:
    assert own.room.read(".env") == "TEMPERATURE=0.5\n"
    assert not (own.room.folder / "ai_settings.yaml").exists()
    assert not (own.room.state / "new").exists()
    assert own.room.log()[-1]["status"] == "finished"
    assert "ai_settings.yaml was removed" in own["D06 Python"].text
    assert SECRET not in own["D07 link"].text


# Archives, which the sandbox's own programs unpack ------------------------------------------------------------------


UNZIP = """
import zipfile
archive = zipfile.ZipFile("evil.zip")
for name in archive.namelist():
    try:
        open(name, "wb").write(archive.read(name))
    except OSError as error:
        print(name, error)
"""


@pytest.mark.parametrize("user", USERS)
def test_archives_unpack_inside_alone(user: str) -> None:
    """D10: the program has no command that unpacks; what it starts cannot write outside, nor without end, either."""
    with room(user) as made:
        unpackable(made.workspace, made.outside)
        replies = {
            "tar": command("execute_shell", command_line="tar -xPf evil.tar"),
            "zip": command("execute_python_code", name="unzip", code=UNZIP),
        }
        env = {"AUTOAGENT_SANDBOX_FILE": "8", "AUTOAGENT_PYTHON": "/usr/bin/python3"}
        section = drive(made, replies, env=env)
        section.assert_went_on()
        assert section["tar"].data["exit"] != 0
        assert "8 MB in one file" in section["zip"].text or "File too large" in section["zip"].text
        assert (made.workspace / "inside.txt").read_text() == "hostile"
        assert (made.workspace / "bomb").stat().st_size <= 8 << 20
