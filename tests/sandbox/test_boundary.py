"""What holds programs back: each way out is tried from inside, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent import KEY, Agent, Hold

PROBE = Path(__file__).with_name("probe.py")
HOLDING = ("bubblewrap", "landlock")


class Outside:
    """What a program is to leave alone: servers on loopback and on sockets, a file, a process of the same user."""

    def __init__(self, place: Path, user: int | None) -> None:
        self.folder = place / "outside"
        self.folder.mkdir()
        self.secret = self.folder / "secret.txt"
        self.secret.write_text("secret")
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.folder / "socket"))
        self.abstract.bind(f"\0{self.folder}")
        self.sockets = (self.tcp, self.udp, self.unix, self.abstract)
        for server in (self.tcp, self.unix, self.abstract):
            server.listen()
        for server in self.sockets:
            server.setblocking(False)
        self.victim = subprocess.Popen(["sleep", "1000"], **({} if user is None else {"user": user}))

    def probed_by(self, agent: Agent, **options: bool) -> dict[str, str]:
        ports = [str(server.getsockname()[1]) for server in (self.tcp, self.udp)]
        told = [*ports, str(self.folder), KEY, str(self.victim.pid)]
        done = agent.run("python3", "probe.py", *told, **options)
        results = json.loads(done.output)
        assert isinstance(results, dict)
        return results

    def reached(self) -> list[str]:
        """What there is to see of it from here."""
        seen = []
        for name, server in zip(("tcp", "udp", "unix", "abstract"), self.sockets, strict=True):
            try:
                if name == "udp":
                    server.recv(10)
                else:
                    server.accept()[0].close()
                seen.append(name)
            except BlockingIOError:
                pass
        if self.secret.read_text() != "secret" or len(list(self.folder.iterdir())) != 2:
            seen.append("files")
        if self.victim.poll() is not None:
            seen.append("victim")
        return seen

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for server in self.sockets:
            server.close()


@contextmanager
def outside(place: Path, user: int | None) -> Iterator[Outside]:
    there = Outside(place, user)
    (place / "ws").mkdir()
    shutil.copy(PROBE, place / "ws")
    try:
        yield there
    finally:
        there.close()


@pytest.mark.parametrize("kind", HOLDING)
def test_nothing_gets_out(kind: str, user: int | None, place: Path, hold: Hold) -> None:
    with outside(place, user) as there:
        agent = hold(kind, user)
        results = there.probed_by(agent)
        assert [name for name, result in results.items() if result == "out"] == []
        assert there.reached() == []


def test_without_a_boundary_the_gaps_say_what_gets_out(user: int | None, place: Path, hold: Hold) -> None:
    with outside(place, user) as there:
        agent = hold("none", user)
        results = there.probed_by(agent)
        got_out = {"tcp", "udp", "unix_path", "overwrite", "read", "key", "send_signal"}
        assert {name for name in got_out if results[name] == "out"} == got_out, results
        for word in ("read and change everything", "hard links", "network", "keys", "signals", "disk", "session"):
            assert word in agent.gaps


@pytest.mark.parametrize("kind", HOLDING)
def test_the_network_is_there_for_a_program_that_may_use_it(kind: str, place: Path, hold: Hold) -> None:
    with outside(place, None) as there:
        results = there.probed_by(hold(kind), network=True)
        assert (results["tcp"], results["udp"]) == ("out", "out")
        assert results["read"] != "out"


@pytest.mark.parametrize("kind", (*HOLDING, "none"))
def test_the_environment_is_built_from_nothing(kind: str, hold: Hold) -> None:
    done = hold(kind, env={"HTTP_PROXY": "http://hostile", "LD_PRELOAD": ""}).run("env", env={"ADDED": "1"})
    names = {line.partition("=")[0] for line in done.output.decode().splitlines()}
    usual = {"ADDED", "GIT_TERMINAL_PROMPT", "HOME", "LANG", "PAGER", "PATH", "PYTHONUNBUFFERED", "TERM", "TMPDIR"}
    assert names - {"PWD"} == usual
    assert KEY.encode() not in done.output


@pytest.mark.parametrize("kind", (*HOLDING, "none"))
def test_a_program_works_in_the_workspace_and_has_a_folder_for_temporary_files(
    kind: str, user: int | None, root: Path, hold: Hold
) -> None:
    (root / "below").mkdir()
    agent = hold(kind, user)
    script = 'echo a >b.txt && mkdir c && mv b.txt c/ && cat c/b.txt && echo x >"$TMPDIR/t" && cat "$HOME/t" && pwd -P'
    done = agent.run("/bin/sh", "-c", script, folder="below")
    assert (done.output.decode(), done.status) == (f"a\nx\n{root.resolve()}/below\n", 0)
    assert (root / "below/c/b.txt").read_text() == "a\n"


@pytest.mark.parametrize("kind", HOLDING)
def test_a_program_of_a_trial_reads_the_workspace_and_cannot_change_it(kind: str, root: Path, hold: Hold) -> None:
    agent = hold(kind)
    (root / "a.txt").write_text("kept")
    line = f"cat a.txt; echo x >a.txt; echo x >{root}/b.txt; rm a.txt; echo x >$TMPDIR/t && echo made"
    done = agent.run("/bin/sh", "-c", line, read_only=True)
    assert done.output.startswith(b"kept") and done.output.rstrip().endswith(b"made")
    assert [(path.name, path.read_text()) for path in root.glob("*.txt")] == [("a.txt", "kept")]


def test_a_program_sees_itself_alone_in_proc(user: int | None, hold: Hold) -> None:
    script = "echo /proc/[0-9]* | wc -w; cat /proc/1/environ | wc -c; grep Seccomp: /proc/1/status"
    processes, environment, _, filtered = hold("bubblewrap", user).run("/bin/sh", "-c", script).output.split()
    assert int(processes) <= 5
    assert (environment, filtered) == (b"0", b"2"), "the process that could be taken over is held as well"


ATTACKS = (
    "cat .autoagent/log", "echo x >.autoagent/log", "echo x >.autoagent/new",
    "rm -rf .autoagent && mkdir .autoagent", "mv .autoagent elsewhere", "ln .autoagent/log stolen",
    "cat deep/settings.yaml | grep own", "echo x >deep/settings.yaml", "rm deep/settings.yaml", "mv deep shallow",
)  # fmt: skip


@pytest.mark.parametrize("kind", HOLDING)
def test_the_agents_own_files_are_out_of_reach_there_or_not(
    kind: str, user: int | None, root: Path, hold: Hold
) -> None:
    (root / ".autoagent").mkdir()
    (root / "deep").mkdir()
    (root / ".autoagent/log").write_text("own")
    (root / "deep/settings.yaml").write_text("own")
    (root / "hidden").write_text("x")
    own = (".autoagent", "deep/settings.yaml")
    agent = hold(kind, user, protected=[root / name for name in own])
    for attack in ATTACKS:
        done = agent.run("/bin/sh", "-c", attack)
        assert done.status != 0, (attack, done)
        assert b"own" not in done.output, (attack, done)
    agent.close()
    assert sorted(path.name for path in root.iterdir()) == [".autoagent", "deep", "hidden"]
    assert [path.name for path in (root / ".autoagent").iterdir()] == ["log"]
    assert (root / ".autoagent/log").read_text() == (root / "deep/settings.yaml").read_text() == "own"


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
def test_an_own_file_that_is_missing_is_in_nobodys_way_and_no_program_can_leave_one(
    kind: str, user: int | None, root: Path, hold: Hold
) -> None:
    (root / "hidden").write_text("x")
    agent = hold(kind, user, protected=[root / ".env", root / "deep/er/own"])
    assert agent.run("ls", "-A").output == b"hidden\n"
    git = "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm all && git status --short"
    done = agent.run("/bin/sh", "-c", git)
    assert (done.status, done.output) == (0, b"")
    attacks = ("echo x >.env", "ln -s other .env", "cp hidden .env", "mkdir -p .env/a/b && echo x >.env/new")
    for attack in (*attacks, "mkdir -p deep/er/own/a && echo x >deep/er/own/a/b", "echo x >deep/er/own"):
        done = agent.run("/bin/sh", "-c", attack)
        assert done.status == 0, (attack, done)
        assert any("was removed" in line for line in done.put_back), (attack, done)
        assert {path.name for path in root.iterdir()} <= {".git", "hidden", "deep"}
        assert not list(root.glob("deep/er/*"))


TRACKED = """set -e
git add --all; git -c user.name=a -c user.email=a@b commit -qam two
git stash -q 2>/dev/null || true
git status --short; git show --stat --format= HEAD; git show HEAD:.env; cat .env | grep -c mine || true
if git add -f ai_settings.yaml 2>/dev/null; then echo ADDED; fi
if git rm -q .env 2>/dev/null; then echo REMOVED; fi
git init -q sub; cd sub; echo other > .env; git add -f .env; git show :.env; cd ..; rm -rf sub
"""


def test_of_the_agents_own_files_that_git_tracks_it_takes_what_it_has(user: int | None, root: Path, hold: Hold) -> None:
    """The user has changed one meanwhile: the key in it is neither seen nor committed, and nobody is in git's way."""
    for name in (".env", ".mcp.json", "a.txt"):
        (root / name).write_text("one\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*", "-C", str(root))
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        subprocess.run([*git, *arguments], check=True)
    (root / ".env").write_text("mine\n")
    (root / "a.txt").write_text("two\n")
    (root / "ai_settings.yaml").write_text("mine\n")
    agent = hold("bubblewrap", user, protected=[root / name for name in (".env", ".mcp.json", "ai_settings.yaml")])
    done = agent.run("/bin/sh", "-c", TRACKED)
    said = " a.txt | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\none\n0\nother\n"
    assert (done.status, done.output.decode()) == (0, said), done
    agent.close()
    assert (root / ".env").read_text() == "mine\n"
    shown = subprocess.run([*git, "status", "--short"], capture_output=True, text=True).stdout
    assert shown == " M .env\n?? ai_settings.yaml\n"


