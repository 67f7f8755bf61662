"""Represent a plug-in's process to the program. Requests and answers are lines of JSON on a socket.

Not covered: it is no sandbox. The process may do what the user may, but for what its environment and limits withhold.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MAX_ANSWER_BYTES = 16_000_000  # of one answer
MAX_LOG_BYTES = 1_000_000  # of what it prints, before its file starts over
MAX_STARTS = 4  # of a process that keeps ending
SECONDS_TO_START = 60.0


class PluginError(Exception):
    """Report that a plug-in could not handle a request. The text says why."""


class Served:
    """Answer the plug-ins' requests to the program with the services of a run (see RunPart.begin)."""

    complete: Callable[[str], str] | None = None
    run: Callable[[str, Mapping[str, Any]], str] | None = None

    def __call__(self, what: str, given: Mapping[str, Any]) -> Any:
        """Return the answer. Raises PluginError, or whatever the run raises."""
        if self.complete is None or self.run is None:
            raise PluginError("The run has not begun yet.")
        if what == "complete":
            return self.complete(str(given.get("prompt", "")))
        if what == "run":
            return self.run(str(given.get("name", "")), dict(given.get("args") or {}))
        raise PluginError(f"There is nothing here for {what!r}.")


@dataclass(frozen=True, slots=True)
class Launch:
    """Describe how to start a process: its interpreter, its environment and its first message.

    `memory` and `file` are the most that it may take and write to one file, in bytes. `log` takes what it prints.
    `reads` are the variables of the environment that its source names.
    """

    python: str
    env: Mapping[str, str]
    first: Mapping[str, Any]
    memory: int
    file: int
    log: Path
    reads: tuple[str, ...] = ()


class PluginProcess:
    """Run one plug-in. It is started on the first request, and again if it has ended. One thread may ask at a time."""

    def __init__(self, name: str, launch: Launch, seconds: float, serve: Served) -> None:
        self.name = name
        self._launch = launch
        self._seconds = seconds
        self._serve = serve
        self._lock = threading.Lock()
        self._asking = 0  # the thread whose request is being answered
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._begun = b""
        self._starts = 0
        self._again: list[Mapping[str, Any]] = []  # the first requests to a new process

    @property
    def unset(self) -> list[str]:
        """Return the variables that it reads but does not receive."""
        return [name for name in self._launch.reads if name not in self._launch.env]

    def ask(self, what: str, *, again: bool = False, **given: Any) -> Any:
        """Ask for something and return the answer. `again`: a process that is started anew is asked this first.

        Raises PluginError if it raises, ends, prints no answer in time or answers nonsense.
        """
        if self._asking == threading.get_ident():
            raise PluginError("it is busy with the request that this one came from")
        with self._lock:
            self._asking = threading.get_ident()
            try:
                self._start()
                if again:
                    self._again.append({"ask": what, **given})
                return self._answer({"ask": what, **given}, self._seconds)
            except PluginError:
                raise
            except BaseException:  # Ctrl-C, or a bug: its next answer would be for this request
                self._end()
                raise
            finally:
                self._asking = 0

    def close(self) -> None:
        """End the process and what it has started."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        if self._starts >= MAX_STARTS:
            raise PluginError(f"it has ended {MAX_STARTS} times and is not started again")
        self._starts += 1
        ours, theirs = socket.socketpair()
        package = str(Path(__file__).parent.parent)
        program = "import sys; sys.path.append(sys.argv[1]); from autoagent_autogpt_plugins.child import main; main()"
        self._socket, self._begun = ours, b""
        try:
            with theirs, self._opened_log() as log:
                self._process = subprocess.Popen(  # noqa: S603 - the user has enabled and trusted it
                    [self._launch.python, "-I", "-B", "-u", "-c", program, package, str(theirs.fileno())],
                    env=dict(self._launch.env), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    pass_fds=[theirs.fileno()], start_new_session=True,
                )  # fmt: skip
        except (OSError, ValueError) as error:
            raise self._failed(f"it cannot be started: {error}") from error
        first = {"ask": "load", "limits": [self._launch.memory, self._launch.file, 0], **self._launch.first}
        for message in (first, *self._again):
            self._answer(message, SECONDS_TO_START)

    def _opened_log(self) -> BinaryIO:
        self._launch.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = self._launch.log.open("ab")
        if log.tell() > MAX_LOG_BYTES:
            log.truncate(0)
        return log

    def _answer(self, message: Mapping[str, Any], seconds: float) -> Any:
        end = time.monotonic() + seconds
        self._send(message, end)
        while True:
            answer = self._line(end)
            if "serve" not in answer:
                break
            began = time.monotonic()
            self._send({"served": self._served(answer)}, began + seconds)
            end += time.monotonic() - began  # the program's own time does not count
        if "error" in answer:
            raise PluginError(str(answer["error"])[:2000])
        return answer.get("result")

    def _served(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            given = asked.get("given")
            return {"result": self._serve(str(asked["serve"]), given if isinstance(given, dict) else {})}
        except Exception as error:  # whatever the request was, the plug-in is told why it failed
            return {"error": str(error) or type(error).__name__}

    def _send(self, message: Mapping[str, Any], end: float) -> None:
        assert self._socket is not None
        try:
            self._socket.settimeout(max(0.01, end - time.monotonic()))
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except TimeoutError:
            raise self._failed("it does not listen") from None
        except OSError:
            raise self._failed(self._how_it_ended()) from None

    def _line(self, end: float) -> dict[str, Any]:
        assert self._socket is not None
        while b"\n" not in self._begun:
            if len(self._begun) > MAX_ANSWER_BYTES:
                raise self._failed(f"it answers with more than {MAX_ANSWER_BYTES // 1_000_000} MB")
            try:
                self._socket.settimeout(max(0.01, end - time.monotonic()))
                piece = self._socket.recv(1 << 16)
            except TimeoutError:
                raise self._failed("it gave no answer in time, and was ended") from None
            except OSError:
                piece = b""
            if not piece:
                raise self._failed(self._how_it_ended())
            self._begun += piece
        line, _, self._begun = self._begun.partition(b"\n")
        with suppress(ValueError, RecursionError):
            answer = json.loads(line)
            whole = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")  # no log holds half a character
            if isinstance(answer, dict):
                return dict(json.loads(whole))
        raise self._failed("its answer cannot be read")

    def _how_it_ended(self) -> str:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(2)
            how = f"it was ended by {signal.Signals(-status).name}" if status < 0 else f"it ended (status {status})"
            return f"{how}; what it printed is in {self._launch.log}"
        return "it closed its connection"

    def _failed(self, why: str) -> PluginError:
        self._end()
        return PluginError(why)

    def _end(self) -> None:
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if process is not None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
