"""Run the program as a separate process: at a real terminal with a typing person, or on pipes.

Even with pexpect and pyte, most of this module would remain: recognizing a waiting question, and ending all processes.
"""

from __future__ import annotations

import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from autoagent.sandbox.supervisor import tree_of
from autoagent.workspace.syscalls import prctl

ROWS, COLUMNS = 50, 120  # the terminal's size
_POLL_SECONDS = 0.01  # between two polls of a silent process
_READ_BYTES = 65_536
_QUESTION_ENDS = (": ", "> ")
_QUIET_SECONDS = 0.1  # after which a question is complete

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

# Started as by the console script, with this process's import path, but not the current folder. A
# terminal becomes the session's own, so that the program gets SIGHUP when it closes.
_START = "import os, sys; sys.path += sys.argv.pop(1).split(os.pathsep); from autoagent.cli import main; main()"
_START_AT_TERMINAL = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {_START}"

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f]"  # all but tab and line feed
)


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """The outcome of a process: its exit code (None: timed out), its screen, and the use of the answers."""

    code: int | None
    screen: str
    answers_typed: int | None = None  # None on a pipe, where nobody can tell
    eofs_sent: int = 0  # for questions after the last answer


def run_at_terminal(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], answers: Sequence[str], seconds: float
) -> ProcessOutcome:
    """Run the program at a terminal. Type the next answer at each question, and Ctrl-D when none is left."""
    import fcntl
    import termios

    near, far = os.openpty()
    try:
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        command = _command(_START_AT_TERMINAL, arguments)
        with running_process(command, folder, environment, stdin=far, output=far) as process:
            typist = _Typist(near, answers)
            code, output = _read_output(process, near, seconds, typist.answer_question)
        return ProcessOutcome(code, strip_terminal_codes(output), typist.answers_typed, typist.eofs_sent)
    finally:
        os.close(near)
        os.close(far)


def run_on_pipes(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], answers: Sequence[str], seconds: float
) -> ProcessOutcome:
    """Run the program with all answers on its input and its output on one pipe."""
    command = _command(_START, arguments)
    near, far = os.pipe()
    try:
        with tempfile.TemporaryFile() as lines:  # a pipe buffers only 64 KiB
            lines.write("".join(f"{answer}\n" for answer in answers).encode())
            lines.seek(0)
            with running_process(command, folder, environment, stdin=lines.fileno(), output=far) as process:
                code, output = _read_output(process, near, seconds, lambda output: None)
        return ProcessOutcome(code, strip_terminal_codes(output))
    finally:
        os.close(near)
        os.close(far)


def _command(start: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-c", start, os.pathsep.join(path for path in sys.path if path), *arguments]


def strip_terminal_codes(output: bytes) -> str:
    """Return the output of a terminal without control characters. Lines end with `\\n`."""
    return _CONTROL.sub("", output.decode("utf-8", "replace"))


class _Typist:
    """Type an answer whenever a question waits for one."""

    def __init__(self, terminal: int, answers: Sequence[str]) -> None:
        self.answers_typed = self.eofs_sent = 0
        self._terminal, self._answers = terminal, answers
        self._size_at_typing = -1  # bytes of the output when the last line was typed
        self._size, self._size_time = 0, 0.0  # of the output, and when it reached this size

    def answer_question(self, output: bytes) -> None:
        """Type the next line if the output ends with an unanswered question."""
        if len(output) != self._size:
            self._size, self._size_time = len(output), time.monotonic()
        if not self._is_asked(output):
            return
        self._size_at_typing = len(output)
        if self.answers_typed < len(self._answers):
            line = self._answers[self.answers_typed] + "\r"
            self.answers_typed += 1
        else:
            line = "\x04"
            self.eofs_sent += 1
        os.write(self._terminal, line.encode())

    def _is_asked(self, output: bytes) -> bool:
        """Return whether the cursor follows a new question, which is recognized by its end.

        While readline asks, or typing is hidden, the line mode or the echo of the terminal is off. Otherwise the output
        must pause for a while. Until the echo of an answer has ended the line, the question is an old one.
        """
        import termios

        is_new = self._size_at_typing < 0 or b"\n" in output[self._size_at_typing :]
        if not is_new or not strip_terminal_codes(output[output.rfind(b"\n") + 1 :]).endswith(_QUESTION_ENDS):
            return False
        flags = termios.tcgetattr(self._terminal)[3]
        if flags & termios.ICANON and flags & termios.ECHO:
            return time.monotonic() - self._size_time > _QUIET_SECONDS
        return True


@contextmanager
def running_process(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], *, stdin: int, output: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process, with everything it starts, during the block. Nothing of it survives the block.

    Not covered: on systems other than Linux, its child processes stay unless they end by themselves.
    """
    earlier_pids = tree_of(os.getpid()) if sys.platform == "linux" else {}
    if sys.platform == "linux":
        prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans become children of this process
    process = None
    try:
        process = subprocess.Popen(  # noqa: S603 - there is no shell
            command,
            cwd=folder,
            env=dict(environment),
            stdin=stdin,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        yield process
    finally:
        if process is not None:  # otherwise a signal interrupted its start, perhaps after the fork
            process.kill()
            process.wait()
        while sys.platform == "linux" and (pids := [pid for pid in tree_of(os.getpid()) if pid not in earlier_pids]):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(_POLL_SECONDS)


def _read_output(
    process: subprocess.Popen[bytes], source: int, seconds: float, on_silence: Callable[[bytes], None]
) -> tuple[int | None, bytes]:
    """Read a process's output until it ends or the time is up (then its exit code is None).

    `on_silence` is called with the output so far whenever nothing more comes for the moment.
    """
    deadline = time.monotonic() + seconds
    output = b""
    while True:
        code = process.poll()  # first, so that everything written before the end is read
        ready, _, _ = select.select([source], [], [], 0 if code is not None else _POLL_SECONDS)
        output += (piece := os.read(source, _READ_BYTES) if ready else b"")
        if code is not None and not piece:
            return code, output
        if time.monotonic() > deadline:
            return None, output
        if not piece:
            on_silence(output)
