"""Snapshots bring back what was there, byte for byte, and touch nothing else."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoagent.core.errors import StateError
from autoagent.workspace.gate import Workspace
from autoagent.workspace.snapshots import MANY_FILES, MAX_ENTRIES, MAX_FILE_BYTES, Snapshots

ROOT = Path(__file__).parent.parent


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def snapshots(root: Path, store: Path, told: list[str]) -> Snapshots:
    return Snapshots(store, Workspace(root), told.append)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def everything(root: Path) -> dict[str, object]:
    """All that is there: content, permissions and where links lead."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name, mode = str(path.relative_to(root)), path.lstat().st_mode
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = (oct(mode), path.read_bytes() if stat.S_ISREG(mode) else None)
    return found


def test_the_same_content_has_the_same_id_whenever_and_wherever(tmp_path: Path, root: Path, store: Path) -> None:
    write(root, {"a.txt": "a", "folder/b.txt": "b"})
    other = tmp_path / "other"
    shutil.copytree(root, other)
    first = Snapshots(store, Workspace(root)).take()
    assert Snapshots(store, Workspace(root)).take() == first
    assert Snapshots(tmp_path / "elsewhere", Workspace(other)).take() == first
    (other / "folder/b.txt").write_text("B")
    assert Snapshots(store, Workspace(other)).take() != first


def test_what_did_not_change_is_not_read_again(root: Path, store: Path, snapshots: Snapshots) -> None:
    write(root, {f"{n}.txt": str(n) for n in range(20)})
    time.sleep(0.1)  # what was changed just now is looked at once more
    first = snapshots.take()
    shutil.rmtree(store)
    assert snapshots.take() == first
    assert not store.exists(), "nothing had to be kept anew"


def test_a_change_of_the_same_size_in_the_same_instant_is_seen(root: Path, snapshots: Snapshots) -> None:
    trees = set()
    for letter in "abcdefghij":
        (root / "file").write_text(letter)
        trees.add(snapshots.take())
    assert len(trees) == 10


def test_all_that_can_be_kept_comes_back(root: Path, snapshots: Snapshots) -> None:
    write(root, {"plain": "1", "script": "#!/bin/sh", "secret": "s", "gone/deep/in/it": "2", "was a file": "3"})
    write(root, {"-rf": "4", "new\nline": "5", "ünïcode": "6", "was a folder/x": "7", ".hidden": ""})
    (root / os.fsdecode(b"not \xff utf-8")).write_text("8")
    (root / "empty/within").mkdir(parents=True)
    (root / "script").chmod(0o755)
    (root / "secret").chmod(0o600)
    (root / "closed").mkdir(mode=0o500)
    (root / "link").symlink_to("plain")
    (root / "dangling").symlink_to("/nowhere/at all")
    before, tree = everything(root), snapshots.take()

    shutil.rmtree(root / "gone")
    shutil.rmtree(root / "empty")
    shutil.rmtree(root / "was a folder")
    (root / "was a folder").write_text("a file now")
    (root / "was a file").unlink()
    write(root, {"was a file/now": "a folder", "added/much/deeper": "x", "plain": "changed"})
    (root / "secret").chmod(0o644)
    (root / "closed").chmod(0o700)
    (root / "link").unlink()
    (root / "link").write_text("no link")
    (root / "dangling").unlink()
    after, later = everything(root), snapshots.take()

    restored = snapshots.restore(tree)
    assert everything(root) == before
    assert snapshots.take() == tree
    assert restored.skipped == ()
    assert list(restored.changed) == snapshots.changed(later, tree)
    assert {"plain", "secret", "link", "dangling", "gone/deep/in/it", "added/much/deeper"} < set(restored.changed)
    assert "-rf" not in restored.changed
    snapshots.restore(later)
    assert everything(root) == after


def test_folders_keep_whom_their_files_belong_to_and_files_lend_no_rights(root: Path, snapshots: Snapshots) -> None:
    write(root, {"shared/deep/a": "1", "gone/b": "2", "program": "3"})
    for folder in ("shared", "shared/deep", "gone"):
        (root / folder).chmod(0o2775)
    (root / "gone").chmod(0o3775)
    (root / "program").chmod(0o6755)
    tree = snapshots.take()
    write(root, {"shared/a": "x", "shared/deep/a": "changed", "program": "changed"})
    shutil.rmtree(root / "gone")
    (root / "shared/deep").chmod(0o755)
    snapshots.restore(tree)
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("shared", "shared/deep", "gone", "program")}
    assert modes == {"shared": 0o2775, "shared/deep": 0o2775, "gone": 0o3775, "program": 0o755}


