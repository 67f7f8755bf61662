"""The path gate, by openat2 and by walking: what it lets in, what it keeps out, what a race can do to it."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import PATIENCE, full_disk

from autoagent.core.errors import CommandError, SettingsError
from autoagent.workspace.gate import Gate, Workspace, WorkspaceEntry, openat2_gate, walk_gate
from autoagent.workspace.guarded import GuardedFiles


def kernel_has_openat2() -> bool:
    folder = os.open("/", os.O_RDONLY)
    try:
        os.close(openat2_gate(folder, ".", os.O_RDONLY))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


GATES = [
    pytest.param(
        openat2_gate, id="openat2", marks=pytest.mark.skipif(not kernel_has_openat2(), reason="kernel has no openat2")
    ),
    pytest.param(walk_gate, id="walk"),
]


@pytest.fixture(params=GATES)
def gate(request: pytest.FixtureRequest) -> Gate:
    return request.param


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
def workspace(tmp_path: Path, outside: Path, gate: Gate) -> Workspace:
    return Workspace(tmp_path / "ws", gate=gate)


def test_the_root_is_made_with_its_parents_and_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    workspace = Workspace(tmp_path / "link" / "a" / "ws")
    assert workspace.root == tmp_path / "real" / "a" / "ws"
    workspace.write(str(tmp_path / "link" / "a" / "ws" / "x"), b"1")
    assert (tmp_path / "real" / "a" / "ws" / "x").read_bytes() == b"1"


def test_a_root_that_is_a_file_or_the_agents_own_folder_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"/file cannot be used: .*--workspace-directory"):
        Workspace(tmp_path / "file")
    with pytest.raises(SettingsError, match="cannot be the workspace"):
        Workspace(tmp_path / "ws", [tmp_path / "ws"])


def test_write_read_append_delete(workspace: Workspace) -> None:
    workspace.write("a/b/c.txt", b"one\n")
    workspace.append("a/b/c.txt", b"two\n")
    assert workspace.read("a/b/c.txt", 100) == b"one\ntwo\n"
    assert workspace.read("a/b/c.txt", 5) == b"one\nt"
    found = workspace.find("a/b/c.txt")
    assert found == WorkspaceEntry("a/b/c.txt", "file", 8, (workspace.root / "a/b/c.txt").stat().st_mtime_ns)
    workspace.delete("a/b/c.txt")
    assert workspace.find("a/b/c.txt") is None
    assert [(entry.path, entry.kind) for entry in workspace.walk()] == [("a", "folder"), ("a/b", "folder")]


@pytest.mark.parametrize(
    "path",
    [
        "n.txt", "./n.txt", "a/../n.txt", "a//../n.txt", "{root}/n.txt", "{root}/a/../n.txt", "/workspace/n.txt",
        "/auto_gpt_workspace/a/../n.txt",
    ],
)  # fmt: skip
def test_every_way_to_name_a_file_inside_is_accepted(workspace: Workspace, path: str) -> None:
    (workspace.root / "a").mkdir()
    named = path.format(root=workspace.root)
    workspace.write(named, b"x")
    assert workspace.display(named) == "n.txt"
    assert (workspace.root / "n.txt").read_bytes() == b"x"


@pytest.mark.parametrize(
    "name",
    ["-rf", "--help", "a b;c", "$(x)", "*", "`id`", "'", '"', "%s", "{}", "~notes", "a:b", "\\..\\x", "é", "日本"],
)
def test_an_odd_name_is_a_plain_name(workspace: Workspace, name: str) -> None:
    workspace.write(name, b"x")
    workspace.append(name, b"y")
    assert workspace.read(name, 10) == b"xy"
    assert [entry.path for entry in workspace.walk()] == [name]
    assert [item.name for item in workspace.root.iterdir()] == [name]
    workspace.delete(name)
    assert not list(workspace.root.iterdir())


REFUSED = [
    ("../x", "outside the workspace"), ("a/../../x", "outside the workspace"), ("/etc/x", "outside the workspace"),
    ("/workspace/../etc/x", "outside the workspace"), ("/workspace//etc/../../x", "outside the workspace"),
    ("/", "outside the workspace|names a folder"), ("..", "outside the workspace"),
    ("../outside/secret.txt", "outside the workspace"), ("../ws2/x", "outside the workspace"), ("~", "home folder"),
    ("~/x", "home folder"), ("~root/x", "home folder"), ("file:///x", "is a URL"), ("FILE:x", "is a URL"),
    ("https://example.org/x", "is a URL"), ("", "is blank"), ("  ", "is blank"), (".", "the workspace itself"),
    ("x/", "names a folder"), ("x/.", "names a folder"), ("x\0", r"control character '\\x00'"),
    ("a\nb", r"control character '\\n'"), ("a\x1b[31mb", r"control character '\\x1b'"),
    ("a\x9bb", r"control character '\\x9b'"), ("\udc80", "not valid Unicode"), ("x" * 5000, "too long"),
    ("x" * 256, "too long"), ("é" * 128, "too long"), ("a/" * 2100 + "x", "too long"),
]  # fmt: skip


Operation = Callable[[Workspace, str], object]


def read(workspace: Workspace, path: str) -> bytes:
    return workspace.read(path, 10)


def write(workspace: Workspace, path: str) -> None:
    workspace.write(path, b"x")


def append(workspace: Workspace, path: str) -> None:
    workspace.append(path, b"x")


def walk(workspace: Workspace, path: str) -> list[WorkspaceEntry]:
    return list(workspace.walk(path))


def assert_refused(workspace: Workspace, path: str, why: str, *operations: Operation) -> None:
    for operation in operations:
        with pytest.raises(CommandError, match=why) as refusal:
            operation(workspace, path)
        message = str(refusal.value)
        assert len(message) < 400 and message.isprintable() and repr(path)[:20] in message


@pytest.mark.parametrize(("path", "why"), REFUSED, ids=[ascii(path)[:30] for path, _ in REFUSED])
def test_a_path_that_is_refused_is_named_with_the_reason(workspace: Workspace, path: str, why: str) -> None:
    before = snapshot(workspace.root.parent)
    assert_refused(workspace, path, why, read, write, append, Workspace.delete)
    assert snapshot(workspace.root.parent) == before


def names(workspace: Workspace) -> list[str]:
    return sorted(item.name for item in workspace.root.iterdir())


@contextmanager
def a_program(workspace: Workspace) -> Iterator[GuardedFiles]:
    """The time in which a program runs in the workspace, and may change what it guards."""
    workspace.guarded_files.begin()
    yield workspace.guarded_files
    workspace.guarded_files.end()


def repository(workspace: Workspace, **texts: str) -> Path:
    """Make a repository with these files in its folder, which is returned."""
    git = workspace.root / ".git"
    for name in ("objects", "refs"):
        (git / name).mkdir(parents=True)
    for name, text in {"HEAD": "ref: refs/heads/main\n", **texts}.items():
        (git / name).parent.mkdir(exist_ok=True)
        (git / name).write_text(text.format(root=workspace.root))
    return git


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All beneath a folder: mode, inode, and content or target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = b""
        if path.is_symlink():
            content = os.fsencode(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        found[str(path)] = (status.st_mode, status.st_ino, content)
    return found


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("../outside", "link/secret.txt"), ("../outside/secret.txt", "link"), ("/etc/passwd", "link"),
        ("/etc", "link/passwd"), ("/proc/self/root/etc/passwd", "link"), ("..", "link/outside/secret.txt"),
        ("../outside/not-there-yet", "link"),
    ],
)  # fmt: skip
def test_a_link_that_leads_out_is_refused(workspace: Workspace, outside: Path, target: str, path: str) -> None:
    (workspace.root / "link").symlink_to(target)
    before = snapshot(outside)
    assert_refused(workspace, path, "outside the workspace", read, write, append, Workspace.find, walk)
    assert snapshot(outside) == before


def test_a_link_inside_works_and_deleting_it_deletes_the_link_alone(workspace: Workspace, outside: Path) -> None:
    workspace.write("real/x.txt", b"1")
    (workspace.root / "folder").symlink_to("real")
    (workspace.root / "file").symlink_to(workspace.root / "real" / "x.txt")
    (workspace.root / "out").symlink_to(outside / "secret.txt")
    assert workspace.read("folder/x.txt", 10) == workspace.read("file", 10) == b"1"
    workspace.write("file", b"2")
    assert (workspace.root / "real" / "x.txt").read_bytes() == b"2"
    assert (workspace.root / "file").is_symlink()
    assert workspace.display("file") == "real/x.txt"
    workspace.delete("out")
    workspace.delete("file")
    assert (outside / "secret.txt").read_text() == "secret"
    assert names(workspace) == ["folder", "real"]


def test_links_in_a_circle_and_chains_of_links_are_refused(workspace: Workspace) -> None:
    (workspace.root / "a").symlink_to("b")
    (workspace.root / "b").symlink_to("a")
    (workspace.root / "self").symlink_to(".")
    for number in range(2000):
        (workspace.root / f"c{number}").symlink_to(f"c{number + 1}")
    assert_refused(workspace, "a", "'a' leads through a symbolic link that goes round", read)
    assert_refused(workspace, "a", "'a' is not a regular file", write)
    assert_refused(workspace, "c0", "'c0' leads through too many symbolic links", read)
    assert {entry.kind for entry in workspace.walk()} == {"link"}
    workspace.write("self/self/self/x", b"1")
    assert workspace.display("self/self/x") == "x"


def test_a_hard_link_to_an_outside_file_is_never_written_through(workspace: Workspace, outside: Path) -> None:
    for name in ("w", "a", "d"):
        os.link(outside / "secret.txt", workspace.root / name)
    before = snapshot(outside)
    workspace.write("w", b"mine")
    workspace.append("a", b" more")
    workspace.delete("d")
    assert snapshot(outside) == before
    assert workspace.read("w", 100) == b"mine"
    assert workspace.read("a", 100) == b"secret more"


def test_write_keeps_mode_and_owner_and_leaves_nothing_behind(workspace: Workspace) -> None:
    workspace.write("run.sh", b"old")
    place = workspace.root / "run.sh"
    place.chmod(0o750)
    owner = (1234, 1235) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(place, *owner)
    inode = place.stat().st_ino
    workspace.write("run.sh", b"new")
    status = place.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_ino != inode) == (0o750, True)
    assert (status.st_uid, status.st_gid) == owner and place.read_bytes() == b"new"
    assert names(workspace) == ["run.sh"]


def test_a_full_disk_leaves_the_old_content(tmp_path: Path, gate: Gate) -> None:
    root = tmp_path / "ws"
    workspace = Workspace(root, gate=gate)
    for name, operation in (("w", workspace.write), ("a", workspace.append)):
        workspace.write(name, b"old")
        with full_disk(1000), pytest.raises(CommandError, match=f"^'{name}' cannot be used: File too large"):
            operation(name, b"x" * 5000)
    assert (root / "w").read_bytes() == (root / "a").read_bytes() == b"old"
    assert names(workspace) == ["a", "w"]


@pytest.mark.parametrize("make", ["folder", "fifo", "socket"])
def test_what_is_no_regular_file_is_neither_read_nor_written(
    workspace: Workspace, make: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = workspace.root / "x"
    if make == "folder":
        place.mkdir()
    elif make == "fifo":
        os.mkfifo(place)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            monkeypatch.chdir(workspace.root)  # the address of a socket is short
            server.bind("x")
    started = time.monotonic()
    why = "'x' is a folder" if make == "folder" else "'x' is not a regular file"
    assert_refused(workspace, "x", why, read, write, append)
    assert time.monotonic() - started < PATIENCE, "it waits for nobody at the other end"
    assert names(workspace) == ["x"]


def test_a_folder_cannot_be_deleted(workspace: Workspace) -> None:
    workspace.write("a/x", b"1")
    for path in ("a", ".", str(workspace.root)):
        assert_refused(workspace, path, r"is a folder|is the workspace itself", Workspace.delete)
    assert workspace.read("a/x", 10) == b"1"


def test_what_is_missing_is_named(workspace: Workspace) -> None:
    workspace.write("file", b"")
    assert_refused(workspace, "no.txt", r"^There is no 'no\.txt' in the workspace\.$", Workspace.delete, read, append)
    through_a_file = r"^'file/x' leads through a file .* such as 'x'\."
    assert_refused(workspace, "file/x", through_a_file, Workspace.delete, read, append, write)
    assert_refused(workspace, "no", "There is no 'no'", walk)
    assert_refused(workspace, "file", "'file' is not a folder", walk)
    assert workspace.find("no/x") is None
    assert workspace.find("file/x") is None


def test_protected_places_are_out_of_reach_before_and_after_they_exist(tmp_path: Path, gate: Gate) -> None:
    root = tmp_path / "ws"
    protected = [root / ".autoagent", root / "conf" / "ai.yaml", root / ".env", tmp_path / "elsewhere"]
    workspace = Workspace(root, protected, gate=gate)
    paths = [".autoagent", ".autoagent/runs/1/log", "conf/ai.yaml", ".env", "./x/../.env", ".ENV", ".AutoAgent/x"]

    def try_all() -> None:
        operations = (read, write, append, Workspace.find, walk, Workspace.delete)
        for path in [*paths, str(root / ".env")]:
            assert_refused(workspace, path, "belongs to the agent itself", *operations)

    try_all()
    assert not list(root.iterdir())
    for folder in (".autoagent", "conf"):
        (root / folder).mkdir()
    (root / "conf" / "ai.yaml").write_text("a")
    (root / ".env").write_text("KEY=1")
    before = snapshot(root)
    try_all()
    (root / "link").symlink_to(".autoagent")
    assert_refused(workspace, "link/x", "belongs to the agent itself", write)
    (root / "link").unlink()
    assert snapshot(root) == before
    assert [entry.path for entry in workspace.walk()] == ["conf"]
    workspace.write("conf/mine.yaml", b"x")
    workspace.write(".env.example", b"x")
    assert workspace.read("conf/mine.yaml", 10) == b"x"


def test_a_file_that_is_being_written_is_never_shown(tmp_path: Path, gate: Gate) -> None:
    workspace, shown = Workspace(tmp_path, gate=gate), set[str]()
    workspace.write("a.txt", b"x")
    writing = threading.Thread(target=lambda: [workspace.write("a.txt", b"x" * 100_000) for _ in range(200)])
    writing.start()
    while writing.is_alive():
        shown |= {entry.path for entry in workspace.walk()}
    assert shown == {"a.txt"}


def test_what_a_kill_left_of_a_file_is_shown_like_any_until_it_is_swept_away(tmp_path: Path, gate: Gate) -> None:
    workspace, name = Workspace(tmp_path, gate=gate), ".autoagent-0123456789abcdef.tmp"
    (tmp_path / "sub").mkdir()
    for left in (tmp_path / name, tmp_path / "sub" / name, tmp_path / "sub" / f"{name}.mine"):
        left.write_text("half")
    assert workspace.read(f"sub/{name}", 10) == b"half", "a program could hide a file under a name that is never shown"
    workspace.delete_drafts()
    assert sorted(path.name for path in tmp_path.rglob("*")) == [f"{name}.mine", "sub"]


def test_a_protected_link_is_protected_itself_and_so_is_its_target(tmp_path: Path, gate: Gate) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    (root / "real.env").write_text("KEY=1")
    (root / ".env").symlink_to("real.env")
    workspace = Workspace(root, [root / ".env"], gate=gate)
    for path in (".env", "real.env"):
        assert_refused(workspace, path, "belongs to the agent itself", Workspace.delete)
    assert list(workspace.walk()) == []


def test_walk_goes_level_by_level_in_the_order_of_names(workspace: Workspace) -> None:
    for path in ("b.txt", "a/z.txt", "a/a/deep.txt", "c/x.txt", "skip/in.txt"):
        workspace.write(path, b"")
    found = [entry.path for entry in workspace.walk(skip={"skip"})]
    assert found == ["a", "b.txt", "c", "skip", "a/a", "a/z.txt", "c/x.txt", "a/a/deep.txt"]
    assert [entry.path for entry in workspace.walk("skip", skip={"skip"})] == ["skip/in.txt"]


def test_two_hundred_levels(workspace: Workspace) -> None:
    path = "/".join(["d"] * 200) + "/x.txt"
    workspace.write(path, b"deep")
    assert workspace.read(path, 10) == b"deep"
    entries = list(workspace.walk())
    assert (len(entries), entries[-1]) == (201, WorkspaceEntry(path, "file", 4))


def test_a_path_longer_than_the_system_takes_does_not_end_the_walk(workspace: Workspace) -> None:
    here = os.open(workspace.root, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("n" * 250, dir_fd=here)
        below = os.open("n" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (workspace.root / "z.txt").write_text("")
    kinds = [entry.kind for entry in workspace.walk()]
    assert kinds[:2] == ["folder", "file"]
    assert kinds[-1] in ("folder", "unreadable")


def test_a_swap_race_never_leads_out(workspace: Workspace, outside: Path) -> None:
    """A thread swaps a folder with a link to the outside, as fast as it can, while the gate is used."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        pytest.skip("the C library cannot swap two files in one step")
    at_cwd, exchange = -100, 2
    (outside / "x.txt").write_text("secret")
    workspace.write("dir/x.txt", b"mine")
    (workspace.root / "link").symlink_to(outside)
    before = snapshot(outside)
    stop = threading.Event()

    def swap() -> None:
        pair = os.fsencode(workspace.root / "dir"), os.fsencode(workspace.root / "link")
        while not stop.is_set():
            renameat2(at_cwd, pair[0], at_cwd, pair[1], exchange)

    seen, refused = set(), set()
    thread = threading.Thread(target=swap)
    thread.start()
    end = time.monotonic() + 0.4
    try:
        while time.monotonic() < end:
            for operation in (
                lambda: seen.add(workspace.read("dir/x.txt", 100)),
                lambda: workspace.write("dir/x.txt", b"mine"),
                lambda: workspace.append("dir/x.txt", b""),
                lambda: workspace.write("dir/sub/new.txt", b"mine"),
                lambda: seen.update(entry.path.encode() for entry in workspace.walk("dir")),
                lambda: workspace.delete("dir/sub/new.txt"),
            ):
                try:
                    operation()
                except CommandError as refusal:
                    refused.add(str(refusal).partition("' ")[2])
    finally:
        stop.set()
        thread.join()
    assert any("outside the workspace" in reason for reason in refused)
    assert b"mine" in seen
    assert not {b"secret", b"dir/secret.txt", b"link/secret.txt"} & seen
    assert snapshot(outside) == before


