"""The command download_file, run through the registry as the loop runs it, over real HTTP from loopback."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes import Commands, nobody_asked
from loopback_site import Site, Visit, answer, redirect

from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.commands.web import download_file
from autoagent.core.commands import Call
from autoagent.core.errors import CommandError
from autoagent.core.services import SearchResults
from autoagent.memory.none import NoMemory
from autoagent.network.addresses import NetworkGuard, parse_allowed_hosts
from autoagent.network.client import HttpClient
from autoagent.services.web import GuardedWeb
from autoagent.settings import all_settings
from autoagent.workspace.gate import Workspace

FILE = random.Random(3).randbytes(900_000)


class Archive:
    """A file on a site that knows ranges; `cut` breaks an answer off after so many bytes, `cut_rest` that to a range.

    `ranges` holds what was asked for.
    """

    def __init__(self, body: bytes = FILE, cut: int | None = None, cut_rest: int | None = None, **headers: str) -> None:
        self.body = body
        self.cut = cut
        self.cut_rest = cut_rest
        self.headers = headers or {"ETag": '"v1"'}
        self.ranges: list[str | None] = []

    def __call__(self, visit: Visit) -> None:
        wanted = visit.headers["Range"]
        self.ranges.append(wanted)
        body, cut, status, headers = self.body, self.cut, 200, self.headers | {"Accept_Ranges": "bytes"}
        if wanted and visit.headers["If-Range"] in self.headers.values():
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            body, cut, status = body[start:], self.cut_rest, 206
            headers["Content_Range"] = f"bytes {start}-{len(self.body) - 1}/{len(self.body)}"
        whole = answer(body, status, **headers)
        left_out = max(0, len(body) - cut) if cut is not None else 0
        visit.wfile.write(whole[: len(whole) - left_out])


@dataclass(frozen=True)
class Downloads(Commands):
    """The command over a workspace, and a web that reaches one site: it is called with a path there, and a filename."""

    site: Site
    lines: list[str]

    def call(self, name: str, /, *, filename: str) -> Call:
        url = self.site.url(name) if name.startswith("/") else name
        return Call("1", "download_file", {"url": url, "filename": filename})

    def limited_to(self, limit: int) -> Downloads:
        assert isinstance(self.context.web, GuardedWeb)
        return self.having(web=replace(self.context.web, download_limit=limit))

    def serves(self, archive: Archive) -> Archive:
        self.site.pages["/f"] = archive
        return archive

    def assert_fetched(self, content: bytes = FILE) -> None:
        result = self.run("/f", filename="f.bin")
        assert result.ok, result.text
        assert (self.root / "f.bin").read_bytes() == content

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))

    def part(self) -> Path:
        (part,) = self.root.rglob("*.part")
        return part


def no_engine(query: str, count: int) -> SearchResults:
    raise CommandError("There is no search engine here.")


@pytest.fixture
def down(tmp_path: Path) -> Iterator[Downloads]:
    workspace, lines = Workspace(tmp_path / "ws"), list[str]()
    with Site() as site:
        client = HttpClient(NetworkGuard(parse_allowed_hosts([site.allowed()])))
        web = GuardedWeb(client, no_engine, no_engine)
        context = Context(workspace, NoMemory(), nobody_asked, web=web, progress=lines.append)
        yield Downloads(context, Registry([download_file]), site, lines)


def test_a_file_is_fetched_into_the_workspace_also_an_empty_one(down: Downloads) -> None:
    down.site.pages["/f"] = redirect("/there")
    down.site.pages["/there"] = answer(FILE)
    result = down.run("/f", filename="new/folder/f.bin")
    assert result.text == f"Downloaded {down.site.url('/f')} to new/folder/f.bin (900,000 bytes)."
    assert result.meta.to_json() == {"changed": ["new/folder/f.bin"], "untrusted": down.site.url("/f")}
    assert (down.root / "new/folder/f.bin").read_bytes() == FILE
    assert down.names() == ["new", "new/folder", "new/folder/f.bin"]
    down.site.pages["/f"] = answer(b"", Accept_Ranges="bytes", ETag='"v1"')
    assert down.run("/f", filename="empty").text.endswith("to empty (0 bytes).")
    assert (down.root / "empty").read_bytes() == b""


def test_what_is_there_is_replaced_only_by_the_whole_file(down: Downloads) -> None:
    target = down.root / "f.bin"
    target.write_bytes(b"old")
    target.chmod(0o640)
    archive = down.serves(Archive(cut=0))
    assert down.refusal("/f", filename="f.bin").endswith("the server broke off its answer before the end.")
    assert (target.read_bytes(), down.names()) == (b"old", ["f.bin"])
    archive.cut = None
    down.assert_fetched()
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_broken_connection_is_taken_up_where_it_broke(down: Downloads) -> None:
    archive = down.serves(Archive(cut=400_000, cut_rest=300_000))
    down.assert_fetched()
    assert len(archive.ranges) > 2
    assert archive.ranges[0] is None
    assert all(wanted is not None for wanted in archive.ranges[1:])


@pytest.mark.parametrize("headers", [{"ETag": '"v1"'}, {"Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT"}])
def test_a_later_call_goes_on_after_an_earlier_one(down: Downloads, headers: dict[str, str]) -> None:
    archive = down.serves(Archive(cut=600_000, cut_rest=0, **headers))
    text = down.refusal("/f", filename="f.bin")
    assert text.endswith("before the end. What came so far is kept; the same call goes on from there.")
    got = down.part().stat().st_size
    assert 0 < got <= 600_000

    archive.cut, archive.cut_rest, archive.ranges = None, None, []
    down.assert_fetched()
    assert archive.ranges == [None, f"bytes={got}-"]
    assert down.names() == ["f.bin"]


@pytest.mark.parametrize("headers", [{"ETag": 'W/"v1"'}, {"X-None": "at all"}])
def test_without_a_way_to_tell_versions_apart_nothing_is_kept(down: Downloads, headers: dict[str, str]) -> None:
    archive = down.serves(Archive(cut=600_000, **headers))
    assert down.refusal("/f", filename="f.bin").endswith("the server broke off its answer before the end.")
    assert archive.ranges == [None]
    assert down.names() == []


def test_another_version_is_never_joined_to_an_older_one(down: Downloads) -> None:
    old, new = Archive(cut=600_000), Archive(FILE[::-1], ETag='"v2"')
    visits = 0

    def changing(visit: Visit) -> None:
        nonlocal visits
        visits += 1
        (old if visits == 1 else new)(visit)

    down.site.pages["/f"] = changing
    text = down.refusal("/f", filename="f.bin")
    assert text == f"{down.site.url('/f')} has changed while it was being fetched; fetch it again."
    assert down.names() == []
    down.assert_fetched(FILE[::-1])


def test_a_server_that_sends_another_part_than_asked_for_is_not_believed(down: Downloads) -> None:
    archive = Archive(cut=600_000)

    def wrong(visit: Visit) -> None:
        if visit.headers["Range"]:
            range_of_all = "bytes 0-899999/900000"
            visit.wfile.write(answer(FILE, 206, Accept_Ranges="bytes", ETag='"v1"', Content_Range=range_of_all))
        else:
            archive(visit)

    down.site.pages["/f"] = wrong
    assert "has changed while it was being fetched" in down.refusal("/f", filename="f.bin")
    assert down.names() == []


def test_a_file_beyond_the_limit_is_refused_before_or_while_it_comes(down: Downloads) -> None:
    small = down.limited_to(100_000)
    down.site.pages["/told"] = answer(FILE)
    down.site.pages["/untold"] = answer(FILE, length=-1)
    limit = "beyond the limit of 100,000 bytes (AUTOAGENT_SANDBOX_FILE, in MB)."
    assert small.refusal("/told", filename="f") == f"{down.site.url('/told')} has 900,000 bytes, {limit}"
    assert small.refusal("/untold", filename="f") == f"{down.site.url('/untold')} goes on, {limit}"
    assert down.names() == []
    assert down.limited_to(900_000).run("/told", filename="f").ok


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///etc/passwd", "has the scheme file:"),
        ("https://me:secret@example.com/x", "holds a user name or a password"),
        ("http://127.0.0.1:1/x", "127.0.0.1 is this machine (loopback)"),
        ("/nothing", "answers 404 Not Found."),
    ],
)
def test_what_may_not_be_fetched_is_refused_and_leaves_nothing(down: Downloads, url: str, reason: str) -> None:
    assert reason in down.refusal(url, filename="f")
    assert down.names() == []


@pytest.mark.parametrize("filename", ["../f", "/etc/f", "a/../../f", "~/f", "", "f/"])
def test_a_file_outside_the_workspace_is_never_asked_for(down: Downloads, filename: str) -> None:
    down.site.pages["/f"] = answer(FILE)
    down.refusal("/f", filename=filename)
    assert down.site.seen == []


def test_links_lead_nowhere(down: Downloads, tmp_path: Path) -> None:
    down.site.pages["/f"] = answer(FILE)
    (down.root / "out").symlink_to(tmp_path / "outside")
    assert "outside the workspace" in down.refusal("/f", filename="out")
    (down.root / "folder").mkdir()
    assert "is not a file" in down.refusal("/f", filename="folder")
    assert down.names() == ["folder", "out"]
    assert not (tmp_path / "outside").exists()


def test_a_part_with_another_hard_link_is_not_written_through(down: Downloads, tmp_path: Path) -> None:
    down.site.pages["/f"] = Archive(cut=600_000, cut_rest=0)
    down.refusal("/f", filename="f.bin")
    os.link(down.part(), tmp_path / "outside")
    before = (tmp_path / "outside").read_bytes()
    assert "has another hard link" in down.refusal("/f", filename="f.bin")
    assert (tmp_path / "outside").read_bytes() == before


def test_the_user_sees_how_far_it_is(down: Downloads) -> None:
    def slow(visit: Visit) -> None:
        visit.wfile.write(answer(FILE)[:400_000])
        visit.server.over.wait(0.6)
        visit.wfile.write(answer(FILE)[400_000:])

    down.site.pages["/f"] = slow
    down.assert_fetched()
    assert down.lines
    assert all(line.startswith("f.bin: ") and line.endswith(" of 0.9 MB") for line in down.lines)


def test_the_preview_says_what_goes_where(down: Downloads) -> None:
    (down.root / "old").write_bytes(b"x")
    url = down.site.url("/f")
    assert down.preview("/f", filename="./a/../new") == f"Fetches {url} and writes it to new."
    assert down.preview("/f", filename="old") == f"Fetches {url} and writes it to old in its place."
    assert down.preview("ftp://x/y", filename="new").startswith("This will fail: 'ftp://x/y' has the scheme ftp:")
    assert down.propose("/f", filename="new").risk == "network"
    assert down.site.seen == []


def test_a_download_into_a_guarded_folder_that_the_user_allowed_is_written_there(down: Downloads) -> None:
    down.site.pages["/f"] = Archive()
    assert "who has not allowed it" in down.refusal("/f", filename=".vscode/a.json")
    granted = down.propose("/f", filename=".vscode/a.json").guarded
    workspace = down.context.workspace.with_observer(lambda *changed: None, granted)
    allowed = down.having(workspace=workspace).run("/f", filename=".vscode/a.json")
    assert allowed.ok, allowed.text
    assert (down.root / ".vscode/a.json").read_bytes() == FILE
    assert down.names() == [".vscode", ".vscode/a.json"]


def test_downloads_are_off_until_they_are_allowed() -> None:
    assert download_file.spec.category == "web"
    assert download_file.available is not None
    assert download_file.available(all_settings()()) == "downloads are switched off (--allow-downloads allows them)"
    assert download_file.available(all_settings()(allow_downloads=True)) == ""
