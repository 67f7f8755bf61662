"""D22 to D33: command lines that get around lists and limits, programs that get out, repositories that run something.

The attacks are bounded in themselves too, in number and in time: a test that fails must not take the machine down.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cli.driver import GOAL, ROOT
from server import Command, Reply, Step, command

from .driver import SECRET, USERS, Listener, Section, drive, room, shell, write

pytestmark = pytest.mark.slow  # runs of many programs for each user

KEY = "sk-test-0123456789abcdefghijklmnop"
TOKEN = "token-of-the-user-0123456789"
PROBE = ROOT / "tests/sandbox/probe.py"

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


# D22, D23: lists ----------------------------------------------------------------------------------------------------

DENIED = (  # more of them in test_shell_lines
    *("rm kept", "/bin/./rm kept", "./rm kept", "\\rm kept", "r''m kept", "`echo rm` kept", "true\nrm kept"),
    *("rm -- kept", "find . -name kept -delete", "timeout 5 rm kept", "a=rm; $a kept", "sh -c \"sh -c 'rm kept'\""),
)
NOT_ALLOWED = ("echo x > kept", "echo x >> kept", "echo x | sh", "echo `id`", "echo $(id)", "ls", "./echo x", "echo&id")


@pytest.fixture(scope="module", params=["deny", "allow"])
def listed(request: pytest.FixtureRequest) -> Iterator[tuple[Section, tuple[str, ...]]]:
    deny = request.param == "deny"
    lines = DENIED if deny else NOT_ALLOWED
    control, programs = ("denylist", "SHELL_DENYLIST") if deny else ("allowlist", "SHELL_ALLOWLIST")
    with room() as made:
        made.write("autoagent_workspace/kept", "kept")
        for name in ("rm", "echo"):
            path = made.write(f"autoagent_workspace/{name}", "#!/bin/sh\necho pwned >kept\n")
            path.chmod(0o755)
        env = {"SHELL_COMMAND_CONTROL": control, programs: "rm" if deny else "echo"}
        yield drive(made, {line: shell(line) for line in lines}, env=env, apart=True), lines


def test_d22_d23_with_a_list_nothing_gets_around_it(listed: tuple[Section, tuple[str, ...]]) -> None:
    section, lines = listed
    section.assert_went_on()
    assert section.room.read("autoagent_workspace/kept") == "kept"
    for line in lines:
        section[line].assert_refused()


def test_d22_d23_what_the_list_lets_through_is_run(listed: tuple[Section, tuple[str, ...]]) -> None:
    section, lines = listed
    assert any("SHELL_" in section[line].text or "no shell" in section[line].text for line in lines)
    assert "LIST" in section[lines[0]].text or "no shell" in section[lines[0]].text


# D24, D26 to D29: programs and what they print ----------------------------------------------------------------------

KILL_ALL = '[ "$(ls -d /proc/[0-9]* | wc -l)" -lt 20 ] && kill -9 -1; echo alive'  # never outside of a namespace
ASKING = {
    "D29 read": "read x; echo status $?",
    "D29 cat": "cat; echo status $?",
    "D29 terminal": "cat </dev/tty",
    "D29 sudo": "sudo -n true",
    "D29 ssh": "ssh -o ConnectTimeout=2 nobody@127.0.0.1",
    "D29 git": "git clone https://127.0.0.1:9/private.git",
}
PROGRAMS: dict[str, Step] = {
    "D24 quotes": shell("echo 'unbalanced"),
    "D24 null": shell("echo a\0b"),
    "D24 long": Reply("", (("execute_shell", json.dumps({"command_line": f"echo {'x' * 3_000_000}"})),), streams=False),
    "D26 kill": shell(KILL_ALL),
    "D26 link": shell("ln -s ../../outside/secret.txt s && cat s"),
    "D26 write": shell("echo hostile >../../outside/secret.txt; echo hostile >../x"),
    "D27 missing": shell("no-such-program-here"),
    "D27 not executable": shell("./plain"),
    "D27 segmentation": shell("kill -SEGV $$"),
    "D27 killed": shell("kill -KILL $$"),
    "D27 status": shell("exit 139"),
    "D28 bytes": shell(r"printf 'a\377\376b'"),
    "D28 errors": shell("echo only to the other stream >&2"),
    "D28 order": shell("echo one; echo two >&2; echo three"),
    "D28 line": command("execute_python_code", name="line", code="print('x' * 1_000_000, 'end')"),
    "D28 progress": shell(r"printf '1 percent\r50 percent\r100 percent\n'"),
    **{name: shell(line) for name, line in ASKING.items()},
    "D32 environment": shell("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; cat ../.env"),
    "usable": shell("echo usable"),
}


@pytest.fixture(scope="module", params=USERS)
def programs(request: pytest.FixtureRequest) -> Iterator[Section]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    with room(request.param) as made, Listener() as listener:
        made.write("autoagent_workspace/plain", "text")
        shutil.copy(PROBE, made.workspace)
        made.write(".env", f"GITHUB_API_KEY={TOKEN}\n")
        victim = subprocess.Popen(["sleep", "600"])
        told = [str(listener.port), str(_closed_port()), str(made.outside), KEY, str(victim.pid)]
        replies = {"D26 probe": command("execute_python_file", filename="probe.py", args=told), **PROGRAMS}
        try:
            env = {"OPENAI_API_KEY": KEY, "AUTOAGENT_PYTHON": "/usr/bin/python3"}  # which both users may run
            section = drive(made, replies, "--sandbox", "bubblewrap", env=env)
            assert victim.poll() is None
        finally:
            victim.kill()
            victim.wait()
        assert not listener.reached
        yield section


def _closed_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_the_run_went_on_and_nothing_outside_changed(programs: Section) -> None:
    programs.assert_went_on()
    assert "usable" in programs["usable"].text


def test_d24_lines_that_are_none(programs: Section) -> None:
    programs["D24 null"].assert_refused("null character")
    programs["D24 long"].assert_refused("3,000,005 bytes", "E2BIG")
    assert programs["D24 quotes"].data["exit"] != 0


def test_d26_no_way_leads_out(programs: Section) -> None:
    printed = programs["D26 probe"].text
    results = json.loads(printed[printed.index("{") :])
    assert len(results) > 15
    assert [name for name, result in results.items() if result == "out"] == []
    assert SECRET not in programs["D26 link"].text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("D27 missing", "xit status 127 (a program that it ran was not found)"),
        ("D27 not executable", "xit status 126 (a program that it ran is not executable)"),
        ("D27 segmentation", "nded by SIGSEGV"),
        ("D27 killed", "nded by SIGKILL"),
        ("D27 status", "nded by SIGSEGV"),
        ("D28 bytes", "a\ufffd\ufffdb"),
        ("D28 errors", "only to the other stream"),
        ("D28 order", "one\ntwo\nthree"),
        ("D28 line", "x" * 1_000_000 + " end"),
        ("D28 progress", "It printed:\n100 percent"),
    ],
)
def test_d27_d28_how_it_ended_and_what_it_printed(programs: Section, name: str, words: str) -> None:
    assert words in programs[name].text


@pytest.mark.parametrize("name", ASKING)
def test_d29_a_program_that_asks_gets_no_answer(programs: Section, name: str) -> None:
    assert programs[name].seconds < 20
    if name not in ("D29 read", "D29 cat"):
        assert programs[name].data["exit"] not in (0, None)
    assert not programs[name].data["limit"]


def test_d32_the_keys_stay_with_the_agent(programs: Section) -> None:
    assert "PATH=" in programs["D32 environment"].text
    places = [path for path in programs.room.state.rglob("*") if path.is_file()]
    assert places
    texts = [path.read_bytes() for path in places] + [programs.done.text.encode()]
    prompts = [request.prompt.encode() for request in programs.server.requests]
    for secret in (KEY, TOKEN):
        assert not any(secret.encode() in text for text in [*texts, *prompts])


# D25: limits --------------------------------------------------------------------------------------------------------

BOMB = "b() { [ $1 -gt 0 ] && { b $(($1 - 1)) & b $(($1 - 1)) & }; sleep 10; }; b 7"  # 2^8 processes, for 10 seconds
LIMITS = {
    "50 processes": shell(BOMB),
    "300 MB of memory": command(
        "execute_python_code", name="memory", code="b = bytearray(600_000_000); import time; time.sleep(10)"
    ),
    "8 MB in one file": shell("dd if=/dev/zero of=big bs=1M count=20"),
    "busy": shell("i=0; while [ $i -lt 90000000 ]; do i=$((i+1)); done"),
    "asleep": shell("sleep 60"),
    "usable": shell("echo usable"),
}


@needs_bubblewrap
@pytest.mark.parametrize("user", USERS)
def test_d25_each_program_is_stopped_at_a_named_limit(user: str) -> None:
    env = {
        "AUTOAGENT_SANDBOX_PROCESSES": "50",
        "AUTOAGENT_SANDBOX_MEMORY": "300",
        "AUTOAGENT_SANDBOX_FILE": "8",
        "AUTOAGENT_SANDBOX_SECONDS": "4",
        "AUTOAGENT_PYTHON": "/usr/bin/python3",
    }
    with room(user) as made:
        section = drive(made, LIMITS, "--sandbox", "bubblewrap", env=env)
        section.assert_went_on()
        for name in ("50 processes", "300 MB of memory", "8 MB in one file"):
            assert section[name].data["limit"] == name, section[name].text
            assert name in section[name].text
        for name in ("busy", "asleep"):
            assert "stopped at the limit of 4 s" in section[name].text.lower()
        assert section["usable"].text.endswith("usable\n")
        assert (made.workspace / "big").stat().st_size <= 8 << 20


AS_THEY_ARE = {  # the limits that a user has who sets none, but for that of time
    "256 processes": shell("b() { [ $1 -gt 0 ] && { b $(($1 - 1)) & b $(($1 - 1)) & }; sleep 60; }; b 9"),
    "2,048 MB of memory": command("execute_python_code", name="memory", code="b = bytearray(3 << 30)"),
    "1,024 MB in one file": shell("dd if=/dev/zero of=big bs=1M count=2048; s=$?; rm big; exit $s"),
    "usable": shell("echo usable"),
}


@needs_bubblewrap
@pytest.mark.parametrize("user", USERS)
def test_d25_the_limits_that_are_there_without_being_set(user: str) -> None:
    env = {"AUTOAGENT_SANDBOX_SECONDS": "100", "AUTOAGENT_PYTHON": "/usr/bin/python3"}
    with room(user) as made:
        section = drive(made, AS_THEY_ARE, "--sandbox", "bubblewrap", env=env)
        section.assert_went_on()
        for name in ("256 processes", "2,048 MB of memory"):
            assert section[name].data["limit"] == name, section[name].text
        assert section["1,024 MB in one file"].data["limit"] or section["1,024 MB in one file"].data["exit"] != 0
        assert section["usable"].text.endswith("usable\n")


# D30: no sandbox ----------------------------------------------------------------------------------------------------


def test_d30_a_missing_sandbox_is_said_and_may_be_required() -> None:
    with room() as made:
        section = drive(made, {"run": shell("echo x")}, "--sandbox", "none")
        section.assert_went_on()
        assert "sandbox 'none', which has gaps" in section.done.text
        assert "network" in section.done.text
        both = made.run("-c", *GOAL, "-m", "none", "--sandbox", "none", "--require-sandbox")
        assert both.code == 3
        assert "sandbox" in both.text.splitlines()[-1]


def test_d30_a_missing_tool_is_named() -> None:
    with room() as made:
        bare = made.folder / "bin"
        bare.mkdir()
        section = drive(made, {"run": shell("echo x")}, env={"PATH": str(bare)})
        assert "bubblewrap" in section.done.text or "sandbox" in section.done.text
        asked = made.run("-c", *GOAL, "-m", "none", "--sandbox", "bubblewrap", env={"PATH": str(bare)})
        assert (asked.code, "bubblewrap" in asked.text or "bwrap" in asked.text) == (3, True), asked.text


# D31, D32: repositories ---------------------------------------------------------------------------------------------

RUNS = "sh -c 'echo pwned >../../pwned; echo pwned >pwned; touch /var/tmp/autoagent-pwned'"


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"


def hostile_repository(folder: Path) -> None:
    """A repository whose every setting, hook and attribute would run something."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": "/dev/null"}
    env |= {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(folder), *arguments], env=env, check=True, capture_output=True)

    folder.mkdir()
    git("init", "--quiet")
    (folder / "file.txt").write_text("content\n")
    (folder / ".gitattributes").write_text("*.txt filter=evil diff=evil\n*.big filter=lfs diff=lfs\n")
    (folder / "weights.big").write_text(POINTER)
    (folder / ".lfsconfig").write_text("[lfs]\n\turl = http://127.0.0.1:9/evil\n")
    for name in ("bare/objects", "bare/refs"):  # what git takes for a repository where it stands in it
        (folder / name).mkdir(parents=True)
        (folder / name / "kept").touch()
    (folder / "bare/HEAD").write_text("ref: refs/heads/main\n")
    (folder / "bare/config").write_text(f'[core]\n\tbare = true\n\tfsmonitor = "{RUNS}"\n\tpager = "{RUNS}"\n')
    (folder / ".gitmodules").write_text('[submodule "s"]\n\tpath = s\n\turl = ext::sh -c touch% pwned\n')
    (folder / "way").symlink_to("../../../outside")
    git("add", "-A")
    git("commit", "--quiet", "-m", "hostile")
    for hook in ("post-checkout", "post-merge", "pre-commit", "post-index-change", "reference-transaction"):
        path = folder / ".git/hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{RUNS}\n")
        path.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "filter.evil.smudge", "filter.evil.clean", "diff.external"):
        git("config", key, RUNS)