def lines_of_ordinary_user(program: str, folder: Path) -> list[str]:
    """Return what a program prints that gives up root's rights itself, so that it can work in a test's folder."""
    if os.geteuid() == 0:
        for above in (folder, *folder.parents):
            if above.name.startswith(("pytest-", "popen-", "test_")):  # made for this run of the tests
                above.chmod(0o711)
            elif not above.stat().st_mode & 0o001:
                pytest.skip(f"another user cannot enter {above}")
    source = str(Path(sys.modules["autoagent"].__file__ or "").parent.parent)
    environment = {**os.environ, "PYTHONPATH": source}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert not run.stderr
    return run.stdout.splitlines()


@pytest.mark.parametrize("name", ["openat2_gate", "walk_gate"])
def test_without_permission_a_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """As another user, since root may read anything."""
    if name == "openat2_gate" and not kernel_has_openat2():
        pytest.skip("kernel has no openat2")
    root = tmp_path / "ws"
    (root / "shut").mkdir(parents=True)
    for file, mode in (("no.txt", 0o000), ("fixed.txt", 0o444)):
        (root / file).write_text("x")
        (root / file).chmod(mode)
    (root / "shut").chmod(0o000)
    root.chmod(0o777)
    program = f"""
import ctypes, os  # ctypes now: the other user may not be able to read the interpreter's folder
from pathlib import Path
from autoagent.workspace import gate as workspace
from autoagent.core.errors import CommandError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
here = workspace.Workspace(Path({str(root)!r}), gate=workspace.{name})
for act in (lambda: here.read("no.txt", 9), lambda: here.append("no.txt", b"y"), lambda: here.write("no.txt", b"y"),
            lambda: here.write("fixed.txt", b"y"), lambda: list(here.walk("shut")), lambda: here.write("shut/x", b"y")):
    try:
        print("done", act())
    except CommandError as error:
        print(error)
print([(entry.path, entry.kind) for entry in here.walk()])
"""
    assert lines_of_ordinary_user(program, tmp_path) == [
        "'no.txt' cannot be used: Permission denied.",
        "'no.txt' cannot be used: Permission denied.",
        "'no.txt' is read-only.",
        "'fixed.txt' is read-only.",
        "'shut' cannot be used: Permission denied.",
        "'shut/x' cannot be used: Permission denied.",
        "[('fixed.txt', 'file'), ('no.txt', 'file'), ('shut', 'folder'), ('shut', 'unreadable')]",
    ]
    (root / "shut").chmod(0o700)


