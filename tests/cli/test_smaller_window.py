"""A run that is taken up with a smaller window: every prompt fits it, also the first one."""

from __future__ import annotations

import pytest
from driver import FINISH, GOAL, Home
from server import Fault, Request, ScriptedServer, command

from autoagent.text.tokens import TOKENS_PER_MESSAGE, counter

COUNT = counter("")
SMALL = 8192
MODELS = ({"id": "large", "max_model_len": 128_000}, {"id": "small", "max_model_len": SMALL})


@pytest.fixture
def begun(home: Home, server: ScriptedServer) -> Home:
    """A run whose newest step, a long program with a long output, is as long as a large window shows one."""
    server.models = MODELS
    home.point_at(server, "large")
    home.env["AUTOAGENT_WINDOW"] = ""
    lines = "".join(f"# line {n} of a long text\n" for n in range(4000))
    program = f"{lines}print(open(__file__).read())"
    server.add(command("execute_python_code", name="long.py", code=program))
    assert home.run(*GOAL, "-m", "none", "-c", "-l", "1").code == 4
    return home


def tokens(request: Request) -> int:
    tools = str(request.body.get("tools", ""))
    calls = "".join(str(message.get("tool_calls", "")) for message in request.body["messages"])
    texts = [message["content"] or "" for message in request.body["messages"]]
    return sum(COUNT(text) + TOKENS_PER_MESSAGE for text in texts) + COUNT(calls) + COUNT(tools)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["resume", "fork"])
def test_the_newest_step_is_shown_in_the_room_of_the_smaller_window(
    begun: Home, server: ScriptedServer, how: str
) -> None:
    server.add(*FINISH)
    asked = len(server.requests)
    again = ["resume"] if how == "resume" else ["fork", begun.runs[0], "--at", "1"]
    begun.succeed(*again, "--model", "small", "-c")
    prompts = server.requests[asked:]
    assert "line 0 of a long text" in prompts[0].prompt
    assert [tokens(prompt) for prompt in prompts if tokens(prompt) > SMALL * 4 // 5] == []
    newest = next(run for run in begun.runs if how == "resume" or run != begun.runs[0])
    assert begun.run("replay", newest, "--verify").code == 0


@pytest.mark.slow
def test_a_prompt_that_is_found_too_long_is_shorter_at_each_retry(begun: Home, server: ScriptedServer) -> None:
    overflow = Fault(400, "This model's maximum context length is 4096 tokens.", "context_length_exceeded")
    asked = len(server.requests)
    server.add(overflow, overflow, *FINISH)
    done = begun.succeed("resume", "-c")
    first, second, third = map(tokens, server.requests[asked : asked + 3])
    assert first > second > third
    assert " ".join(done.text.split()).count("maximum context length is 4096 tokens; the history is cut") == 2
    assert begun.run("replay", begun.runs[0], "--verify").code == 0


@pytest.mark.slow
def test_what_the_user_has_said_stays_word_for_word(served: Home, server: ScriptedServer) -> None:
    served.env["AUTOAGENT_WINDOW"] = "8000"
    said = [
        f"Remember that the key of door {number * 4711} lies under the mat of door {number}." for number in range(5)
    ]
    server.add(*(command("write_to_file", filename=f"{number}.txt", text="text " * 400) for number in range(30)))
    served.run(*GOAL, stdin="".join(f"{words}\n" + "y\n" * 5 for words in said))
    assert [words for words in said if words not in server.requests[-1].prompt] == []
