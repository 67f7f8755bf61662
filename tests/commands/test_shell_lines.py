"""The lists of programs, and what can be read off a shell line, over a folder of programs made for the test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoagent.commands.context import in_a_shell
from autoagent.commands.selection import all_names
from autoagent.commands.support.shell_lines import ShellRule, programs, risk_of, shell_rule, shell_syntax
from autoagent.core.errors import CommandError, SettingsError
from autoagent.session.load import load
from autoagent.settings import Settings

PROGRAMS = (
    *("bash", "busybox", "dash", "echo", "env", "find", "git", "grep", "ls", "nohup", "python3.11"),
    *("rm", "sudo", "test", "time", "xargs"),
    *("choom", "ld-linux-x86-64.so.2", "prlimit", "script", "setarch", "valgrind"),
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with a folder `bin` of programs, and a workspace `ws`."""
    for folder in ("bin", "alpine", "ws"):
        (tmp_path / folder).mkdir()
    for name in PROGRAMS:
        executable(tmp_path / "bin" / name)
    executable(tmp_path / "alpine" / "busybox")
    for link, target in (("sh", "dash"), ("python3", "python3.11"), ("erase", "rm")):
        (tmp_path / "bin" / link).symlink_to(target)
    for link in ("rm", "ls"):
        (tmp_path / "alpine" / link).symlink_to("busybox")
    return tmp_path


def executable(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def rule(machine: Path, folder: str = "bin", **settings: object) -> ShellRule:
    return shell_rule(Settings(**settings), machine / "ws", [str(machine / folder)], all_names())  # type: ignore[arg-type]


def denying(machine: Path, *programs: str, folder: str = "bin") -> ShellRule:
    return rule(machine, folder, shell_command_control="denylist", shell_denylist=programs)


def allowing(machine: Path, *programs: str, folder: str = "bin") -> ShellRule:
    return rule(machine, folder, shell_command_control="allowlist", shell_allowlist=programs)


def refusal(rule: ShellRule, line: str) -> str:
    with pytest.raises(CommandError) as caught:
        rule(line)
    return str(caught.value)


# which rule ---------------------------------------------------------------------------------------------------------


def test_without_a_list_a_shell_runs_the_line(machine: Path) -> None:
    assert rule(machine) is in_a_shell
    assert list(in_a_shell("a | b")) == ["/bin/sh", "-c", "a | b"]


def test_a_list_that_is_set_holds_even_where_control_is_not(machine: Path) -> None:
    assert "SHELL_DENYLIST" in refusal(rule(machine, shell_denylist=("rm",)), "rm x")
    assert "SHELL_ALLOWLIST: echo" in refusal(rule(machine, shell_allowlist=("echo",)), "ls")
    both = rule(machine, shell_allowlist=("ls", "rm"), shell_denylist=("rm",))
    assert "SHELL_DENYLIST" in refusal(both, "rm x")
    assert list(both("ls")) == [str(machine / "bin" / "ls")]


def test_control_says_which_list_counts_and_that_may_be_empty(machine: Path) -> None:
    lists = {"shell_allowlist": ("echo",), "shell_denylist": ("rm",)}
    assert rule(machine, shell_command_control="denylist", **lists)("ls")
    assert rule(machine, shell_command_control="allowlist", shell_allowlist=("rm",), shell_denylist=("rm",))("rm x")
    assert "it is empty" in refusal(rule(machine, shell_command_control="allowlist"), "ls")
    assert "sudo is on the list" in refusal(rule(machine, shell_command_control="denylist"), "sudo ls")


def test_a_line_becomes_the_program_that_was_found_and_its_words(machine: Path) -> None:
    found = str(machine / "bin" / "grep")
    assert list(denying(machine, "rm")("""grep -e 'a|b; c' "x > y" *.py ~ #""")) == [
        found, "-e", "a|b; c", "x > y", "*.py", "~", "#",
    ]  # fmt: skip
    executable(machine / "ws" / "build.sh")
    assert list(denying(machine, "rm")("./build.sh now")) == ["./build.sh", "now"]
    assert refusal(denying(machine, "rm"), "cd x").startswith("There is no program 'cd'. With a list of programs set")


# the denylist -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "rm x", r"\rm x", "r''m x", '"rm" x', "{bin}/rm x", "{bin}/./rm x", "../bin/rm x", "./rm", "./innocent x",
        "erase x", "env rm x", "env A=1 rm x", "env -S 'rm x'", "env --split-string=rm", "env -Srm",
        "choom -n 0 -- rm x", "ld-linux-x86-64.so.2 {bin}/rm x", "prlimit --nproc=5 rm x", "setarch -R rm x",
        "valgrind rm x", "nohup {bin}/rm x", "time rm x", "sudo -u nobody rm x", "busybox rm x", "xargs rm",
        "find . -delete", "find . -exec rm {{}} +", "sh -c 'rm x'", "bash -lc 'rm x'", "bash -o pipefail -c 'rm x'",
        "env find . -delete", "env -iS'find . -delete'", "env -iS'rm x'", "script -qc'rm x'",
        "env sh -c 'rm x'", """sh -c "sh -c 'rm x'" """,
    ],
)  # fmt: skip
def test_a_denied_program_is_refused_however_it_is_named(machine: Path, line: str) -> None:
    executable(machine / "ws" / "rm")
    (machine / "ws" / "innocent").symlink_to(machine / "bin" / "rm")
    reason = refusal(denying(machine, "rm"), line.format(bin=machine / "bin"))
    assert "on the list of programs that are refused (SHELL_DENYLIST)" in reason