NAMES = st.sampled_from(["a", "b", "a/a", "a/b", "b/a", "b/b/a"])
THINGS = st.one_of(st.binary(max_size=3), st.just(None), st.sampled_from(["a", ".."]))
STATES = st.dictionaries(NAMES, THINGS, max_size=5)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(STATES, min_size=2, max_size=4))
def test_from_any_state_to_any_other(tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, object]]) -> None:
    """A state: for each path the bytes of a file, None for an empty folder, or where a link leads."""
    root = tmp_path_factory.mktemp("any") / "workspace"
    snapshots = Snapshots(root.with_name("snapshots"), Workspace(root))
    seen = []
    for state in states:
        for path in root.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for name, what in state.items():
            path = root / name
            if any(parent.is_symlink() or parent.is_file() for parent in path.parents) or os.path.lexists(path):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if what is None:
                path.mkdir()
            elif isinstance(what, bytes):
                path.write_bytes(what)
            else:
                path.symlink_to(str(what))
        seen.append((snapshots.take(), everything(root)))
    for tree, content in [*seen, *reversed(seen)]:
        snapshots.restore(tree)
        assert everything(root) == content


def quick(snapshots: Snapshots) -> str:
    """A look at what has changed alone, which must come to the same as a look at all."""
    tree = snapshots.take(whole=False)
    assert Snapshots(snapshots._objects._folder, snapshots._workspace).take() == tree
    return tree


def test_a_look_at_what_has_changed_sees_whatever_changes(root: Path, tmp_path: Path, snapshots: Snapshots) -> None:
    write(root, {"a.txt": "a", "b/c/d.txt": "d", "b/e.txt": "e", "moved/x": "x"})
    (tmp_path / "elsewhere").mkdir()
    first = snapshots.take()
    assert quick(snapshots) == first
    changes = (
        lambda: (root / "a.txt").write_text("A"),
        lambda: (root / "a.txt").write_text("B"),  # within a tick of the clock
        lambda: (root / "b/c/d.txt").chmod(0o755),
        lambda: (root / "b/c/new").write_text("n"),
        lambda: (root / "b/c/new").rename(root / "b/c/newer"),
        lambda: (root / "b/e.txt").unlink(),
        lambda: (root / "link").symlink_to("a.txt"),
        lambda: (root / "empty").mkdir(),
        lambda: write(root, {"empty/no/longer": "1"}),
        lambda: write(root, {"empty/no/more": "2"}),
        lambda: (root / "moved").rename(root / "b/moved"),
        lambda: (root / "b/moved/x").write_text("y"),
        lambda: (root / "b/moved").rename(tmp_path / "elsewhere/moved"),
        lambda: (tmp_path / "elsewhere/moved/x").write_text("z"),
        lambda: (root / "b").chmod(0o700),
        lambda: shutil.rmtree(root / "empty"),
        lambda: write(root, {f"many/{n}": str(n) for n in range(100)}),
        lambda: write(root, {f"many/{n}": f"{n}!" for n in range(50)}),
        lambda: os.link(root / "a.txt", root / "b/linked"),
        lambda: os.mkfifo(root / "pipe"),
        lambda: (root / "pipe").unlink(),
        lambda: os.utime(root / "a.txt"),
    )
    trees = [first, *((change(), quick(snapshots))[1] for change in changes)]
    assert len(set(trees)) == len(trees) - 3, "a file elsewhere, a pipe made and taken away, and a time are no change"
    snapshots.restore(first)
    assert quick(snapshots) == first


def test_a_look_that_is_cut_off_costs_nothing(root: Path, store: Path, snapshots: Snapshots) -> None:
    write(root, {"a.txt": "a"})
    snapshots.take()
    (root / "a.txt").write_text("b")
    shutil.rmtree(store)
    store.write_text("no folder")
    with pytest.raises(StateError, match="Cannot keep a snapshot"):
        snapshots.take(whole=False)
    store.unlink()
    assert snapshots.read(snapshots.take(whole=False), "a.txt") == b"b"