def test_a_guarded_file_whose_folder_is_away_for_a_moment_is_not_forgotten(workspace: Workspace) -> None:
    git = repository(workspace, **{"hooks/pre-push": "mine"})
    with a_program(workspace) as guarded:
        git.rename(workspace.root / "x")
        guarded.recheck()
        (workspace.root / "x").rename(git)
        (git / "hooks" / "pre-push").write_text("of a program")
    assert (git / "hooks" / "pre-push").read_text() == "mine"


def test_a_folder_that_was_away_during_a_scan_hides_no_planted_file_afterwards(workspace: Workspace) -> None:
    planted = workspace.root / "a/b/c/ai_settings.yaml"
    planted.parent.mkdir(parents=True)
    time.sleep(0.1)  # what was changed just now is listed once more
    with a_program(workspace) as guarded:
        (workspace.root / "a").rename(workspace.root / "away")
        guarded._listing("a/b")  # as by a scan that has just listed `a`
        (workspace.root / "away").rename(workspace.root / "a")
        planted.write_text("ai_role: x")
    assert not planted.exists()


def test_hooks_where_the_configuration_says_are_the_users_from_the_first_program_on(workspace: Workspace) -> None:
    repository(workspace, config="[core]\n\thooksPath = .githooks\n[include]\n\tpath = ../extra.cfg\n")
    hook, included = workspace.root / ".githooks" / "pre-commit", workspace.root / "extra.cfg"
    hook.parent.mkdir()
    hook.write_text("mine")
    included.write_text("[user]\n\tname = a\n")
    assert_refused(workspace, ".githooks/pre-commit", "would run as the user later", write)
    with a_program(workspace) as guarded:
        pass
    assert (hook.read_text(), guarded.take_report()) == ("mine", [])
    assert {".githooks", "extra.cfg"} <= {*guarded.read_only}
    with a_program(workspace):
        hook.write_text("a program's")
        (hook.parent / "post-commit").write_text("a program's")
        included.write_text("[core]\n\tpager = touch x\n")
    assert hook.read_text() == "mine" and not (hook.parent / "post-commit").exists()
    assert included.read_text() == "[user]\n\tname = a\n"
    workspace.write("notes.txt", b"nothing else is guarded")


