"""The commands on files, run through the registry as the loop runs them, behind both gates."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import Commands, nobody_asked
from hypothesis import given
from hypothesis import strategies as st

from autoagent.commands import files
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.commands.support import matching
from autoagent.commands.support.edited_text import unified
from autoagent.memory.none import NoMemory
from autoagent.text.redaction import Redactor
from autoagent.workspace.gate import Gate, Workspace, walk_gate


def over(workspace: Workspace) -> Commands:
    return Commands(Context(workspace, NoMemory(), nobody_asked), Registry(files.COMMANDS))


@pytest.fixture
def ws(tmp_path: Path) -> Commands:
    return over(Workspace(tmp_path / "ws"))


# read ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"one\ntwo\n", "one\ntwo\n"),
        ("Grüße 日本\n".encode(), "Grüße 日本\n"),
        (b"\xef\xbb\xbfmark", "mark"),
        ("Grüße".encode("utf-16"), "Grüße"),
        (b"\xfe\xff" + "Grüße".encode("utf-16-be"), "Grüße"),
        (b"\xff\xfe\0\0" + "Grüße".encode("utf-32-le"), "Grüße"),
        (b"a\r\nb", "a\r\nb"),
        ("Grüße".encode("latin-1"), "Grüße\n[x: not valid UTF-8, read as latin-1]"),
        ("é".encode() + b"\xff!", "é\ufffd!\n[x: bytes that are not valid utf-8 are shown as \ufffd]"),
        ("a \ufffd that is meant".encode(), "a \ufffd that is meant"),
        (b"\xff\xfea\0b", "a\ufffd\n[x: bytes that are not valid utf-16-le are shown as \ufffd]"),
        (b"", "[x: empty]"),
    ],
)
def test_read_understands_what_text_files_are_written_in(ws: Commands, data: bytes, text: str) -> None:
    (ws.root / "x").write_bytes(data)
    assert ws.text("read_file", filename="x") == text


def test_read_refuses_what_is_not_text(ws: Commands) -> None:
    (ws.root / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (ws.root / "folder").mkdir()
    os.mkfifo(ws.root / "fifo")
    assert ws.refusal("read_file", filename="logo.png") == "logo.png is a binary file of 16 bytes, not text."
    assert ws.refusal("read_file", filename="folder") == "'folder' is a folder, not a file."
    assert ws.refusal("read_file", filename="fifo") == "'fifo' is not a regular file."
    assert ws.refusal("read_file", filename="no.txt") == "There is no 'no.txt' in the workspace."


def test_read_stops_at_its_limit_and_says_how_to_go_on(ws: Commands) -> None:
    (ws.root / "big.txt").write_bytes("ä".encode() * files.MAX_READ_BYTES)
    text = ws.text("read_file", filename="big.txt")
    assert text.startswith("ää")
    assert "\ufffd" not in text
    note = "only the first 16,000,000 bytes can be read"
    assert text.endswith(f"ä\n[big.txt: {note}]")


# write, append, edit, delete -------------------------------------------------------------------------------------


def test_write_says_what_it_wrote_and_refuses_what_is_no_unicode(ws: Commands) -> None:
    result = ws.run("write_to_file", filename="a/notes.txt", text="one\ntwo\nthree\nfour")
    assert result.text == "Wrote 18 characters (4 lines) to a/notes.txt."
    assert result.meta.to_json() == {"changed": ["a/notes.txt"]}
    assert (ws.root / "a" / "notes.txt").read_bytes() == b"one\ntwo\nthree\nfour"
    assert ws.text("write_to_file", filename="a/notes.txt", text="") == "Wrote 0 characters (0 lines) to a/notes.txt."
    assert ws.text("write_file", file=str(ws.root / "x"), content="\n") == "Wrote 1 character (1 line) to x."
    refusal = ws.refusal("write_to_file", filename="y", text="ab\ud83d")
    assert refusal == "The text holds '\\ud83d' at position 2, which utf-8 cannot encode."
    assert not (ws.root / "y").exists()


def test_what_is_there_already_is_not_written_again(ws: Commands) -> None:
    ws.run("write_to_file", filename="a.txt", text="one\n")
    written = (ws.root / "a.txt").stat().st_mtime_ns
    result = ws.run("write_to_file", filename="a.txt", text="one\n")
    assert result.text == "a.txt already has exactly this text; nothing was changed."
    assert result.meta.changed == () and (ws.root / "a.txt").stat().st_mtime_ns == written
    assert ws.text("write_to_file", filename="a.txt", text="two\n").startswith("Wrote 4 characters")


def test_what_is_wrong_with_a_file_now_is_said_with_the_change(ws: Commands) -> None:
    wrong = "It is not valid JSON: Expecting value, line 1."
    assert ws.text("write_to_file", filename="a.json", text="port: 1") == (
        f"Wrote 7 characters (1 line) to a.json. {wrong}"
    )
    ws.run("write_to_file", filename="a.json", text='{"port": 1}')
    assert ws.text("edit_file", filename="a.json", old="1", new="one").endswith(
        "in a.json. It is not valid JSON: Expecting value, line 1."
    )
    assert ws.text("edit_file", filename="a.json", old="one", new="2").endswith(" in a.json.")
    assert ws.text("append_to_file", filename="a.json", text="}").endswith(
        "to a.json. It is not valid JSON: Extra data, line 1."
    )


def test_append_keeps_what_was_there_and_its_encoding(ws: Commands) -> None:
    (ws.root / "x").write_bytes("é".encode("utf-16"))
    result = ws.run("append_to_file", filename="x", text="ü\n")
    assert (result.text, result.meta.to_json()) == ("Appended 2 characters (1 line) to x.", {"changed": ["x"]})
    assert (ws.root / "x").read_bytes() == "éü\n".encode("utf-16")
    (ws.root / "old").write_bytes(b"caf\xe9")
    assert ws.refusal("append_to_file", filename="old", text="€") == (
        "The text holds '\\u20ac' at position 0, which latin-1 cannot encode."
    )


def test_append_to_a_file_that_is_not_there_makes_it(ws: Commands) -> None:
    preview = ws.preview("append_to_file", filename="a/new", text="one\n")
    assert preview == "--- /dev/null\n+++ b/a/new\n@@ -0,0 +1 @@\n+one"
    result = ws.run("append_to_file", filename="a/new", text="one\n")
    assert (result.ok, result.meta.to_json()) == (True, {"changed": ["a/new"]})
    ws.text("append_to_file", filename="a/new", text="two\n")
    assert (ws.root / "a" / "new").read_text() == "one\ntwo\n"
    assert "is outside the workspace" in ws.refusal("append_to_file", filename="../new", text="x")


def test_edit_replaces_the_one_passage_or_each_where_it_is_told_to(ws: Commands) -> None:
    (ws.root / "x.py").write_text("a = 1\nb = 2\nc = 3\n")
    result = ws.run("edit_file", filename="x.py", old="b = 2\n", new="b = 20\nbb = 0\n")
    assert result.text == "Replaced 1 line by 2 lines in x.py."
    assert result.meta.to_json() == {"changed": ["x.py"]}
    assert (ws.root / "x.py").read_text() == "a = 1\nb = 20\nbb = 0\nc = 3\n"
    (ws.root / "story.txt").write_text("a cat\nThe cat sat.\n")
    edit = {"filename": "story.txt", "old": "cat", "new": "dog", "everywhere": True}
    assert "-a cat\n" in ws.preview("edit_file", **edit)
    assert ws.text("edit_file", **edit) == "Replaced 1 line by 1 line 2 times in story.txt."
    assert (ws.root / "story.txt").read_text() == "a dog\nThe dog sat.\n"


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        ("b = 3", "x", "The old text is not in x.py. The nearest line is 2: 'b = 2'"),
        ("other words", "x", "The old text is not in x.py. Copy it word for word from what read_file shows."),
        (".py", ".txt", "The old text is not in x.py, but in its name: move_file renames it."),
        (
            "= ",
            "x",
            "The old text occurs 2 times in x.py; include more of the text around the one you mean, or "
            "replace each with everywhere=true.",
        ),
        ("", "x", "The old text is empty; give the passage that is to be replaced."),
        ("a", "a", "The old and the new text are the same; there is nothing to change."),
    ],
)
def test_edit_wants_the_passage_exactly_once(ws: Commands, old: str, new: str, refusal: str) -> None:
    (ws.root / "x.py").write_text("a = 1\nb = 2\n")
    assert ws.refusal("edit_file", filename="x.py", old=old, new=new) == refusal
    assert ws.preview("edit_file", filename="x.py", old=old, new=new) == f"This will fail: {refusal}"
    assert (ws.root / "x.py").read_text() == "a = 1\nb = 2\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbfa\r\nb\r\nc\r\n", b"\xef\xbb\xbfa\r\nX\r\nY\r\n"),
        (b"\xff\xfe" + "é\na\nb\nc\n".encode("utf-16-le"), b"\xff\xfe" + "é\na\nX\nY\n".encode("utf-16-le")),
        (b"\xe9\na\nb\nc\n", b"\xe9\na\nX\nY\n"),
    ],
)
def test_edit_keeps_encoding_mark_and_line_ends(ws: Commands, before: bytes, after: bytes) -> None:
    (ws.root / "x").write_bytes(before)
    ws.text("edit_file", filename="x", old="b\nc\n", new="X\nY\n")
    assert (ws.root / "x").read_bytes() == after


def test_what_is_put_into_a_file_takes_on_its_line_ends_unless_they_are_mixed(ws: Commands) -> None:
    (ws.root / "x").write_bytes(b"a\r\nb\r\n")
    ws.text("edit_file", filename="x", old="b", new="1\n2")
    ws.text("append_to_file", filename="x", text="3\n4\n")
    assert (ws.root / "x").read_bytes() == b"a\r\n1\r\n2\r\n3\r\n4\r\n"
    (ws.root / "mixed").write_bytes(b"a\r\nb\n")
    ws.text("append_to_file", filename="mixed", text="3\n")
    assert (ws.root / "mixed").read_bytes() == b"a\r\nb\n3\n"


@pytest.mark.parametrize(
    ("before", "old", "after"),
    [
        ("one\nTODO two\nthree\n", "TODO two", "one\nthree\n"),
        ("one\r\nTODO\r\nthree\r\n", "TODO", "one\r\nthree\r\n"),
        ("one\nTODO", "TODO", "one\n"),
        ("one\n\nTODO\n\ntwo\n", "TODO\n", "one\n\n\ntwo\n"),
        ("one TODO\nTODO\nTODO two\n", "TODO", "one \n two\n"),
        ("begin\nbegin\nend\nend\nrest\n", "begin\nend", "begin\nend\nrest\n"),
        ("a\n\nx\n\nx\nb\n", "\nx", "a\n\n\nb\n"),
    ],
)
def test_edit_leaves_no_empty_line_where_it_takes_out_a_whole_line(
    ws: Commands, before: str, old: str, after: str
) -> None:
    (ws.root / "a.txt").write_bytes(before.encode())
    ws.run("edit_file", filename="a.txt", old=old, new="", everywhere=True)
    assert (ws.root / "a.txt").read_bytes().decode() == after


@pytest.mark.parametrize(
    ("before", "encoding"),
    [("café\n".encode("latin-1"), "latin-1"), (b"\xef\xbb\xbfcaf\xc3\xa9\n", "utf-8 with a byte order mark")],
)
def test_a_whole_text_in_another_encoding_is_no_change_of_nothing(ws: Commands, before: bytes, encoding: str) -> None:
    (ws.root / "a.txt").write_bytes(before)
    preview = ws.preview("write_to_file", filename="a.txt", text="café\n")
    assert preview.startswith(f"Changes its encoding from {encoding} to utf-8.")


def test_a_secret_is_not_overwritten_though_the_file_names_a_mask(ws: Commands) -> None:
    (ws.root / "a.txt").write_text("KEY=hunter2-hunter2\nnote [masked]\n")
    masking = ws.having(mask=Redactor(["hunter2-hunter2"]).mask)
    refused = masking.refusal("write_to_file", filename="a.txt", text="KEY=[masked]\nnote [masked]\n")
    assert "your text would overwrite it with this mask" in refused


def test_a_move_into_a_guarded_folder_needs_the_whole_name_so_that_it_can_be_allowed(ws: Commands) -> None:
    (ws.root / ".vscode").mkdir()
    (ws.root / "m.txt").write_text("x")
    needed = "'.vscode/m.txt' needs the user's permission; give this whole name as new_name."
    assert ws.preview("move_file", filename="m.txt", new_name=".vscode/") == f"This will fail: {needed}"
    assert ws.refusal("move_file", filename="m.txt", new_name=".vscode") == needed
    whole = {"filename": "m.txt", "new_name": ".vscode/m.txt"}
    granted = ws.propose("move_file", **whole).guarded
    allowed = ws.having(workspace=ws.context.workspace.with_observer(lambda *changed: None, granted))
    assert allowed.run("move_file", **whole).ok and (ws.root / ".vscode/m.txt").read_text() == "x"


def test_a_preview_that_the_system_refuses_tells_so(ws: Commands) -> None:
    def preview(context: Context, filename: str) -> str:
        raise PermissionError(13, "Permission denied", filename)

    deletion = replace(ws, registry=Registry([replace(files.delete_file, preview=preview)]))
    assert deletion.preview("delete_file", filename="a.txt") == "This will fail: Permission denied: a.txt"


@pytest.mark.slow
def test_a_search_works_under_the_lower_limit_of_the_users_own_and_in_bounded_memory() -> None:
    program = f"""