def test_what_a_full_disk_did_not_take_is_stored_by_the_next_look(
    root: Path, store: Path, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {str(n): str(n) for n in range(100)})  # so many that its tree is stored in parts
    snapshots.take()
    write(root, {"0": "changed"})

    def full(*args: object, **options: object) -> None:
        raise StateError("The disk is full.")

    with monkeypatch.context() as patched, pytest.raises(StateError):
        patched.setattr(snapshots._objects, "_write", full)
        snapshots.take()
    write(root, {"1": "changed too"})
    assert Snapshots(store, Workspace(root)).read(snapshots.take(), "0") == b"changed"


def test_many_new_files_become_a_pack_that_git_can_read(root: Path, store: Path, snapshots: Snapshots) -> None:
    files = {f"{n % 7}/{n}.txt": f"{n}\n" * (n % 50) for n in range(300)}
    write(root, {**files, "large.bin": "x" * 2_000_000})
    tree = snapshots.take()
    assert len(kept(store)) < 10
    assert all(path.stat().st_mode & 0o077 == 0 for path in store.rglob("*"))
    if shutil.which("git"):
        for arguments in (("fsck", "--full"), ("verify-pack", *map(str, store.glob("objects/pack/*.idx")))):
            done = subprocess.run(["git", "--git-dir", store, *arguments], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        shown = subprocess.run(["git", "--git-dir", store, "show", f"{tree}:3/101.txt"], capture_output=True, text=True)
        assert shown.stdout == "101\n"
    before = everything(root)
    shutil.rmtree(root / "3")
    write(root, {name: "other" for name in list(files)[:150]})
    again = Snapshots(store, Workspace(root))
    assert again.restore(tree).skipped == ()
    assert everything(root) == before
    assert len(kept(store)) < 20, "what is packed is not kept once more"


@pytest.mark.parametrize("damage", [b"", b"PACK", None], ids=["empty", "cut", "garbled"])
def test_a_damaged_pack_is_named_or_written_anew(root: Path, store: Path, damage: bytes | None) -> None:
    write(root, {f"{n}.txt": f"one {n}" for n in range(300)})
    tree = Snapshots(store, Workspace(root)).take()
    (pack,) = store.glob("objects/pack/*.pack")
    content = pack.read_bytes()
    write(root, {f"{n}.txt": f"two {n}" for n in range(300)})
    now = everything(root)
    pack.write_bytes(content[:40] + bytes(200) + content[240:] if damage is None else damage)
    with pytest.raises(StateError, match=r"damaged|missing"):
        Snapshots(store, Workspace(root)).restore(tree)
    assert everything(root) == now
    pack.write_bytes(content)
    Snapshots(store, Workspace(root)).restore(tree)
    assert (root / "200.txt").read_text() == "one 200"


def kept(store: Path) -> dict[str, int]:
    """The objects of a store, with their sizes."""
    return {str(path.relative_to(store)): path.stat().st_size for path in (store / "objects").glob("*/*")}


def test_one_more_file_among_many_writes_little_more_than_itself(root: Path, store: Path, snapshots: Snapshots) -> None:
    write(root, {f"notes/{number}.txt": f"{number}\n" for number in range(500)})
    before = snapshots.take()
    known = kept(store)
    assert snapshots.take() == before and kept(store) == known, "where nothing has changed nothing is written"
    write(root, {"notes/new.txt": "new\n"})
    after = snapshots.take()
    added = {name: size for name, size in kept(store).items() if name not in known}
    assert len(added) == 4, "the file, its part of the folder, the folder, and the one that it lies in"
    assert sum(added.values()) < 4000
    assert snapshots.changed(before, after) == ["notes/new.txt"]
    (root / "notes/new.txt").unlink()
    assert snapshots.take() == before == Snapshots(store, Workspace(root)).take(), "what is there decides, not the way"


def test_a_snapshot_of_before_there_were_parts_comes_back(
    root: Path, store: Path, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {f"notes/{number}.txt": f"{number}\n" for number in range(200)})
    with monkeypatch.context() as earlier:
        earlier.setattr("autoagent.workspace.object_store._MAX_TREE_NAMES", MAX_ENTRIES)
        tree, before = Snapshots(store, Workspace(root)).take(), everything(root)
    assert snapshots.changed(tree, snapshots.take()) == []
    write(root, {"notes/7.txt": "other\n", "notes/more.txt": "more\n"})
    (root / "notes/9.txt").unlink()
    assert snapshots.restore(tree).changed == ("notes/7.txt", "notes/9.txt", "notes/more.txt")
    assert everything(root) == before


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_git_itself_can_read_it_and_a_repository_of_the_users_is_just_files(
    root: Path, store: Path, snapshots: Snapshots
) -> None:
    def git(*arguments: str, folder: Path = root) -> str:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout

    identity = ("-c", "user.name=U", "-c", "user.email=u@example.org")
    git("init", "-q")
    write(root, {"a.txt": "one\n", "folder/b.txt": "two\n"})
    git("add", "-A")
    git(*identity, "commit", "-qm", "first")
    hook = root / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\ntouch ../ran\n")
    hook.chmod(0o755)
    before, tree = everything(root), snapshots.take()
    assert git("--git-dir", str(store), "show", f"{tree}:folder/b.txt") == "two\n"
    assert git("--git-dir", str(store), "ls-tree", "--name-only", tree).split() == [".git", "a.txt", "folder"]

    write(root, {"a.txt": "changed\n"})
    git(*identity, "commit", "-qam", "second")
    git("gc", "-q")
    snapshots.restore(tree)
    assert everything(root) == before
    assert git("status", "--porcelain") == ""
    assert git("log", "--format=%s").split() == ["first"]
    assert not (root.parent / "ran").exists()


def test_what_is_protected_is_neither_kept_nor_touched(tmp_path: Path, root: Path, store: Path) -> None:
    write(root, {".env": "KEY=1", "state/log": "x", "a.txt": "a"})
    open_to_all = Snapshots(store, Workspace(root)).take()
    guarded = Snapshots(store, Workspace(root, [root / ".env", root / "state"]))
    tree = guarded.take()
    write(root, {".env": "KEY=2", "state/log": "xx", "a.txt": "b"})
    assert guarded.changed(tree, guarded.take()) == ["a.txt"]
    assert guarded.restore(tree).changed == ("a.txt",)
    assert (root / ".env").read_text() == "KEY=2"
    write(root, {".env": "KEY=3", "a.txt": "c"})
    restored = guarded.restore(open_to_all)  # taken when nothing was protected yet
    assert restored.changed == ("a.txt",)
    assert ((root / ".env").read_text(), (root / "state/log").read_text()) == ("KEY=3", "xx")
    assert set(restored.skipped) == {f"{name} (it belongs to the agent itself)" for name in (".env", "state")}


def test_a_folder_that_holds_something_protected_stays(root: Path, store: Path) -> None:
    snapshots = Snapshots(store, Workspace(root, [root / "project/.env"]))
    empty = snapshots.take()
    write(root, {"project/.env": "KEY=1", "project/a.txt": "a"})
    snapshots.restore(empty)
    assert [str(path.relative_to(root)) for path in root.rglob("*")] == ["project", "project/.env"]


def test_links_lead_nowhere_and_hard_links_are_not_written_through(
    root: Path, tmp_path: Path, snapshots: Snapshots
) -> None:
    outside = tmp_path / "outside"
    write(outside, {"b.txt": "outside", "c.txt": "outside"})
    write(root, {"folder/b.txt": "one", "a.txt": "one"})
    tree = snapshots.take()
    shutil.rmtree(root / "folder")
    (root / "folder").symlink_to(outside)
    (root / "a.txt").unlink()
    (root / "a.txt").hardlink_to(outside / "b.txt")
    later = snapshots.take()
    snapshots.restore(tree)
    assert (root / "folder/b.txt").read_text() == (root / "a.txt").read_text() == "one"
    snapshots.restore(later)
    assert (root / "folder").is_symlink()
    assert everything(outside) == {name: ("0o100644", b"outside") for name in ("b.txt", "c.txt")}


@pytest.mark.slow
def test_a_link_swapped_in_while_files_are_restored_does_not_lead_out(
    root: Path, tmp_path: Path, snapshots: Snapshots
) -> None:
    outside = tmp_path / "outside"
    write(outside, {f"{n}.txt": "outside" for n in range(5)})
    write(root, {f"folder/{n}.txt": "one" for n in range(5)})
    one = snapshots.take()
    write(root, {f"folder/{n}.txt": "two" for n in range(3)})
    two, untouched = snapshots.take(), everything(outside)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            with suppress(OSError):  # what is restored gets in the way
                (root / "folder").rename(root / "aside")
            with suppress(OSError):
                (root / "folder").symlink_to(outside)
                (root / "folder").unlink()
            with suppress(OSError):
                (root / "aside").rename(root / "folder")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for n in range(40):
            with suppress(StateError):  # a folder is not where it was a moment ago: nothing to be done about that
                snapshots.restore((one, two)[n % 2])
    finally:
        over.set()
        swapping.join()
    assert everything(outside) == untouched
    snapshots.restore(one)
    assert everything(root / "folder") == {f"{n}.txt": ("0o100644", b"one") for n in range(5)}


# What is not kept ------------------------------------------------------------------------------------------------


def test_what_is_not_kept_is_named_once_and_left_alone(root: Path, snapshots: Snapshots, told: list[str]) -> None:
    write(root, {"a.txt": "one"})
    small = snapshots.take()
    (root / "large.bin").touch()
    os.truncate(root / "large.bin", MAX_FILE_BYTES + 1)
    os.mkfifo(root / "pipe")
    write(root, {"a.txt": "two"})
    tree = snapshots.take()
    snapshots.take()
    (note,) = told
    assert note.startswith("A change of this cannot be undone, as it is not kept: ") and note.endswith(".")
    assert sorted(note[:-1].partition("kept: ")[2].split("; ")) == [
        "'large.bin': it is larger than 32 MB", "'pipe': it is not a file",
    ]  # fmt: skip
    assert snapshots.changed(small, tree) == ["a.txt", "large.bin", "pipe"]

    restored = snapshots.restore(small)
    assert restored.changed == ("a.txt",)
    assert restored.skipped == tuple(f"{name} (as it is now, no snapshot keeps it)" for name in ("large.bin", "pipe"))
    assert (root / "large.bin").stat().st_size == MAX_FILE_BYTES + 1
    (root / "large.bin").unlink()
    assert snapshots.restore(tree).skipped[0] == "large.bin (the snapshot does not hold it)"
    assert not (root / "large.bin").exists()
    (root / "large.bin").touch()
    os.truncate(root / "large.bin", MAX_FILE_BYTES + 2)
    assert snapshots.changed(tree, snapshots.take()) == ["large.bin"], "that it changed is known nevertheless"


@pytest.mark.slow
def test_folders_within_folders_are_kept_to_a_depth(root: Path, snapshots: Snapshots, told: list[str]) -> None:
    deep = root.joinpath(*["d"] * 150)
    deep.mkdir(parents=True)
    (deep / "bottom").write_text("x")
    tree = snapshots.take()
    assert "it is more than 100 folders deep" in told[0]
    (root / "a.txt").write_text("a")
    snapshots.restore(tree)
    assert not (root / "a.txt").exists()
    assert (deep / "bottom").read_text() == "x"


def test_a_first_look_at_many_files_is_told_and_the_next_reads_none_of_them(
    root: Path, snapshots: Snapshots, told: list[str]
) -> None:
    write(root, {f"{n % 7}/{n}": "" for n in range(MANY_FILES)})
    tree = snapshots.take()
    assert told == ["Saving 3,000 files or more, so that steps can be undone."]
    assert snapshots.take() == tree and len(told) == 1


@pytest.mark.slow
def test_what_is_installed_comes_after_the_users_own_files_of_any_depth(root: Path, snapshots: Snapshots) -> None:
    half = MAX_ENTRIES // 2
    installed = {f"{folder}/a/{n}.py": "" for folder in ("node_modules", ".venv/lib") for n in range(half)}
    own = ["src/deep/deeper/deepest/mine.py", "zzz/also/mine.py"]
    write(root, {**installed, ".venv/pyvenv.cfg": "", **dict.fromkeys(own, "")})
    before = snapshots.take()
    write(root, dict.fromkeys(own, "changed"))
    assert snapshots.changed(before, snapshots.take()) == own
    assert snapshots.restore(before).changed == tuple(own)


@pytest.mark.slow
def test_of_very_many_entries_the_shallow_ones_are_kept(root: Path, snapshots: Snapshots, told: list[str]) -> None:
    write(root, {f"many/{n}": "" for n in range(MAX_ENTRIES)})
    write(root, {"a.txt": "one", "zzz/b.txt": "one"})
    tree = snapshots.take()
    assert told == [
        "Saving 3,000 files or more, so that steps can be undone.",
        "A change of this cannot be undone, as it is not kept: 'many': the workspace has more than 20,000 entries; "
        "'zzz': the workspace has more than 20,000 entries.",
    ]
    write(root, {"a.txt": "two", "many/1": "two"})
    assert snapshots.restore(tree).changed == ("a.txt",)
    assert (root / "many/1").read_text() == "two"
    for path in (root / "many").iterdir():
        path.rename(root / path.name)
    crowded = snapshots.take()
    (root / "a.txt").write_text("three")
    snapshots.restore(crowded)
    assert len(list(root.iterdir())) == MAX_ENTRIES + 3, "nothing beyond the limit is lost"


# Failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (Path.unlink, "is missing"),
        (lambda path: path.write_bytes(b""), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "is damaged"),
        (lambda path: path.write_bytes(bytes(reversed(path.read_bytes()))), "is damaged"),
    ],
    ids=["missing", "empty", "cut", "garbled"],
)
def test_a_damaged_snapshot_is_named_and_nothing_is_touched(root: Path, store: Path, damage: object, says: str) -> None:
    write(root, {f"{n}.txt": f"one {n}" for n in range(5)})
    tree = Snapshots(store, Workspace(root)).take()
    objects = sorted((store / "objects").glob("*/*"))
    write(root, {f"{n}.txt": f"two {n}" for n in range(5)})
    now = everything(root)
    for path in objects:
        content = path.read_bytes()
        damage(path)  # type: ignore[operator]
        with pytest.raises(StateError, match=says) as error:
            Snapshots(store, Workspace(root)).restore(tree)
        assert str(path) in str(error.value)
        assert everything(root) == now
        path.write_bytes(content)
    Snapshots(store, Workspace(root)).restore(tree)
    assert (root / "3.txt").read_text() == "one 3"


