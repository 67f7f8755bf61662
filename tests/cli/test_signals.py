"""Ctrl-C, SIGTERM, SIGHUP, a closed terminal, the end of the input, at any time: a clean end, with nothing left behind.

A run with programs in the background, a sub-agent and a program that would never end is signalled at a random time.
What it has started is found by a number in the command lines that nothing else on the machine has.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import statistics
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash.world import GOAL, PATIENCE, PROGRAM, World, wait_until_gone, world
from server import Command, command

SECONDS = 2.0  # to the clean end
BUSY = 3.0  # more, on a machine that does much else; half of the trials are to do without
LAST = 3.5  # seconds after the start, in which the signal comes

ENDINGS = ("SIGTERM", "SIGHUP", "Ctrl-C", "Ctrl-C twice", "closed terminal")


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


REST = [command("do_nothing")] + [command("task_complete", reason="It is done.")] * 2
TRACED = {1: "1", 3: "3", 7: "7"}


@dataclass(frozen=True)
class Trial:
    """What came of one: how long the end took, the exit code, and who was left."""

    what: str
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
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*PROGRAM, *arguments], cwd=home.folder, env={**home.env, "TERM": "xterm"}, stdin=slave, stdout=slave,
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

    def press(self, key: bytes) -> None:
        try:
            os.write(self._master, key)
        except OSError:  # it has gone
            return

    def close(self) -> None:
        if self._master >= 0:
            os.close(self._master)
        self._master = -1


def end_at(home: World, mark: str, what: str, after: float) -> Trial:
    """Start the run, end it so after so many seconds, and wait."""
    terminal = Terminal(home, *GOAL, "-c")
    process = terminal.process
    try:
        terminal.read_for(after)
        began = time.monotonic()
        if what == "closed terminal":
            terminal.close()
        elif what.startswith("Ctrl-C"):
            terminal.press(b"\x03")
            if what == "Ctrl-C twice":
                terminal.read_for(0.1)
            else:  # the first brings back the question, which the user answers in due time
                terminal.read_for(1.0)
                began = time.monotonic()
            terminal.press(b"\x03")
        else:
            process.send_signal(signal.Signals[what])
        while process.poll() is None and time.monotonic() - began < PATIENCE:
            terminal.read_for(0.05)
            time.sleep(0.005)
        seconds = time.monotonic() - began
        process.kill()
        survivors = wait_until_gone(mark, 1.0)
        _, err = process.communicate()
        return Trial(what, after, seconds, process.returncode, survivors, err)
    finally:
        terminal.close()
        process.kill()
        process.wait()
        assert process.stderr
        process.stderr.close()


def wrong_with(seed: int) -> tuple[Trial, str]:
    """One trial and what was wrong with it, '' for nothing."""
    chance = random.Random(seed)
    mark = f"3{chance.randrange(10**7):07d}.{os.getpid()}"
    what, after = ENDINGS[seed % len(ENDINGS)], chance.uniform(0.0, LAST)
    with tempfile.TemporaryDirectory(prefix="signal") as folder, world(Path(folder, "home").resolve()) as home:
        home.commands, home.traced = endless(mark), TRACED
        trial = end_at(home, mark, what, after)
        before = home.log()
        if trial.survivors:
            return trial, f"left behind: {trial.survivors}"
        if trial.seconds > SECONDS + BUSY:
            return trial, "it took too long"
        if "Traceback" in trial.err and before:
            return trial, trial.err
        gone = what == "closed terminal" and trial.code == 1 and "output cannot be written" in trial.err
        if before and not gone and (trial.code, before[-1]["type"]) != (130, "ended"):
            return trial, f"exit code {trial.code}, the last event {before[-1]['type']}: {trial.err}"
        done = sum(event["type"] == "thought" and not event["agent"] for event in before)
        home.commands = [*home.commands[: max(done, 8)], *REST] if done < 9 else [*home.commands, *REST]
        try:
            home.check_end(before, home.go_on())
        except AssertionError as error:
            return trial, str(error)
    return trial, ""


def check(seeds: Iterable[int]) -> None:
    tried = [wrong_with(seed) for seed in seeds]
    failed = [(trial.what, round(trial.after, 3), round(trial.seconds, 1), wrong) for trial, wrong in tried if wrong]
    assert failed == []
    assert statistics.median(trial.seconds for trial, _ in tried) < SECONDS


@pytest.mark.slow
def test_a_signal_at_any_time_ends_the_run_and_all_that_it_started() -> None:
    check([ENDINGS.index("SIGTERM"), ENDINGS.index("Ctrl-C twice")])


@pytest.mark.slow
def test_many_signals_at_random_times() -> None:
    """AUTOAGENT_SIGNAL_TRIALS=200 tries as many; CI has no time for them all."""
    check(range(100, 100 + int(os.environ.get("AUTOAGENT_SIGNAL_TRIALS", "30"))))
