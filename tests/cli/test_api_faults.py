"""Every fault of an API that we could think of, through the real program: it goes on, or stops in time with one line.

Around each fault stand commands that leave a line in a file: what was done before it is whole, and is not done again.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import FINISH, GOAL, PATIENCE, Home
from processes import wait_for
from raw_endpoint import RawFault, Relay, drips, reset, says, silent
from server import Broken, Command, Fault, Reply, ScriptedServer, command

BUSY = 20.0  # seconds that a busy machine may add to the time that is stated
RUN = (*GOAL, "-c", "-m", "none")
AT_ONCE = {"retry-after": "0"}  # and what the program adds for jitter, up to a second


def overflow(status: int = 400) -> Fault:
    return Fault(status, "This model's maximum context length is 4096 tokens.", "context_length_exceeded")


def quota(status: int = 429) -> Fault:
    return Fault(status, "You exceeded your current quota, please check your plan.", "insufficient_quota")


def used(usage: Any) -> Command:
    return Command("do_nothing", {}, {"text": "I think."}, usage)


def mark(name: str) -> Command:
    """A command that leaves a line."""
    return command("append_to_file", filename="done.txt", text=f"{name}\n")


@pytest.fixture
def served(served: Home) -> Home:
    """A home whose model is the scripted server, with the file for the lines."""
    served.write("autoagent_workspace/done.txt", "")
    return served


def marks(home: Home) -> list[str]:
    return home.read("autoagent_workspace/done.txt").splitlines()


def seconds_of(step: int, log: list[dict[str, Any]]) -> float:
    """From the first prompt of a step to the reply to it that could be used or not."""
    events = [event for event in log if event["step"] == step]
    first = next(event["t"] for event in events if event["type"] == "prompted")
    return next(event["t"] for event in events if event["type"] in ("thought", "rejected")) - first


# What passes; statuses, and what a server asks to wait, are in test_openai and test_retry --------------------------

RECOVERS: dict[str, dict[str, tuple[list[Any], float]]] = {  # the faults, and within how many seconds it goes on
    "streams": {
        "502 with a page": ([Fault(502, body=b"<html>Bad gateway</html>", headers=AT_ONCE)], 1),
        "connection lost": ([Broken("drop")], 1),
        "stream that ends early": ([Broken("end")], 1),
        "stream with garbage": ([Broken("garbage")], 1),
        "error in a stream": ([Broken("error")], 1),
        "error in a stream that is a text": ([Broken("error", error="overloaded")], 1),  # type: ignore[arg-type]
        "answer that is no chat": ([{"hello": "world"}], 1),
        "answer without choices": ([{"object": "chat.completion", "choices": []}], 1),
        "choices that are none": ([{"choices": ["what?"]}], 1),
    },
    "no retry": {
        "stream without [DONE]": ([Broken("undone")], 0),
        "answer that is null": ([{"choices": [{"message": None, "finish_reason": "stop"}]}], 0),
        "reply cut off by its limit": ([Reply('{"thoughts": {"text": "I', finish="length")], 0),
        "reply cut off by a filter": ([Reply('{"thoughts": {"te', finish="content_filter")], 0),
        "reply of nothing": ([Reply("")], 0),
        "no stream though asked for": ([Reply("Hm.", streams=False)], 0),
        "usage missing": ([used(None)], 0),
        "usage negative": ([used({"prompt_tokens": -5, "completion_tokens": -1})], 0),
        "usage of words": ([used({"prompt_tokens": "many", "completion_tokens": None})], 0),
        "prompt too long, once": ([overflow()], 0),
        "prompt too long, twice": ([overflow(), overflow()], 0),
        "413": ([Fault(413, "Request too large")], 0),
        "a parameter refused": ([Fault(400, "Unsupported parameter: 'stream_options'", param="stream_options")], 0),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["streams", "no retry"])
def test_what_passes_is_waited_out(served: Home, server: ScriptedServer, kind: str) -> None:
    for name, (faults, _) in RECOVERS[kind].items():
        server.add(*faults, mark(name))
    server.add(*FINISH)
    done = served.succeed(*RUN)
    assert done.err == ""
    assert marks(served) == list(RECOVERS[kind])
    log = served.log()
    spent = [event["usage"] for event in log if "usage" in event]
    assert all(usage["prompt"] > 0 and usage["completion"] >= 0 for usage in spent), spent
    within = [seconds for _, seconds in RECOVERS[kind].values()]
    if all(within):  # each fault is a step of its own
        assert [step for step in range(1, 1 + len(within)) if seconds_of(step, log) > within[step - 1] + BUSY] == []
        retried = {event["step"] for event in log if event["type"] == "retried"}
        assert retried == set(range(1, 1 + len(within)))


def test_the_last_of_two_usage_blocks_counts(served: Home, server: ScriptedServer) -> None:
    blocks = [{"prompt_tokens": 1, "completion_tokens": 1}, {"prompt_tokens": 7, "completion_tokens": 3}]
    server.add(used(blocks), *FINISH)
    assert served.run(*RUN).code == 0
    thought = next(event for event in served.log() if event["type"] == "thought")
    assert (thought["usage"]["prompt"], thought["usage"]["completion"]) == (7, 3)


@pytest.mark.slow
def test_what_the_server_asks_to_wait_is_waited_and_told(served: Home, server: ScriptedServer) -> None:
    asked: list[float] = []

    def refuse(_: Any) -> Fault:
        asked.append(time.time())
        return Fault(429, "slow down", headers={"retry-after": "2"})

    server.add(refuse, *FINISH)
    done = served.succeed(*RUN)
    log = served.log()
    went_on = next(event["t"] for event in log if event["type"] == "retried")
    assert went_on - asked[0] >= 2 - 0.01
    assert "WAITING: 127.0.0.1 answered 429: slow down; asking again in" in " ".join(done.text.split())


HTTP = b"HTTP/1.1 200 OK\r\n"
EVENT_STREAM = HTTP + b"Content-Type: text/event-stream\r\n"
WHOLE = json.dumps(
    {"choices": [{"message": {"content": "Let me think."}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9}}
).encode()

RAW: dict[str, RawFault] = {
    "reset": reset,
    "closed without a word": says(b""),
    "no HTTP": says(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "a status that is none": says(b"HTTP/1.1 abc What\r\n\r\n"),
    "headers without end": says(HTTP + b"X-Padding: " + b"x" * 300_000),
    "a chunk of no size": says(EVENT_STREAM + b"Transfer-Encoding: chunked\r\n\r\nzz\r\ndata\r\n"),
    "a body shorter than said": says(HTTP + b"Content-Type: application/json\r\nContent-Length: 999\r\n\r\n{}"),
    "a zipped body that is none": says(EVENT_STREAM + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"),
    "an empty body": says(HTTP + b"Content-Length: 0\r\n\r\n"),
    "no content": says(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "a page of a hotel's network": says(HTTP + b"Content-Type: text/html\r\nContent-Length: 13\r\n\r\n<h1>Pay!</h1>"),
}
CIRCLE = says(b"HTTP/1.1 307 Go\r\nLocation: /v1/chat/completions\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
ROUNDS = 21  # one more than are followed


@pytest.mark.slow
def test_what_is_no_answer_is_asked_again(served: Home, server: ScriptedServer) -> None:
    names = [*RAW, "a circle of redirections"]
    server.add(*map(mark, names), *FINISH)
    faults = [turn for fault in RAW.values() for turn in (fault, None)] + [CIRCLE] * ROUNDS
    with Relay(server, *faults, spared=1) as relay:  # the probe
        done = served.run(*RUN, env={"OPENAI_BASE_URL": relay.base_url})
    assert done.code == 0, done.text
    assert marks(served) == names
    log = served.log()
    assert [name for step, name in enumerate(names, 1) if seconds_of(step, log) > 1 + BUSY] == []
    retried = {event["step"] for event in log if event["type"] == "retried"}
    assert [name for step, name in enumerate(names, 1) if step not in retried] == []


@pytest.mark.slow
def test_an_answer_that_comes_a_byte_at_a_time_is_waited_for(served: Home, server: ScriptedServer) -> None:
    kind = b"Content-Type: application/json\r\nConnection: close\r\n"
    head = HTTP + kind + b"Content-Length: %d\r\n\r\n" % len(WHOLE)
    server.add(mark("before"), *FINISH)
    with Relay(server, drips(head + WHOLE, 0.01), spared=2) as relay:
        done = served.run(*RUN, env={"OPENAI_BASE_URL": relay.base_url})
    assert done.code == 0
    assert [event["reason"] for event in served.log() if event["type"] == "retried"] == []


# What does not pass ----------------------------------------------------------------------------------------------

STOPS: dict[str, tuple[list[Any], int, str, float]] = {  # faults, exit code, what is said, within how many seconds
    "400 without a body": ([Fault(400, body=b" ")], 1, "answered 400", 0),
    "401": ([Fault(401, "Incorrect API key provided: sk-abcdef123")], 3, "requires a key (401", 0),
    "no credit, said in a stream": (
        [Broken("error", error={"message": "no more", "code": "insufficient_quota"})], 1, "has no credit left", 0),
    "429, after a thousand years": (
        [Fault(429, "busy", headers={"retry-after": "Mon, 01 Jan 3001 00:00:00 GMT"})], 1, "it asks to wait", 0),
    "prompt too long, again and again": ([overflow()] * 9, 1, "the prompt is too long for the model", 0),
    "503 for good": ([Fault(503, "down", headers=AT_ONCE)] * 99, 1, "503: down (tried ", 4),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", STOPS)
def test_what_does_not_pass_stops_the_run_with_one_line(served: Home, server: ScriptedServer, name: str) -> None:
    faults, code, line, within = STOPS[name]
    server.add(mark("before"), *faults)
    began = time.monotonic()
    patience = ("--patience", "3") if within else ()
    done = served.run(*RUN, *patience)
    assert done.code == code, done.text
    assert time.monotonic() - began < within + BUSY
    assert marks(served) == ["before"]
    assert line in " ".join(done.text.split()), done.text
    assert "sk-abcdef123" not in done.text
    ended = served.log()[-1]
    assert (ended["type"], ended["reason"].count("\n")) == ("ended", 0)
    assert line in ended["reason"]
    assert len(ended["reason"]) < 400
    assert f"Resume: autoagent resume {served.runs[0]}" in done.text


def test_a_model_that_is_not_there_gets_the_names_of_those_that_are(served: Home, server: ScriptedServer) -> None:
    server.models = [{"id": name} for name in ("aya", "bert", "clip", "dolly", "elmo", "test-modal", "x" * 99, "a b")]
    server.add(Fault(404, "no such model"))
    done = served.run(*RUN)
    said = "set --model or SMART_LLM to one of: test-modal, aya, bert, clip, dolly and 3 more"
    assert (done.code, said in " ".join(done.text.split())) == (3, True), done.text


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "code"), [(quota(), 1), (Fault(401, "no"), 3)], ids=["no credit", "key revoked"])
def test_a_fault_at_step_50_loses_nothing(served: Home, server: ScriptedServer, fault: Fault, code: int) -> None:
    server.add(*(mark(f"{n}") for n in range(1, 50)), fault)
    done = served.run(*RUN)
    assert done.code == code, done.text
    before = served.log()
    server.add(*FINISH)
    served.succeed("resume", "-c")
    assert served.log()[: len(before)] == before
    assert marks(served) == [f"{n}" for n in range(1, 50)]
    assert [event["step"] for event in served.log() if event["type"] == "started"] == [*range(1, 50), 51]


@contextlib.contextmanager
def self_signed(folder: Path) -> Iterator[str]:
    """The base URL of a server whose certificate nobody has signed but itself."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "k.pem", "-out", "c.pem"]
    subject = ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", "req", "-x509", *key, *subject], cwd=folder, capture_output=True, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "c.pem", folder / "k.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
                    tls.recv(1)

        threading.Thread(target=accept, daemon=True).start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}/v1"
        listening.shutdown(socket.SHUT_RDWR)