@pytest.mark.parametrize(
    "texts",
    [
        {"config": "[core]\n\thooksPath = {root}/.githooks\n"},
        {"config": "[core]\n\thooksPath = .githooks # ours\n"},
        {"config": '[core]\n\thooksPath = .git"hoo"\\\nks ; ours\n'},
        {"config": '[core] hookspath=".githooks"\n'},
        {"config": "[core]\n\thooksPath = .GitHooks\n"},
        {"config.worktree": "[core]\n\thooksPath = .githooks/\n"},
        {
            "config": "[include]\n\tpath = more\n",
            "more": '[includeIf "onbranch:x"]\npath = again/a.cfg\n',
            "again/a.cfg": "[core]\nhooksPath = .githooks\n",
        },
    ],
)
def test_hooks_are_found_wherever_the_configuration_names_them(workspace: Workspace, texts: dict[str, str]) -> None:
    repository(workspace, **texts)
    workspace.write("notes.txt", b"nothing else is guarded")
    assert_refused(workspace, ".githooks/pre-commit", "would run as the user later", write)
    assert all(workspace.guarded_files.is_guarded(f".git/{name}") for name in texts)


def test_a_folder_of_hooks_around_the_repository_leaves_the_rest_of_it_free(workspace: Workspace) -> None:
    repository(workspace, config="[core]\n\thooksPath = .\n")
    workspace.write("src/a.py", b"")
    assert_refused(workspace, "pre-commit", "would run as the user later", write)
    with a_program(workspace) as guarded:
        for name in ("src/b.py", ".git/index", "pre-push"):
            (workspace.root / name).touch()
    assert [line.split(" ")[0] for line in guarded.take_report()] == ["pre-push"]


