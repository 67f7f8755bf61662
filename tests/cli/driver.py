"""Drives the program as a user does: real processes, with pipes or in a real pseudo-terminal, in a folder of their own.

A home is the world of one user: an empty folder to start in, an environment that names nothing but a scripted
server, and what the program leaves behind there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pexpect
import pyte
import warm
from processes import take_usual_signals, wait_until_it_rests
from server import Command, Request, ScriptedServer, command

ROOT = Path(__file__).parent.parent.parent
PROGRAM = [sys.executable, "-m", "autoagent"]
PATIENCE = 60  # seconds, on a machine that does much else; nothing waits that long where all is well

FINISH = (command("task_complete", reason="It is done."),)
GOAL = ("--ai-goal", "Do the thing")

TEAM_OF_TWO = """\
idea: Do the thing
roles:
  - {{name: Alice, profile: Worker, actions: [{{name: Work, instruction: Work, commands: [{0}]}}]}}
  - {{name: Bob, profile: Reader, watch: [Work], actions: [{{name: Read, instruction: Read, commands: [read_file]}}]}}
"""
"""A team file of which one role has a command, and the other one has not."""

NEXT = "What next? (Enter = done)"
READY = "\x1b[?2004h"  # the terminal is told to mark what is pasted: the editor reads from here on
_ANSI = re.compile(r"\x1b")


@dataclass(frozen=True)
class Done:
    """What came of a process."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Everything that was shown; a traceback or a colour code in it is a failure of the program."""
        text = self.out + self.err
        assert "Traceback" not in text, text
        assert not _ANSI.search(text), text
        return text

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events on stdout, which holds nothing else."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Home:
    """A user's folder and environment. `warm`: what runs to its end is a fork of what is loaded already (see warm)."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    warm: bool = False

    def point_at(self, server: ScriptedServer, model: str = "test-model") -> None:
        """Let the program use a scripted server, also to embed: that spares loading the embedded table."""
        self.env |= {"OPENAI_BASE_URL": server.base_url, "SMART_LLM": model, "EMBEDDING_MODEL": "test-embedder"}
        self.env["AUTOAGENT_WINDOW"] = "32000"  # large enough for all commands to be offered

    def pay(self, server: ScriptedServer, model: str) -> None:
        """The same for a model that has a price: a host elsewhere, reached through a proxy, as nothing here costs."""
        self.point_at(server, model)
        proxy = server.base_url.removesuffix("/v1")
        self.env |= {"OPENAI_BASE_URL": "http://models.example/v1", "HTTP_PROXY": proxy, "OPENAI_API_KEY": "k" * 20}

    def run(
        self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None, stdout: IO[str] | None = None
    ) -> Done:
        """Run the program to its end, with these lines on a pipe."""
        environment = self._environment(env)
        if self.warm and warm.fits(environment):
            return Done(*warm.run(arguments, self.folder, environment, stdin, stdout, PATIENCE))
        process = self.start(*arguments, env=env, stdout=stdout)
        out, err = process.communicate(stdin, timeout=PATIENCE)
        return Done(process.returncode, out or "", err)

    def exits(self, code: int, *arguments: str, **options: Any) -> Done:
        """Run the program, which has to exit with this code."""
        done = self.run(*arguments, **options)
        assert done.code == code, done.text
        return done

    def succeed(self, *arguments: str, **options: Any) -> Done:
        """Run the program, which has to exit with 0."""
        return self.exits(0, *arguments, **options)

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdout: IO[str] | None = None
    ) -> subprocess.Popen[str]:
        """Start the program and leave it running."""
        environment = self._environment(env)
        if self.warm and warm.fits(environment):
            return warm.Process(arguments, self.folder, environment, stdout)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*PROGRAM, *arguments], cwd=self.folder, env=environment, stdin=pipe, stdout=stdout or pipe, stderr=pipe,
            text=True, encoding="utf-8",
        )  # fmt: skip

    def terminal(self, *arguments: str, columns: int = 80, env: Mapping[str, str] | None = None) -> Session:
        """Start the program in a terminal."""
        self.write(".inputrc", "set enable-bracketed-paste off\n")  # of readline, where nothing else edits
        environment = self._environment({"TERM": "xterm-256color", **(env or {})})
        edits = "--plain" not in arguments and environment["TERM"] != "dumb"
        if self.warm and warm.fits(environment):
            size = (Session.ROWS, columns)
            process = warm.Terminal(arguments, self.folder, environment, size, PATIENCE)
            return Session(process, self.folder, columns, edits=edits)
        return Session.of([*PROGRAM, *arguments], self.folder, environment, columns, edits=edits)

    def fails(self, code: int, *arguments: str, says: str = "", **options: Any) -> Done:
        """Run the program, which has to exit with this code and to say this on stderr, however it breaks its lines."""
        done = self.run(*arguments, **options)
        assert (done.code, says in " ".join(done.err.split())) == (code, True), done.text
        return done

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        base = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TZ": "UTC"}
        base["MEMORY_DISTIL"] = "off"  # a script has the replies of the run alone
        return {**base, **warm.LOADED_WITH, **self.env, **(more or {})}

    # What is there afterwards ------------------------------------------------------------------------------------

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    @property
    def state(self) -> Path:
        return self.folder / ".autoagent"

    @property
    def runs(self) -> list[str]:
        """The ids of the runs, the last one written last: ids tell no order within a second."""
        logs = sorted((self.state / "runs").glob("*/events.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        return [path.parent.name for path in logs]

    def log(self, run: str | None = None) -> list[dict[str, Any]]:
        """The events of a run on disk, of the newest where none is named, without a line that is being written."""
        path = self.state / "runs" / (run or self.runs[-1]) / "events.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()]

    def offered(self) -> list[list[str]]:
        """The commands of each agent of the newest run that its own has started, besides those that end an agent."""
        starts = [event for event in self.log() if event["type"] == "run_started" and event["agent"]]
        return [[name for name in event["commands"] if name != "task_complete"] for event in starts]

    def ended(self, run: str | None = None) -> bool:
        """Say whether a run has come to its end: not only an agent in it, whose end stands in the same log."""
        return [(event["type"], event["agent"]) for event in self.log(run)[-1:]] == [("ended", "")]


class Hanging:
    """A reply that is not given before `leave`: while it hangs, the model thinks."""

    def __init__(self, answer: Command | None = None) -> None:
        self._answer = answer or command("do_nothing")
        self._asked = threading.Event()
        self._left = threading.Event()

    def __call__(self, request: Request) -> Command:
        self._asked.set()
        self._left.wait(PATIENCE)
        return self._answer

    def is_asked(self) -> None:
        assert self._asked.wait(PATIENCE), "the model was not asked"

    def leave(self) -> None:
        self._left.set()


class Session:
    """A person at a terminal that is as high as the whole session."""

    ROWS = 400

    def __init__(
        self, process: pexpect.spawn[str] | warm.Terminal, folder: Path, columns: int, *, edits: bool = False
    ) -> None:
        self._folder = folder
        self._edits = edits
        self.raw = ""
        self._screen = pyte.Screen(columns, self.ROWS)
        self._stream = pyte.Stream(self._screen)
        self._process = process
        self._process.delaybeforesend = None  # the driver waits for the question, not for the clock
        self._process.logfile_read = self

    @classmethod
    def of(
        cls, arguments: list[str], folder: Path, env: Mapping[str, str], columns: int, *, edits: bool = False
    ) -> Session:
        """A session with any command."""
        process = pexpect.spawn(
            arguments[0], arguments[1:], cwd=folder, env=dict(env), encoding="utf-8", timeout=PATIENCE,
            dimensions=(cls.ROWS, columns), preexec_fn=take_usual_signals,
        )  # fmt: skip
        return cls(process, folder, columns, edits=edits)

    def write(self, text: str) -> None:
        """Take what the program wrote to the terminal."""
        self.raw += text
        self._stream.feed(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def sees(self, text: str) -> None:
        """Wait until this comes after what was seen before; between its lines there may be codes of colour."""
        try:
            for line in text.splitlines():
                self._process.expect_exact(line)
        except (pexpect.TIMEOUT, pexpect.EOF):
            raise AssertionError(f"{text!r} did not come; the screen:\n{self.screen}") from None

    def types(self, line: str) -> None:
        self._process.send(line + "\r")

    def pastes(self, text: str) -> None:
        """Type much, while others read what is shown: a program waits for that before it reads on."""
        threading.Thread(target=self.types, args=(text,), daemon=True).start()

    def answers(self, question: str, *lines: str) -> None:
        """Wait for a question, and where lines are edited until the editor is there, then type it; for each line."""
        for line in lines:
            self.sees(question)
            if self._edits:
                self.sees(READY)  # only the editor's second drawing of the question comes after it
            self.types(line)

    def presses(self, key: str) -> None:
        self._process.send(key)

    def presses_ctrl_c(self) -> None:
        """As a person does, who cannot be so quick: readline misses a signal in the instant before it waits."""
        wait_until_it_rests(self._process.pid)
        self.presses("\x03")

    def answers_each(self, *dialogue: tuple[str, str]) -> None:
        for question, line in dialogue:
            self.answers(question, line)

    def ends(self) -> int:
        """Wait for the end of the program: its exit code, or the negative number of the signal that ended it.

        Where it is asked what comes next, that is nothing.
        """
        try:
            while self._process.expect_exact([NEXT, pexpect.EOF]) == 0:
                if self._edits:
                    self.sees(READY)
                self.types("")
        except pexpect.TIMEOUT:
            raise AssertionError(f"the program did not end; the screen:\n{self.screen}") from None
        self._process.close()
        assert "Traceback" not in self.raw, self.screen
        if self._process.exitstatus is None:
            return -int(self._process.signalstatus or 0)
        return int(self._process.exitstatus)

    def is_sent(self, number: int) -> None:
        """Send a signal."""
        self._process.kill(number)

    def is_closed(self) -> int:
        """Close the window, as when a connection is lost: the exit code."""
        if isinstance(self._process, warm.Terminal):
            self._process.hang_up()
        else:
            self._process.ptyproc.fileobj.close()
        self._process.wait()
        return int(self._process.exitstatus)

    def close(self) -> None:
        """End the program where a failed test left it running."""
        if self._process.isalive():
            self._process.kill(signal.SIGKILL)
        self._process.close()

    @property
    def screen(self) -> str:
        """What stands on the screen; ids, ports, seconds and the folder, which differ from run to run, made alike."""
        text = "\n".join(line.rstrip() for line in self._screen.display).rstrip() + "\n"
        text = text.replace(str(self._folder), "/home/user")
        text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "20260101-120000-abcd", text)
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
        return re.sub(r"\b\d(\d*) s\b(  +| --+|)", _no_time, text)


def _no_time(seconds: re.Match[str]) -> str:
    """Return 0 s, with the line or the gap behind it as long as it is for one digit."""
    return "0 s" + seconds[2] + seconds[2][-1:] * len(seconds[1])