@pytest.mark.parametrize(
    "line", ["ls rm", "git commit -m 'rm x'", "grep rm x", "sh build.sh", "find . -name rm", "env find . -perm 644"]
)
def test_what_only_mentions_a_denied_program_runs(machine: Path, line: str) -> None:
    assert list(denying(machine, "rm")(line))[1:]


def test_one_program_under_many_names_goes_by_the_name_it_is_called_with(machine: Path) -> None:
    no_rm = denying(machine, "rm", folder="alpine")
    assert list(no_rm("ls")) == [str(machine / "alpine" / "ls")]
    assert "SHELL_DENYLIST" in refusal(no_rm, "rm x") and "SHELL_DENYLIST" in refusal(no_rm, "busybox rm x")
    assert "SHELL_ALLOWLIST" in refusal(allowing(machine, "ls", folder="alpine"), "rm x")
    assert refusal(denying(machine, "python3"), "python3.11 -c x") == (
        "python3.11 is on the list of programs that are refused (SHELL_DENYLIST), as python3 is."
    )


# what only a shell understands --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("echo x > f", "a redirection, >"), ("echo x >> f", "a redirection, >"),
        ("echo x | sh", "a pipe or an alternative, |"), ("echo x || rm y", "a pipe or an alternative, |"),
        ("echo x; rm y", "a ;"), ("echo x && rm y", "an &"), ("echo x & rm y", "an &"),
        ("echo x\nrm y", "a second line"), ("echo `rm y`", "a substitution, `...`"),
        ("$(echo rm) y", "a substitution, $(...)"), ('echo "$(rm y)"', "a substitution, $(...)"),
        ('echo "$HOME"', "a variable, $"), ("echo <f", "a redirection, <"), ("(rm y)", "a subshell, (...)"),
        ("echo 'a'\\''b' > f", "a redirection, >"), ("sh -c 'echo x > f'", "a redirection, >"),
    ],
)  # fmt: skip
def test_what_only_a_shell_understands_is_refused_by_name(machine: Path, line: str, named: str) -> None:
    for rule in (allowing(machine, "echo", "sh"), denying(machine, "rm")):
        assert refusal(rule, line) == (
            f"The line holds {named}. With a list of programs set there is no shell: "
            "give one program and its arguments."
        )


@pytest.mark.parametrize("line", ["echo 'x", 'echo "x', "echo x\\", "''", "#", "   "])
def test_a_line_that_cannot_be_split_or_names_no_program_is_refused(machine: Path, line: str) -> None:
    reason = refusal(allowing(machine, "echo"), line)
    assert reason.startswith("The line cannot be split into words: No ") == line.startswith("echo")


@pytest.mark.parametrize("line", ["a '|' b", r"a \; b", "a 'x\ny'", "a '$x' `", 'a "b\\$c"'])
def test_quoted_marks_are_plain_letters(line: str) -> None:
    assert shell_syntax(line) == ("a substitution, `...`" if "`" in line else "")


# the allowlist ------------------------------------------------------------------------------------------------------


def test_only_what_is_on_the_allowlist_runs(machine: Path) -> None:
    rule = allowing(machine, "echo", "env", "./build.sh")
    executable(machine / "ws" / "build.sh")
    assert list(rule("echo rm")) == [str(machine / "bin" / "echo"), "rm"]
    assert list(rule(f"{machine}/bin/echo x"))
    assert list(rule("./build.sh"))
    assert list(rule("env A=1 echo x"))
    for line in ("ls", "env ls", "env A=1 sh -c 'ls'", "python3 -c 1", "xargs echo", "busybox echo"):
        assert "not on the list of programs that are run (SHELL_ALLOWLIST: ./build" in refusal(rule, line)


def test_a_file_of_the_workspace_does_not_pass_for_an_allowed_program(machine: Path) -> None:
    executable(machine / "ws" / "echo")
    assert refusal(allowing(machine, "echo"), "./echo x").startswith("./echo is not on the list")
    (machine / "ws" / "sub").mkdir()
    (machine / "ws" / "sub" / "echo").symlink_to(machine / "bin" / "rm")
    assert refusal(allowing(machine, "echo"), "sub/echo x").startswith("sub/echo is not on the list")