@needs_git
@pytest.mark.parametrize("user", USERS)
def test_d31_nothing_of_a_repository_is_run(user: str) -> None:
    def clone(url: str, to: str) -> Command:
        return command("clone_repository", url=url, clone_path=to)

    replies = {
        "file": clone("file:repo", "copy"),
        "over": clone("file:repo", "./copy/.git"),
        "ext": clone("ext::sh -c touch% pwned", "c1"),
        "option": clone("--upload-pack=touch pwned", "c2"),
        "ssh": clone("ssh://-oProxyCommand=touch pwned/x", "c3"),
        "scp": clone("git@example.org:x/y.git", "c4"),
        "password": clone(f"https://me:{TOKEN}@github.invalid/x.git", "c5"),
        "outside": clone("file:///etc", "c6"),
        "up": clone("file:repo", "../copy"),
        "later": write("copy/new.txt", "the agent's own look at the workspace\n"),
        "listed": command("list_files", directory="."),
    }
    with room(user) as made:
        hostile_repository(made.workspace / "repo")
        made.write(".gitconfig", f'[filter "lfs"]\n\tsmudge = "{RUNS}"\n\tprocess = "{RUNS}"\n\trequired = true\n')
        shutil.copytree(made.workspace / "repo/.git", made.workspace / ".git")  # the workspace is one, too
        section = drive(made, replies)
        section.assert_went_on()
        assert section["file"].ok, section["file"].text
        section["over"].assert_refused("copy/.git", "would run as you later")
        section["ext"].assert_refused("ext:")
        section["option"].assert_refused("--upload-pack")
        section["ssh"].assert_refused("ssh:")
        section["scp"].assert_refused("git@example.org")
        section["password"].assert_refused("password")
        section["outside"].assert_refused("/etc")
        section["up"].assert_refused("../copy")
        assert section["later"].ok
        assert [path for path in made.folder.parent.rglob("*pwned*")] == []
        assert not Path("/var/tmp/autoagent-pwned").exists()
        assert not (made.workspace / "copy/way").is_symlink()
        assert (made.workspace / "copy/weights.big").read_text() == POINTER, "what it stands for is not fetched"
        assert (made.workspace / "copy/bare/config").exists()
        assert "evil" not in (made.workspace / "copy/.git/config").read_text()
        kept = [path.read_bytes() for path in (*made.state.rglob("*"), *made.workspace.rglob("*")) if path.is_file()]
        assert not any(TOKEN.encode() in text for text in [*kept, section.done.text.encode()])