import resource
from autoagent.commands.support import matching
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
print(matching.search("b+", {{"a.txt": "abba"}}, limit=5, seconds=5.0))
try:
    matching.search(r"^(\\w|\\s)*$", {{"a.txt": "a" * {files.MAX_SEARCH_BYTES}}}, limit=5, seconds=60.0)
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[('a.txt', 1, 'abba')]", "it takes too much memory"], done.stderr


def test_a_key_of_many_parts_takes_no_memory(ws: Commands) -> None:
    text = f"{'a.' * 90_000}a = 1\n"
    tracemalloc.start()
    assert ws.text("write_to_file", filename="a.toml", text=text).startswith("Wrote")
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


def test_edit_refuses_what_it_would_damage(ws: Commands) -> None:
    (ws.root / "x").write_bytes("é".encode() + b"\xff!")
    assert "not valid utf-8 text" in ws.refusal("edit_file", filename="x", old="!", new="?")
    (ws.root / "big").write_bytes(b"a" * (files.MAX_EDIT_BYTES + 1))
    assert "too large to edit" in ws.refusal("edit_file", filename="big", old="a", new="b")


def test_delete(ws: Commands) -> None:
    (ws.root / "folder").mkdir()
    (ws.root / "folder" / "x").write_text("")
    result = ws.run("delete_file", filename="folder/x")
    assert (result.text, result.meta.to_json()) == ("Deleted folder/x.", {"changed": ["folder/x"]})
    assert ws.refusal("delete_file", filename="folder") == "'folder' is a folder; only files can be deleted."
    assert ws.refusal("delete_file", filename=".").endswith("is the workspace itself, not a file.")
    assert list(ws.root.iterdir()) == [ws.root / "folder"]