def test_an_unknown_certificate_is_never_accepted(home: Home, server: ScriptedServer, tmp_path: Path) -> None:
    home.point_at(server)
    with self_signed(tmp_path) as base_url:
        done = home.run(*RUN, env={"OPENAI_BASE_URL": base_url})
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "no secure connection to 127.0.0.1: " in done.err
    assert "self-signed certificate" in done.err or "self signed certificate" in done.err


# What is not there, and what is silent ---------------------------------------------------------------------------


def lines_with_times(process: subprocess.Popen[str], began: float) -> tuple[list[str], float]:
    """What the process says until it ends, and the longest it was silent."""
    said, silences, last = [], [0.0], began
    assert process.stdout
    for line in process.stdout:
        now = time.monotonic()
        silences.append(now - last)
        last = now
        said.append(line)
    return said, max(silences)


@pytest.mark.slow
def test_a_server_that_takes_the_connection_and_says_nothing(served: Home, server: ScriptedServer) -> None:
    server.add(mark("before"), *FINISH)
    with Relay(server, *[silent] * 5, spared=2) as relay:
        began = time.monotonic()
        process = served.start(*RUN, env={"OPENAI_BASE_URL": relay.base_url, "AUTOAGENT_SILENCE": "4"})
        with process:
            said, longest = lines_with_times(process, began)
        assert process.returncode == 1
    text = " ".join("".join(said).split())
    told = re.findall(r"WORKING: waiting for 127\.0\.0\.1, which has said nothing for [23] s", text)
    assert 3 <= len(told) <= 5, "at half the time of each attempt, if the machine is not too busy for it"
    assert text.count("WAITING: 127.0.0.1 said nothing for 4 s") == 1 and text.count("WAITING: ") == 4
    assert "127.0.0.1 said nothing for 4 s (tried 5 times in " in text
    assert longest < 8 + BUSY, "the longest wait between two attempts, and a start"
    assert time.monotonic() - began < 5 * 4 + 15 + BUSY


