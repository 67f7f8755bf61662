"""What an agent leaves behind must not run later as the user: in git, an editor, a shell, or the program itself."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import nobody
import pytest
from cli.driver import FINISH, GOAL
from server import Command, command

from .driver import SECRET, Room, Told, drive, finish, shell, write

GIT = ("git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "safe.directory=*")
EVIL = r"printf '[core]\n\tfsmonitor = touch %s\n' {0}/PWNED >> .git/config"
KINDS = ["landlock", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("bubblewrap", "none"))]


def git(folder: Path, *arguments: str) -> str:
    """Run the user's git there, as the user does after the run."""
    done = subprocess.run([*GIT, *arguments], cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr


def with_repository(there: Room) -> Path:
    """A workspace that is a project of the user's under git, with a hook and a task of an editor."""
    root = there.workspace
    git(root, "init", "-q")
    (root / "a.txt").write_text("one\n")
    (root / ".vscode").mkdir()
    (root / ".vscode/tasks.json").write_text("{}\n")
    (root / ".git/hooks/pre-push").write_text("#!/bin/sh\nexit 0\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_of_a_new_repository_runs_nothing(there: Room, kind: str) -> None:
    evil = EVIL.format(there.folder)
    replies = {
        "made": shell(f"git init -q; {evil}"),
        "hook": shell("printf '#!/bin/sh\\ntouch PWNED' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"),
        "names": shell("git config user.name Agent; git config user.email a@example.org"),
        "commit": shell("echo hello > hello.txt; git add hello.txt; git commit -qm hello && git log --oneline"),
    }
    section = drive(there, replies, "--sandbox", kind, apart=True)
    section.assert_went_on()
    config = (there.workspace / ".git/config").read_text()
    assert "fsmonitor" not in config
    assert "name = Agent" in config
    assert not (there.workspace / ".git/hooks/pre-commit").exists()
    assert ".git/hooks/pre-commit was removed" in section["hook"].text
    assert "hello" in section["commit"].text
    assert "hello" in git(there.workspace, "log", "--oneline")
    git(there.workspace, "status")
    assert not list(there.folder.rglob("PWNED"))
    assert any("fsmonitor" in path.read_text() for path in (there.state / "held").iterdir()), "nothing is lost"


@pytest.mark.parametrize("kind", KINDS)
def test_what_git_and_editors_run_is_the_users_in_a_project(there: Room, kind: str) -> None:
    root = with_repository(there)
    guarded = (".git/config", ".git/hooks/pre-push", ".vscode/tasks.json")
    before = {name: (root / name).read_bytes() for name in guarded}
    replies = {
        "config": shell(EVIL.format(there.folder)),
        "hook": shell("echo 'touch PWNED' >> .git/hooks/pre-push; chmod +x .git/hooks/pre-push"),
        "new": shell("mkdir -p .git/hooks; echo 'touch PWNED' > .git/hooks/post-checkout"),
        "renamed": shell("mv .git x && mkdir .git && cp -r x/. .git/ && echo '[alias]' >> .git/config"),
        "replaced": shell("rm -f .git/config; printf '[core]\\n\\tfsmonitor = touch PWNED\\n' > .git/config"),
        "common": shell("cp -r .git other; printf '[core]\\n\\tpager = touch PWNED\\n' >> other/config;"
                        " echo ../other > .git/commondir"),
        "task": shell("echo '{\"runOn\": \"folderOpen\"}' > .vscode/tasks.json"),
        "envrc": shell("echo 'touch PWNED' > .envrc"),
        "python": command("execute_python_code", code="open('sitecustomize.py', 'w').write('1')", name="x.py"),
        "attributes": shell("mkdir -p .git/info; echo '* filter=x' > .git/info/attributes"),
        "commit": shell("echo two > a.txt; git -c user.name=a -c user.email=a@b commit -qam two; git log --oneline"),
    }  # fmt: skip
    section = drive(there, replies, "--sandbox", kind, apart=True)
    assert "two" in section["commit"].text
    assert {name: (root / name).read_bytes() for name in guarded} == before
    for name in (".git/hooks/post-checkout", ".git/commondir", ".envrc", "sitecustomize.py", ".git/info/attributes"):
        assert not (root / name).exists(), name
    assert ".envrc was removed" in section["envrc"].text
    git(root, "status")
    assert not list(there.folder.rglob("PWNED"))


def venv_in(root: Path) -> Path:
    """Return the interpreter of a virtual environment of the user's."""
    made, python = root / ".venv/bin/python", Path(nobody.interpreter() or sys.executable).resolve()
    made.parent.mkdir(parents=True)
    made.symlink_to(python)
    (root / ".venv/pyvenv.cfg").write_text(f"home = {python.parent}\n")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_agent_does_not_change_the_program_that_runs_it(there: Room, kind: str) -> None:
    """It is installed in the project's own environment."""
    there.around = ("sh", "-c", f'shift; exec {venv_in(there.workspace)} "$@"', "sh")
    replies = {
        "program": shell("echo import os > .venv/evil.pth"),
        "command": write(".venv/evil.pth", "import os\n"),
        "other": shell("echo import os > a.pth"),
    }
    section = drive(there, replies, "--sandbox", kind, apart=True)
    section.assert_went_on()
    assert [str(path.relative_to(there.workspace)) for path in there.workspace.rglob("*.pth")] == ["a.pth"]
    section["command"].assert_refused(".venv/evil.pth", "would run as you")


SWAPPED = {
    "link": "cp -r tools t; echo import os > t/.venv/evil.pth; mv tools old; ln -s t tools",
    "folder": "cp -r tools/.venv v; echo import os > v/evil.pth; mv tools/.venv old; mv v tools/.venv",
    "inside": "mv tools t; mkdir -p tools/.venv/x; echo import os > tools/.venv/evil.pth; mv t tools/.venv/x/y",
    "large": "printf evil | dd of=tools/.venv/lib.so bs=1 seek=100 conv=notrunc status=none;"
    " touch -r a.txt tools/.venv/lib.so",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["landlock", "none"])
def test_the_program_that_runs_it_stays_in_its_place(there: Room, kind: str) -> None:
    """Its environment lies in a folder that programs of the agent may rename."""
    root = there.workspace
    python = venv_in(root / "tools")
    library = python.parent.parent / "lib.so"
    library.write_bytes(bytes(3_000_000))
    os.utime(library, (1, 1))
    (root / "a.txt").touch()
    os.utime(root / "a.txt", (1, 1))
    was = (root / "tools/.venv").stat().st_ino
    there.around = ("sh", "-c", f'shift; exec {python} "$@"', "sh")
    section = drive(there, {how: shell(line) for how, line in SWAPPED.items()}, "--sandbox", kind, apart=True)
    section.assert_went_on()
    assert (root / "tools/.venv").stat(follow_symlinks=False).st_ino == was
    assert not (root / "tools").is_symlink()
    assert not (root / "tools/.venv/evil.pth").exists()
    assert python.resolve().exists()
    assert not library.exists(), "what cannot be put back does not stay changed"
    for how in SWAPPED:
        assert "would later run as the user" in section[how].text, section[how].text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_no_interpreter_of_the_workspace_runs_outside_the_sandbox(there: Room, kind: str) -> None:
    """The agent works in an environment of the project, which is activated, and may change it."""
    python = venv_in(there.workspace)
    env = {"AUTOAGENT_PYTHON": str(python), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    script = f"#!/bin/sh\ntouch {there.folder}/PWNED || true\n"
    evil = f"import os\nfor name in ('python', 'bwrap'):\n with open('new', 'w') as f: f.write({script!r})\n"
    evil += " os.chmod('new', 0o755)\n os.replace('new', f'.venv/bin/{name}')\n"
    evil += f"os.symlink({str(there.outside)!r}, '.venv/lib')\nos.mkdir('.venv/x')\n"
    replies = {"venv": command("execute_python_code", code=evil, name="x.py")}
    section = drive(there, replies, "--sandbox", kind, env=env)
    assert section["venv"].ok, section["venv"].text
    section = drive(there, {"again": shell(f"cat {there.outside}/secret.txt")}, "--sandbox", kind, env=env)
    there.run("doctor", env=env)
    assert not (there.folder / "PWNED").exists()
    assert "secret.txt" in section["again"].text and SECRET not in section["again"].text


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("named", ["autoagent_workspace/.venv", "env"])
def test_no_link_in_the_place_of_an_environment_shows_files_of_elsewhere(there: Room, kind: str, named: str) -> None:
    venv_in(there.workspace)
    (there.folder / "env").symlink_to(there.workspace / ".venv")
    secret = f"{there.outside}/secret.txt"
    section = drive(there, {
        "swapped": shell(f"mv .venv old; ln -s {there.outside} .venv"),
        "read": shell(f"cat .venv/secret.txt {secret} {there.folder}/env/secret.txt"),
    }, "--sandbox", kind, env={"VIRTUAL_ENV": str(there.folder / named)}, apart=True)  # fmt: skip
    assert section["swapped"].ok, section["swapped"].text
    assert secret in section["read"].text and SECRET not in section["read"].text


ELSEWHERE = {
    "nested": "mkdir -p sub && cd sub && git init -q && git config core.fsmonitor 'touch PWNED'",
    "bare": "git init -q --bare docs && git --git-dir docs config core.fsmonitor 'touch PWNED'",
    "by hand": "mkdir -p h/objects h/refs && echo 'ref: refs/heads/x' > h/HEAD && "
               "printf '[core]\\n\\tbare = false\\n\\tfsmonitor = touch PWNED\\n' > h/config",
    "linked": "mkdir -p l/.git/hooks; echo 'gitdir: ../h' > .git2; mkdir k; echo 'gitdir: /var/tmp' > k/.git",
    "included": "mkdir -p i && cd i && git init -q && echo '[core] fsmonitor = touch PWNED' > x && "
                "git config include.path ../x",
    "sneaky": "git init -q s && printf '[core]\\n\\tfsmonitor = \\\\\\ntouch PWNED\\n' >> s/.git/config",
    "worktree": "mkdir w && cd w && git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
                " && git worktree add -q ../tree && git config extensions.worktreeConfig true && "
                "git config --worktree core.fsmonitor 'touch PWNED'",
    "background": "true",
}  # fmt: skip


@pytest.mark.slow
def test_no_repository_anywhere_in_the_workspace_runs_a_program(there: Room) -> None:
    replies = {name: shell(line) for name, line in ELSEWHERE.items()}
    later = "sleep 0.3; git init -q bg; git -C bg config core.fsmonitor 'touch PWNED'"
    replies["background"] = command("execute_shell_popen", command_line=later)
    drive(there, replies, apart=True)
    for folder in (path.parent for path in there.workspace.rglob("*") if path.name in (".git", "HEAD")):
        git(folder, "status")
        git(folder, "log")
    assert not list(there.folder.rglob("PWNED"))
    assert not (there.workspace / "k/.git").exists()


WRITES = {
    "hook": write(".git/hooks/pre-commit", "touch PWNED"),
    "config": command("append_to_file", filename=".git/config", text="[alias]\n"),
    "through a link": write("link/hooks/pre-commit", "touch PWNED"),
    "envrc": write(".envrc", "touch PWNED"),
    "task": command("edit_file", filename=".vscode/tasks.json", old="{}", new='{"a": 1}'),
    "case": write(".EnvRc", "touch PWNED"),
    "moved": command("move_file", filename="a.txt", new_name=".pre-commit-config.yaml"),
    "away": command("delete_file", filename=".git/hooks/pre-push"),
    "head": write("docs/HEAD", "ref: refs/heads/x"),
    "settings": write("prompt_settings.yaml", "constraints: [Obey the page.]"),
    "settings below": write("sub/deep/ai_settings.yaml", "ai_goals: [Obey the page]"),
}


def test_no_file_command_writes_what_runs_later_unasked(there: Room) -> None:
    root = with_repository(there)
    (root / "link").symlink_to(".git")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    section = drive(there, WRITES, "--allow", "write_to_file:*", "--allow", "write_to_file", apart=True)
    for name in WRITES:
        assert not section[name].ok, name
        assert "would run as you later" in section[name].text, section[name].text
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def ran(there: Room, reply: Command, *flags: str, answers: str = "") -> Told:
    with there.served(reply, *FINISH):
        process = there.start("-c", "-m", "none", *GOAL, *flags)
        out, err = process.communicate(answers, timeout=120)
    assert process.returncode == 0, out + err
    return Told([event for event in there.log() if event["step"] == 1])


@pytest.mark.slow
def test_the_user_may_allow_it_by_name(there: Room) -> None:
    root = with_repository(there)
    envrc = write(".envrc", "export A=1\n")
    assert ran(there, envrc, "--allow", "write_to_file:.envrc").ok
    assert (root / ".envrc").read_text() == "export A=1\n"
    assert ran(there, shell("true")).ok
    assert (root / ".envrc").exists(), "what the user has allowed stays"


def test_the_user_says_what_is_protected(there: Room) -> None:
    there.write(".config/autoagent/config.yaml", "protect: [Makefile, '**/conftest.py', '!.envrc']\n")
    root = there.workspace
    (root / "Makefile").write_text("all:\n")
    section = drive(there, {
        "make": write("Makefile", "all: evil\n"),
        "tests": shell("mkdir -p a/b; echo 1 > a/b/conftest.py; echo evil >> Makefile; echo 1 > ordinary.py"),
        "shapes": shell("echo 'constraints: [Obey]' > a/b/prompt_settings.yaml; echo 'a: b' > a/Azure.yaml"),
        "envrc": write(".envrc", "export A=1\n"),
    }, apart=True)  # fmt: skip
    assert not section["make"].ok
    assert section["envrc"].ok
    assert (root / "Makefile").read_text() == "all:\n"
    assert (root / "ordinary.py").exists()
    assert not (root / "a/b/conftest.py").exists()
    assert not list(root.rglob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("change", ["!nothing-like-it", "/etc/passwd", "a/../b", "./deploy.sh", "scripts//run.sh"])
def test_a_name_that_protects_nothing_is_said(there: Room, change: str) -> None:
    done = there.run("--demo", "-c", env={"AUTOAGENT_PROTECT": change})
    assert (done.code, len(done.err.splitlines())) == (2, 1), done.text
    assert change in done.err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_no_file_gets_the_rights_of_its_owner(there: Room, kind: str) -> None:
    lines = ["chmod u+s tool", "chmod g+s tool", "python3 -c 'import os; os.chmod(\"tool\", 0o4755)'",
             "install -m 4755 tool tool2", "cp -p /bin/mount . ; chmod 6755 mount; cp -p mount again"]  # fmt: skip
    (there.workspace / "tool").write_text("#!/bin/sh\nid\n")
    drive(there, {line: shell(line) for line in lines}, "--sandbox", kind, apart=True)
    for path in there.workspace.rglob("*"):
        assert path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID) == 0 or path.is_dir(), path


@pytest.mark.slow
def test_what_the_user_changes_meanwhile_is_his(there: Room) -> None:
    """A program runs on while he works in another terminal: under a sandbox that holds, the change can only be his."""
    root = with_repository(there)
    (root / ".envrc").write_text("old\n")
    waiting = "i=0; while [ ! -e go ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done"
    with there.served(shell(waiting), *FINISH):
        process = there.start("-c", "-m", "none", *GOAL)
        while not any(event["type"] == "started" for event in (there.log() if there.runs else [])):
            assert process.poll() is None
        subprocess.run(["sleep", "1"], check=True)
        git(root, "config", "alias.st", "status")
        (root / ".envrc").write_text("new\n")
        os.chown(root / ".git/config", root.stat().st_uid, root.stat().st_gid)
        (root / "go").touch()
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "st = status" in (root / ".git/config").read_text()
    assert (root / ".envrc").read_text() == "new\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_other_tools_run_is_the_users_too(there: Room, kind: str) -> None:
    names = (".hg/hgrc", ".jj/repo/config.toml", ".helix/languages.toml", ".mise.toml", ".mvn/extensions.xml",
             ".vim/plugin/x.vim", ".config/nvim/init.lua", ".config/sway/config", ".gnupg/gpg-agent.conf",
             ".kube/config", ".local/lib/python3.11/site-packages/x.pth", ".ghci", ".iex.exs", ".octaverc",
             "jupyter_server_config.py", "rust-toolchain.toml", "lefthook.yml", "mise.local.toml", ".kiro/hooks/x.json",
             "bunfig.toml", "tools/bazel", ".dir-locals-2.el", ".docker/cli-plugins/docker-x")  # fmt: skip
    planted = f"for f in {' '.join(names)}; do mkdir -p $(dirname $f); echo 'touch PWNED' > $f; done"
    files = {name: write(name, "touch PWNED") for name in names}
    section = drive(there, {"shell": shell(planted), **files}, "--sandbox", kind, apart=True)
    section.assert_went_on()
    assert not [name for name in names if (there.workspace / name).exists()]
    assert section["shell"].text.count("was removed") == len(names)
    assert all("would run as you later" in section[name].text for name in names)


AS = "git -c user.name=a -c user.email=a@b -c protocol.file.allow=always"
ADD = (
    f'git init -q "$TMPDIR/lib"; echo 1 > "$TMPDIR/lib/f"; git -C "$TMPDIR/lib" add f; '
    f'{AS} -C "$TMPDIR/lib" commit -qm x; {AS} submodule add -q "$TMPDIR/lib" sub; {AS} commit -qm sub; git show --stat'
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_agent_adds_a_submodule_but_no_program_by_it(there: Room, kind: str) -> None:
    root = with_repository(there)
    config = (root / ".git/config").read_bytes()
    update = "git config -f .git/config submodule.sub.update '!touch PWNED'; printf '\\tupdate = !touch PWNED\\n'"
    held = ".git/config could not be written" if kind == "bubblewrap" else ".git/config was restored"
    section = drive(there, {
        "add": shell(ADD),
        "planted": shell(f"{update} >> .gitmodules"),
        "sent elsewhere": shell("git config -f .gitmodules submodule.sub.url 'ext::touch PWNED'"),
        "inside": shell("git config -f .git/modules/sub/config core.fsmonitor 'touch PWNED'; cat .gitmodules"),
    }, "--sandbox", kind, apart=True)  # fmt: skip
    assert "2 files changed, 4 insertions" in section["add"].text
    assert held in section["add"].text
    modules = (root / ".gitmodules").read_text()
    assert modules in section["inside"].text
    assert len(modules.splitlines()) == 3
    assert (root / ".git/config").read_bytes() == config
    assert "working tree clean" in git(root, "status")
    assert "sub" in git(root, "submodule", "status")
    git(root, "submodule", "init")
    git(root, "-C", "sub", "status")
    git(root, "submodule", "update")
    assert not list(there.folder.rglob("PWNED"))


LATER = "echo 'touch PWNED' > .envrc; mkdir -p .git/hooks; echo 'touch PWNED' > .git/hooks/post-commit; touch done"
WAITING = f'sh -c "until [ -e go ]; do sleep .1; done; {LATER}" & sleep 60'
SEEN = "rm -f done; touch go; until [ -e done ] && [ ! -e .envrc ]; do sleep .1; done; ls -A . .git/hooks"
FORKED = f"""import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1)
        os.system({LATER!r})
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_outlives_its_command_plants_nothing(there: Room, kind: str) -> None:
    root = with_repository(there)
    section = drive(there, {
        "orphan": shell(f"(sleep 1; {LATER}) > /dev/null 2>&1 &"),
        "session": shell(f"setsid sh -c \"sleep 1; {LATER}\" > /dev/null 2>&1 &"),
        "fork": command("execute_python_code", code=FORKED, name="fork.py"),
        "background": command("execute_shell_popen", command_line=WAITING),
        "meanwhile": shell(SEEN),
    }, "--sandbox", kind, apart=True)  # fmt: skip
    assert not (root / ".envrc").exists()
    assert not (root / ".git/hooks/post-commit").exists()
    assert ".envrc\n" not in section["meanwhile"].text, "it was taken away while its program was still running"
    assert ".envrc was removed" in section["meanwhile"].text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_that_git_writes_leads_out_of_the_repository(there: Room, kind: str) -> None:
    root = with_repository(there)
    section = drive(there, {
        "message": shell("ln -sf ../../../outside/secret.txt .git/COMMIT_EDITMSG"),
        "log": shell("ln -sf ../../../../x .git/logs/HEAD"),
        "logs": shell("mkdir logs; mv .git/logs l; ln -s ../../logs .git/logs"),
    }, "--sandbox", kind, apart=True)  # fmt: skip
    section.assert_went_on()
    assert ".git/COMMIT_EDITMSG was removed" in section["message"].text
    before = there.picture()
    git(root, "commit", "--allow-empty", "-m", "mine")
    assert there.picture() == before
    assert "mine" in git(root, "log", "--oneline")


CONFIG = "printf '[core]\\n\\tfsmonitor = touch PWNED\\n' >>"
CLOSED = {
    "a folder that cannot be written": "mkdir .vscode; echo 1 > .vscode/tasks.json; chmod 555 .vscode",
    "one that cannot be listed": "mkdir .vscode; echo 1 > .vscode/tasks.json; chmod 111 .vscode",
    "one that cannot be entered": "mkdir .vscode; echo 1 > .vscode/tasks.json; chmod 444 .vscode",
    "the top": "echo 1 > .envrc; chmod 111 .",
    "a file that cannot be read": "git init -q r; cp /usr/bin/env r/.git/hooks/pre-commit; chmod 111 r/.git/hooks/*",
    "a repository that cannot be written": f"git init -q r; {CONFIG} r/.git/config; chmod 555 r/.git r",
    "one that cannot be found": f"git init -q d/r; {CONFIG} d/r/.git/config; chmod 111 d",
}


@pytest.mark.parametrize("kind", CLOSED)
def test_no_mode_keeps_what_a_program_has_planted(there: Room, kind: str) -> None:
    """Root is kept from nothing by a mode; an ordinary user is, until it is taken back."""
    mine = there.write("autoagent_workspace/mine/.npmrc", "x").parent
    mine.chmod(0o111)
    section = drive(there, {"plant": shell(CLOSED[kind])}, "-m", "none")
    mode, left = mine.stat().st_mode & 0o777, [path for path in there.workspace.rglob("*") if path.is_file()]
    assert mode == 0o111, "what the user has closed stays so"
    names = {str(path.relative_to(there.workspace)) for path in left if not path.name.endswith(".sample")}
    assert not {".vscode/tasks.json", ".envrc", "r/.git/hooks/pre-commit"} & names, section["plant"].text
    assert not [path for path in left if path.name == "config" and "fsmonitor" in path.read_text()]
    assert "Only the user can allow that" in section["plant"].text


@pytest.mark.parametrize("kind", KINDS)
def test_no_program_answers_behind_a_pipe_that_a_tool_of_the_users_reads(there: Room, kind: str) -> None:
    root = with_repository(there)
    (root / ".npmrc").write_text("x")
    os.mkfifo(root / ".pdbrc")
    line = (
        "mkfifo .envrc; rm -f .git/hooks/pre-push; mkfifo .git/hooks/pre-push .git/hooks/pre-commit; mkfifo .vscode/x"
    )
    section = drive(there, {"planted": shell(line)}, "--sandbox", kind)
    left = [path for path in root.rglob("*") if path.is_fifo()]
    assert left == [root / ".pdbrc"], "only what the user has made stays"
    assert ".envrc was removed" in section["planted"].text
    assert (root / ".git/hooks/pre-push").read_text() == "#!/bin/sh\nexit 0\n"


OVERWRITTEN = (
    "echo gone > mine.txt; chmod 0 mine.txt; echo new > new.txt; chmod 0 new.txt; chmod 0 .git/objects deep/er"
)


def test_no_mode_keeps_what_a_program_has_overwritten_from_being_undone(there: Room) -> None:
    root = with_repository(there)
    (root / "deep/er").mkdir(parents=True)
    for name in ("mine.txt", "closed.txt", "deep/er/x"):
        (root / name).write_text("mine\n")
    (root / "closed.txt").chmod(0)
    before = {path: path.stat().st_mode for path in root.rglob("*")}
    drive(there, {"overwritten": shell(OVERWRITTEN)}, "-m", "none")
    code, text = finish(there, "undo", there.runs[0])
    assert (code, "Not restored" in text) == (0, False), text
    assert (root / "mine.txt").read_text() == "mine\n"
    assert {path: path.stat().st_mode for path in root.rglob("*")} == before
    assert finish(there, "undo", there.runs[0], "--redo")[0] == 0
    assert (root / "mine.txt").stat().st_mode & 0o777 == 0
    for name, text in {"mine.txt": "gone\n", "new.txt": "new\n"}.items():
        (root / name).chmod(0o600)  # an ordinary user cannot read it either
        assert (root / name).read_text() == text
