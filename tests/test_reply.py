"""Every reply has one right reading or one refusal; what a command receives is exactly what the model wrote."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from autoagent.commands.context import Context
from autoagent.commands.registry import Registry, command
from autoagent.core.commands import Call
from autoagent.core.errors import ReplyError
from autoagent.core.model import Completion, Reply, Thoughts, ToolCall, Usage
from autoagent.reply.lenient_json import MAX_DEPTH, UnreadableJson, read_object
from autoagent.reply.parser import parse, written
from autoagent.reply.reply_stream import ReplyStream
from autoagent.reply.written_reply import MAX_BRACES, _Reading, find_command

REPLIES = Path(__file__).parent / "replies"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # every worker of the tests collects this file
STYLES = yaml.load((REPLIES / "styles.yaml").read_text(encoding="utf-8"), LOADER)
CASES = yaml.load((REPLIES / "cases.yaml").read_text(encoding="utf-8"), LOADER) + STYLES


# Commands of which a call is only checked, never run.


@command("read_file", "Read a file", risk="read")
def read_file(context: Context, filename: str) -> str: ...


@command("write_to_file", "Write to a file", risk="write")
def write_to_file(context: Context, filename: str, text: str) -> str: ...


@command("list_files", "List files", risk="read")
def list_files(context: Context, directory: str = ".") -> str: ...


@command("tag_file", "Tag a file", risk="write")
def tag_file(context: Context, tags: list[str]) -> str: ...


@command("web_search", "Search the web", risk="network")
def web_search(context: Context, query: str, num_results: int = 8, safe: bool = False) -> str: ...


@command("wait", "Wait", risk="read")
def wait(context: Context, seconds: float, times: int = 1) -> str: ...


@command("do_nothing", "Do nothing", risk="read", ignored=["reason"])
def do_nothing(context: Context) -> str: ...


@command("task_complete", "Finish", risk="read")
def task_complete(context: Context, reason: str) -> str: ...


REGISTRY = Registry([read_file, write_to_file, list_files, tag_file, web_search, wait, do_nothing, task_complete])


def understood(text: str = "", *calls: ToolCall, truncated: bool = False) -> Reply:
    return parse(Completion(text, Usage(), calls, truncated), REGISTRY.check, "s1")


def refusal(text: str = "", *calls: ToolCall, truncated: bool = False) -> str:
    with pytest.raises(ReplyError) as error:
        understood(text, *calls, truncated=truncated)
    return str(error.value)


# The cases of the data file --------------------------------------------------------------------------------------


def test_there_are_many_different_cases() -> None:
    assert len({case["reply"] for case in CASES}) == len(CASES)
    assert len(STYLES) >= 60


@pytest.mark.parametrize("case", [pytest.param(c, id=c["why"]) for c in CASES if "runs" in c])
def test_a_reply_with_one_meaning_is_understood(case: dict[str, Any]) -> None:
    reply = understood(case["reply"])
    assert reply.call == Call("s1", case["runs"], case["args"])
    assert [type(value) for value in reply.call.args.values()] == [type(value) for value in case["args"].values()]
    assert reply.text == case["reply"]
    if "thoughts" in case:
        assert reply.thoughts == Thoughts(**case["thoughts"])


@pytest.mark.parametrize("case", [pytest.param(c, id=c["why"]) for c in CASES if "refused" in c])
def test_any_other_reply_is_refused_with_the_reason(case: dict[str, Any]) -> None:
    reason = refusal(case["reply"])
    for word in case["refused"]:
        assert word in reason
    assert len(reason) < 400
    assert reason.isprintable()


# Code after the object -------------------------------------------------------------------------------------------


def shown(reply: str) -> ReplyStream:
    stream = ReplyStream()
    stream.feed(reply)
    return stream


OBJECT = '{"command": {"name": "write_to_file", "args": {"filename": "a.py", "text": "```"}}}'


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ('def f(a):\n    return {"a": f"{a}\\n"}', 'def f(a):\n    return {"a": f"{a}\\n"}\n'),
        ('{"command": {"name": "do_nothing", "args": {}}}', '{"command": {"name": "do_nothing", "args": {}}}\n'),
        ("<think>never ends", "<think>never ends\n"),
        ("", ""),
    ],
)
def test_code_in_a_block_after_the_object_takes_its_place_there_as_it_stands(code: str, text: str) -> None:
    reply = understood(f"{OBJECT}\n```python\n{code}\n```")
    assert reply.call.args == {"filename": "a.py", "text": text}
    assert understood(f"{OBJECT}\n\n```C++ \n{code}\n```\n").call.args == reply.call.args
    assert shown(f"{OBJECT}\n```python\n{code}\n```").lines == f"{code}\n```".count("\n") + 1


def test_a_block_belongs_to_one_argument_and_only_where_it_is_meant() -> None:
    assert "text and filename want one" in refusal(
        '{"command": {"name": "write_to_file", "args": {"text": "```", "filename": "```"}}}\n```\nx\n```'
    )
    assert "The code for 'text' is missing" in refusal(OBJECT)
    assert "The code for 'text' is missing" in refusal(f"{OBJECT}\nx = 1\n")
    thought = '{"thoughts": {"text": "I do nothing."}}'
    assert understood(f"{thought}\n```json\n{COMMAND}\n```").call.name == "do_nothing"
    assert understood(f"{COMMAND}\n```\nx\n```").call.args == {}


# Limits ----------------------------------------------------------------------------------------------------------


def test_a_truncated_reply_is_refused_though_it_looks_whole() -> None:
    assert "cut off" in refusal('{"command": {"name": "do_nothing", "args": {}}}', truncated=True)
    assert "cut off" in refusal("", ToolCall("do_nothing", "{}"), truncated=True)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param("[" * 100_000, "levels deep", id="brackets without end"),
        pytest.param("[" * 500 + "]" * 500, "levels deep", id="deep but whole"),
        pytest.param("9" * 5_000, "too large", id="a number of 5000 digits"),
        pytest.param("{" * 100_000, "expected a key", id="braces without end"),
    ],
)
def test_hostile_values_are_refused(value: str, reason: str) -> None:
    assert reason in refusal('{"command": {"name": "wait", "args": {"seconds": ' + value + "}}}")


COMMAND = '{"command": {"name": "do_nothing"}}'


@pytest.mark.parametrize(
    "shape",
    [
        *("{/*}", "{//}", "{#}", "{\u201c}", "{'}", '{"}', "{x}", "{}", "{{", '{"a":', 'x {"a": [', "[", "</think>"),
        *("<think></think>", 'x {"a": 1 </think>', 'x {"a": \u201c </think>', COMMAND, f"x {COMMAND}</think>"),
    ],
)
def test_a_reply_is_looked_through_in_steps_linear_in_its_length(shape: str) -> None:
    def steps(length: int) -> tuple[int, int]:
        """All calls, and the reads of an object that may go up to the end of the reply and come to nothing."""
        calls: list[str] = []
        sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
        try:
            with suppress(ReplyError):
                find_command(shape * (length // len(shape)))
        finally:
            sys.setprofile(None)
        return len(calls), calls.count(_Reading._skip_braces.__name__)

    (calls, reads), (more_calls, more_reads) = steps(4_000), steps(16_000)
    assert more_calls <= 5 * calls + 100
    assert max(reads, more_reads) <= MAX_BRACES + 1


def test_nesting_up_to_the_limit_is_read() -> None:
    levels = MAX_DEPTH - 1
    text = '{"a": ' + "[" * levels + "]" * levels + "}"
    assert read_object(text)[1] == len(text)
    with pytest.raises(UnreadableJson, match="levels deep"):
        read_object('{"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}")


# Native tool calls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "thoughts", "args"),
    [
        ('{"thoughts": ["Reading.", "It is named.", "- read"]}', Thoughts("Reading.", "It is named.", "- read"), {}),
        ('{"thoughts": {"text": "Reading.", "plan": ["read"]}}', Thoughts(text="Reading.", plan="- read"), {}),
        ('{"thoughts": "Reading.", "directory": "a"}', Thoughts("Reading."), {"directory": "a"}),
        ('{"thoughts": ["a", "b", "c", "d", "e", "f"]}', Thoughts("- a\n- b\n- c\n- d\n- e\n- f"), {}),
        ("{'directory': 'a\n',}", Thoughts(), {"directory": "a\n"}),  # repaired like a reply
        *((arguments, Thoughts(), {}) for arguments in ("", "  ", "{}", '{"thoughts": null}')),
    ],
)
def test_a_tool_call_brings_its_thoughts_as_an_argument(arguments: str, thoughts: Thoughts, args: Any) -> None:
    reply = understood("", ToolCall("list_files", arguments))
    assert (reply.call, reply.thoughts) == (Call("s1", "list_files", args), thoughts)


def test_text_beside_a_tool_call_stands_for_missing_thoughts_only() -> None:
    assert understood(" Let me look. ", ToolCall("list_files", "{}")).thoughts == Thoughts(text="Let me look.")
    own = ToolCall("list_files", '{"thoughts": {"text": "Mine."}}')
    assert understood("Beside.", own).thoughts == Thoughts(text="Mine.")


ONE = ToolCall("read_file", '{"filename": "a"}')


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([ToolCall("read_file", '["a.txt"]')], ["'read_file'", "one JSON object"]),
        ([ToolCall("read_file", "a.txt")], ["'read_file'", "one JSON object"]),
        ([ToolCall("read_file", '{"filename": "a')], ["'read_file'", "line 1, column 14", "never closed"]),
        ([ToolCall("read_file", '{"filename": "a"} {"filename": "b"}')], ["'read_file'", "go on"]),
        ([ToolCall("read_file", '{"filename": "<filename>"}')], ["template"]),
        ([ToolCall("read_file", '{"thoughts": {}}')], ["'filename'", "missing"]),
        ([ToolCall("", "{}")], ["'name'"]),
        ([ONE, ToolCall("read_fil", '{"filename": "b"}')], ["None of the 2 commands", "'read_fil'"]),
        ([ToolCall("read_fil", "{}"), ONE], ["None of the 2 commands", "'read_fil'"]),
    ],
)
def test_unusable_tool_calls_are_refused_and_written_down_they_are_refused_again(
    calls: list[ToolCall], words: list[str]
) -> None:
    reason = refusal("", *calls)
    for word in words:
        assert word in reason
    assert refusal(written(Completion("beside", Usage(), tuple(calls))))


def test_several_tool_calls_are_taken_in_their_order() -> None:
    reply = understood("First.", ONE, ToolCall("list_files", '{"thoughts": {"text": "Then."}}'), ONE)
    assert (reply.call, reply.thoughts.text) == (Call("s1", "read_file", {"filename": "a"}), "First.")
    (text,) = reply.more
    then = understood(text)
    assert (then.call, then.thoughts.text, then.more) == (Call("s1", "list_files", {}), "Then.", ())


@pytest.mark.parametrize(
    "calls",
    [
        (ToolCall("read_file", '{"filename": "a", "thoughts": {"text": "é"}}'),),
        (ToolCall("list_files", ""),),
        (ToolCall("read_file", "{'filename': 'a'}"), ToolCall("read_file", "{'filename': 'a'}")),
    ],
)
def test_a_tool_call_written_down_reads_the_same(calls: tuple[ToolCall, ...]) -> None:
    completion = Completion("beside", Usage(), calls)
    first = parse(completion, REGISTRY.check, "s1")
    assert parse(Completion(written(completion), Usage()), REGISTRY.check, "s1") == first


# What a command receives is what the model wrote -----------------------------------------------------------------

SYNTAX = "\"'\\\n\r\t{}[]:,#/`<>\u201c\u201d\u2018\u2019"
TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(SYNTAX)))
REAL = TEXTS.filter(lambda text: not (text.strip().startswith("<") and text.strip().endswith(">")))  # no placeholder
QUOTED = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", '"""': '"""', "'''": "'''"}


def document(text: str) -> dict[str, Any]:
    return {
        "thoughts": asdict(Thoughts(text=text)),
        "command": {"name": "write_to_file", "args": {"filename": "x", "text": text}},
    }


def assert_exact(reply: str, text: str) -> None:
    assert understood(reply).call.args == {"filename": "x", "text": text}


@given(REAL, st.booleans(), st.sampled_from([None, 2]))
@example('{"command": {"name": "do_nothing", "args": {}}}', True, None)
@example("a\n\n", False, None)
def test_json_in_fences_and_prose_survives(text: str, ascii_only: bool, indent: int | None) -> None:
    reply = json.dumps(document(text), ensure_ascii=ascii_only, indent=indent)
    assert_exact(reply, text)
    assert_exact(f"Sure, here {{it}} is:\n```json\n{reply}\n```\nWhat's next?", text)


@given(REAL)
@example("\x1b \x00 \U000e0001 é ' \" \\x41 \\")
def test_a_python_dict_survives(text: str) -> None:
    assert_exact(repr(document(text)), text)
    assert_exact(f"```python\nreply = {document(text)!r}\n```", text)


@given(REAL)
def test_raw_control_characters_survive(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    reply = '{"command": {"name": "write_to_file", "args": {"filename": "x", "text": "%s"},},}'
    assert_exact(reply.replace("%s", escaped), text)


@given(REAL, st.sampled_from(sorted(QUOTED)), st.booleans())
@example("a', 'filename': 'y", "'", False)
@example("a' 'filename': 'y", "'", False)
def test_text_pasted_between_any_quotes_survives_or_is_refused(text: str, opening: str, escaped: bool) -> None:
    """Pasted text that holds the very syntax of the object around it cannot be told from that syntax."""
    body = text.replace("\\", "\\\\") if escaped and len(opening) == 1 else text
    assume(escaped or "\\" not in text)
    closing = QUOTED[opening]
    for quote in {opening, closing} - {"'''", '"""'}:
        body = body.replace(quote, "\\" + quote) if escaped else body
    reply = '{"command": {"name": "write_to_file", "args": {"text": %s, "filename": "x"}}}'
    with suppress(ReplyError):
        assert_exact(reply.replace("%s", opening + body + closing), text)


@given(TEXTS, st.data())
def test_a_reply_cut_off_anywhere_is_never_run(text: str, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from([json.dumps, repr]))
    reply = form(document(text))
    assert refusal(reply[: data.draw(st.integers(0, len(reply) - 1))])


@given(st.text())
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        understood(text)
    except ReplyError as error:
        assert str(error)


@given(st.text("{}[]\"'\\:,# \n/aux1.<think>command", max_size=60))
def test_json_like_noise_is_understood_or_refused(noise: str) -> None:
    for text in (noise, '{"command": ' + noise, '{"command": {"name": "do_nothing", "args": {}}' + noise):
        try:
            assert understood(text).call.name == "do_nothing"
        except ReplyError as error:
            assert str(error)