@pytest.mark.slow
def test_a_silence_is_broken_and_an_answer_after_it_taken(served: Home, server: ScriptedServer) -> None:
    def late(_: Any) -> Command:
        time.sleep(2.2)
        return command("do_nothing")

    server.add(mark("before"), late, *FINISH)
    done = served.succeed(*RUN, env={"AUTOAGENT_SILENCE": "4"})
    assert "WORKING: waiting for 127.0.0.1, which has said nothing for 2 s (about 2 s)" in " ".join(done.text.split())
    assert "WAITING" not in done.text


@pytest.mark.parametrize("fault", [silent, drips(HTTP + b"X-Drip: " + b"x" * 9999, 0.1)], ids=["silence", "a drip"])
def test_ctrl_c_ends_the_longest_wait(served: Home, server: ScriptedServer, fault: RawFault) -> None:
    server.add(mark("before"), *FINISH)
    with Relay(server, fault, spared=2) as relay:
        process = served.start(*RUN, "--json", env={"OPENAI_BASE_URL": relay.base_url})
        assert process.stdout
        event: dict[str, Any] = {}
        while (event.get("step"), event.get("type")) != (2, "prompted"):
            event = json.loads(process.stdout.readline())
        time.sleep(0.5)
        process.terminate()
        asked = time.monotonic()
        process.communicate(timeout=PATIENCE)
        assert time.monotonic() - asked < 2 + BUSY
        assert process.returncode == 130
        assert served.run("resume", "-c").code == 0
    assert marks(served) == ["before"]


