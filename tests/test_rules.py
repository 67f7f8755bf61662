"""Rules: what they let through, and above all what they do not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from autoagent.commands.selection import all_specs
from autoagent.core.commands import Call
from autoagent.core.errors import SettingsError, StateError
from autoagent.safety.rules import Rule, Rulebook, SavedRules
from autoagent.subcommands.trust import rules
from autoagent.workspace.gate import Workspace

SPECS = {spec.name: spec for spec in all_specs()}


def lets(rule: str, first: str) -> bool:
    parsed = Rule.parse(rule)
    found = SPECS[parsed.command]
    return Rulebook(SPECS.values()).matches(parsed, Call("1", found.name, {found.parameters[0].name: first}))


DOCS = "browse_website:https://docs.python.org/*"
PYTHON = "browse_website:https://*.python.org/*"

LET_THROUGH = {  # by rule, the first arguments of calls
    "write_to_file": ["anything"],
    "write_to_file:notes/*": ["notes/a.md", "./notes//a.md", "x/../notes/a.md"],
    "write_to_file:notes/**": ["notes/2026/11/a.md"],
    "write_to_file:./notes/*": ["notes/a.md"],
    "write_to_file:*.md": ["a.md"],
    "write_to_file:report.md": ["report.md"],
    "write_to_file:a[1].md": ["a[1].md"],
    "execute_shell:git status": ["git status", "  git   status "],
    "execute_shell:git log *": ["git log --oneline -5 src/a.py"],
    "execute_shell:ls | wc -l": ["ls | wc -l"],
    "execute_shell:pytest*": ["pytest tests/test_a.py::test_b"],
    DOCS: ["https://docs.python.org/3/library/re.html#module-re", "https://DOCS.python.org"],
    PYTHON: ["https://docs.python.org/3/"],
    "browse_website:http://127.0.0.1:8000/*": ["http://127.0.0.1:8000/a?b=c"],
    "execute_python_code:print(2 * 3)": ["print(2 * 3)\n"],  # in code, a star is an asterisk
    "web_search:weather in *": ["weather in Oslo"],
}

NOT_GIT_STATUS = [
    "git status; rm -rf x", "git status && x", "git status | sh", "git status > f", "git status\nrm x", "git status\r",
    "git status $(x)", "git status `x`", "git status &", "git status 'a'", 'git status "a"', "git status *",
    "git status {a,b}", "git status ~", "git status #", "git status \\", "git status ${IFS}x", "git status <f",
    "git status \x00", "git statusx", "x git status", "GIT status", "git\u00a0status", "git status\u2028x",
]  # fmt: skip

HELD_BACK = {
    "write_to_file:notes/*": [
        "notes/../../x", "notes/../x", "notes/deep/a.md", "notes", "/notes/a.md", "Notes/a.md",
    ],
    "write_to_file:notes/**": ["notes/../x"],
    "write_to_file:**": ["../x", "/etc/passwd"],
    "write_to_file:*.md": ["a.md.sh"],
    "write_to_file:report.md": ["reportXmd", "report.md\n"],
    "execute_shell:git status": NOT_GIT_STATUS,
    "execute_shell:git status *": NOT_GIT_STATUS,
    DOCS: [
        "http://docs.python.org/3/", "https://docs.python.org.evil.example/", "https://docs.python.org@evil.example/",
        "https://evil.example/https://docs.python.org/", "https://docs.python.org:8443/",
        "https://docs.python.org\\@evil.example/", "https://docs.python.org/ x", "https://docs.python.org:port/",
        "https://[docs.python.org/",
    ],
    PYTHON: [
        "https://evil.example/.python.org/", "https://evil.example?.python.org/", "https://a.b.python.org/",
    ],
    "browse_website:https://x.example/open/*": [
        "https://x.example/open/../closed", "https://x.example/open/%2e%2e/closed",
    ],
    "execute_python_code:print(*)": ["print(1); import os; os.remove('a')"],
    "web_search:weather": ["weather and my password"],
}  # fmt: skip


@pytest.mark.parametrize(("rule", "first"), [(rule, first) for rule, firsts in LET_THROUGH.items() for first in firsts])
def test_what_is_let_through(rule: str, first: str) -> None:
    assert lets(rule, first)


@pytest.mark.parametrize(("rule", "first"), [(rule, first) for rule, firsts in HELD_BACK.items() for first in firsts])
def test_what_is_not(rule: str, first: str) -> None:
    assert not lets(rule, first)


@given(st.text(max_size=20), st.sampled_from(";&|<>()$`\\\"'*?[]{}~#!^\n\r\0"), st.text(max_size=20))
def test_a_star_matches_nothing_that_a_shell_reads_as_more_than_itself(before: str, special: str, after: str) -> None:
    assert not lets("execute_shell:git *", f"git {before}{special}{after} x")


# Links -----------------------------------------------------------------------------------------------------------


def test_a_path_is_where_it_leads_not_how_it_is_called(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w")
    (workspace.root / "notes").mkdir()
    (workspace.root / "notes/link").symlink_to("../plan.md")
    (workspace.root / "notes/out").symlink_to("/etc")
    book = Rulebook(SPECS.values(), ["write_to_file:notes/**"], resolve=workspace.display)

    def allowed(path: str) -> bool:
        return book.find_rule(Call("1", "write_to_file", {"filename": path})) is not None

    assert allowed("notes/a.md") and allowed(f"{workspace.root}/notes/a.md")
    assert not allowed("notes/link") and not allowed("notes/out/passwd") and not allowed("plan.md")


def test_of_what_is_deleted_the_link_itself_has_to_fit(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w")
    (workspace.root / "notes").mkdir()
    (workspace.root / "notes/a.md").touch()
    (workspace.root / "plan").symlink_to("notes/a.md")
    (workspace.root / "notes/link").symlink_to("../plan")
    (workspace.root / "notes/out").symlink_to("/etc")
    book = Rulebook(SPECS.values(), ["delete_file:notes/*"], resolve=workspace.display)

    def allowed(path: str) -> bool:
        return book.find_rule(Call("1", "delete_file", {"filename": path})) is not None

    assert not allowed("plan") and not allowed("notes/out/passwd")
    for path in ("notes/a.md", "notes/link", "notes/out"):
        assert allowed(path)
        workspace.delete(path)
    assert (workspace.root / "plan").is_symlink() and list((workspace.root / "notes").iterdir()) == []


# What a rule is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", ":x", "a b", "write_to_file:", "write_to_file: ", "*", "write-file:x"])
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(SettingsError, match="COMMAND or COMMAND:PATTERN"):
        Rule.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("write_to_fil:x", "Did you mean write_to_file?"),
        ("write__to__file:x", "Did you mean write_to_file?"),
        ("mcp__shop", "there is no command 'mcp__shop'"),
        ("do_nothing:x", "has no argument"),
        ("browse_website:docs.python.org/*", "must begin with https://"),
    ],
)
def test_a_rule_that_could_never_let_anything_through_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SettingsError) as error:
        Rulebook(SPECS.values(), [text])
    assert reason in str(error.value)


def test_a_rule_may_be_for_a_server_that_is_not_here() -> None:
    assert str(Rulebook(SPECS.values()).parse("mcp__shop__write_file")) == "mcp__shop__write_file"


def test_an_older_name_of_a_command_is_taken_for_the_present_one() -> None:
    book = Rulebook(SPECS.values(), ["write_file:a"])
    assert str(book.find_rule(Call("1", "write_to_file", {"filename": "a"}))) == "write_to_file:a"


def test_a_forecast_names_the_calls_of_the_run_that_would_have_run() -> None:
    book = Rulebook(SPECS.values())
    lines = ["git status", "rm x", "git diff"]
    logged = [("", Call(str(number), "execute_shell", {"command_line": line})) for number, line in enumerate(lines)]
    book.logged_calls = lambda: logged
    book.note(Call("1", "execute_shell", {"command_line": "git log"}))  # edited before it runs
    logged.append(("2", Call("1", "execute_shell", {"command_line": "ls"})))
    book.note(logged[-1][1], "Digger (2)")
    assert book.forecast(Rule.parse("execute_shell:git *")).splitlines() == [
        "execute_shell:git * would have allowed 3 of the 4 calls of this run:",
        "  execute_shell(command_line='git status')",
        "  execute_shell(command_line='git log')",
        "  execute_shell(command_line='git diff')",
    ]


# Saved rules -----------------------------------------------------------------------------------------------------


def test_saved_rules_are_private_and_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "state/rules.json"
    rule = Rule.parse("execute_shell:git status")
    assert SavedRules(path, tmp_path).add(rule) and not SavedRules(path, tmp_path).add(rule)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Rulebook(SPECS.values(), saved=SavedRules(path, tmp_path)).find_rule(
        Call("1", "execute_shell", {"command_line": "git status"})
    )
    assert SavedRules(path, tmp_path).remove(rule) and not SavedRules(path, tmp_path).remove(rule)
    assert SavedRules(path, tmp_path).load() == []


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"folders": 1}', '{"folders": {"HERE": [1]}}', '{"folders": {"HERE": ["a b"]}}', "\0"]
)
def test_damaged_rules_stop(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rules.json"
    path.write_text(content.replace("HERE", str(tmp_path)))
    path.chmod(0o600)
    with pytest.raises(StateError, match=r"rules\.json are damaged"):
        SavedRules(path, tmp_path).load()


def test_rules_that_others_may_have_written_stop(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"v": 2, "folders": {str(tmp_path): ["execute_shell"]}}))
    path.chmod(0o666)
    with pytest.raises(StateError, match="Others may have written"):
        SavedRules(path, tmp_path).load()
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
        with pytest.raises(StateError, match="Others may have written"):
            SavedRules(path, tmp_path).load()


def test_the_subcommand_lists_adds_and_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(rules, arguments, obj={"state_dir": tmp_path / "s"}, catch_exceptions=False)
        return done.output

    assert "There are no saved rules" in run("list")
    assert run("add", "write_file:notes/*") == "Saved the rule write_to_file:notes/*.\n"
    assert "exists already" in run("add", "write_to_file:notes/*")
    listed = json.loads(run("list", "--json"))
    assert listed == [
        {"rule": "write_to_file:notes/*", "command": "write_to_file", "pattern": "notes/*", "origin": "saved"}
    ]
    assert run("remove", "write_to_file:notes/*") == "Revoked the rule write_to_file:notes/*.\n"
    with pytest.raises(StateError, match="no saved rule"):
        run("remove", "write_to_file:notes/*")
    with pytest.raises(SettingsError, match="no command"):
        run("add", "fly_to_moon")
