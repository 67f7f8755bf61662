"""Settings: layers and their origins, `.env`, the user config, and the YAML files of the task."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autoagent.core.errors import SettingsError
from autoagent.core.task import Goal, Task
from autoagent.registry.parts import UntrustedValue
from autoagent.session.autogpt import TRANSLATED, UNUSED
from autoagent.session.dotenv import Variable, read_dotenv, store_variables
from autoagent.session.load import Loaded, load
from autoagent.session.task_file import read_prompt_settings, read_task, write_task
from autoagent.settings import all_settings, setting, user_config_path, user_state_path

ROOT = Path(__file__).parent.parent


def loaded(folder: Path, flags: dict[str, Any] | None = None, env: dict[str, str] | None = None) -> Loaded:
    return load(flags or {}, env or {}, folder, folder / "config.yaml")


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# Layers ----------------------------------------------------------------------------------------------------------


def test_nothing_given_gives_the_defaults(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    assert found.settings == all_settings()()
    assert set(found.origins.values()) == {"default"}
    assert list(tmp_path.iterdir()) == []  # looking at settings writes nothing


def test_each_layer_wins_over_the_one_below_and_is_named_as_origin(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", "budget: 1\nsmart_llm: from-config\nfast_llm: from-config\nexit_key: q\n")
    write(tmp_path / ".env", "AUTOAGENT_BUDGET=2\nSMART_LLM=from-dotenv\nFAST_LLM=from-dotenv\n")
    env = {"AUTOAGENT_BUDGET": "3", "SMART_LLM": "from-env"}
    found = loaded(tmp_path, {"budget": 4.0}, env)
    names = ("budget", "smart_llm", "fast_llm", "exit_key", "temperature")
    assert {name: (getattr(found.settings, name), found.origins[name]) for name in names} == {
        "budget": (4.0, "flag"),
        "smart_llm": ("from-env", "environment: SMART_LLM"),
        "fast_llm": ("from-dotenv", ".env:3"),
        "exit_key": ("q", f"{tmp_path / 'config.yaml'}:4"),
        "temperature": (0.0, "default"),
    }


def test_a_flag_that_was_not_given_sets_nothing_and_a_wrong_value_is_named_by_its_flag(tmp_path: Path) -> None:
    env = {"AUTOAGENT_COMMANDS": "files, system", "PLAIN_OUTPUT": "on"}
    flags = {"commands": (), "plain_output": None, "json": True, "demo": None}
    settings = loaded(tmp_path, flags, env).settings
    assert (settings.commands, settings.plain_output) == (("files", "system"), True)
    with pytest.raises(SettingsError, match=r"^--use-memory: pinecone is not supported any more"):
        loaded(tmp_path, {"memory_backend": "pinecone"})


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    write(tmp_path / ".env", "OPENAI_BASE_URL=\nTEMPERATURE=0.5\n")
    env = {"OPENAI_BASE_URL": "", "OPENAI_API_BASE_URL": " ", "TEMPERATURE": ""}
    settings = loaded(tmp_path, env=env).settings
    assert (settings.openai_base_url, settings.temperature) == ("", 0.5)


def test_autogpts_older_names_are_read_and_the_newer_one_wins(tmp_path: Path) -> None:
    env = {"SMART_LLM_MODEL": "old", "FAST_LLM_MODEL": "old", "FAST_LLM": "new", "OPENAI_API_BASE_URL": "http://h/v1"}
    settings = loaded(tmp_path, env=env).settings
    assert (settings.smart_llm, settings.fast_llm, settings.openai_base_url) == ("old", "new", "http://h/v1")
    for name, ours in (("json_file", "local"), ("no_memory", "none")):
        assert loaded(tmp_path, env={"MEMORY_BACKEND": name}).settings.memory_backend == ours


@pytest.mark.parametrize(("flag", "both"), [("gpt3only", "fast"), ("gpt4only", "smart")])
def test_gpt3only_and_gpt4only_take_one_model_for_everything(tmp_path: Path, flag: str, both: str) -> None:
    found = loaded(tmp_path, {flag: True}, {"SMART_LLM": "smart", "FAST_LLM": "fast"})
    assert (found.settings.smart_llm, found.settings.fast_llm) == (both, both)
    assert f"--{flag}" in found.origins.values()


@pytest.mark.parametrize("address", ["", "https://api.openai.com/v1", "https://api.openai.com/v1/", "http://h/v1"])
def test_openais_own_address_means_the_same_as_none(tmp_path: Path, address: str) -> None:
    settings = loaded(tmp_path, env={"OPENAI_API_KEY": "sk-mine", "OPENAI_BASE_URL": address}).settings
    assert settings.embedder[0].name == ("embedded" if "//h/" in address else "openai")


def test_words_for_true_and_false(tmp_path: Path) -> None:
    words = {True: ("true", "True", "1", "yes", "YES", "on", " on "), False: ("false", "FALSE", "0", "no", "Off")}
    for word, value in ((word, value) for value, spellings in words.items() for word in spellings):
        assert loaded(tmp_path, env={"PLAIN_OUTPUT": word}).settings.plain_output is value


@pytest.mark.parametrize(
    ("complaint", "assignments"),
    [
        ("must be true or false", ["PLAIN_OUTPUT=maybe"]),
        ("must be a number", ["TEMPERATURE=warm", "TEMPERATURE=nan", "AUTOAGENT_BUDGET=inf"]),
        ("of 0 or more", ["AUTOAGENT_BUDGET=-1", f"AUTOAGENT_MAX_TOKENS={'9' * 400}"]),
        ("must be a whole number", ["AUTOAGENT_MAX_TOKENS=1.5"]),
        ("not supported any more: use local", ["MEMORY_BACKEND=pinecone"]),
        ("must be one of local", ["MEMORY_BACKEND=cassandra"]),
        ("must begin with http://", ["OPENAI_BASE_URL=localhost:8080"]),
        ("must differ", ["EXIT_KEY=Y"]),
        ("holds a space", ["OPENAI_API_KEY=sk-1 2"]),
        ("contains a line break", ["OPENAI_BASE_URL=http://a\nb/v1", "USER_AGENT=a\r\nb"]),
        ("cannot be sent", ["USER_AGENT=\u65e5", "OPENAI_ORGANIZATION=\u00e4"]),
    ],
)
def test_a_value_that_cannot_be_used_is_named(tmp_path: Path, complaint: str, assignments: list[str]) -> None:
    for name, _, value in (assignment.partition("=") for assignment in assignments):
        with pytest.raises(SettingsError, match=complaint) as caught:
            loaded(tmp_path, env={name: value})
        assert name in str(caught.value)
        assert "sk-1" not in str(caught.value)


def test_the_users_own_files_follow_xdg_but_not_to_a_relative_place(tmp_path: Path) -> None:
    assert user_config_path({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "autoagent" / "config.yaml"
    assert user_config_path({}) == Path.home() / ".config" / "autoagent" / "config.yaml"
    assert user_config_path({"XDG_CONFIG_HOME": "conf"}) == user_config_path({})
    assert user_state_path({"XDG_STATE_HOME": "."}) == Path.home() / ".local/state/autoagent"


def test_lists_numbers_and_paths_of_the_user_config(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", "commands: [files, read_file]\nworkspace: ~/w\nplain_output: yes\nwindow: 8192\n")
    settings = loaded(tmp_path).settings
    assert settings.commands == ("files", "read_file")
    assert settings.workspace == Path.home() / "w"
    assert settings.plain_output is True
    assert settings.window == 8192


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("budget: 1\nsmart_lm: x\n", r"config\.yaml:2: smart_lm: no such setting. Did you mean smart_llm\?"),
        ("budget: 1\nwindow: 2\nbudget: 1\n", r"config\.yaml:3: budget: is given twice"),
        ("window: [1, 2]\n", r"config\.yaml:1: window: must be text, not a list"),
        ("debug: perhaps\n", r"config\.yaml:1: debug: must be true or false"),
        ("- a\n- b\n", r"config\.yaml:1: must hold `key: value` lines"),
        ("window: 1\n\tbudget: 2\n", r"config\.yaml:2: budget: holds a tab"),
        ("window: &a 1\nbudget: *a\n", r"config\.yaml:2: aliases"),
        ("window:\n" + "- x\n" * 60_000, r"config\.yaml:\d+: has too many values; a settings file has at most 10,000"),
        ("smart_llm: a\x00b\n", r"config\.yaml:1: holds a character"),
        ("a: " + "[" * 2000, r"config\.yaml:1: is nested"),
    ],
)
def test_a_broken_user_config_is_named_with_file_line_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path / "config.yaml", text)
    with pytest.raises(SettingsError, match=complaint):
        loaded(tmp_path)


# What a `.env` may do with a setting of each permission but "free".
LIMITED = {
    **dict.fromkeys(("limit", "less", "more", "fewer", "narrower", "shell", "denied", "allowed"), "only tighter"),
    **dict.fromkeys(("only true", "only false"), "only tighter"),
    "inside": "within the folder",
    "model": "no file, no run, no plug-in",
    **dict.fromkeys(("own model", "own memory", "own embedder"), "no plug-in"),
    "unset": "where you have none",
    **dict.fromkeys(("with openai key", "with google key", "with github key"), "where you have no key for it"),
    "trust": "once trusted",
    "never": "never",
}


def test_the_example_lists_every_variable_with_its_default_and_help() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    listed = {m[1]: (m[2], m[3]) for line in lines if (m := re.fullmatch(r"#([A-Z0-9_]+)=(\S*)  # (.+)", line))}
    expected = {}
    for declared in dataclasses.fields(all_settings()):
        default = "" if declared.default in (None, ()) else str(declared.default)
        default = default.lower() if isinstance(declared.default, bool) else default
        for number, name in enumerate(declared.metadata["env"]):
            text = f"the same as {declared.metadata['env'][0]}" if number else declared.metadata["help"]
            limited = LIMITED.get(declared.metadata["folder"])
            expected[name] = (default, f"{text} [{limited}]" if limited else text)
    assert listed == expected


def test_a_setting_that_is_gone_says_what_to_use_instead(tmp_path: Path) -> None:
    line = "AUTOAGENT_DOWNLOAD_LIMIT: AUTOAGENT_SANDBOX_FILE limits downloads, too."
    assert loaded(tmp_path, env={"AUTOAGENT_DOWNLOAD_LIMIT": "5"}).removed_settings == (f"Not used: {line}",)
    write(tmp_path / ".env", "AUTOAGENT_DOWNLOAD_LIMIT=5\nMEMORY_SLEEP=\n")
    assert (loaded(tmp_path).removed_settings, loaded(tmp_path).notes) == ((f"Not used: {line}",), ())
    write(tmp_path / "config.yaml", "memory_slep: 5\n")
    with pytest.raises(SettingsError) as unknown:
        loaded(tmp_path)
    assert "memory_sleep" not in str(unknown.value)
    write(tmp_path / "config.yaml", "download_limit: 5\n")
    with pytest.raises(SettingsError, match=r"config\.yaml:1: download_limit: is no longer a setting: AUTOAGENT_S"):
        loaded(tmp_path)


def test_no_variable_is_both_used_and_said_to_be_unused() -> None:
    used = {name for declared in dataclasses.fields(all_settings()) for name in declared.metadata["env"]}
    assert used.isdisjoint(UNUSED)
    assert used.isdisjoint(TRANSLATED)
    assert TRANSLATED.keys().isdisjoint(UNUSED)


# What a folder may set -------------------------------------------------------------------------------------------


def test_a_setting_that_declares_nothing_needs_trust() -> None:
    @dataclasses.dataclass
    class Undeclared:
        new: str = setting("", "NEW")

    assert dataclasses.fields(Undeclared)[0].metadata["folder"] == "trust"


@pytest.mark.parametrize(
    ("outside", "free", "left_out"),
    [
        ({}, ["GITHUB_USERNAME=a", "AUTOAGENT_BUDGET=5", "AUTOAGENT_SANDBOX_SECONDS=60", "AUTOAGENT_AGENTS=0",
              "AUTOAGENT_REQUIRE_SANDBOX=true", "SHELL_COMMAND_CONTROL=allowlist", "SHELL_ALLOWLIST=ls",
              "AUTHORISE_COMMAND_KEY=y", "AUTOAGENT_WORKSPACE=sub/x", "OPENAI_API_KEY=sk-its"],
         ["AUTOAGENT_SANDBOX_SECONDS=600", "AUTOAGENT_SANDBOX_SECONDS=0", "AUTOAGENT_AGENTS=50",
          "AUTOAGENT_SANDBOX=landlock", "AUTOAGENT_WORKSPACE=link/x", "OPENAI_BASE_URL=http://h/v1"]),
        ({"github_api_key": "k"}, [], ["GITHUB_USERNAME=a"]),
        ({"budget": "2"}, ["AUTOAGENT_BUDGET=1"], ["AUTOAGENT_BUDGET=3"]),
        ({"require_sandbox": "true"}, [], ["AUTOAGENT_REQUIRE_SANDBOX=false"]),
        ({"disabled_command_categories": "web"}, ["DISABLED_COMMAND_CATEGORIES=web,code"],
         ["DISABLED_COMMAND_CATEGORIES=code"]),
        ({"commands": "files"}, [], ["AUTOAGENT_COMMANDS=code"]),
        ({"allow_hosts": "a:1,b:2"}, ["AUTOAGENT_ALLOW_HOSTS=a:1"], []),
        ({"shell_allowlist": "ls"}, [], ["SHELL_COMMAND_CONTROL=denylist", "SHELL_ALLOWLIST=ls,rm"]),
        ({"shell_denylist": "rm"}, ["SHELL_DENYLIST=rm,mv"], []),
        ({"shell_command_control": "denylist"}, [], ["SHELL_DENYLIST=mv"]),
        ({"sandbox": "none"}, ["AUTOAGENT_SANDBOX=none"], []),
        ({"openai_api_key": "sk-mine"}, [], ["OPENAI_BASE_URL=http://h/v1", "OPENAI_API_KEY=sk-its",
                                             "OPENAI_BASE_URL=http://h/v1\nOPENAI_API_KEY=sk-its"]),
        ({"openai_api_key": "sk-mine", "openai_base_url": "http://h/v1"}, ["OPENAI_BASE_URL=http://h/v1"], []),
    ],
)  # fmt: skip
def test_a_folder_may_only_tighten(
    tmp_path: Path, outside: dict[str, str], free: list[str], left_out: list[str]
) -> None:
    (tmp_path / "link").symlink_to("/")
    write(tmp_path / "config.yaml", "".join(f"{name}: {value}\n" for name, value in outside.items()))
    for line in (*free, *left_out):
        write(tmp_path / ".env", f"{line}\n")
        assert bool(loaded(tmp_path).untrusted) is (line in left_out), line


def test_what_is_trusted_counts_but_the_sandbox_never(tmp_path: Path) -> None:
    write(tmp_path / ".env", "AUTOAGENT_PYTHON=./x\nAUTOAGENT_SANDBOX=none\nAUTHORISE_COMMAND_KEY=j\n")
    seen: list[UntrustedValue] = []

    def trusts(untrusted: UntrustedValue) -> bool:
        seen.append(untrusted)
        return untrusted.name != "AUTHORISE_COMMAND_KEY"

    found = load({}, {}, tmp_path, tmp_path / "none", trusts=trusts)
    assert (found.settings.python, found.settings.sandbox, found.settings.authorise_command_key) == ("./x", "auto", "y")
    left_out = [(untrusted.location, untrusted.never) for untrusted in found.untrusted]
    assert left_out == [(".env:2 AUTOAGENT_SANDBOX", True), (".env:3 AUTHORISE_COMMAND_KEY", False)]
    assert len({untrusted.mark for untrusted in seen}) == 2


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ("HUGGINGFACE_URL=http://h", ""),
        ("HUGGINGFACE_URL=http://h\nHUGGINGFACE_API_TOKEN=its", "its"),
        ("HUGGINGFACE_URL=https://router.huggingface.co/hf-inference", "mine"),
        ("HUGGINGFACE_API_TOKEN=its", "mine"),
    ],
)
def test_a_key_goes_to_an_address_of_the_folder_only_from_there(tmp_path: Path, lines: str, key: str) -> None:
    write(tmp_path / ".env", f"{lines}\n")
    found = load({}, {"HUGGINGFACE_API_TOKEN": "mine"}, tmp_path, tmp_path / "none", trusts=lambda untrusted: True)
    assert found.settings.huggingface_api_token == key
    assert bool(found.withheld_keys) is not bool(key)


# .env ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("K=v", "v"), ("export K = v ", "v"), ("K=", ""), ("K= # nothing", ""), ("K=a#b", "a#b"),
        ("K=a b # why", "a b"), ("K='a # b' # why", "a # b"), ("K='${HOME}'", "${HOME}"), (r'K="a\"b\n"', 'a"b\n'),
        ('K="" # empty', ""), ("K=a=b", "a=b"), ("K=ключ", "ключ"), ("K=#x", "#x"), (r'K="a\d"', r"a\d"),
        ("K='a\nb'", "a\nb"),
    ],
)  # fmt: skip
def test_a_line_of_dotenv(tmp_path: Path, line: str, value: str) -> None:
    assert read_dotenv(write(tmp_path / ".env", f"# first\n{line}\n")) == {"K": Variable(value, 2)}


def test_no_dotenv_and_one_with_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    assert read_dotenv(tmp_path / ".env") == {}
    found = read_dotenv(write(tmp_path / ".env", b"\xef\xbb\xbfA=1\r\nB=2\r\n"))
    assert found == {"A": Variable("1", 1), "B": Variable("2", 2)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("# comment\n\nTEMPERATURE=warm\n", r"\.env:3: TEMPERATURE: must be a number of 0 or more, not 'warm'"),
        ("A=1\nSMART_LLM is this\n", r"\.env:2: SMART_LLM: is not NAME=value"),
        ("\n\nSMART_LLM\n", r"\.env:3: SMART_LLM: is not NAME=value"),
        ("SMART_LLM='open\n", r"\.env:1: SMART_LLM: the value does not end with its quote"),
        ('export SMART_LLM="open\n', r"\.env:1: SMART_LLM: the value does not end with its quote"),
        ("SMART_LLM=${B}\n", r"\.env:1: SMART_LLM: variables are not expanded"),
        ('SMART_LLM="${B:-x}"\n', r"\.env:1: SMART_LLM: variables are not expanded"),
        (b"A=1\nB=\xff\n", r"\.env:2: is not UTF-8"),
        ("A=" + "x" * 300_000, "is larger than 256 KiB"),
    ],
)
def test_a_broken_dotenv_is_named_with_file_and_line(tmp_path: Path, text: str | bytes, complaint: str) -> None:
    write(tmp_path / ".env", text)
    with pytest.raises(SettingsError, match=complaint):
        loaded(tmp_path)


def test_what_is_odd_in_names_that_nobody_reads_stops_nothing_and_the_last_of_a_name_counts(tmp_path: Path) -> None:
    odd = 'A=${B}\nwhat is this\nC="open\nD=\'two\nlines\'\nE="a\\d"\nPROXY\n'
    write(tmp_path / ".env", f"{odd}SMART_LLM=a\nSMART_LLM=#x\n")
    found = loaded(tmp_path)
    assert (found.settings.smart_llm, found.origins["smart_llm"]) == ("#x", ".env:9")


@pytest.mark.parametrize(
    ("make", "what"), [(os.mkfifo, "a pipe"), (os.mkdir, "a folder"), (partial(os.symlink, "/dev/null"), "a device")]
)
def test_settings_are_read_from_regular_files_alone(tmp_path: Path, make: Callable[[Path], None], what: str) -> None:
    make(tmp_path / ".env")
    with pytest.raises(SettingsError, match=rf"\.env: is not a file but {what}\."):
        loaded(tmp_path)


def test_stored_variables_replace_theirs_and_leave_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / ".env", "# mine\nOPENAI_API_KEY=old\nTEMPERATURE=0.5")
    store_variables(path, {"OPENAI_API_KEY": "new-key-123"})
    assert path.read_text() == "# mine\nTEMPERATURE=0.5\nOPENAI_API_KEY=new-key-123\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [".env"]


def test_a_value_that_would_break_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="K: the value holds a space"):
        store_variables(tmp_path / ".env", {"K": "a\nEVIL=1"})
    assert not (tmp_path / ".env").exists()


# ai_settings.yaml ------------------------------------------------------------------------------------------------

HEAD = "ai_name: N\nai_role: an AI\n"


def test_a_file_as_autogpt_writes_it(tmp_path: Path) -> None:
    text = "ai_goals:\n- Increase net worth\n- 'Grow: account'\nai_name: Foo-GPT\nai_role: an AI\napi_budget: 1.5\n"
    task = read_task(write(tmp_path / "ai_settings.yaml", text))
    assert task == Task("Foo-GPT", "an AI", (Goal("Increase net worth"), Goal("Grow: account")), 1.5)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("\n- Goal 1: make x\n", ["Goal 1: make x"]),
        (" make x\n", ["make x"]),
        ("\n- 2024\n- yes\n- 1.50\n- 2024-01-01\n", ["2024", "yes", "1.50", "2024-01-01"]),
        ("\n- Write a.md :: test -s a.md\n- 'text: a'\n", ["Write a.md :: test -s a.md", "text: a"]),
        ("\n- Do this:\n", ["Do this:"]),
        ("\n- größe 世界 🌍\n", ["größe 世界 🌍"]),
        (
            '\n- text: "Write a.md :: true"\n  check: test -s a.md\n- text: 2024\n- check: it well\n',
            [Goal("Write a.md :: true", "test -s a.md"), "2024", "check: it well"],
        ),
    ],
)
def test_a_goal_is_the_text_that_was_written_and_its_check_has_a_key_of_its_own(
    tmp_path: Path, written: str, read: list[str | Goal]
) -> None:
    goals = tuple(Goal(goal) if isinstance(goal, str) else goal for goal in read)
    text = f"{HEAD}ai_goals:{written}"
    assert read_task(write(tmp_path / "a.yaml", text)).goals == goals
    windows = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    assert read_task(write(tmp_path / "a.yaml", windows)).goals == goals


LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nai_goals: *b\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        *((text, r"ai_settings\.yaml: ai_goals: no goal is given") for text in (HEAD, "")),
        (HEAD + "ai_goals: []\n", r"no goal is given"),
        (HEAD + "ai_goals:\n" + "- g\n" * 6, r"ai_settings\.yaml:4: ai_goals: holds 6 goals; at most 5"),
        (HEAD + "ai_goals:\n- a\n-\n", r"ai_settings\.yaml:5: ai_goals: holds an empty item"),
        (HEAD + "ai_goals:\n- text: a\n  chek: b\n", r"ai_settings\.yaml:5: chek: .* Did you mean check\?"),
        (HEAD + "ai_goals:\n- text:\n  check: b\n", r"ai_settings\.yaml:4: text: holds an empty item"),
        (HEAD + "ai_goals:\n- text: a\n  check:\n", r"ai_settings\.yaml:5: check: holds an empty item"),
        (HEAD + "ai_goals:\n- a\n- [b]\n", r"ai_settings\.yaml:5: ai_goals: must be text, not a list"),
        (HEAD + "ai_goals:\n  a: 1\n  b: 2\n", r"ai_settings\.yaml:4: ai_goals: must be a list"),
        ("ai_name: N\nai_goals: [a]\n", r"ai_settings\.yaml: ai_role: is missing"),
        ("ai_name:\nai_role: r\nai_goals: [a]\n", r"ai_settings\.yaml:1: ai_name: is missing"),
        (HEAD + "ai_goals: [a]\nai_goal: b\n", r"ai_settings\.yaml:4: ai_goal: .* Did you mean ai_goals\?"),
        (HEAD + "ai_goals: [a]\nai_name: M\n", r"ai_settings\.yaml:4: ai_name: is given twice"),
        (HEAD + "ai_goals: [a]\napi_budget: lots\n", r"ai_settings\.yaml:4: api_budget: must be an amount of USD"),
        (HEAD + "ai_goals:\n\t- a\n", r"ai_settings\.yaml:4: holds a tab"),
        (HEAD + "ai_goals:\n- a: b: c\n", r"ai_settings\.yaml:4: .* Put the text in quotes"),
        (HEAD + LAUGHS, r"ai_settings\.yaml:4: aliases \(\*a\) are not allowed"),
        (HEAD + "ai_goals: [a]\n" + "# padding\n" * 1_000_000, "is larger than 256 KiB"),
        (HEAD + "ai_goals: [a]\n---\nx: 1\n", r"ai_settings\.yaml:4: is not YAML"),
        (b"ai_name: \xff\n", r"ai_settings\.yaml:1: is not UTF-8"),
    ],
)
def test_a_broken_task_is_named_with_file_line_and_key(tmp_path: Path, text: str | bytes, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        read_task(write(tmp_path / "ai_settings.yaml", text))


def test_a_task_or_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        read_task(tmp_path / "ai_settings.yaml")
    with pytest.raises(SettingsError, match=r"a\.yaml: cannot be written: No such file or directory"):
        write_task(tmp_path / "missing" / "a.yaml", Task("N", "r", (Goal("g"),)))


def test_a_written_task_stays_readable_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "ai_settings.yaml"
    write_task(path, Task("Größe-GPT", "an AI 🌍", (Goal("Schreibe 世界"), Goal("b", "test -s b")), 1.5))
    assert path.read_text(encoding="utf-8") == (
        "ai_goals:\n- Schreibe 世界\n- text: b\n  check: test -s b\n"
        "ai_name: Größe-GPT\nai_role: an AI 🌍\napi_budget: 1.5\n"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["ai_settings.yaml"]


def test_a_task_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").touch()
    (tmp_path / "link.yaml").symlink_to(tmp_path / "real.yaml")
    write_task(tmp_path / "link.yaml", Task("N", "r", (Goal("g"),)))
    assert (tmp_path / "link.yaml").is_symlink()
    assert read_task(tmp_path / "real.yaml").name == "N"


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).map(str.strip).filter(bool)


@given(
    name=TEXT,
    role=TEXT,
    goals=st.lists(st.builds(Goal, TEXT, st.none() | TEXT), min_size=1, max_size=5),
    budget=st.floats(0, 1e6),
)
@example("N", "r", [Goal("text: a"), Goal("a :: true"), Goal("- a", "{b")], 0.0)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, name: str, role: str, goals: list[Goal], budget: float
) -> None:
    task = Task(name, role, tuple(goals), budget)
    path = tmp_path_factory.getbasetemp() / "round_trip.yaml"
    write_task(path, task)
    assert read_task(path) == task


def test_the_example_in_the_repository_is_a_task_whose_check_tells_right_from_wrong(tmp_path: Path) -> None:
    task = read_task(ROOT / "examples" / "summary" / "ai_settings.yaml")
    check = task.goals[0].check
    assert check
    facts = (ROOT / "examples/summary/autoagent_workspace/notes.txt").read_text().splitlines()
    for summary, met in (("\n".join(facts), True), (facts[0], False)):
        (tmp_path / "summary.txt").write_text(summary)
        assert (subprocess.run(["/bin/sh", "-c", check], cwd=tmp_path).returncode == 0) is met


# prompt_settings.yaml --------------------------------------------------------------------------------------------


def test_prompt_settings_under_autogpts_and_under_our_name(tmp_path: Path) -> None:
    autogpt = write(tmp_path / "a.yaml", "constraints:\n- 'short: memory'\n- b\nperformance_evaluations: [c]\n")
    assert read_prompt_settings(autogpt) == {"constraints": ("short: memory", "b"), "best_practices": ("c",)}
    ours = write(tmp_path / "b.yaml", "best_practices: [c]\nresources: [d]\n")
    assert read_prompt_settings(ours) == {"best_practices": ("c",), "resources": ("d",)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("constraint: [a]\n", r"p\.yaml:1: constraint: .* Did you mean constraints\?"),
        ("resources: {a: 1, b: 2}\n", r"p\.yaml:1: resources: must be a list"),
        ("best_practices: [a]\nperformance_evaluations: [b]\n", r"p\.yaml:2: .* keep one of them"),
    ],
)
def test_broken_prompt_settings_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        read_prompt_settings(write(tmp_path / "p.yaml", text))
