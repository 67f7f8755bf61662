"""D34 to D40: replies that are no command, several, or one that was not asked for."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator

import pytest
from cli.driver import FINISH, GOAL, PATIENCE
from server import Command, Reply, Request, Step, command

from .driver import Section, drive, room

pytestmark = pytest.mark.usefixtures("either")

KEY = "sk-test-0123456789abcdefghijklmnop"
PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 8 + "\n-----END PRIVATE KEY-----"


def text(command: str, before: str = "", after: str = "") -> Reply:
    return Reply(f'{before}{{"thoughts": {{"text": "I act."}}, "command": {command}}}{after}')


def write(name: str) -> str:
    return f'{{"name": "write_to_file", "args": {{"filename": "{name}", "text": "x"}}}}'


DRAFT = '{"thoughts": {"text": "No."}, "command": {"name": "delete_file", "args": {"filename": "kept"}}}'

# Written replies that have one meaning, and write the file they are named after. More of them in replies/cases.yaml.
READABLE: dict[str, Step] = {
    "remarks": text(write("remarks"), "I don't have it yet, so I write it: ", "\nI'll wait for the result."),
    "beside a quotation": text(write("beside a quotation"), f"> {DRAFT}\n\nThat I ignore.\n\n"),
    "swallowed": text(write("swallowed"), f"Or {DRAFT}, or {{'command': ...}}?\n</think>\n\n"),
    "content": text(write("content").replace('"x"', '"<think></think>x"')),
    "newline": text('{"name": "write_to_file", "args": {"filename": "newline", "text": "a\nb"}}'),
    "twice": Reply(f'{{"command": {write("twice")}}}\n{{"command": {write("twice")}}}'),
}

# Written replies that are refused, with what the refusal names.
UNREADABLE: dict[str, tuple[Step, str]] = {
    "empty": (Reply(""), "empty"),
    "cut": (Reply(f'{{"command": {write("cut")}}}', finish="length"), "cut off"),
    "two": (Reply(f'{{"command": {write("one")}}}\n{{"command": {write("two")}}}'), "second, different command"),
    "half a character": (text('{"name": "write_to_file", "args": {"filename": "\\ud800", "text": ""}}'), "\\ud800"),
    "draft after words": (Reply(f"Okay. <think>I could {DRAFT}, but no.</think> I need more information."), "no JSON"),
    "amid prose": (Reply(f"The page has {DRAFT} in its text."), "cited"),
    "quoted": (Reply(f"The page says '{DRAFT}'. I will not do that."), "cited"),
}

# Tool calls that are refused.
CALLS: dict[str, tuple[Step, str]] = {
    "D35 extra": (command("read_file", filename="kept", force=True), "'force'"),
    "D35 type": (command("read_file", filename=["kept"]), "'filename' of read_file must be of type string"),
    "D35 object": (command("write_to_file", filename="x", text={"a": 1}), "'text' of write_to_file"),
    "D35 truth": (command("recall", query=True), "'query' of recall"),
    "D36 unknown": (command("destroy_everything"), "destroy_everything"),
    "D36 near": (command("delete_fil", filename="kept"), "Did you mean delete_file"),
    "D36 bidi": (command("delete_file\u202e", filename="kept"), "There is no command 'delete_file\\u202e'"),
    "D36 homoglyph": (command("d\u0435lete_file", filename="kept"), "There is no command"),
    "D38 one of several": (
        Reply("", (("delete_file", '{"filename": "kept"}'), ("read_fil", '{"filename": "kept"}'))),
        "None of the 2 commands",
    ),
}

GOOD_CALLS: dict[str, Step] = {
    "D36 case": command("WRITE_TO_FILE", filename="case", text="x"),
    "D36 label": command("Write to file", filename="label", text="x"),
    "D35 number": command("web_search", query="", num_results="3"),
    "D38 both": Reply("I say something too.", (("write_to_file", '{"filename": "both", "text": "x"}'),)),
    "D38 twice": Reply("", (("write_to_file", '{"filename": "same", "text": "x"}'),) * 2),
    "D38 legacy": Reply("", (("write_to_file", '{"filename": "legacy", "text": "x"}'),), legacy=True),
}


@pytest.fixture(scope="module")
def written(either: None) -> Iterator[Section]:
    with room() as made:
        made.write("autoagent_workspace/kept", "kept")
        replies = {name: reply for name, (reply, _) in UNREADABLE.items()} | READABLE
        rejects = ("tools", "response_format")
        yield drive(made, replies, "-m", "local", apart=True, rejects=rejects)


@pytest.fixture(scope="module")
def called(either: None) -> Iterator[Section]:
    with room() as made:
        made.write("autoagent_workspace/kept", "kept")
        replies = {name: reply for name, (reply, _) in CALLS.items()} | GOOD_CALLS
        yield drive(made, replies, "-m", "local", apart=True)


@pytest.mark.slow
def test_d34_the_run_went_on_and_only_what_was_clear_was_run(written: Section) -> None:
    written.assert_went_on()
    files = {path.name: path.read_text() for path in written.room.workspace.iterdir()}
    assert files == {
        **{"kept": "kept", **dict.fromkeys(READABLE, "x")},
        **{"newline": "a\nb", "content": "<think></think>x"},
    }


@pytest.mark.parametrize("name", UNREADABLE)
def test_d34_d35_a_reply_that_is_no_command_is_refused(written: Section, name: str) -> None:
    assert not written[name].ran
    written[name].assert_refused(UNREADABLE[name][1])


@pytest.mark.slow
def test_d35_d36_d38_the_run_went_on(called: Section) -> None:
    called.assert_went_on()
    files = {path.name: path.read_text() for path in called.room.workspace.iterdir()}
    assert files == {"kept": "kept", **dict.fromkeys(("case", "label", "both", "same", "legacy"), "x")}
    assert called["D35 number"].ran, "a number in quotes is one"


@pytest.mark.parametrize("name", CALLS)
def test_d35_d36_d38_a_call_that_cannot_be_meant_is_refused(called: Section, name: str) -> None:
    assert not called[name].ran
    called[name].assert_refused(CALLS[name][1])


SEVERAL = Reply(
    "One after the other.",
    (
        ("write_to_file", '{"filename": "one", "text": "1"}'),
        ("write_to_file", '{"filename": "../two", "text": "2"}'),
        ("write_to_file", '{"filename": "three", "text": "3"}'),
        ("delete_file", '{"filename": "one"}'),
    ),
)


@pytest.mark.slow
def test_d38_several_calls_of_a_reply_are_authorised_one_by_one() -> None:
    with room() as made, made.served(SEVERAL, *FINISH) as server:
        before = made.picture()
        made.succeed("-m", "none", *GOAL, stdin="y\ny\ny\nKeep that file.\ny\ny\n")
        log = made.log()
        decided = [(event["step"], event["allowed"]) for event in log if event["type"] == "decided"]
        assert decided[:4] == [(1, True), (2, True), (3, True), (4, False)]
        results = [(event["step"], event["ok"]) for event in log if event["type"] == "returned"]
        assert results[:3] == [(1, True), (2, False), (3, True)]
        assert len(server.requests) == 1 + len(FINISH)
        told = [said["content"] for said in server.requests[1].body["messages"] if said["role"] in ("user", "tool")]
        assert ["wrote" in told[1].lower(), "../two" in told[2], "three" in told[3]] == [True] * 3, told
        assert "Keep that file." in told[5]  # after what stands for the result of the call
        assert {path.name for path in made.workspace.iterdir()} == {"one", "three"}
        assert made.picture() == before


def test_d34_unusable_replies_in_a_row_end_the_run() -> None:
    with room() as made:
        section = drive(made, {str(number): Reply("no") for number in range(6)}, code=8)
        assert "3 unusable replies in a row" in section.done.text
        assert len(section.server.requests) == 3


@pytest.mark.slow
def test_d39_a_finish_ends_sub_agents_and_their_depth_and_number_are_limited() -> None:
    """Digger starts Spades, each of which tries to start one; the run finishes when there may be no more of them."""
    full = threading.Event()
    told: set[str] = set()  # who knows that there may be no more of them: Digger, and each of the Spades

    def answer(request: Request) -> Command:
        if "\nYou are Boss" in request.prompt:
            asked = sum("\nYou are Boss" in one.prompt for one in server.requests)
            if asked == 1:
                return command("start_agent", name="Digger", task="dig", prompt="Dig")
            assert full.wait(PATIENCE)
            return FINISH[0]
        time.sleep(0.05)
        knows = "not handed on" if "\nYou are Spade" in request.prompt else "as many as AUTOAGENT_AGENTS allows"
        if knows in request.prompt:
            told.update(re.findall(r"^1\. Dig.*", request.prompt, re.MULTILINE)[:1])
            if len(told) == 5:
                full.set()
            return command("write_to_file", filename=f"{len(server.requests)}.txt", text="dug")  # or it would be stuck
        return command("start_agent", name="Spade", task="dig", prompt=f"Dig {len(server.requests)}")

    flags = ("--ai-name", "Boss", "--ai-role", "who has others dig", *GOAL)
    with room() as made, made.served(answer) as server:
        done = made.succeed("-c", "-m", "none", *flags)
        log = made.log()
    spades = ["1.1", "1.2", "1.3", "1.4"]
    assert {event["agent"] for event in log} == {"", "1", *spades}, "two levels below the run, and five at once"
    for spade in spades:
        refused = [event["problem"] for event in log if event["type"] == "rejected" and event["agent"] == spade]
        assert "'start_agent' cannot be used here" in refused[0]
    ended = [event for event in log if event["type"] == "ended"]
    assert [event["agent"] for event in ended[-2:]] == ["1", ""], "the run ends last, and after its sub-agents"
    assert [event["status"] for event in ended] == ["stopped"] * 5 + ["finished"]
    assert {event["agent"] for event in ended} == {"", "1", *spades}
    assert log[-1] == ended[-1]
    for agent in ("Digger (1)", *(f"Spade ({key})" for key in spades)):
        assert f"{agent}: I have ended (stopped)" in done.text


def test_d40_a_key_in_an_argument_is_masked_before_it_is_stored() -> None:
    with room() as made:
        reply = command("write_to_file", filename="a.txt", text=f"key {KEY}\n{PRIVATE_KEY}\n")
        section = drive(made, {"key": reply}, env={"OPENAI_API_KEY": KEY})
        section.assert_went_on()
        kept = "".join(path.read_text() for path in made.state.rglob("*.jsonl"))
        for place in (kept, section.done.text, json.dumps([r.body for r in section.server.requests])):
            assert KEY not in place
            assert "MIIEvQIBADAN" not in place
            assert "[masked]" in place
