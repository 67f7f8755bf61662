"""Ctrl-C, SIGTERM, SIGHUP, a closed terminal, the end of the input, at any time: a clean end, with nothing left behind.

A run with programs in the background, a sub-agent and a program that would never end is signalled at a random time,
or its input ends at a random question. What it has started is found by a number in the command lines that nothing else
on the machine has.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import statistics
import subprocess
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash.world import GOAL, PATIENCE, PROGRAM, World, wait_until_gone, world
from processes import take_usual_signals
from server import Command, command

SECONDS = 2.0  # to the clean end, as this process is given them: the agent gets no more on a machine that is busy
BUSY = 3.0  # more, as there it may get even less; half of the trials are to do without
LAST = 1.0  # seconds after the start, or the start of a command, in which the signal comes

ENDINGS = ("SIGTERM", "SIGHUP", "Ctrl-C", "Ctrl-C twice", "closed terminal", "end of input")


def endless(mark: str) -> list[Command]:
    """Commands of each kind that can be cut off; the last one never ends."""
    return [
        command("append_to_file", filename="trace.txt", text="1\n"),
        command("execute_shell_popen", command_line=f"sleep {mark}"),
        command("execute_shell", command_line="echo 3 >> trace.txt"),
        command("execute_shell_popen", command_line=f"setsid sh -c 'sleep {mark} & sleep {mark}'"),
        command("memory_add", text="The ferry leaves at 7:40."),
        command("start_agent", name="Scribe", task="Write", prompt="Append one line to trace.txt, then finish."),
        command("execute_python_code", code="open('trace.txt', 'a').write('7\\n')", name="seven.py"),
        command("search_in_files", pattern="x+", directory="."),
        command("execute_shell", command_line=f"sleep 0.2; (setsid sleep {mark} &) ; sleep {mark}"),
    ]


REST = [command("do_nothing"), command("task_complete", reason="It is done.")]
TRACED = {1: "1", 3: "3", 7: "7"}


@dataclass(frozen=True)
class Trial:
    """What came of one: how long the end took, the exit code, and who was left.

    It came so many seconds after so many commands had begun, or at the question after so many answers.
    """

    what: str
    commands: int
    after: float
    seconds: float
    code: int
    survivors: list[int]
    err: str


class Terminal:
    """A process on a pseudo-terminal of its own, whose output is read by nobody but this."""

    def __init__(self, home: World, *arguments: str) -> None:
        self._master, slave = os.openpty()

        def take_terminal() -> None:
            take_usual_signals()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        # A connection may be cut before anybody could close it.
        env = {**home.env, "TERM": "xterm", "PYTHONWARNINGS": "error,ignore::ResourceWarning"}
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments], cwd=home.folder, env=env, stdin=slave, stdout=slave,
            stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=take_terminal,
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(self._master, False)

    def read_for(self, seconds: float) -> None:
        """Take what is written to the terminal, so that the process does not wait for its reader."""
        end = time.monotonic() + seconds
        while self._master >= 0 and time.monotonic() < end and self.process.poll() is None:
            try:
                os.read(self._master, 65536)
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                return

    def read_until(self, commands: int, home: World) -> None:
        """The same until so many commands of the run's own agent have begun."""
        end = time.monotonic() + PATIENCE
        while begun(home) < commands and time.monotonic() < end:
            self.read_for(0.05)

    def read_to_the_end(self) -> float:
        """The same until the process ends: the processor time that takes a thread that does nothing but look."""
        began, end = time.thread_time(), time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError):  # nothing is there, or nobody is left
                if self._master >= 0:
                    os.read(self._master, 65536)
        return time.thread_time() - began

    def press(self, key: bytes) -> None:
        try:
            os.write(self._master, key)
        except OSError:  # it has gone
            return

    def close(self) -> None:
        if self._master >= 0:
            os.close(self._master)
        self._master = -1


def begun(home: World) -> int:
    return sum(event["type"] == "started" and not event["agent"] for event in home.log())


