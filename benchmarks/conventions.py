"""Twenty-four moments of a first hour with four terminal agents: ours, aider, gptme and mini-swe-agent.

    python benchmarks/conventions.py [--aider PROGRAM] [--gptme PROGRAM] [--mini PROGRAM] [--only ROW]

Each is run as a user does, in a project of its own, with an endpoint on the loopback interface that fixes `calc.py` by
whatever way of editing the agent has asked for. Prints a table for docs/comparison.md. The programs are named by their
paths, in environments of their own; one that is not named is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import pexpect  # noqa: E402
from server import Answer, Fault, Reply, Request, ScriptedServer  # noqa: E402

WISH, BEFORE, AFTER = "fix calc.py", "x = 1\n", "x = 2\n"
SECRET_WORD = "heliotrope"  # in what is piped, named or asked next, looked for in the prompts
NEXT = f"now greet {SECRET_WORD}"
PATIENCE = 90.0  # seconds of one moment
QUIET, START = 8.0, 25.0  # seconds without a word, then it waits for the person; while it starts
KEY = "sk-conventions-0123456789"


@dataclass(frozen=True)
class Agent:
    """How an agent is called.

    `once` does one request without questions, `asks` with them; `prompt` waits for one. `accepts` are the keys that
    bring its edit to an end, after the question. `later` goes on in the next process, empty where nothing does.
    """

    name: str
    program: Sequence[str]
    once: Sequence[str]
    asks: Sequence[str]
    names: Callable[[str], Sequence[str]]  # the arguments that name a file
    prompt: Sequence[str]
    later: Sequence[str]
    accepts: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


def agents(named: Mapping[str, str | None]) -> list[Agent]:
    """Return ours, and those whose programs are named."""
    aider = ("--model", "openai/test-model", "--no-check-update", "--no-show-model-warnings", "--no-git",
             "--no-show-release-notes", "--no-auto-lint", "--edit-format", "whole")  # fmt: skip
    mini = ("-m", "openai/test-model", "-t", WISH)
    gptme = ("-m", "local/test-model")
    known = [
        Agent("autoagent", [sys.executable, "-m", "autoagent"], ("-m", "none", "-c", WISH), ("-m", "none", WISH),
              lambda name: ("-m", "none", "-c", f"{WISH} @{name}"), ("-m", "none"), ("-m", "none", "-c", "-r", NEXT),
              ("y", "y"), {"MEMORY_DISTIL": "off"}),
        Agent("aider", [named["aider"] or ""],
              (*aider, "--yes-always", "--message", WISH, "calc.py"), (*aider, "calc.py"),
              lambda name: (*aider, "--yes-always", "--message", WISH, "calc.py", "--read", name), (*aider, "calc.py"),
              (*aider, "--yes-always", "--restore-chat-history", "--message", NEXT, "calc.py"), ()),
        Agent("gptme", [named["gptme"] or ""], ("-n", *gptme, WISH), (*gptme, WISH),
              lambda name: ("-n", *gptme, WISH, name), gptme, ("-n", *gptme, "-r", NEXT), ("y",)),
        Agent("mini", [named["mini"] or ""], (*mini, "-y", "--exit-immediately"), mini,
              lambda name: (*mini, "-y", "--exit-immediately"), mini[:2], (), ("",),
              {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}),
    ]  # fmt: skip
    return [agent for agent in known if agent.program[0]]


def answer(request: Request) -> Answer:
    """Fix calc.py by the way of editing that the request speaks of."""
    if settings := setting_up(request):
        return settings
    body = json.dumps(request.body)
    tools = {tool["function"]["name"] for tool in request.body.get("tools") or ()}
    if "bash" in tools:
        done = "printf 'x = 2\\n' > calc.py && echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        return Reply("I fix it.", (("bash", json.dumps({"command": done})),), "tool_calls")
    if "write_to_file" in tools:
        if "Wrote " in body:
            return Reply("", (("task_complete", json.dumps({"reason": "It is fixed."})),), "tool_calls")
        return Reply("", (("write_to_file", json.dumps({"filename": "calc.py", "text": AFTER})),), "tool_calls")
    if "gptme" in body:
        return Reply("Done." if "Saved to" in body else f"```save calc.py\n{AFTER}```")
    return Reply(f"calc.py\n```\n{AFTER}```")


def setting_up(request: Request) -> Reply | None:
    """Answer the request for the settings of an agent, which only ours asks."""
    if "ends in GPT" not in json.dumps(request.body):
        return None
    return Reply(json.dumps({"name": "FixGPT", "role": "an AI that mends", "goals": [WISH]}))


def look_again(request: Request) -> Answer:
    """Look into the folder, whatever was seen in it before."""
    body = json.dumps(request.body)
    tools = {tool["function"]["name"] for tool in request.body.get("tools") or ()}
    for name, key in (("bash", "command"), ("execute_shell", "command_line")):
        if name in tools:
            return Reply("I look.", ((name, json.dumps({key: "ls"})),), "tool_calls")
    return setting_up(request) or Reply("I look.\n\n```shell\nls\n```" if "gptme" in body else "I look at calc.py.")


@dataclass
class Bench:
    """A project, a home and an endpoint for one moment of one agent."""

    agent: Agent
    folder: Path
    answer: Callable[[Request], Answer] = answer

    def __post_init__(self) -> None:
        self.server = ScriptedServer(lambda request: self.answer(request))
        self.over = threading.Event()

    def hang(self, request: Request) -> Answer:
        """Think until the moment is over."""
        if settings := setting_up(request):
            return settings
        self.over.wait(PATIENCE)
        return Fault(400)

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "LANG": "C.UTF-8", "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": self.server.base_url,
            "OPENAI_API_BASE": self.server.base_url, "SMART_LLM": "test-model", "EMBEDDING_MODEL": "builtin",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True", "AIDER_ANALYTICS": "false",
            **self.agent.env,
        }  # fmt: skip

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def fixed(self) -> bool:
        return (self.project / "calc.py").read_text().strip() == AFTER.strip()

    def run(self, *arguments: str, stdin: str = "", **env: str) -> tuple[int, str]:
        """Run to the end. Return the code and what was shown, -1 where that takes too long."""
        given = {name: value for name, value in {**self.env, **env}.items() if value}
        try:
            done = subprocess.run([*self.agent.program, *arguments], cwd=self.project, env=given, input=stdin,
                                  capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
        except subprocess.TimeoutExpired as late:
            return -1, (late.stdout or b"").decode() + (late.stderr or b"").decode()
        return done.returncode, done.stdout + done.stderr

    def opens(self, *arguments: str, **env: str) -> tuple[pexpect.spawn, str]:
        """Start at a terminal and wait until it waits. Return the process and what was shown."""
        program, *first = self.agent.program
        process = pexpect.spawn(
            program, [*first, *arguments], cwd=self.project, env={**self.env, **env}, encoding="utf-8",
            codec_errors="replace", dimensions=(40, 80),
        )  # fmt: skip
        return process, settled(process, START)

    def prompted(self, *words: str) -> bool:
        """Return whether a prompt has held all the words."""
        return any(all(word in json.dumps(one.body) for word in words) for one in self.server.requests)


def settled(process: pexpect.spawn, quiet: float = QUIET) -> str:
    """Return what is shown until nothing more comes, or for half of the patience. Spinners are not counted."""
    shown, still, until = "", 0.0, time.monotonic() + PATIENCE / 2
    while still < quiet and time.monotonic() < until:
        try:
            piece = process.read_nonblocking(65_536, timeout=1.0)
            shown += piece
            still = 0.0 if re.search(r"[A-Za-z]{3}", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piece)) else still + 0.2
        except pexpect.TIMEOUT:
            still += 1.0
        except pexpect.EOF:
            break
    return shown


def lines(text: str) -> int:
    return len([line for line in text.splitlines() if line.strip()])


def _help(bench: Bench) -> str:
    _, text = bench.run("--help")
    flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))
    return f"{lines(text)} lines, {len(flags)} flags"


def _typo(bench: Bench) -> str:
    code, text = bench.run("--modle", "x")
    named = "" if re.search(r"--model\b(?!s)", text) else "not "
    return f"exit {code}, {lines(text)} lines, the nearest flag is {named}named"


def _no_key(bench: Bench) -> str:
    code, text = bench.run(*bench.agent.once, OPENAI_API_KEY="", OPENAI_BASE_URL="", OPENAI_API_BASE="")
    return _said(code, text)


def _refused(bench: Bench) -> str:
    dead = "http://127.0.0.1:9/v1"
    code, text = bench.run(*bench.agent.once, OPENAI_BASE_URL=dead, OPENAI_API_BASE=dead)
    return _said(code, text)


def _said(code: int, text: str) -> str:
    trace = ", a traceback" if "Traceback (most recent call last)" in text else ""
    return (f"still trying after {PATIENCE:.0f} s" if code < 0 else f"exit {code}") + f", {lines(text)} lines{trace}"


def _once(bench: Bench) -> str:
    code, _ = bench.run(*bench.agent.once)
    return f"exit {code}, file {'fixed' if bench.fixed else 'not fixed'}"


def _pipe(bench: Bench) -> str:
    code, _ = bench.run(*bench.agent.once, stdin=f"{SECRET_WORD}\n")
    return "reaches the model" if bench.prompted(SECRET_WORD) else f"does not reach the model (exit {code})"


def _named(bench: Bench) -> str:
    (bench.project / "notes.md").write_text(f"{SECRET_WORD}\n")
    bench.run(*bench.agent.names("notes.md"))
    return "reaches the model" if bench.prompted(SECRET_WORD) else "no flag for it"


def _escapes(bench: Bench) -> str:
    _, text = bench.run(*bench.agent.once)
    return "none" if "\x1b[" not in text else f"{text.count(chr(27))} codes"


def _litter(bench: Bench) -> str:
    bench.run(*bench.agent.once)
    left = sorted(path.name for path in bench.project.iterdir() if path.name != "calc.py")
    return ", ".join(left) or "nothing"


def _asked(bench: Bench) -> tuple[pexpect.spawn, str]:
    """Bring an agent to the point where it has answered the request at a terminal."""
    process, shown = bench.opens(*bench.agent.asks)  # at a terminal of 80 columns
    if bench.agent.name == "aider":
        process.send(f"{WISH}\r")
        shown += settled(process)
    if bench.agent.name == "autoagent":
        process.send("y\r")
        shown += settled(process)
    return process, shown


def _asks(bench: Bench) -> str:
    process, shown = _asked(bench)
    process.close(force=True)
    if bench.fixed:
        return "edits at once"
    return "asks first" + (", with a diff" if "+x = 2" in re.sub(r"\x1b\[[0-9;]*m", "", shown) else "")


def _leaves(bench: Bench) -> str:
    process, _ = _asked(bench)
    process.send("\x04")
    shown = settled(process)
    ended = process.flag_eof or not process.isalive()
    process.close(force=True)
    resumes = "says how to go on" if re.search(r"resume|restore|--name", shown, re.I) else "does not say how to go on"
    return f"leaves, {resumes}" if ended else "stays"


def _undone(bench: Bench) -> str:
    bench.run(*bench.agent.once)
    if bench.agent.name != "autoagent":
        return "not from the command line"
    log = next(iter((bench.project / ".autoagent" / "runs").iterdir()))
    bench.run("undo", log.name)
    return "as it was" if not bench.fixed else "not undone"


def _assents(bench: Bench) -> str:
    process, _ = _asked(bench)
    asked, fixed = len(bench.server.requests), bench.fixed
    process.send("ok\r")
    settled(process)
    process.close(force=True)
    if len(bench.server.requests) > asked:
        return "it has run already, and is asked" if fixed else "is a comment: another request"
    return "runs it" if bench.fixed else "is asked again"


def _further(bench: Bench) -> str:
    process, _ = _asked(bench)
    for line in (*bench.agent.accepts, NEXT):
        process.send(f"{line}\r")
        settled(process)
    process.close(force=True)
    return "in the same conversation" if bench.prompted(WISH, SECRET_WORD) else "not in the same process"


def _later(bench: Bench) -> str:
    bench.run(*bench.agent.once)
    return _kept(bench, "the next request knows of it")


def _killed(bench: Bench) -> str:
    bench.answer = bench.hang
    nothing = subprocess.DEVNULL
    first = subprocess.Popen(
        [*bench.agent.program, *bench.agent.once], cwd=bench.project, env=bench.env,
        stdin=nothing, stdout=nothing, stderr=nothing,
    )  # fmt: skip
    until = time.monotonic() + PATIENCE
    while not bench.prompted(WISH) and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1)
    first.kill()
    first.wait()
    bench.server.requests.clear()
    bench.answer = answer
    return _kept(bench, "the request is still there")


def _kept(bench: Bench, kept: str) -> str:
    if not bench.agent.later:
        return "no flag for it"
    code, _ = bench.run(*bench.agent.later)
    return kept if bench.prompted(WISH, SECRET_WORD) else f"nothing is kept (exit {code})"


def _recalls(bench: Bench) -> str:
    process, _ = bench.opens(*bench.agent.prompt)
    process.send(f"{WISH}\r")
    settled(process)
    process.close(force=True)
    process, _ = bench.opens(*bench.agent.prompt)
    process.send("\x1b[A")
    shown = settled(process)
    process.close(force=True)
    return "brings it back" if WISH in shown else "brings nothing back"


def _completes(bench: Bench) -> str:
    process, _ = _asked(bench)
    process.send("/hel\t")
    shown = settled(process)
    process.close(force=True)
    return "completes it" if "/help" in shown else "does not complete it"


def _unknown(bench: Bench) -> str:
    process, _ = _asked(bench)
    asked = len(bench.server.requests)
    process.send("/hlep\r")
    shown = settled(process)
    process.close(force=True)
    if len(bench.server.requests) > asked:
        return "is sent to the model"
    return "the nearest is named" if "/help" in shown else "is said to be unknown"


def _interrupted(bench: Bench) -> str:
    bench.answer = bench.hang
    process, _ = _asked(bench)
    process.send("\x03")
    settled(process)
    stays = process.isalive() and not process.flag_eof
    process.close(force=True)
    return "stays, and asks" if stays else "leaves"


def _wrong_key(bench: Bench) -> str:
    return _faulty(bench, Fault(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key"))


def _no_model(bench: Bench) -> str:
    return _faulty(bench, Fault(404, "The model `test-model` does not exist", code="model_not_found"))


def _faulty(bench: Bench, fault: Fault) -> str:
    bench.answer = bench.server.on_probe = lambda request: fault
    code, text = bench.run(*bench.agent.once)
    return f"{_said(code, text)}{', the key is shown' if KEY in text else ''}"


def _colors(bench: Bench) -> str:
    process, shown = bench.opens(*bench.agent.asks, NO_COLOR="1")
    process.close(force=True)
    colors = re.findall(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m", shown)
    return f"{len(colors)} colors" if colors else "no colors"


def _repeats(bench: Bench) -> str:
    bench.answer = look_again
    code, _ = bench.run(*bench.agent.once)
    end = f"still asking after {PATIENCE:.0f} s" if code < 0 else f"exit {code}"
    return f"{len(bench.server.requests)} requests, {end}"


ROWS: Mapping[str, Callable[[Bench], str]] = {
    "`--help`": _help,
    "a mistyped flag": _typo,
    "no key": _no_key,
    "nobody at the address": _refused,
    "one request, nobody to ask": _once,
    "standard input beside it": _pipe,
    "a file named beside it": _named,
    "escape codes in a pipe": _escapes,
    "what is left in the project": _litter,
    "at a terminal, before an edit": _asks,
    "Ctrl-D there": _leaves,
    "the edit taken back later": _undone,
    "`ok` to the question": _assents,
    "a further request after the first": _further,
    "continued in the next process": _later,
    "killed in a request, then continued": _killed,
    "Up at the prompt of the next process": _recalls,
    "Tab after `/hel`": _completes,
    "`/hlep`": _unknown,
    "Ctrl-C while the model thinks": _interrupted,
    "a key that is wrong": _wrong_key,
    "a model that the endpoint lacks": _no_model,
    "`NO_COLOR` at a terminal": _colors,
    "a model that repeats one command": _repeats,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("aider", "gptme", "mini"):
        parser.add_argument(f"--{name}", metavar="PROGRAM", type=os.path.abspath)
    parser.add_argument("--only", metavar="ROW", help="rows that hold this text")
    given = parser.parse_args()
    found = agents(vars(given))
    print(f"| | {' | '.join(agent.name for agent in found)} |\n|{'---|' * (len(found) + 1)}")
    for row, look in ROWS.items():
        if given.only and given.only not in row:
            continue
        cells = []
        for agent in found:
            with tempfile.TemporaryDirectory(prefix="first", ignore_cleanup_errors=True) as name:
                folder = Path(name).resolve()
                for part in ("home", "project"):
                    (folder / part).mkdir()
                (folder / "project" / "calc.py").write_text(BEFORE)
                bench = Bench(agent, folder)
                with bench.server:
                    cells.append(look(bench))
                    bench.over.set()
        print(f"| {row} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