def test_a_guarded_file_that_is_too_large_to_be_restored_is_reported_as_deleted(workspace: Workspace) -> None:
    (workspace.root / ".envrc").write_bytes(b"#" * (2 << 20))
    with a_program(workspace) as guarded:
        (workspace.root / ".envrc").unlink()
    assert guarded.take_report() == [".envrc was deleted by a program, and is too large to be restored."]


def test_what_an_allowed_change_of_the_configuration_names_is_guarded_at_once(workspace: Workspace) -> None:
    git = repository(workspace, config="")
    workspace.write(".githooks/pre-commit", b"a file like any other")
    (git / "config").write_text("[core]\n\thooksPath = .githooks\n")
    workspace.guarded_files.accept([".git/config"])
    assert workspace.guarded_files.runs_later(".githooks/pre-commit")


def test_a_closed_log_of_a_repository_hides_no_planted_file(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    program = f"""
import os
from pathlib import Path
from autoagent.commands import files
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.core.commands import Call
from autoagent.memory.none import NoMemory
from autoagent.workspace.gate import Workspace
folder = Path({str(folder)!r})
Workspace(folder / "first").guarded_files.begin()  # imports what the other user may not be able to read
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
workspace = Workspace(folder / "ws", quarantine=folder / "held")
git = workspace.root / ".git"
for name in ("objects", "refs", "logs", "hooks"):
    (git / name).mkdir(parents=True)
(git / "HEAD").write_text("ref: refs/heads/main")
workspace.guarded_files.begin()
planted = [workspace.root / ".envrc", git / "hooks/post-commit", git / "logs/HEAD"]
for path in planted[:2]:
    path.write_text("touch x")
planted[2].symlink_to("../../../elsewhere")
(git / "logs").chmod(0)
workspace.guarded_files.end()
print(*(os.path.lexists(path) for path in planted), len(workspace.guarded_files.take_report()))
(workspace.root / "sub/.git").mkdir(parents=True)
(workspace.root / "sub/.git").chmod(0)
(workspace.root / "secret").touch(mode=0)
context = Context(Workspace(workspace.root), NoMemory(), None)
for name, args in ("write_to_file", {{"filename": "a.txt", "text": "x\\n"}}), ("delete_file", {{"filename": "secret"}}):
    print(Registry(files.COMMANDS).propose(Call("1", name, args), context).preview.splitlines()[-1])
(workspace.root / "sub/.git").chmod(0o700)
"""
    assert lines_of_ordinary_user(program, tmp_path) == ["False False False 3", "+x", "Deletes secret (0 bytes)."]


def test_a_planted_file_is_removed_though_no_copy_of_it_can_be_kept(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "ws", quarantine=tmp_path / "held")
    names = [f"{'r' * 240}.mdc", "a.mdc"]
    with a_program(workspace):
        (workspace.root / ".cursor/rules").mkdir(parents=True)
        for number, name in enumerate(names):
            (workspace.root / ".cursor/rules" / name).write_text(f"{number}")
    assert not list((workspace.root / ".cursor").rglob("*.mdc"))
    assert sorted(path.read_text() for path in (tmp_path / "held").iterdir()) == ["0", "1"]
    shutil.rmtree(tmp_path / "held")
    (tmp_path / "held").write_text("no folder")
    with a_program(workspace) as guarded:
        (workspace.root / ".envrc").write_text("touch x")
    assert not (workspace.root / ".envrc").exists()
    assert "could not be kept" in guarded.take_report()[-1]