def test_what_cannot_be_covered_is_among_the_gaps(place: Path, root: Path, hold: Hold) -> None:
    (place / "elsewhere").write_text("own")
    (root / ".env").symlink_to(place / "elsewhere")
    agent = hold("bubblewrap", protected=[root / ".env"])
    assert f"can replace {root}/.env" in agent.gaps
    assert agent.run("cat", ".env").status != 0


def test_landlock_says_that_the_top_of_such_a_workspace_is_read_only(root: Path, hold: Hold) -> None:
    (root / "below").mkdir()
    agent = hold("landlock", protected=[root / ".env"])
    for words in ("no files at its top", "fill the disk", "session of their own"):
        assert words in agent.gaps
    assert agent.run("/bin/sh", "-c", "echo x >new").status != 0
    assert agent.run("/bin/sh", "-c", "echo x >below/new").status == 0


THROUGH = (
    "echo hostile >one",
    "rm one && ln two one",
    "mv below elsewhere && echo hostile >elsewhere/two",
    "truncate -s 0 elsewhere/two below/two",
    "mv elsewhere below; ln -s . x; echo hostile >x/below/two",
    "chmod 777 one below/two",
    "ln below/two new && echo hostile >new",
)


def test_a_hard_link_to_a_file_outside_is_not_written_through(
    user: int | None, place: Path, root: Path, hold: Hold
) -> None:
    secret = place / "secret"
    (root / "below").mkdir()
    secret.write_text("secret")
    for link in (root / "one", root / "below/two"):
        link.hardlink_to(secret)
    (root / "inner").write_text("mine")
    (root / "inner too").hardlink_to(root / "inner")
    agent = hold("bubblewrap", user)
    before = secret.stat()
    for attack in THROUGH:
        agent.run("/bin/sh", "-c", attack)
        assert (secret.read_text(), secret.stat().st_mode) == ("secret", before.st_mode), attack
    assert agent.run("/bin/sh", "-c", "cat one && echo ours >inner && cat 'inner too'").output == b"secretours\n"
    assert agent.gaps == ""


def test_hard_links_that_cannot_be_held_are_among_the_gaps(place: Path, root: Path, hold: Hold) -> None:
    for number in range(67):
        (place / f"{number}").touch()
        (root / f"{number:02}").hardlink_to(place / f"{number}")
    assert "through their hard links in it: '64', '65', '66'." in hold("bubblewrap").gaps
    assert "through their hard links in it: '00', '01', '02' and 64 more." in hold("landlock").gaps


@pytest.mark.parametrize("command", ["read x", "sudo -n true", "ssh -o BatchMode=no nobody@localhost", "cat >/dev/tty"])
def test_a_program_that_asks_gets_no_answer(command: str, hold: Hold) -> None:
    if not shutil.which(command.split()[0]) and command.split()[0] in ("sudo", "ssh"):
        pytest.skip(f"{command.split()[0]} is not installed")
    done = hold("auto").run("/bin/sh", "-c", command, seconds=20)
    assert done.status not in (None, 0), done


def test_root_inside_is_no_root(hold: Hold) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can have something to lose")
    for kind in HOLDING:
        status = hold(kind).run("/bin/sh", "-c", "cat /proc/self/status || true").output.decode()
        assert kind == "landlock" or "CapEff:\t0000000000000000" in status