def end_at(home: World, mark: str, what: str, commands: int, after: float) -> Trial:
    """Start the run, end it so after so many seconds from the start of a command, and wait."""
    terminal = Terminal(home, *GOAL, "-c")
    process = terminal.process
    try:
        terminal.read_until(commands, home)
        terminal.read_for(after)
        if what == "closed terminal":
            terminal.close()
        elif what.startswith("Ctrl-C"):
            terminal.press(b"\x03")
            if what == "Ctrl-C twice":
                terminal.read_for(0.1)
            else:  # the first brings back the question, which the user answers in due time
                terminal.read_for(1.0)
            terminal.press(b"\x03")
        else:
            process.send_signal(signal.Signals[what])
        seconds = terminal.read_to_the_end()
        process.kill()
        survivors = wait_until_gone(mark, PATIENCE)
        _, err = process.communicate()
        return Trial(what, commands, after, seconds, process.returncode, survivors, err)
    finally:
        terminal.close()
        process.kill()
        process.wait()
        assert process.stderr
        process.stderr.close()


def answer(home: World, mark: str, answers: int) -> Trial:
    """Say yes to so many questions; at the next one the input has ended, at a time that nobody sees from outside."""
    ended = home.run(*GOAL, answers="y\n" * answers)
    return Trial("end of input", answers, 0.0, 0.0, ended.code, wait_until_gone(mark, PATIENCE), ended.err)


def wrong_with(seed: int, within: float = SECONDS + BUSY) -> tuple[Trial, str]:
    """One trial and what was wrong with it, '' for nothing. It may take so many seconds to end."""
    chance = random.Random(seed)
    mark = f"3{chance.randrange(10**7):07d}.{os.getpid()}"
    commands, after = chance.randrange(1 + len(endless(mark))), chance.uniform(0.0, LAST)
    what = ENDINGS[seed % len(ENDINGS)]
    with tempfile.TemporaryDirectory(prefix="signal") as folder, world(Path(folder, "home").resolve()) as home:
        home.commands, home.traced = endless(mark), TRACED
        if what == "end of input":
            trial = answer(home, mark, min(commands, 8))  # the last command would never end
        else:
            trial = end_at(home, mark, what, commands, after)
        before = home.log()
        if trial.survivors:
            return trial, f"left behind: {trial.survivors}"
        if trial.seconds > within:
            return trial, "it took too long"
        if "Traceback" in trial.err and before:
            return trial, trial.err
        gone = what == "closed terminal" and trial.code == 1 and "output cannot be written" in trial.err
        code = 5 if what == "end of input" else 130
        if before and not gone and (trial.code, before[-1]["type"]) != (code, "ended"):
            return trial, f"exit code {trial.code}, the last event {before[-1]['type']}: {trial.err}"
        done = sum(event["type"] == "thought" and not event["agent"] for event in before)
        home.commands = [*home.commands[: max(done, 8)], *REST] if done < 9 else [*home.commands, *REST]
        try:
            home.check_end(before, home.go_on())
        except AssertionError as error:
            return trial, str(error)
    return trial, ""


@pytest.mark.slow
def test_a_signal_and_the_end_of_the_input_end_the_run_and_all_that_it_started() -> None:
    tried = [wrong_with(seed, within=PATIENCE) for seed in (24, 53)]  # beside other tests nothing is quick
    assert [trial.what for trial, _ in tried] == ["SIGTERM", "end of input"]
    assert [(trial, wrong) for trial, wrong in tried if wrong] == []


@pytest.mark.slow
def test_many_signals_at_random_times() -> None:
    """AUTOAGENT_SIGNAL_TRIALS=200 tries as many; CI has no time for them all."""
    tried = [wrong_with(seed) for seed in range(100, 100 + int(os.environ.get("AUTOAGENT_SIGNAL_TRIALS", "15")))]
    assert [(trial, wrong) for trial, wrong in tried if wrong] == []
    assert statistics.median(trial.seconds for trial, _ in tried) < SECONDS
