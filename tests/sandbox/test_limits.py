"""What programs may take, and that nothing of them stays: each limit is reached from inside.

Every attack is bounded by itself too, in number and in time: a test that fails must not take the machine down.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from agent import Hold
from processes import PATIENCE, wait_for

from autoagent.sandbox.process import MB

# 2^11 processes, each of which ends by itself within half a minute
BOMB = "b() { [ $1 -gt 0 ] && { b $(($1 - 1)) & b $(($1 - 1)) & }; sleep 90; }; b 10"
# the same, with a session for each
SESSIONS = """
import os, time
for _ in range(10):
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
time.sleep(90)
"""
MEMORY = "b = bytearray(400_000_000); import time; time.sleep(20)"
CHILDREN = "import os, time; [os.fork() for _ in range(3)]; b = bytearray(40_000_000); time.sleep(20)"  # 8 of 40 MB
BUSY = "import time\nwhile time.process_time() < 200: pass"
START = 0.012  # seconds that a program takes to start, and some more
TRIALS = 40
DAEMON = "setsid sh -c 'setsid sleep {0} >/dev/null 2>&1 &'; sleep 0.2"


@pytest.fixture(params=["bubblewrap", "landlock", "none"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def running(word: str) -> bool:
    """Whether there is a process of `sleep` or bubblewrap with this argument, which no other has."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program, *arguments = place.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # gone meanwhile
            continue
        if program.endswith(("sleep", "bwrap")) and word in arguments:
            return True
    return False


def gone(word: str) -> bool:
    """Whether it ends in time, and stays away: of one that is just becoming a program nothing is to be seen."""
    end, looks = time.monotonic() + PATIENCE, 0
    while looks < 3 and time.monotonic() < end:
        looks = 0 if running(word) else looks + 1
        time.sleep(0.02)
    return looks == 3


@pytest.mark.parametrize("program", [MEMORY, CHILDREN], ids=["one", "children"])
def test_memory_of_the_whole_tree(kind: str, either_user: int | None, hold: Hold, program: str) -> None:
    done = hold(kind, either_user, memory_bytes=200 * MB).run("python3", "-c", program)
    assert done.limit == "200 MB of memory"


def test_memory_that_is_shared_counts_once(hold: Hold) -> None:
    program = "import os, time; b = bytearray(100_000_000); [os.fork() for _ in range(3)]; time.sleep(0.5)"
    assert hold("auto", memory_bytes=300 * MB).run("python3", "-c", program).status == 0


def test_files_in_memory_are_bounded(hold: Hold) -> None:
    agent = hold("bubblewrap", memory_bytes=64 * MB)
    for target in ("/tmp/big", "/dev/shm/big"):
        done = agent.run("dd", "if=/dev/zero", f"of={target}", "bs=1M", "count=100")
        assert b"No space left" in done.output, done
    for target in ("/dev/big", "/big"):
        assert agent.run("dd", "if=/dev/zero", f"of={target}", "bs=1M", "count=100").status == 1
    memory = agent.run("python3", "-c", "import os; os.memfd_create('x')")
    assert b"OSError" in memory.output


def test_the_size_of_a_file(kind: str, either_user: int | None, place: Path, hold: Hold) -> None:
    agent = hold(kind, either_user, file_bytes=2 * MB)
    for argv in (["dd"], ["/bin/sh", "-c", 'dd "$@"', "sh"]):
        done = agent.run(*argv, "if=/dev/zero", "of=big", "bs=1M", "count=10")
        assert done.limit == "2 MB in one file"
        assert (place / "ws/big").stat().st_size == 2 * MB


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(["bash", "-c", BOMB], id="bomb", marks=pytest.mark.slow),
        pytest.param(["python3", "-c", SESSIONS], id="sessions"),
    ],
)
def test_the_number_of_processes(kind: str, either_user: int | None, hold: Hold, script: list[str]) -> None:
    agent = hold(kind, either_user, processes=100)
    begin = time.monotonic()
    assert agent.run(*script).limit == "100 processes"
    assert time.monotonic() - begin < 60, "it was ended, and not left to end by itself"
    assert agent.run("echo", "usable").output == b"usable\n"


@pytest.mark.slow
def test_the_time_of_processors_counts_in_the_background_too(kind: str, place: Path, hold: Hold) -> None:
    agent = hold(kind, cpu_seconds=0.3)
    assert agent.run("python3", "-c", BUSY).limit == "0.3 s of processor time"
    pid = agent.start("python3", "-c", BUSY, output="log.txt")
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_a_program_that_ends_leaves_nothing(kind: str, either_user: int | None, hold: Hold) -> None:
    agent = hold(kind, either_user)
    assert agent.run("/bin/sh", "-c", DAEMON.format("876541")).status == 0
    assert gone("876541")


def test_time_is_up_for_a_daemon_too(kind: str, either_user: int | None, hold: Hold) -> None:
    done = hold(kind, either_user).run("/bin/sh", "-c", DAEMON.format("876542") + "; sleep 876543", seconds=0.6)
    assert done.limit == "0.6 s"
    assert gone("876542") and gone("876543")


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_nothing_outlives_the_agent(kind: str, either_user: int | None, hold: Hold, number: signal.Signals) -> None:
    agent = hold(kind, either_user)
    agent.start("/bin/sh", "-c", DAEMON.format("876544") + "; sleep 876545", output="log.txt")
    wait_for(lambda: running("876544") and running("876545"))
    agent.process.send_signal(number)
    agent.process.wait()
    assert gone("876544") and gone("876545")


@pytest.mark.slow
def test_an_agent_killed_while_a_program_starts_leaves_neither_program_nor_bubblewrap(place: Path, hold: Hold) -> None:
    mark = f"8765{os.getpid()}"  # no other test process looks for it
    for trial in range(TRIALS):
        agent = hold("bubblewrap")
        agent.begin({"run": ["sleep", mark]})
        time.sleep(START * trial / TRIALS)
        agent.process.kill()
        agent.process.wait()
        assert gone(mark) and gone(str(place / "ws")), f"killed after {1000 * START * trial / TRIALS:.1f} ms"


@pytest.mark.slow
def test_the_limits_as_they_are_set_for_users(kind: str, either_user: int | None, place: Path, hold: Hold) -> None:
    agent = hold(kind, either_user)
    assert (
        agent.run("python3", "-c", "b = bytearray(3 << 30); import time; time.sleep(60)").limit == "2,048 MB of memory"
    )
    assert agent.run("dd", "if=/dev/zero", "of=big", "bs=1M", "count=2000").limit == "1,024 MB in one file"
    (place / "ws/big").unlink()
    assert agent.run("sleep", "1000000000", seconds=2).limit == "2 s"
    assert agent.run("python3", "-c", BUSY, seconds=2).limit == "2 s"
    # Where memory is short beside other tests, the kernel may end it first, as it is to do.
    assert any(agent.run("bash", "-c", BOMB).limit == "256 processes" for _ in range(3))
