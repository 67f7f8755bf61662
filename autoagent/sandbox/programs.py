"""Run programs in the foreground and in the background, within a sandbox."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path

from autoagent.core.errors import CommandError, SetupError
from autoagent.core.frozen import dataclass
from autoagent.core.protocols import Sandbox
from autoagent.core.services import BackgroundProcess, ProcessExit
from autoagent.registry.sandbox import AUTO, KINDS, SandboxKind
from autoagent.sandbox.mounts import python_paths
from autoagent.sandbox.process import Boundary, Launch, Process, ProcessLimits
from autoagent.workspace.gate import Workspace, shown

_TRIAL_SECONDS = 30.0  # to try out a kind of sandbox


@dataclass(frozen=True, slots=True)
class _BackgroundProgram:
    """A background program. `end` is set when it ends."""

    background: BackgroundProcess
    program: Process
    end: Future[ProcessExit]

    def state(self) -> BackgroundProcess:
        return replace(self.background, exit=self.end.result() if self.end.done() else None)


class Programs:
    """Run programs in a workspace, within a boundary and limits. `reasons` say why the boundary is not stronger."""

    def __init__(
        self,
        workspace: Workspace,
        boundary: Boundary,
        limits: ProcessLimits,
        *,
        network: bool = False,
        reasons: Sequence[str] = (),
    ) -> None:
        self.name, self.confines = boundary.name, boundary.confines
        self._workspace = workspace
        self._boundary = boundary
        self._limits = limits
        self._watch = workspace.guarded_files
        self._watch.enforced = getattr(boundary, "holds_guarded", False)
        self._network = network
        self._reasons = tuple(reasons)
        self._on_output: Callable[[bytes], None] = lambda data: None
        self._background: list[_BackgroundProgram] = []
        self._starting: set[Future[_BackgroundProgram]] = set()
        self._foreground: set[Process] = set()  # waited for by `run`, perhaps in another thread than `close`

    @property
    def gaps(self) -> tuple[str, ...]:
        services = "Programs that may use the network reach the services of this machine and of its network as well."
        return (*self._reasons, *self._boundary.gaps, *((services,) if self._network else ()))

    def run(
        self,
        argv: Sequence[str],
        *,
        folder: str = ".",
        seconds: float | None = None,
        network: bool | None = None,
        env: Mapping[str, str] | None = None,
        data: bytes | None = None,
        read_only: bool = False,
    ) -> ProcessExit:
        self._watch.begin()
        try:
            network = self._network if network is None else network
            launch = self._launch(argv, folder, env or {}, network, read_only)
            seconds = self._limits.seconds if seconds is None else seconds
            on_tick = self._watch.recheck
            program = Process(
                launch, self._limits, seconds=seconds, data=data, on_output=self._on_output, on_tick=on_tick
            )
            self._foreground.add(program)
            try:
                exit = program.wait()
            finally:
                self._foreground.discard(program)
        finally:
            self._watch.end()
        return replace(exit, put_back=(*self._watch.refused(exit.output), *self._watch.take_report()))

    def tell(self, on_output: Callable[[bytes], None]) -> None:
        self._on_output = on_output

    def start(self, argv: Sequence[str], *, output: str) -> BackgroundProcess:
        log = self._workspace.open_output(output)
        start: Future[_BackgroundProgram] = Future()
        end: Future[ProcessExit] = Future()

        def run_and_watch() -> None:
            if not start.set_running_or_notify_cancel():
                return
            try:
                try:
                    with os.fdopen(log, "wb"):
                        program = Process(launch, self._limits, output=log, on_tick=self._watch.recheck)
                    background = BackgroundProcess(program.pid, shlex.join(argv), place)
                    self._background.append(_BackgroundProgram(background, program, end))
                    start.set_result(self._background[-1])
                    exit = program.wait()
                finally:  # before anyone learns of the end
                    self._watch.end()
                end.set_result(exit)
            except BaseException as error:  # otherwise `start`, `stop` or `close` would wait forever
                if start.done():  # the program ends with this thread
                    end.set_result(ProcessExit(b"", 0, lost=str(error) or type(error).__name__))
                else:
                    start.set_exception(error)

        try:
            self._watch.begin()
        except BaseException:  # Ctrl-C too
            os.close(log)
            raise
        try:
            place = self._workspace.display(output)
            launch = self._launch(argv, ".", {}, self._network, False)
            self._starting.add(start)
            start.add_done_callback(self._starting.discard)
            # Its own thread, since a program ends with the thread that started it.
            threading.Thread(target=run_and_watch, name=f"program {argv[0]}", daemon=True).start()
        except BaseException:  # Ctrl-C too
            if start.cancel():  # otherwise the thread runs and does this itself
                self._watch.end()
                os.close(log)
            raise
        return start.result().state()

    def programs(self) -> list[BackgroundProcess]:
        return [running.state() for running in self._background]

    def stop(self, pid: int) -> BackgroundProcess:
        for running in reversed(self._background):  # the system may reuse the pid of an ended program
            if running.background.pid == pid:
                running.program.end()
                running.end.result()
                return running.state()
        raise CommandError(f"There is no started program with pid {pid}.")

    def close(self) -> None:
        wait([*self._starting])  # left by Ctrl-C
        for program in (*self._foreground, *(running.program for running in self._background)):
            program.end()
        for running in self._background:
            running.end.result()
        self._boundary.close()

    def _launch(
        self, argv: Sequence[str], folder: str, env: Mapping[str, str], network: bool, read_only: bool
    ) -> Launch:
        place = self._workspace.root
        if folder != ".":
            entry = self._workspace.find(folder)
            if entry is None or entry.kind != "folder":
                raise CommandError(f"There is no folder {shown(folder)} in the workspace to start a program in.")
            place /= entry.path
        program = find_program(argv[0] if argv else "", place, self._boundary.path)
        return self._boundary.launch([program, *argv[1:]], place, env, network=network, read_only=read_only)


def find_program(name: str, folder: Path, path: Sequence[str]) -> str:
    """Find an executable file: with a slash relative to `folder`, else in `path`. Raises CommandError."""
    places = [str(folder / name)] if "/" in name else [f"{place}/{name}" for place in path]
    candidates = [place for place in places if name and Path(place).is_file()]
    if not candidates:
        raise CommandError(f"There is no program {shown(name)} here.")
    for place in candidates:
        if os.access(place, os.X_OK):
            return name if "/" in name else place
    raise CommandError(f"{shown(name)} is not executable.")


def open_sandbox(
    workspace: Workspace,
    limits: ProcessLimits,
    *,
    kind: str = AUTO,
    required: bool = False,
    network: bool = False,
    python: str = "",
) -> Sandbox:
    """Open the sandbox of a kind (see registry.sandbox), or with `auto` the strongest built-in kind that works here.

    Each kind is tried by running a program. `python` is the interpreter available to programs, by default the agent's
    own. The `gaps` say why a stronger kind was not used.

    Raises SetupError if the requested kind does not work here, if a sandbox is `required` but nothing confines
    programs, or if `python` is not a working interpreter.
    """
    candidates = KINDS.builtin if kind == AUTO else (KINDS.find(kind),)
    if required and not any(candidate.confines for candidate in candidates):
        raise SetupError(f"A sandbox is required, but --sandbox {kind} is not a sandbox: leave out one of the two.")
    python = python or sys.executable
    python_paths(python)  # checked first, as an unusable interpreter must not lead to a weaker kind
    reasons: list[str] = []
    for candidate in candidates:
        if required and not candidate.confines:
            break
        try:
            boundary = _open_working(candidate, workspace, limits, python)
        except SetupError as error:
            reasons.append(f"No {candidate.name}: {error}")
        else:
            programs = Programs(workspace, boundary, limits, network=network, reasons=reasons)
            if python != sys.executable and programs.run([python, "-I", "-c", ""], seconds=_TRIAL_SECONDS).status != 0:
                programs.close()
                raise SetupError(f"{python} is not a working Python interpreter in the sandbox {candidate.name}.")
            return programs
    raise SetupError(" ".join(["No sandbox works here.", *reasons]))


def _open_working(kind: SandboxKind, workspace: Workspace, limits: ProcessLimits, python: str) -> Boundary:
    """Return the boundary after running a test program in it. Raises SetupError."""
    if not sys.platform.startswith("linux"):
        raise SetupError("programs run only on Linux.")
    boundary: Boundary = kind.open(workspace, limits, python)
    try:
        exit = Programs(workspace, boundary, limits).run(["true"], seconds=_TRIAL_SECONDS)
        description = f"a program in it ended by {exit.signal or exit.limit or f'status {exit.status}'}."
        lines = exit.output.decode(errors="replace").strip().splitlines() or [description]
        problem = "" if exit.status == 0 else lines[-1]
    except CommandError as error:
        problem = str(error)
    if problem:
        boundary.close()
        raise SetupError(problem)
    return boundary
