"""What git ignores is not kept in snapshots, but nothing is lost or hidden by that."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoagent.workspace.gate import Workspace
from autoagent.workspace.ignored import Rules, is_ignored, rules_in
from autoagent.workspace.snapshots import Snapshots

FOLDERS = ["a", "a/b", "a/b/ab", "a/c", "b", "b/a", "b/a/b", "ab", "ab/c"]
NAMES = st.lists(st.sampled_from(["a", "b", "ab", "c", "*", "a*", "?", "*b"]), min_size=1, max_size=3).map("/".join)
BEFORE, AFTER = st.sampled_from(["", "", "/", "!", "!/", "**/", "!**/", "#"]), st.sampled_from(["", "/", " ", "\r"])
PLAIN = st.tuples(BEFORE, NAMES, AFTER).map("".join)
ODD = st.lists(PLAIN.map(lambda line: f"{line}/**") | st.text("ab*?!/\\[]# ", max_size=6), max_size=3)


@given(st.dictionaries(st.sampled_from(["", "a", "b/a"]), st.lists(PLAIN, max_size=4)), ODD)
@settings(max_examples=30, deadline=None)
def test_plain_lines_are_read_as_git_reads_them_and_others_ignore_no_more(
    lists: dict[str, list[str]], odd: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for folder in FOLDERS:
            (root / folder).mkdir()
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        for lines in ([], odd):
            found, rules = set[str](), {"": Rules()}
            for folder in ("", *FOLDERS):
                above = folder.rpartition("/")[0]
                if folder and (above in found or is_ignored(folder, rules[above])):
                    found.add(folder)
                text = "\n".join([*lists.get(folder, []), *lines])
                (root / folder / ".gitignore").write_bytes(text.encode())
                rules[folder] = rules_in(text, len(Path(folder).parts), rules[above])
            argv = ["git", "check-ignore", *FOLDERS]
            ran = subprocess.run(argv, cwd=root, stdout=subprocess.PIPE, text=True, check=False)
            assert found == set(ran.stdout.split()) if not lines else found <= set(ran.stdout.split())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("build/sub/own.txt", "src/own.txt"):
        (tmp_path / "workspace" / name).parent.mkdir(parents=True)
        (tmp_path / "workspace" / name).write_text(name)
    (tmp_path / "workspace/.gitignore").write_text("build/\n.git\nobjects/\n")
    return tmp_path / "workspace"


@pytest.mark.parametrize("version", ["2", "4"], ids=["paths written out", "paths compressed"])
def test_a_folder_with_a_tracked_file_is_kept(tmp_path: Path, root: Path, version: str) -> None:
    for argv in (["init", "-q"], ["add", "-f", "build"], ["update-index", "--index-version", version]):
        subprocess.run(["git", *argv], cwd=root, check=True)
    snapshots = Snapshots(tmp_path / "snapshots", Workspace(root))
    assert snapshots.read(tree := snapshots.take(), "build/sub/own.txt") == b"build/sub/own.txt"
    assert {"HEAD", "index", "objects"} <= {path.name for path in root.joinpath(".git").iterdir()}
    shutil.rmtree(root / ".git")
    assert snapshots.restore(tree).reasons == ()
    assert subprocess.run(["git", "fsck", "--no-dangling"], cwd=root, check=False).returncode == 0


def test_what_is_ignored_is_seen_and_told_and_left_alone(tmp_path: Path, root: Path) -> None:
    told: list[str] = []
    snapshots = Snapshots(tmp_path / "snapshots", Workspace(root), told.append)
    before = snapshots.take()
    (root / "build/sub/own.txt").write_text("BUILD/SUB/OWN.TXT")  # of the same size
    (root / "build/new").write_text("new")
    (root / "src/own.txt").unlink()
    after = snapshots.take()
    assert snapshots.changed(before, after) == ["build/new", "build/sub/own.txt", "src/own.txt"]
    assert snapshots.changed(before, after, kept=True) == ["src/own.txt"]
    restored = snapshots.restore(before)
    assert restored.changed == ("src/own.txt",)
    assert [path for path, _ in restored.reasons] == ["build/new", "build/sub/own.txt"]
    assert (root / "build/sub/own.txt").read_text() == "BUILD/SUB/OWN.TXT"
    assert told == [
        "A change of this cannot be undone, as it is not kept: 'build': git ignores it (files that a file command "
        "changes are kept)."
    ]


@pytest.mark.parametrize("again", [False, True], ids=["one process", "each snapshot in another process"])
def test_what_a_file_command_names_is_kept_from_then_on(tmp_path: Path, root: Path, *, again: bool) -> None:
    held = Snapshots(tmp_path / "snapshots", Workspace(root))
    tree, name, texts = held.take(), "build/sub/own.txt", {}
    for text in ("by the command", "by a program", ""):
        held = Snapshots(tmp_path / "snapshots", Workspace(root)) if again else held
        tree = held.take(whole=False, last=tree, named=() if texts else [name])
        texts[tree] = (root / name).read_text()
        (root / name).write_text(text) if text else (root / name).unlink()
    assert list(texts.values()) == [name, "by the command", "by a program"]
    for before, text in texts.items():
        assert not held.restore(before, tree).reasons
        assert (root / name).read_text() == text


def test_a_list_that_a_program_writes_takes_nothing_away(tmp_path: Path, root: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots", Workspace(root))
    before = snapshots.take()
    (root / ".gitignore").write_text("/*/\n!build\n")
    tree = snapshots.take()
    assert snapshots.changed(before, tree) == [".gitignore", "build/sub/own.txt"], "the second is kept from now on"
    shutil.rmtree(root / "src")
    shutil.rmtree(root / "build")
    assert Snapshots(tmp_path / "snapshots", Workspace(root)).restore(tree, tree).reasons == ()
    assert (root / "src/own.txt").read_text() == "src/own.txt"
    assert (root / "build/sub/own.txt").read_text() == "build/sub/own.txt"