def test_move(ws: Commands) -> None:
    (ws.root / "folder").mkdir()
    (ws.root / "old").write_text("precious")
    (ws.root / "other").write_text("")
    assert ws.preview("move_file", filename="old", new_name="sub/new") == "Moves old to sub/new."
    result = ws.run("move_file", filename="old", new_name="sub/new")
    assert (result.text, result.meta.to_json()) == ("Moved old to sub/new.", {"changed": ["old", "sub/new"]})
    assert ws.text("move_file", filename="sub/new", new_name="folder") == "Moved sub/new to folder/new."
    assert (ws.root / "folder" / "new").read_text() == "precious"
    assert "'other' already exists" in ws.refusal("move_file", filename="folder/new", new_name="other")
    for name in ("missing", "folder", "."):
        assert f"There is no file {name!r} to move." in ws.refusal("move_file", filename=name, new_name="x")
    assert "outside the workspace" in ws.refusal("move_file", filename="other", new_name="../x")
    (ws.root / "link").symlink_to("other")
    (ws.root / "out").symlink_to("/tmp")
    assert "There is no file 'link' to move." in ws.refusal("move_file", filename="link", new_name="x")
    assert ws.refusal("move_file", filename="other", new_name="out/x")
    assert (ws.root / "other").exists()


# previews --------------------------------------------------------------------------------------------------------


