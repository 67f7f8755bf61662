"""Copies of a folder that changes."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fleets import Copying

from autoagent.core.errors import StateError
from autoagent.fleet.folder_copy import FolderSender, receive


def contents(base: Path) -> dict[str, object]:
    return {
        str(path.relative_to(base)): str(path.readlink()) if path.is_symlink() else path.is_dir() or path.read_bytes()
        for path in base.rglob("*")
    }


def test_a_copy_follows_whatever_happens_to_a_folder(copying: Copying) -> None:
    """Files that grow, shrink, keep their size, become links or folders, and go, with any bytes in them."""
    here, there, chance = copying.here, copying.there, random.Random(5)
    places = [here / "workspace" / name for name in ("a.jsonl", "output.txt", "b\udcff", "deep")]
    places += [here / "workspace/deep/c", here / "state/runs/r/events.jsonl", here / "output.txt"]
    for folder in (here / "state/runs/r", there / "state/runs/r", there / "workspace"):
        folder.mkdir(parents=True)
    for turn in range(120):
        place = chance.choice(places)
        if place.parent.is_dir() and not place.parent.is_symlink():
            match chance.randrange(6), place.is_dir() and not place.is_symlink():
                case (0 | 1, False) if not place.is_symlink():
                    with place.open("ab") as file:
                        file.write(chance.randbytes(chance.choice((10, 50_000, 96_000))))
                case (2, False) if "state" not in str(place.relative_to(here)) and place.parent != here:
                    place.unlink(missing_ok=True)
                    place.symlink_to("/etc")
                case (3, False) if place.parent.name in ("workspace", "deep"):
                    place.unlink(missing_ok=True)
                    place.write_bytes(chance.randbytes(10))  # as long as before, or longer, with other bytes
                case (4, False) if place.name == "deep":
                    place.unlink(missing_ok=True)
                    place.mkdir()
                case (5, True):
                    for path in place.iterdir():
                        path.unlink()
                    place.rmdir()
        list(copying.changes(logs_only=turn % 3 == 0))
    copying.update()
    assert contents(there) == contents(here)
    assert not list(copying.changes())
    assert {change["path"] for change in FolderSender(here, print, is_complete=True).changes()} <= {
        "state/runs/r/events.jsonl"
    }


def test_a_database_is_copied_as_it_is_once_its_changes_are_in_it(copying: Copying) -> None:
    with closing(sqlite3.connect(copying.here / "state/memory.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (n)")
        for number in range(3):
            database.execute("INSERT INTO t VALUES (?)", (number,))
            copying.update()
            with closing(sqlite3.connect(copying.there / "state/memory.db")) as copy:
                assert copy.execute("SELECT count(*) FROM t").fetchone() == (number + 1,)
            for path in copying.there.glob("state/memory.db-*"):
                path.unlink()


def test_a_damaged_database_is_named_and_the_rest_is_copied(copying: Copying) -> None:
    here, there = copying.here, copying.there
    (here / "state/memory.db").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 20)
    (here / "a.txt").write_text("a")
    copying.update()
    assert (there / "a.txt").read_text() == "a" and not (there / "state/memory.db").exists()
    assert len(copying.said) == 1 and "memory.db: cannot be copied" in copying.said[0]


def test_a_folder_that_is_closed_keeps_its_copy(copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
    (copying.here / "closed").mkdir()
    (copying.here / "closed/a.txt").write_text("a")
    copying.update()
    scandir = os.scandir

    def closed(path: Path) -> Any:  # a mode stops no root
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert list(copying.changes()) == []


@pytest.mark.parametrize("path", ["../out.txt", "link/out.txt", "loop/out.txt", "", "."])
def test_nothing_is_copied_out_of_the_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base/link").symlink_to(tmp_path)
    (tmp_path / "base/loop").symlink_to("loop")
    with pytest.raises(StateError, match=r"leads out of the folder|Too many levels"):
        receive(tmp_path / "base", {"path": path, "at": 0, "data": "", "mode": 0o600, "last": True, "in_place": False})
    assert not (tmp_path / "out.txt").exists()