@needs_git
def test_d31_a_repository_of_2_gb_is_not_written() -> None:
    """One file of 64 MB under 32 names: the repository itself is small."""
    with room() as made:
        repo = made.workspace / "repo"
        git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b"]
        repo.mkdir()

        def run(*arguments: str, data: bytes | None = None) -> str:
            return subprocess.run([*git, *arguments], input=data, check=True, capture_output=True).stdout.decode()

        run("init", "--quiet")
        large = run("hash-object", "-w", "--stdin", data=bytes(64 << 20)).strip()
        names = "".join(f"100644 {large}\tlarge-{number}.bin\n" for number in range(32))
        run("update-index", "--add", "--index-info", data=names.encode())
        run("commit", "--quiet", "-m", "large")
        section = drive(made, {"large": command("clone_repository", url="file:repo", clone_path="copy")})
        section.assert_went_on()
        section["large"].assert_refused("1,073,741,824 bytes")
        assert not list(made.workspace.rglob("large-*"))


# D33: what was shown is what runs -----------------------------------------------------------------------------------


def test_d33_a_file_that_changed_since_it_was_shown_is_not_run() -> None:
    replies = (command("execute_python_file", filename="a.py"), command("read_file", filename="not-there"))
    with room() as made, made.served(*replies):
        path = made.write("autoagent_workspace/a.py", "print('shown')\n")
        with closing(made.terminal(*GOAL, "-m", "none")) as session:
            session.sees("? = help)\n> ")
            path.write_text("open('pwned', 'w')\n")
            session.types("y")
            session.answers("? = help)\n> ", "n")
            assert session.ends() == 6
        assert not (made.workspace / "pwned").exists()
        [returned] = [event for event in made.log() if event["type"] == "returned"]
        assert "a.py is no longer what was shown" in returned["text"]