def test_previews_show_the_change_and_make_none(ws: Commands) -> None:
    (ws.root / "x").write_text("one\ntwo\n")
    assert ws.preview("write_to_file", filename="x", text="one\n2\n") == (
        "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+2"
    )
    assert ws.preview("write_to_file", filename="n", text="new") == (
        "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\n\\ No newline at end of file"
    )
    assert ws.preview("write_to_file", filename="x", text="one\ntwo\n") == "This changes nothing."
    for name in ("write_to_file", "append_to_file"):
        assert ws.preview(name, filename="a/new", text="") == "Creates a/new, empty."
    assert ws.preview("append_to_file", filename="x", text="three") == (
        "--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n one\n two\n+three\n\\ No newline at end of file"
    )
    assert ws.preview("edit_file", filename="x", old="two", new="2").endswith("-two\n+2")
    assert ws.preview("delete_file", filename="x") == "Deletes x (2 lines, 8 bytes)."
    assert (ws.root / "x").read_text() == "one\ntwo\n"
    assert [item.name for item in ws.root.iterdir()] == ["x"]


def test_previews_of_what_will_fail_say_so(ws: Commands) -> None:
    (ws.root / "folder").mkdir()
    assert ws.preview("write_to_file", filename="../x", text="") == (
        "This will fail: '../x' is outside the workspace. Use a path inside it, relative to its root, such as 'x'."
    )
    for name in ("write_to_file", "append_to_file"):
        assert ws.preview(name, filename="folder", text="x").startswith("This will fail: 'folder' is a folder")
    assert ws.preview("delete_file", filename="folder") == "This will fail: There is no file folder."