def test_an_object_that_swapped_places_is_found_by_its_hash(root: Path, store: Path) -> None:
    write(root, {"a": "aaaa", "b": "bbbb"})
    tree = Snapshots(store, Workspace(root)).take()
    one, other = sorted((store / "objects").glob("*/*"), key=lambda path: path.stat().st_size)[:2]
    one.write_bytes(other.read_bytes())
    shutil.rmtree(root)
    root.mkdir()
    with pytest.raises(StateError, match="does not hold the blob that its name promises"):
        Snapshots(store, Workspace(root)).restore(tree)
    assert list(root.iterdir()) == []


def test_what_a_power_cut_left_empty_is_kept_anew(root: Path, store: Path, snapshots: Snapshots) -> None:
    write(root, {"a.txt": "one"})
    tree = Snapshots(store, Workspace(root)).take()
    for path in (store / "objects").glob("*/*"):
        path.write_bytes(b"")
    assert snapshots.take() == tree
    (root / "a.txt").write_text("two")
    assert snapshots.restore(tree).changed == ("a.txt",)


def in_a_process(code: str, *arguments: object) -> str:
    """What a program prints."""
    imports = (
        "import os, resource, sys\nfrom pathlib import Path\nfrom autoagent.core.errors import StateError\n"
        "from autoagent.workspace.snapshots import Snapshots\nfrom autoagent.workspace.gate import Workspace\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", imports + code, *map(str, arguments)],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout.strip()


