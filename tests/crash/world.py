"""A run that holds each kind of command, driven by a model that goes by the log, and what must hold after a crash.

Most commands leave a trace that can be counted: a line with their own number in `trace.txt`. The model takes its next
command from the number of thoughts in the log, so that whoever resumes a run gets the command that is due.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm
from loopback_site import Site
from processes import processes_with
from server import Answer, Command, Reply, Request, ScriptedServer, command
from website import page

PROGRAM = (sys.executable, "-m", "autoagent")
PATIENCE = 300.0  # seconds, under strace on a machine that does much else
HELPER = "Scribe"  # the sub-agent
GOAL = ("--ai-goal", "Do each of the things")
MAY_HAVE_RUN = "may have run"
# Of the commands those that are simply run again.
LOOKS = {"read_file", "list_files", "search_in_files", "recall", "list_agents", "do_nothing", "task_complete"}


def traced(line: str, file: str = "trace.txt") -> str:
    return f"echo {line} >> {file}"


def script(site: str) -> list[Command]:
    """The commands of the run in their order; those that leave a trace leave their own number, from 1."""
    return [
        command("write_to_file", filename="a.txt", text="alpha beta\n"),
        command("append_to_file", filename="trace.txt", text="2\n"),
        command("edit_file", filename="a.txt", old="beta", new="gamma"),
        command("read_file", filename="a.txt"),
        command("list_files", directory="."),
        command("search_in_files", pattern="gam+a", directory="."),
        command("delete_file", filename="b.txt"),
        command("memory_add", text="The ferry leaves at 7:40."),
        command("recall", query="When does the ferry leave?"),
        command("sleep"),
        command("execute_shell", command_line=traced("11")),
        command("execute_python_code", code="open('trace.txt', 'a').write('12\\n')", name="twelve.py"),
        command("execute_shell_popen", command_line=traced("13", "background.txt")),
        command("append_to_file", filename="trace.txt", text="14\n"),
        command("start_agent", name=HELPER, task="Write one line", prompt="Append one line to trace.txt, then finish."),
        command("list_agents"),
        command("append_to_file", filename="trace.txt", text="17\n"),
        command("do_nothing"),
        command("browse_website", url=f"{site}/lighthouse", question="How high is it?"),
        command("append_to_file", filename="trace.txt", text="20\n"),
        command("task_complete", reason="It is done."),
    ]


TRACED = {2: "2", 11: "11", 12: "12", 14: "14", 17: "17", 20: "20"}
HELPER_TRACE = "helper"


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it had said by then."""

    code: int
    out: str
    err: str

    @property
    def acknowledged(self) -> list[dict[str, Any]]:
        """The events that were shown as JSON, whole lines only."""
        lines = self.out.splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    @property
    def text(self) -> str:
        return " ".join((self.out + self.err).split())