def test_a_preview_shows_where_a_link_leads(ws: Commands) -> None:
    (ws.root / "real.txt").write_text("")
    (ws.root / "link").symlink_to("real.txt")
    (ws.root / "out").symlink_to("/etc/hostname")
    assert ws.preview("write_to_file", filename="link", text="x\n").startswith("--- a/real.txt\n+++ b/real.txt\n")
    assert ws.preview("delete_file", filename="out") == "Deletes out (symbolic link)."
    assert ws.text("delete_file", filename="out") == "Deleted out."
    (ws.root / "real").mkdir()
    (ws.root / "folder").symlink_to("real")
    assert "real/real.txt" in ws.preview("move_file", filename="real.txt", new_name="folder/")


def test_previews_over_binary_and_large_files(ws: Commands) -> None:
    (ws.root / "bin").write_bytes(b"\0" * 10)
    (ws.root / "big").write_bytes(b"a\n" * files.MAX_EDIT_BYTES)
    for name, size in (("bin", "10"), ("big", "2,000,000")):
        preview = ws.preview("write_to_file", filename=name, text="x\n")
        assert preview == f"Replaces all {size} bytes of {name}.\n--- a/{name}\n+++ b/{name}\n@@ -0,0 +1 @@\n+x"
    assert ws.preview("append_to_file", filename="big", text="x\n") == (
        "Adds 2 characters (1 line) at the end of big:\nx\n"
    )
    assert ws.preview("delete_file", filename="bin") == "Deletes bin (10 bytes)."
    assert ws.preview("delete_file", filename="big") == "Deletes big (2,000,000 bytes)."