def test_a_full_disk_is_one_line_that_names_the_place(root: Path, store: Path) -> None:
    """A limit on the size of files stands for the disk."""
    (root / "a.bin").write_bytes(os.urandom(50_000))
    code = (
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try:\n    Snapshots(Path(sys.argv[2]), Workspace(Path(sys.argv[1]))).take()\n"
        "except StateError as error:\n    print(error)\n"
    )
    assert in_a_process(code, root, store) == f"Cannot keep a snapshot in {store}: File too large."
    assert [path for path in store.rglob("tmp_obj_*")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files that an ordinary user cannot read")
def test_what_an_ordinary_user_cannot_read_is_named_and_left_alone() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "workspace"
        write(root, {"a.txt": "one", "closed.txt": "closed", "room/x": "x"})
        for path in (root.parent, root, root / "a.txt"):
            os.chown(path, 65534, 65534)
        (root / "closed.txt").chmod(0o600)
        (root / "room").chmod(0o700)
        code = (
            "os.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\nroot = Path(sys.argv[1])\n"
            "snapshots = Snapshots(root.with_name('snapshots'), Workspace(root), print)\n"
            "tree = snapshots.take()\n"
            "(root / 'a.txt').write_text('two')\n"
            "print(snapshots.restore(tree).changed, (root / 'a.txt').read_text())\n"
        )
        said = in_a_process(code, root)
        assert "'closed.txt': Permission denied" in said
        assert "'room': Permission denied" in said
        assert said.endswith("('a.txt',) one")
        assert (root / "room/x").read_text() == "x"
