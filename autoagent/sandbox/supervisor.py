"""Supervise a program for the agent if no PID namespace holds its process tree together.

The supervisor adopts orphaned descendants. When the program ends, on SIGTERM, or when the agent's thread that started
it ends, it kills all its descendants. They form one process group, which the system call filter does not let them
leave, so a single signal reaches all of them. The module imports little, since it starts once for each program.

Not covered: a program that can kill the supervisor with SIGKILL.
"""

from __future__ import annotations

import marshal
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from autoagent.sandbox.confinement import confine, keep_in_group
from autoagent.workspace.syscalls import prctl

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_START_FAILURE_STATUS = 127  # as of a shell
PARENT = 1  # of the `stat_fields`
_KILL_PAUSE_SECONDS = 0.001  # between two rounds of SIGKILL

_CODE = "import sys; sys.path.append(sys.argv[1]); from autoagent.sandbox import supervisor; supervisor.main()"
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120


def command(folder: str, max_file_bytes: int, argv: Sequence[str], confinement: Mapping[str, Any]) -> list[str]:
    """Return the command line to run `argv` under supervision, with the arguments of `confine` if any."""
    options = {"parent": os.getpid(), "folder": folder, "file": max_file_bytes, "confinement": dict(confinement)}
    return [sys.executable, "-I", "-S", "-c", _CODE, _PACKAGES, marshal.dumps(options).hex(), *argv]


def main() -> None:
    """Supervise the program given by the arguments."""
    options, argv = marshal.loads(bytes.fromhex(sys.argv[2])), sys.argv[3:]  # noqa: S302 - made by `command`
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != options["parent"]:  # the agent died before this took effect
        return
    program = os.fork()
    if program == 0:
        _exec_program(options, argv)
    status = _wait(program)
    _kill_descendants(program)
    if os.WIFSIGNALED(status):  # end by the same signal
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _exec_program(options: dict[str, Any], argv: list[str]) -> None:
    try:
        os.setsid()  # a group that excludes the supervisor
        resource.setrlimit(resource.RLIMIT_FSIZE, (options["file"],) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if options["confinement"]:
            confine(**options["confinement"])
        else:
            keep_in_group()
        os.chdir(options["folder"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], argv, os.environ)  # noqa: S606 - without a shell
    except OSError as error:
        os.write(2, f"{error.filename or argv[0]}: cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(_START_FAILURE_STATUS)


def _wait(program: int) -> int:
    """Wait until the program ends or has to end. Return its wait status, or that of SIGTERM."""
    while signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) == signal.SIGCHLD:
        while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if child.si_pid == program:  # remains a zombie, so that the group's number is not reused
                return child.si_status << 8 if child.si_code == os.CLD_EXITED else child.si_status
            os.waitpid(child.si_pid, 0)
    return signal.SIGTERM


def _kill_descendants(program: int) -> None:
    """Kill the group, then remaining descendants until no child is left, as orphans become children."""
    with suppress(ProcessLookupError):
        os.killpg(program, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(_KILL_PAUSE_SECONDS)
            for pid in [pid for pid in tree_of(os.getpid()) if pid != os.getpid()]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def stat_fields(pid: int | str) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on, the third field there (proc(5)). Raises OSError."""
    descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        line = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    return line[line.rfind(b")") + 2 :].split()  # a name may hold spaces and brackets


def tree_of(root: int) -> dict[int, list[bytes]]:
    """Return the `stat_fields` of the process `root` and its descendants by pid, `root` first, {} if it is gone."""
    processes: dict[int, list[bytes]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - faster, and done many times a second
        with suppress(OSError):  # ended meanwhile
            processes[int(name)] = stat_fields(name)
    children: dict[int, list[int]] = {}
    for pid, fields in processes.items():
        children.setdefault(int(fields[PARENT]), []).append(pid)
    pids = [root] if root in processes else []
    for pid in pids:  # grows during the loop
        pids += children.get(pid, [])
    return {pid: processes[pid] for pid in pids}
