"""Which commands a run offers, and what the model is told of the others."""

from __future__ import annotations

from typing import Any

import pytest

from autoagent.commands import selection
from autoagent.commands.registry import Registry, command
from autoagent.core.commands import Call, Effects
from autoagent.core.errors import ReplyError, SettingsError
from autoagent.settings import all_settings


def available(**settings: Any) -> Registry:
    return selection.available(all_settings()(**settings))


@pytest.mark.parametrize("left_out", ["do_nothing", "search"])
def test_a_command_that_is_left_out_is_refused_with_the_reason(left_out: str) -> None:
    registry = selection.choose(available(), ("files",), 128_000)
    with pytest.raises(ReplyError) as refused:
        registry.check(Call("1", left_out, {}))
    assert f"The command '{left_out}' cannot be used here: it is not offered in this run." in str(refused.value)
    assert "The commands are: read_file, write_to_file" in str(refused.value)


@pytest.mark.parametrize("window", [8192, 128_000])
def test_what_few_runs_need_is_in_groups_each_of_which_can_be_loaded(window: int) -> None:
    everything = available()
    registry = selection.choose(everything, (), window)
    always = {spec.name for spec in registry.specs if not spec.group}
    assert {"read_file", "write_to_file", "execute_shell", "task_complete", "more_commands"} <= always
    assert ("web_search" in always) == (window == 128_000)
    assert not any(spec.rare and not spec.group for spec in registry.specs)
    assert {spec.name for spec in registry.specs} == {spec.name for spec in everything.specs} | {"more_commands"}
    (group,) = registry.spec("more_commands").parameters
    assert set(group.choices) == {spec.group for spec in registry.specs} - {""}
    for spec in registry.specs:
        assert not spec.group or spec.name in group.help


def test_who_is_handed_some_commands_and_nothing_that_loads_others_is_offered_these() -> None:
    registry = selection.choose(available(), (), 8192)
    handed = registry.only(("web_search", "read_file"), "it was not handed on")
    assert [spec.group for spec in handed.specs] == ["", ""]


NO_NUMBER, NO_STRINGS = (
    "'timeout' of ask_user is not a usable number",
    "'focus' of write_tests must be a list of strings",
)


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("dance", {}, "There is no command 'dance'"),
        ("make_directory", {"directory": "a"}, r"Did you mean write_to_file\(filename, text\)"),
        *(
            ("ask_user", {"question": "q", "timeout": n}, NO_NUMBER)
            for n in (float("nan"), float("inf"), 10**400, "1e999")
        ),
        ("write_tests", {"code": "x = 1", "focus": ["a", 1]}, f"{NO_STRINGS}; item 2 is of type int"),
        ("write_tests", {"code": "x = 1", "focus": [{"a": "b"}]}, f"{NO_STRINGS}; item 1 is of type dict"),
    ],
)
def test_a_call_that_no_command_can_take_is_refused_with_the_reason(name: str, args: dict[str, Any], why: str) -> None:
    with pytest.raises(ReplyError, match=why):
        available().check(Call("1", name, args))


def offered(*disabled: str) -> set[str]:
    return {spec.name for spec in available(disabled_command_categories=disabled).specs}


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("code", {"execute_shell", "execute_python_code", "analyze_code"}),
        ("autogpt.commands.execute_code", {"execute_shell", "execute_shell_popen", "execute_python_code"}),
        ("autogpt.commands.file_operations", {"read_file", "write_to_file", "append_to_file", "delete_file"}),
        ("autogpt.commands.google_search", {"web_search"}),
        ("autogpt.commands.web_selenium", {"browse_website", "get_hyperlinks"}),
        ("autogpt.commands.git_operations", {"clone_repository"}),
        ("AutoGPT.commands.twitter", {"send_tweet"}),
        ("autogpt.app", {"start_agent", "message_agent"}),
        ("delete_file", {"delete_file"}),
    ],
)
def test_what_is_switched_off_is_not_offered_whoever_names_it(name: str, gone: set[str]) -> None:
    before, after = offered(), offered(name)
    assert gone <= before
    assert not gone & after
    assert after < before


def test_a_category_is_switched_off_whole_with_the_commands_that_a_part_of_the_run_adds_to_it() -> None:
    added = command("clip_page", "Clip a page", risk="network", category="web", effects=Effects())(lambda context: "")
    registry = selection.available(all_settings()(disabled_command_categories=("web",)), (added,))
    assert {spec.name for spec in registry.specs} == offered("web")


@pytest.mark.parametrize(
    "module",
    [
        "analyze_code", "audio_text", "evaluate_code", "execute_code", "file_operations", "git_operations",
        "google_search", "image_gen", "improve_code", "system", "task_statuses", "times", "twitter",
        "user_interaction", "web_playwright", "web_requests", "web_search", "web_selenium", "write_tests",
    ],
)  # fmt: skip
def test_every_module_of_autogpt_is_known(module: str) -> None:
    assert offered(f"autogpt.commands.{module}") <= offered()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("cod", "code"),
        ("file", "files"),
        ("execute__shell", "execute_shell"),
        ("autogpt.commands.execute_cod", "autogpt.commands.execute_code"),
    ],
)
def test_a_category_that_there_is_not_is_refused_and_the_nearest_named(name: str, nearest: str) -> None:
    with pytest.raises(SettingsError) as refused:
        offered("web", name)
    assert f"DISABLED_COMMAND_CATEGORIES: there is neither a command nor a category {name!r}." in str(refused.value)
    assert f"Did you mean {nearest}?" in str(refused.value)


def test_every_name_among_the_wanted_commands_is_looked_at() -> None:
    registry = available()
    with pytest.raises(SettingsError, match=r"'raed_file'.* Did you mean read_file\?"):
        selection.choose(registry, ("all", "raed_file"), 128_000)
    chosen = selection.choose(registry, ("autogpt.commands.git_operations",), 128_000)
    assert {spec.name for spec in chosen.specs} == {"clone_repository", "task_complete"}


@pytest.mark.parametrize(
    ("name", "args", "meant"),
    [
        ("google", {"input": "otters"}, ("web_search", {"query": "otters"})),
        ("Google", {"query": "otters", "num_results": 3}, ("web_search", {"query": "otters", "num_results": 3})),
        ("create_file", {"file": "a", "content": "b"}, ("write_to_file", {"filename": "a", "text": "b"})),
        ("do_nothing", {"reason": "It is done."}, ("do_nothing", {})),
        (
            "improve_code",
            {"suggestions": "faster", "code": "x"},
            ("improve_code", {"suggestions": ["faster"], "code": "x"}),
        ),
        ("write_tests", {"code": "x", "focus": '["a", "b"]'}, ("write_tests", {"code": "x", "focus": ["a", "b"]})),
        ("write_tests", {"code": "x", "focus": ""}, ("write_tests", {"code": "x", "focus": []})),
        (
            "Execute_Python_Code",
            {"code": "x", "basename": "a.py"},
            ("execute_python_code", {"code": "x", "name": "a.py"}),
        ),
        ("search_files", {"directory": ""}, ("list_files", {"directory": ""})),
    ],
)
def test_the_habits_of_models_have_one_meaning(name: str, args: dict[str, object], meant: tuple[str, object]) -> None:
    call = available().check(Call("1", name, args))
    assert (call.name, call.args) == meant


def test_where_google_can_be_used_it_is() -> None:
    call = Call("1", "google", {"input": "otters"})
    assert available(google_api_key="AIza0123456789", google_engine="e").check(call).name == "google"
    with pytest.raises(ReplyError, match=r"google.*category web is switched off"):
        available(disabled_command_categories=("web",)).check(call)