class World:
    """A folder to start in, a scripted server and a site; `model` answers by the log in the folder.

    `commands` are what it answers, the last of them for ever; `traced` says which of them leaves which line.
    """

    def __init__(self, folder: Path, server: ScriptedServer, site: Site) -> None:
        self.folder = folder
        self.server = server
        self.commands = script(site.url("").rstrip("/"))
        self.traced = TRACED
        self.env = {
            **warm.LOADED_WITH,
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TZ": "UTC",
            "MEMORY_DISTIL": "off",  # the script has the replies of the run alone
            "OPENAI_BASE_URL": server.base_url,
            "SMART_LLM": "test-model",
            "EMBEDDING_MODEL": "test-embedder",
            "AUTOAGENT_WINDOW": "60000",
            "AUTOAGENT_ALLOW_HOSTS": site.url("").removeprefix("http://").rstrip("/"),
        }
        self.workspace.mkdir(parents=True)
        (self.workspace / "trace.txt").write_text("")
        (self.workspace / "b.txt").write_text("to be deleted\n")

    @property
    def workspace(self) -> Path:
        return self.folder / "autoagent_workspace"

    @property
    def state(self) -> Path:
        return self.folder / ".autoagent"

    @property
    def runs(self) -> list[str]:
        """The runs in whose log at least the start stands."""
        return sorted(path.parent.name for path in self.state.glob("runs/*/events.jsonl") if b"\n" in path.read_bytes())

    def log(self) -> list[dict[str, Any]]:
        """The whole lines of the one run's log; empty where there is none."""
        if not self.runs:
            return []
        lines = (self.state / "runs" / self.runs[-1] / "events.jsonl").read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def model(self, request: Request) -> Answer:
        """The scripted server's one answer for all."""
        log = self.log()
        if request.asked_by(HELPER):
            said = sum(event["type"] == "thought" and bool(event["agent"]) for event in log)
            mine = command("append_to_file", filename="trace.txt", text=f"{HELPER_TRACE}\n")
            return mine if said == 0 else command("task_complete", reason="Written.")
        if "tools" not in request.body:  # a command's own prompt: a dream, an answer from a page
            return Reply("It is 41 metres high.")
        done = sum(event["type"] == "thought" and not event["agent"] for event in log)
        return self.commands[min(done, len(self.commands) - 1)]

    def run(self, *arguments: str, tracer: Sequence[str] = (), answers: str = "") -> Ended:
        """Run the program to its end, with these answers; `tracer` is the strace that follows it, where one does."""
        return Ended(*warm.run(arguments, self.folder, self.env, answers, None, PATIENCE, tracer=tracer))

    def begin(self, *tracer: str) -> Ended:
        """The run, as JSON on its output."""
        return self.run(*GOAL, "-c", "--json", tracer=tracer)

    def go_on(self) -> Ended:
        """Resume the run; where nothing of it is on disk, begin it, and where it had finished, list it."""
        if any((e["type"], e["agent"], e.get("status")) == ("ended", "", "finished") for e in self.log()[-1:]):
            return self.run("runs")
        return self.run("resume", "-c") if self.runs else self.run(*GOAL, "-c")

    # What must hold ----------------------------------------------------------------------------------------------

    def check_crash(self, cut: Ended, *, power: bool = False) -> list[dict[str, Any]]:
        """What must hold as soon as the process is gone: the log is whole, and nothing acknowledged is lost.

        After a power cut what counts as acknowledged are steps: results, and whatever was written before them.
        """
        log = self.log()
        assert [event["seq"] for event in log] == list(range(len(log)))
        shown = [event for event in cut.acknowledged if event["seq"] >= 0]  # -1: the end of a run that could not begin
        if power:
            results = [at for at, event in enumerate(shown) if event["type"] == "returned" and not event["agent"]]
            shown = shown[: results[-1] + 1] if results else []
        by_seq = {event["seq"]: event for event in log}
        lost = [event for event in shown if by_seq.get(event["seq"]) != event]
        assert not lost, f"lost: {[(event['seq'], event['type']) for event in lost]}"
        return log

    def check_end(self, before: list[dict[str, Any]], resumed: Ended) -> None:
        """What must hold once the run was resumed to its end. `before` is the log as the crash left it."""
        assert resumed.code == 0, resumed.out[-3000:] + resumed.err
        assert "Traceback" not in resumed.out + resumed.err
        assert len(self.runs) == 1
        log = self.log()
        assert log[: len(before)] == before
        own = [event for event in log if not event["agent"]]
        begun = [event["call"] for event in own if event["type"] == "started"]
        calls = Counter(call["id"] for call in begun if call["name"] not in LOOKS)
        assert set(calls.values()) <= {1}, f"started twice: {calls}"
        unknown = [event for event in own if event["type"] == "returned" and not event["known"]]
        assert len(unknown) <= 1
        results = Counter(event["call_id"] for event in own if event["type"] == "returned")
        assert set(results.values()) <= {1}, f"returned twice: {results}"
        if unknown:
            assert MAY_HAVE_RUN in resumed.text
            later = [request.prompt for request in self.server.requests if request.body.get("tools")]
            assert any(MAY_HAVE_RUN in prompt for prompt in later), "the model was not told"
        self._check_traces(own)

    def _check_traces(self, own: list[dict[str, Any]]) -> None:
        lines = Counter((self.workspace / "trace.txt").read_bytes().replace(b"\0", b"").decode().splitlines())
        results = {event["call_id"]: event for event in own if event["type"] == "returned"}
        thoughts = [event["call"]["id"] for event in own if event["type"] == "thought"]
        assert len(thoughts) >= len(self.commands)
        for number, line in self.traced.items():
            result = results[thoughts[number - 1]]
            sure = result["known"] and not result["text"].startswith("Interrupted")
            times = {int(result["ok"])} if sure else {0, 1}
            assert lines[line] in times, f"{line}: {lines[line]} times, {result}"
        assert lines[HELPER_TRACE] <= 1
        assert set(lines) <= {*self.traced.values(), HELPER_TRACE}, lines
        behind = self.workspace / "background.txt"  # ended with the agent, whatever it has done by then
        assert not behind.exists() or behind.read_bytes().count(b"13") <= 1


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """A world of its own in an empty folder."""
    with ExitStack() as stack:
        made: list[World] = []
        server = stack.enter_context(ScriptedServer(lambda request: made[0].model(request)))
        site = stack.enter_context(Site())
        site.pages["/lighthouse"] = page("The lighthouse", "<p>The lighthouse is 41 metres high.</p>")
        made.append(World(folder, server, site))
        yield made[0]


def wait_until_gone(mark: str, seconds: float) -> list[int]:
    """The processes with this mark that are still there after so long."""
    end = time.monotonic() + seconds
    while (left := processes_with(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return left
