"""A native tool call stays one in the prompts that follow: a call of the assistant, and what its tool said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from driver import FINISH, GOAL, Home
from server import Fault, Reply, Request, ScriptedServer, command

RUN = (*GOAL, "-m", "none")
WRITE, READ = "write_to_file", "read_file"


def calls(*named: tuple[str, Mapping[str, Any]], text: str = "") -> Reply:
    return Reply(text, tuple((name, json.dumps(args)) for name, args in named), "tool_calls")


def roles(request: Request) -> list[str]:
    return [message["role"] for message in request.body["messages"]]


def messages(request: Request, role: str) -> list[dict[str, Any]]:
    return [message for message in request.body["messages"] if message["role"] == role]


def called(message: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    functions = [call["function"] for call in message["tool_calls"]]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def is_answered(sent: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each call is followed by what its tool said, in order, before anybody else speaks."""
    waiting: list[str] = []
    for message in sent:
        if message["role"] == "tool":
            if not waiting or message["tool_call_id"] != waiting.pop(0):
                return False
        elif waiting:
            return False
        waiting += [call["id"] for call in message.get("tool_calls", ())]
    return not waiting


def explains_every_prompt(home: Home, server: ScriptedServer) -> None:
    verified = home.succeed("replay", home.runs[-1], "--verify")
    assert "each matches the prompt that was sent" in verified.text


def test_a_step_is_a_call_and_what_its_tool_said(served: Home, server: ScriptedServer) -> None:
    server.add(command(WRITE, filename="a.txt", text="one"), command(READ, filename="a.txt"), *FINISH)
    served.succeed(*RUN, "-c")
    third = server.requests[2]
    assert roles(third) == ["system", "user", "assistant", "tool", "assistant", "tool", "user"]
    first, second = messages(third, "assistant")
    assert called(first) == [(WRITE, {"thoughts": ["I think."], "filename": "a.txt", "text": "one"})]
    assert called(second)[0][0] == READ
    assert (first["content"], second["content"]) == (None, None)
    assert "one" in messages(third, "tool")[1]["content"]
    assert '"command"' not in third.prompt, "no call is shown as text"
    assert is_answered(third.body["messages"])
    assert all(len(call["id"]) == 9 and call["id"].isalnum() for call in first["tool_calls"])
    assert "Answer" in messages(third, "user")[-1]["content"]
    explains_every_prompt(served, server)


def test_the_calls_of_one_reply_are_those_of_one_message(served: Home, server: ScriptedServer) -> None:
    both = calls((WRITE, {"filename": "a.txt", "text": "one"}), (READ, {"filename": "a.txt"}), text="First both.")
    server.add(command("do_nothing"), both, *FINISH)
    served.succeed(*RUN, "-c")
    last = server.requests[2]
    assert roles(last) == ["system", "user", "assistant", "tool", "assistant", "tool", "tool", "user"]
    assert [name for name, _ in called(messages(last, "assistant")[1])] == [WRITE, READ]
    assert is_answered(last.body["messages"])
    explains_every_prompt(served, server)


def test_a_resumed_run_shows_the_same_calls(served: Home, server: ScriptedServer) -> None:
    several = calls(*((WRITE, {"filename": "a.txt", "text": str(n)}) for n in range(3)))
    server.add(several)
    assert served.run(*RUN, "-c", "-l", "2").code == 4
    server.add(command(READ, filename="a.txt"), *FINISH)
    served.succeed("resume", "-c")
    first = server.requests[1]
    assert [args["text"] for _, args in called(messages(first, "assistant")[0])] == ["0", "1", "2"]
    assert is_answered(first.body["messages"])
    assert server.requests[2].body["messages"][:3] == first.body["messages"][:3]
    explains_every_prompt(served, server)


def test_what_a_person_says_is_the_users_and_drops_the_rest(served: Home, server: ScriptedServer) -> None:
    several = calls((WRITE, {"filename": "a.txt", "text": "one"}), (WRITE, {"filename": "b.txt", "text": "two"}))
    server.add(several, command("do_nothing"))
    served.run(*RUN, stdin="Call it c.txt.\n")
    second = server.requests[1]
    assert roles(second) == ["system", "user", "assistant", "tool", "user"]
    assert messages(second, "tool")[0]["content"].startswith("The command was not run.\n\nNot run: the further")
    assert "Human feedback: Call it c.txt." in messages(second, "user")[-1]["content"]
    assert "Not run: the further commands of that reply (1)." in second.prompt
    explains_every_prompt(served, server)


