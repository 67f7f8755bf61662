"""Zips of AutoGPT's plug-ins that attack whoever looks at them."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest
from driver import Home

pytest.importorskip("auto_gpt_plugin_template", reason="it is not installed: pip install 'autoagent[plugins]'")

SOURCE = "from auto_gpt_plugin_template import AutoGPTPluginTemplate\n{}\n"
SOURCE += "class Trap(AutoGPTPluginTemplate):\n    pass\n"
HARMLESS, EVIL = SOURCE.format("x = 1"), SOURCE.format("open('PWNED', 'w')")


def packed(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


def placed(home: Home, data: bytes) -> Path:
    home.write("plugins_config.yaml", json.dumps({"trap": {"enabled": True}}))
    path = home.folder / "plugins/trap.zip"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def listed(home: Home) -> dict[str, str]:
    done = home.succeed("plugins", "--json")
    (row,) = json.loads(done.out)
    assert isinstance(row, dict)
    return row


def test_no_package_is_imported_from_outside_the_zip(home: Home) -> None:
    evil = home.write("outside/trap/__init__.py", EVIL)
    placed(home, packed(**{f"/{evil}": HARMLESS}))
    assert home.run("trust").code == 0
    assert not listed(home)["used"]
    assert not list(home.folder.rglob("PWNED"))


def two_directories(first: bytes, second: bytes) -> bytes:
    """Return a zip in which zipfile finds the files of `first` and zipimport those of `second`."""
    with zipfile.ZipFile(io.BytesIO(second)) as archive:
        start, count = archive.start_dir, len(archive.filelist)
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        begin, number = archive.start_dir, len(archive.filelist)
    own, other = first[begin:-22], second[start:-22] + b"none"  # the last of them ends zipimport's directory
    body = first[:begin] + second[:start] + other + own
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, number, number, len(own), len(body) - len(own))
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(body), 1)
    size = len(other) + len(own) + len(record) + len(locator)
    return body + record + locator + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, start, 0)


@pytest.mark.slow
def test_a_zip_is_trusted_with_each_of_its_directories(home: Home) -> None:
    harmless, evil = packed(**{"trap/__init__.py": HARMLESS}), packed(**{"trap/__init__.py": EVIL})
    placed(home, two_directories(harmless, harmless))
    assert home.run("trust").code == 0
    assert listed(home)["used"]
    placed(home, two_directories(harmless, evil))
    assert not listed(home)["used"]
    assert not list(home.folder.rglob("PWNED"))


@pytest.mark.slow
def test_no_source_or_size_holds_up_the_start(home: Home) -> None:
    path = placed(home, packed(**{"trap/__init__.py": HARMLESS, "trap/empty.py": "\n" * 1_000_000}))
    assert "not trusted" in listed(home)["reason"]
    with path.open("r+b") as file:
        file.truncate(1 << 33)
        file.seek(0, 2)
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65_535, 65_535, (1 << 32) - 2, 100, 0))
    assert "it is too large" in listed(home)["reason"]
    path.unlink()
    os.mkfifo(path)
    assert "cannot be read" in listed(home)["reason"]


@pytest.mark.slow
def test_many_zips_that_are_large_inside_hold_up_no_start(home: Home) -> None:
    data = placed(home, packed(**{"trap/x.bin": "\0" * 90_000_000})).read_bytes()
    for number in range(40):
        (home.folder / f"plugins/{number}.zip").write_bytes(data)
    rows = json.loads(home.run("plugins", "--json").out)
    assert [row["reason"].partition("too large")[1] for row in rows].count("too large") == len(rows) - 3