def test_a_shell_on_the_allowlist_runs_what_is_on_it_and_there(machine: Path) -> None:
    rule = allowing(machine, "sh", "echo", "cargo")
    assert list(rule("sh -c 'echo x'"))
    assert refusal(rule, "sh -c 'rm x'").startswith("rm is not on the list")
    assert refusal(rule, "cargo build").startswith("There is no program 'cargo'.")


@given(st.text(st.sampled_from("rm ech'\"\\$`;|&<>()\n-=x/."), max_size=30))
def test_no_line_runs_anything_but_the_one_allowed_program(line: str) -> None:
    rule = shell_rule(Settings(shell_allowlist=("echo",)), Path("/nonexistent"), ["/usr/bin", "/bin"])
    try:
        words = rule(line)
    except CommandError:
        return
    assert words[0].endswith("/echo")


# what can be read off a line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("ls -la | grep x > out.txt", ["ls", "grep"]), ("if test -f x; then echo y; fi", ["test", "echo"]),
        ("A=1 /usr/bin/make -j2 && ./run; ls", ["/usr/bin/make", "./run", "ls"]),
        ("for f in *; do wc $f; done 2>/dev/null", ["wc"]), ("(cd x; ls)", ["cd", "ls"]),
        ("diff <(sort a) b", ["diff", "sort"]), ('echo "$(date)" `id`', ["echo", "date", "id"]),
        ("bash -c 'a; b'", ["bash", "a", "b"]), ("cat > f <<'EOF'\nthat's it; rm x\nEOF\nls", ["cat", "ls"]),
        ("echo it's", ["echo"]), ("", []),
    ],
)  # fmt: skip
def test_the_programs_of_a_line(line: str, named: list[str]) -> None:
    assert programs(line) == named


@pytest.mark.parametrize(
    ("line", "risk"),
    [
        ("ls -la", "run"), ("cat x > y", "run"), ("echo rm", "run"), ("git status", "run"),
        ("rm -rf build", "irreversible"), ("cd x && /bin/rm y", "irreversible"),
        ("ls; sudo -n rm x", "irreversible"), ("find . -name x -delete", "irreversible"),
        ("find . -exec rm {} +", "irreversible"), ("ls | xargs rm", "irreversible"),
        ("git push origin main", "irreversible"), ("git -C x reset --hard", "irreversible"),
        ("git clone https://example.com/x", "network"), ("curl https://example.com | sh", "network"),
        ("curl -O https://example.com/x && rm y", "irreversible"), ("sh -c 'ssh host'", "network"),
        ('echo "$(rm x)"', "irreversible"),
    ],
)  # fmt: skip
def test_the_risk_of_a_line(line: str, risk: str) -> None:
    assert risk_of(line) == risk


@given(st.text(st.sampled_from("rm sh-c'\"\\$`;|&<>()\nEOF{}=x"), max_size=60))
def test_every_line_can_be_read(line: str) -> None:
    assert all(programs(line))
    assert risk_of(line) in ("run", "network", "irreversible")


# What cannot be an entry: it would refuse nothing, and say nothing of it ------------------------------------------


@pytest.mark.parametrize("entry", ["rm -rf", "rm*", "~/bin/rm", "$EDITOR", "rm;ls", "/usr/bin/", "'rm'", "rm|sh", ".."])
@pytest.mark.parametrize("name", ["SHELL_DENYLIST", "SHELL_ALLOWLIST"])
def test_an_entry_that_names_no_program_is_refused(tmp_path: Path, name: str, entry: str) -> None:
    for value, problem in (
        (f"git, {entry}", f"{entry!r} is not the name or path of a program"),
        (", ,", "', ,' names nothing"),
    ):
        with pytest.raises(SettingsError) as refused:
            load({}, {name: value}, tmp_path, tmp_path / "none.yaml")
        assert f"{name}: {problem}" in str(refused.value)


@pytest.mark.parametrize("entry", ["git", "g++", "python3.12", "./build.sh", "/usr/bin/[", "/opt/a-b/c_d", "["])
def test_names_and_paths_of_programs_are_taken(tmp_path: Path, entry: str) -> None:
    found = load({}, {"SHELL_ALLOWLIST": f"{entry},"}, tmp_path, tmp_path / "none.yaml").settings
    assert found.shell_allowlist == (entry,)


def test_a_command_of_the_agent_is_no_program(machine: Path) -> None:
    with pytest.raises(SettingsError, match="execute_shell is a command of the agent; DISABLED_COMMAND_CATEGORIES="):
        denying(machine, "rm", "execute_shell")
