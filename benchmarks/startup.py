"""How soon autoagent is there: `--help` beside a bare `import click`, the first question beside mini-swe-agent's.

    python benchmarks/startup.py [--repeat 15] [--mini PATH]

Everything runs as a user runs it: the installed console scripts, the questions in a pseudo-terminal, with a key in
the environment and nothing saved. The contestants take turns, so that a busy moment meets all of them; the figures
are medians. The resident memory is that of the process while its first question waits for the answer. Of
mini-swe-agent, the printing of its question counts, although it takes no input yet by then. Which modules are loaded
by the first question is checked by tests/test_startup.py.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HELP_AT_MOST = 1.3  # times `import click`
QUESTION_AT_MOST = 0.5  # times mini-swe-agent
RESIDENT_AT_MOST = 30.0  # MiB
PATIENCE = 60.0  # seconds without output before a program counts as stuck

KEY = {"OPENAI_API_KEY": "sk-for-a-benchmark"}  # no request is made
MINI = {"MSWEA_CONFIGURED": "true", "MSWEA_MODEL_NAME": "openai/gpt-5", **KEY}  # or it begins with its set-up

Sample = Callable[[], tuple[float, float]]
"""One run: seconds, and MiB resident at their end (0 where the program has ended)."""


def finished(argv: Sequence[str]) -> Sample:
    """Runs a program to its end."""

    def sample() -> tuple[float, float]:
        begin = time.perf_counter()
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begin, 0.0

    return sample


def asked(argv: list[str], env: Mapping[str, str], question: bytes) -> Sample:
    """Runs a program in a terminal, in an empty folder that is also its home, until it shows the question."""

    def sample() -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as home:
            world = {"PATH": os.environ["PATH"], "HOME": home, "TERM": "xterm-256color", "LANG": "C.UTF-8", **env}
            begin = time.perf_counter()
            pid, terminal = pty.fork()
            if pid == 0:
                os.chdir(home)
                os.execve(argv[0], argv, world)
            try:
                wait_for(terminal, question)
                return time.perf_counter() - begin, resident(pid)
            finally:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(terminal)

    return sample


def wait_for(terminal: int, text: bytes) -> None:
    shown = b""
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], PATIENCE)
        try:
            piece = os.read(terminal, 65536) if ready else b""
        except OSError:  # EIO: the program has ended
            piece = b""
        if not piece:
            sys.exit(f"{text.decode()!r} was not shown, but:\n{shown.decode(errors='replace')}")
        shown += piece


def resident(pid: int) -> float:
    """VmRSS in MiB."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


def medians(samples: Sequence[Sample], repeat: int) -> list[tuple[float, float]]:
    """Of each sample: median seconds and median MiB; the first turn only warms the caches."""
    for sample in samples:
        sample()
    turns = [[sample() for sample in samples] for _ in range(repeat)]
    return [
        (statistics.median(seconds for seconds, _ in column), statistics.median(memory for _, memory in column))
        for column in zip(*turns, strict=True)
    ]


def row(what: str, ours: float, theirs: float, peer: str, limit: float) -> None:
    verdict = "met" if ours / theirs <= limit else "MISSED"
    figures = f"{1000 * ours:7.0f} ms  {peer:24} {1000 * theirs:7.0f} ms"
    print(f"{what:28} {figures}  ratio {ours / theirs:.2f} (wanted: {limit:.2f}, {verdict})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeat", type=int, default=15, metavar="N", help="turns after the first; default 15")
    parser.add_argument("--mini", default=shutil.which("mini"), metavar="PATH", help="mini-swe-agent's `mini`")
    options = parser.parse_args()
    program = Path(sys.executable).with_name("autoagent")
    if not program.exists():
        sys.exit("autoagent is not installed for this Python: pip install .")
    autoagent = str(program)

    (ours, _), (click, _) = medians(
        [finished([autoagent, "--help"]), finished([sys.executable, "-c", "import click"])], options.repeat
    )
    row("autoagent --help", ours, click, "python -c 'import click'", HELP_AT_MOST)

    questions = [asked([autoagent], KEY, b"I want it to:"), asked([autoagent], {}, b"1-10:")]
    if options.mini:
        questions.append(asked([options.mini], MINI, b"What do you want to do?"))
    (wish, wish_memory), (menu, menu_memory), *peer = medians(questions, options.repeat)
    for mini, memory in peer:
        row("first question, with a key", wish, mini, "mini-swe-agent", QUESTION_AT_MOST)
        row("first question, no key", menu, mini, "mini-swe-agent", QUESTION_AT_MOST)
        print(f"{'resident, mini-swe-agent':28} {memory:7.1f} MiB")
    if not peer:
        print(f"first question: {1000 * wish:.0f} ms with a key, {1000 * menu:.0f} ms without; to compare, run")
        print("  python -m venv /tmp/mini && /tmp/mini/bin/pip install mini-swe-agent")
        print("and add: --mini /tmp/mini/bin/mini")
    worst = max(wish_memory, menu_memory)
    verdict = "met" if worst <= RESIDENT_AT_MOST else "MISSED"
    print(f"{'resident, autoagent':28} {worst:7.1f} MiB (wanted: {RESIDENT_AT_MOST:.0f}, {verdict})")


if __name__ == "__main__":
    main()