@pytest.mark.parametrize("after", [0, 1], ids=["storing", "recalling"])
def test_a_signal_ends_the_wait_for_an_embedder(served: Home, server: ScriptedServer, after: int) -> None:
    server.add(mark("before"), *FINISH)
    server.embedding_script = [embedded([1.0] * 32)] * after + [Broken("silence")]
    process = served.start(*GOAL, "-c")
    wait_for(lambda: len(server.embeddings) > after)
    process.terminate()
    asked = time.monotonic()
    process.communicate(timeout=PATIENCE)
    assert time.monotonic() - asked < 2 + BUSY
    assert process.returncode == 130
    server.closing.set()
    assert served.run("resume", "-c").code == 0
    assert marks(served) == ["before"]


# Embeddings ------------------------------------------------------------------------------------------------------


def embedded(*vectors: list[Any]) -> dict[str, Any]:
    return {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]}


EMBEDDINGS: dict[str, tuple[Any, str]] = {
    "another dimension": (embedded([1.0] * 31), "gave an embedding of 31 values instead of 32"),
    "no number": (embedded([float("nan")] * 32), "gave an embedding that is not numbers"),
    "words": (embedded(["x"] * 32), "gave an embedding that is not numbers"),
    "zeros": (embedded([0.0] * 32), "gave an empty embedding"),
    "nothing": (embedded([]), "gave an empty embedding"),
    "none": ({"data": []}, "gave 0 embeddings for 1 texts"),
    "no list": ({"data": "none"}, "gave 0 embeddings for 1 texts"),
    "500": (Fault(500, "down", headers={"x-should-retry": "false"}), "answered 500: down"),
    "no credit": (quota(), "the account has no credit left"),
}


@pytest.mark.slow
def test_a_fault_of_the_embedder_costs_a_recall_and_no_memory(served: Home, server: ScriptedServer) -> None:
    server.add(mark("before"), *(mark(name) for name in EMBEDDINGS), *FINISH)
    assert served.run(*GOAL, "-c", "-l", "1").code == 4, "what is remembered now has 32 values"
    each_twice = [fault for fault, _ in EMBEDDINGS.values() for _ in ("storing", "recalling")]
    server.embedding_script = [embedded([1.0] * 32), *each_twice]
    served.succeed("resume", "-c")
    assert marks(served) == ["before", *EMBEDDINGS]
    told = [event["reason"] for event in served.log() if event["type"] == "retried"]
    assert [line for _, line in EMBEDDINGS.values() if not any(line in reason for reason in told)] == []
    assert len(told) == len({line for _, line in EMBEDDINGS.values()}), "what lasts is told once"
    texts = [memory["text"] for memory in json.loads(served.run("memory", "list", "--json").out)]
    assert [name for name in EMBEDDINGS if not any(f"text='{name}\\n'" in text for text in texts)] == []
    assert json.loads(served.run("memory", "stats", "--json").out)["dim"] == 32


def test_a_key_that_the_embedder_refuses_stops_the_run(served: Home, server: ScriptedServer) -> None:
    server.add(mark("before"), *FINISH)
    assert served.run(*GOAL, "-c", "-l", "1").code == 4
    server.embedding_script = [Fault(401, "who?")]
    done = served.run("resume", "-c")
    assert done.code == 3
    assert "127.0.0.1 requires a key (401: who?); set OPENAI_API_KEY" in " ".join(done.text.split())
    assert served.run("resume", "-c").code == 0
    assert marks(served) == ["before"]