def test_a_call_that_cannot_be_used_is_one_that_was_not_used(served: Home, server: ScriptedServer) -> None:
    server.add(calls(("no_such_command", {"filename": "a"})), Reply("I will."), *FINISH)
    served.succeed(*RUN, "-c")
    third = server.requests[2]
    assert roles(third) == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert called(messages(third, "assistant")[0])[0][0] == "no_such_command"
    assert "That reply was not used" in messages(third, "tool")[0]["content"]
    assert messages(third, "assistant")[1]["content"] == "I will."
    explains_every_prompt(served, server)


def test_commands_and_instructions_take_a_bounded_share_of_each_prompt(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    assert served.run(*RUN, "-c").code == 0
    (prompted,) = (event for event in served.log() if event["type"] == "prompted")
    assert 1_500 < prompted["tokens"] <= 2_500


@pytest.mark.slow
def test_a_long_argument_keeps_head_and_tail_and_is_valid_json(served: Home, server: ScriptedServer) -> None:
    lines = "\n".join(f'{n}: "quoted" \\ text' for n in range(4_000))
    server.add(command(WRITE, filename="a.txt", text=lines), *FINISH)
    served.succeed(*RUN, "-c")
    ((_, args),) = called(messages(server.requests[1], "assistant")[0])
    assert args["text"].startswith('0: "quoted"') and args["text"].endswith("text") and "left out" in args["text"]
    assert (args["filename"], args["thoughts"]) == ("a.txt", ["I think."])
    window = served.log()[0]["window"]
    prompted = [event for event in served.log() if event["type"] == "prompted"]
    assert prompted[1]["tokens"] > prompted[0]["tokens"] + 900 and all(event["tokens"] < window for event in prompted)
    explains_every_prompt(served, server)


def test_the_tokens_of_calls_are_counted(served: Home, server: ScriptedServer) -> None:
    text = " oak" * 1500
    server.add(command(WRITE, filename="a.txt", text=text), *FINISH)
    assert served.run(*RUN, "-c").code == 0
    first, second = [event["tokens"] for event in served.log() if event["type"] == "prompted"][:2]
    assert second - first > 1500


@pytest.mark.parametrize("takes_up", [False, True])
def test_a_model_without_tools_reads_text_also_of_a_run_that_it_takes_up(
    served: Home, server: ScriptedServer, takes_up: bool
) -> None:
    server.add(command(WRITE, filename="a.txt", text="one"))
    if takes_up:
        assert served.run(*RUN, "-c", "-l", "1").code == 4
    server.ignores = ("tools",)
    server.add(*FINISH)
    served.succeed(*(("resume", "-c", "--model", "another-model") if takes_up else (*RUN, "-c")))
    assert roles(server.requests[1]) == ["system", "user", "assistant", "user"]
    assert json.loads(messages(server.requests[1], "assistant")[0]["content"])["command"]["name"] == WRITE
    explains_every_prompt(served, server)


def test_a_log_from_before_is_explained_as_it_was(served: Home, server: ScriptedServer) -> None:
    """An older program showed calls as text: its logs do not say `native`, and their prompts still follow from them."""
    server.ignores = ("tools",)
    server.add(command(WRITE, filename="a.txt", text="one"), *FINISH)
    assert served.run(*RUN, "-c").code == 0
    log = served.state / "runs" / served.runs[0] / "events.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    del lines[0]["native"]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    explains_every_prompt(served, server)


def test_an_endpoint_that_takes_tools_but_no_tool_messages_gets_text(served: Home, server: ScriptedServer) -> None:
    def refuses(request: Request) -> Fault | None:
        wrong = next((message["role"] for message in request.body["messages"] if message["role"] == "tool"), None)
        return Fault(400, f"Invalid role: {wrong}") if wrong else None

    server.refuses = refuses
    server.add(command(WRITE, filename="a.txt", text="one"), command("do_nothing"), *FINISH)
    served.succeed(*RUN, "-c")
    assert [roles(request) for request in server.requests[1:3]] == [
        ["system", "user", "assistant", "user"],
        ["system", "user", "assistant", "user", "assistant", "user"],
    ]
    assert "tools" in server.requests[2].body
    assert len(server.refused) == 1, "it is kept what this endpoint does not take"
    explains_every_prompt(served, server)