def patched(before: str, diff: str) -> str:
    """What `patch` makes of a text."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x").write_text(before)
        Path(folder, "d").write_text(diff + "\n")
        status = os.spawnlp(os.P_WAIT, "patch", "patch", "-s", str(Path(folder, "x")), str(Path(folder, "d")))
        assert status == 0, diff[:2000]
        return Path(folder, "x").read_text()


@pytest.mark.skipif(os.system("patch --version >/dev/null 2>&1") != 0, reason="patch is not installed")
@pytest.mark.parametrize("size", [10, 6_000], ids=["difflib", "one hunk"])
@pytest.mark.parametrize(
    ("at", "take", "put"),
    [(0, 0, "new\n"), (0, 2, ""), (4, 1, "x\ny\n"), (5, 0, "x\n"), (-1, 1, "last"), (0, 9_999, "all\n"), (2, 0, "2\n")],
)
def test_a_diff_is_one_that_patch_can_apply(size: int, at: int, take: int, put: str) -> None:
    lines = [f"{number}\n" for number in range(size)]
    at %= size
    after = "".join([*lines[:at], put, *lines[at + take :]])
    diff = unified("x", "".join(lines), after)
    assert patched("".join(lines), diff) == after
    assert take > size or len(diff) < 300


def test_a_large_preview_is_quick(ws: Commands) -> None:
    (ws.root / "x").write_text("ab\n" * 100_000)
    started = time.monotonic()
    diff = ws.preview("write_to_file", filename="x", text="ba\n" * 100_000)
    assert diff.count("\n+") == 100_001  # each line, and the header
    assert time.monotonic() - started < 5


# list and search -------------------------------------------------------------------------------------------------


def test_list_shows_paths_that_the_other_commands_take(ws: Commands) -> None:
    assert ws.text("list_files") == "The workspace is empty."
    for path in ("b.txt", "a/x.txt", ".git/HEAD", "-rf"):
        ws.text("write_to_file", filename=path, text="")
    (ws.root / "empty").mkdir()
    (ws.root / "loop").symlink_to(".")
    os.mkfifo(ws.root / "pipe")
    (ws.root / "bad\nname\u202e").write_text("")
    assert ws.text("list_files").split("\n") == [
        "-rf", ".git/", "a/", "b.txt", "bad\\nname\\u202e", "empty/", "loop (symbolic link)",
        "pipe (not a regular file)", "a/x.txt",
    ]  # fmt: skip
    assert ws.text("search_files", directory="a") == "a/x.txt"
    assert ws.text("list_files", directory=".git") == ".git/HEAD"
    assert ws.text("list_files", directory="empty") == "empty is empty."
    assert ws.refusal("list_files", directory="b.txt") == "'b.txt' is not a folder."
    assert ws.refusal("list_files", directory="..").startswith("'..' is outside the workspace.")


def fill(root: Path, count: int) -> None:
    (root / "many").mkdir()
    folder = os.open(root / "many", os.O_RDONLY)
    for number in range(count):
        os.close(os.open(f"{number:06}", os.O_CREAT, dir_fd=folder))
    os.close(folder)


@pytest.mark.slow
@pytest.mark.parametrize("count", [5_000, 200_000])
def test_a_long_list_is_cut_with_the_count(ws: Commands, count: int) -> None:
    fill(ws.root, count)
    started = time.monotonic()
    lines = ws.text("list_files").split("\n")
    assert time.monotonic() - started < 20
    assert lines[:2] == ["many/", "many/000000"]
    assert lines[files.MAX_LISTED_NAMES :] == [
        f"[{count + 1 - files.MAX_LISTED_NAMES:,} more, {count + 1:,} in all; name a folder to see what is in it]"
    ]


def test_search_names_file_and_line(ws: Commands) -> None:
    long = "x" * 500 + "two 3" + "y" * 500
    for path, text in (("b.txt", "one\r\ntwo 2\r\n"), ("a/x.txt", "two 22\n"), ("c.txt", long)):
        ws.text("write_to_file", filename=path, text=text)
    (ws.root / "logo.png").write_bytes(b"two 2\0")
    os.mkfifo(ws.root / "pipe")
    assert ws.text("search_in_files", pattern=r"two \d+$") == (
        "b.txt:2: two 2\na/x.txt:1: two 22\n[not searched: logo.png (binary)]"
    )
    assert ws.text("search_in_files", pattern="two", directory="b.txt") == "b.txt:2: two 2"
    assert ws.text("search_in_files", pattern="zzz", directory="a") == "Nothing matches 'zzz' in 1 file."
    cut = ws.text("search_in_files", pattern="two", directory="c.txt")
    assert cut.startswith("c.txt:1: ...xxx")
    assert "two 3" in cut
    assert len(cut) < 250
    assert ws.refusal("search_in_files", pattern="x", directory="no") == "There is no 'no' in the workspace."


@pytest.mark.parametrize(
    ("pattern", "why"), [("(", "missing ), unterminated"), ("a{2,1}", "min repeat"), ("(" * 5000, "recursion")]
)
def test_a_bad_pattern_is_named(ws: Commands, pattern: str, why: str) -> None:
    refusal = ws.refusal("search_in_files", pattern=pattern)
    assert refusal.startswith(f"The pattern '{pattern[:80]}")
    assert why in refusal


ENDLESS = "(a+)+$"  # each further letter doubles the time it takes


def test_a_search_that_takes_too_long_is_stopped() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        matching.search(ENDLESS, {"x": "a" * 60 + "!"}, limit=1, seconds=0.5)
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_a_pattern_that_never_ends_is_refused(ws: Commands) -> None:
    ws.text("write_to_file", filename="x", text="a" * 60 + "!")
    refusal = ws.refusal("search_in_files", pattern=ENDLESS)
    assert refusal.startswith("The search was stopped after 10 seconds; use a simpler pattern than '(a+)+$'")


def test_search_reads_and_finds_at_most_its_limits(ws: Commands) -> None:
    ws.text("write_to_file", filename="x", text="hit\n" * 1000)
    lines = ws.text("search_in_files", pattern="hit").split("\n")
    assert len(lines) == files.MAX_MATCHES + 1
    assert lines[-1].startswith("[the first 200 matches; there are more")
    ws.text("delete_file", filename="x")
    (ws.root / "a.log").write_bytes(b"0123456789abcde\n" * (files.MAX_SEARCH_BYTES // 16 + 10))
    (ws.root / "b.txt").write_text("needle")
    assert ws.text("search_in_files", pattern="needle") == (
        "Nothing matches 'needle' in 1 file.\n"
        "[not searched: a.log after its first 16,000,000 bytes, all files that come after it]"
    )


# hostile paths ---------------------------------------------------------------------------------------------------

PART = st.sampled_from(
    [
        *("..", ".", "", "~", "a", "x.txt", "out", "up", "loop", "file", "fifo", "folder", "hard"),
        *("outside", "canary.txt", "{root}", "{tmp}"),
        *("*", "-rf", "$(x)", "a b", "é", "\0", "\n", "\udc80", "\u202e", "x" * 300, "%2e%2e", "..\\.."),
        *("etc", "passwd", "proc", "self", "root", "ws", ".autoagent", ".AUTOAGENT", "state.json", ".env"),
    ]
)
PREFIX = st.sampled_from(
    ["", "", "", "/", "//", "~/", "file:///", "C:\\", "../", "{root}/", "{root}/../", "{tmp}/outside/"]
)
PATH = st.builds(lambda prefix, parts: prefix + "/".join(parts), PREFIX, st.lists(PART, min_size=1, max_size=6))


@contextmanager
def hostile_tree(gate: Gate | None) -> Iterator[tuple[Path, Commands]]:
    """A workspace of links that lead out, beside a tree that must never change nor be read."""
    with tempfile.TemporaryDirectory() as folder:
        tmp = Path(folder).resolve()
        root = tmp / "ws"
        for outside in (tmp / "outside", tmp / "outside" / "a", root / ".autoagent"):
            outside.mkdir(parents=True)
            for name in ("canary.txt", "x.txt", "state.json"):
                (outside / name).write_text("CANARY")
        (root / ".env").write_text("CANARY")
        (root / "folder").mkdir()
        (root / "x.txt").write_text("one\n")
        (root / "out").symlink_to(tmp / "outside")
        (root / "up").symlink_to("..")
        (root / "loop").symlink_to("loop")
        (root / "file").symlink_to("../outside/canary.txt")
        (root / "folder" / "a").symlink_to("../../outside/a")
        os.mkfifo(root / "fifo")
        (tmp / "outside" / "linked.txt").write_text("for all to read\n")  # a hard link is a file of the workspace
        os.link(tmp / "outside" / "linked.txt", root / "hard")
        yield tmp, over(Workspace(root, [root / ".autoagent", root / ".env"], gate=gate))


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted([*folder.rglob("*")])
    }


@pytest.mark.parametrize(
    "gate", [pytest.param(None, id="the kernel's best"), pytest.param(walk_gate, id="walk", marks=pytest.mark.slow)]
)
@given(paths=st.lists(PATH, min_size=1, max_size=6))
def test_no_path_gets_out(gate: Gate | None, paths: list[str]) -> None:
    with hostile_tree(gate) as (tmp, ws):
        kept = [tmp / "outside", ws.root / ".autoagent"]
        before = [tree(folder) for folder in kept]
        siblings = sorted(item.name for item in tmp.iterdir())
        for pattern in paths:
            path = pattern.replace("{root}", str(ws.root)).replace("{tmp}", str(tmp))
            calls: list[tuple[str, dict[str, str]]] = [
                ("write_to_file", {"filename": path, "text": "mine\n"}),
                ("append_to_file", {"filename": path, "text": "mine\n"}),
                ("edit_file", {"filename": path, "old": "mine", "new": "yours"}),
                ("edit_file", {"filename": path, "old": "for all", "new": "gone"}),
                ("read_file", {"filename": path}),
                ("list_files", {"directory": path}),
                ("delete_file", {"filename": path}),
            ]
            if pattern is paths[0]:  # it starts a process; once is enough
                calls.insert(0, ("search_in_files", {"pattern": "C[A]NARY", "directory": path}))
            for name, args in calls:
                shown = ws.preview(name, **args)
                result = ws.run(name, **args)
                assert "\x00" not in result.text
                assert "CANARY" not in result.text
                assert "CANARY" not in shown
        assert [tree(folder) for folder in kept] == before
        assert (ws.root / ".env").read_text() == "CANARY"
        assert sorted(item.name for item in tmp.iterdir()) == siblings
        assert not [item for item in ws.root.rglob("*.tmp")]
