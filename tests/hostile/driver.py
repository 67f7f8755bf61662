"""Gives a run of the program one hostile reply after another, and tells what came of each."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import nobody
import pytest
from cli.driver import FINISH, GOAL, PATIENCE, Done, Home, Session
from server import Command, ScriptedServer, Step, command

SECRET = "what only the user may know"
RUN_PATIENCE = 4 * PATIENCE  # seconds for a whole section

USERS = ("self", pytest.param("ordinary", marks=pytest.mark.slow))
"""Who runs the program: whoever runs the tests, or, where that is root, an ordinary user."""

usual = ["self"]
"""The last is the user of a room that names none."""


@dataclass
class Room(Home):
    """A home in which the program is run as one user or another; beside it lies `outside`, with a secret.

    `around` is a program with its arguments that runs the program, in a world that is not as it should be.
    """

    user: str = "self"
    around: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # of the interpreter

    @property
    def workspace(self) -> Path:
        return self.folder / "autoagent_workspace"

    @property
    def outside(self) -> Path:
        return self.folder.parent / "outside"

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdout: IO[str] | None = None
    ) -> subprocess.Popen[str]:
        """Start the program as the user."""
        if self.warm and self.user == "self" and not self.around:
            return super().start(*arguments, env=env, stdout=stdout)
        return subprocess.Popen(
            [*self.program, *arguments],
            cwd=self.folder,
            env=self._environment(env),
            stdin=subprocess.PIPE,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
        )

    def terminal(self, *arguments: str, columns: int = 80, env: Mapping[str, str] | None = None) -> Session:
        if self.user == "self":
            return super().terminal(*arguments, columns=columns, env=env)
        self.write(".inputrc", "set enable-bracketed-paste off\n")
        environment = self._environment({"TERM": "xterm-256color", **(env or {})})
        return Session.of([*self.program, *arguments], self.folder, environment, columns, edits=True)

    @property
    def program(self) -> list[str]:
        """How the program is started as the user, to whom all belongs that is there by now."""
        become, python = (nobody.BECOME, nobody.interpreter()) if self.user == "ordinary" else ((), sys.executable)
        if become:
            for path in (self.folder.parent, *self.folder.parent.rglob("*")):
                os.chown(path, nobody.ID, nobody.ID, follow_symlinks=False)
        return [*become, *self.around, python, *self.options, "-m", "autoagent"]

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        if self.warm and self.user == "self" and not self.around:
            return super()._environment(more)
        packages = {"PYTHONPATH": nobody.PACKAGES, "PYTHONDONTWRITEBYTECODE": "1"}
        return {**super()._environment(more), **packages}

    @contextmanager
    def served(self, *steps: Step) -> Iterator[ScriptedServer]:
        """An endpoint that gives these replies, for what the program is run on meanwhile."""
        with ScriptedServer(*steps) as server:
            self.point_at(server)
            yield server

    def picture(self) -> dict[str, tuple[object, ...]]:
        """All that lies outside of the workspace and what the agent keeps: mode, time of change, content."""
        inside = (self.workspace, self.state, self.folder / ".local")
        paths = (path for path in self.folder.parent.rglob("*") if not any(path.is_relative_to(p) for p in inside))
        return {str(path): _picture(path) for path in paths if path != self.folder}


@contextmanager
def room(user: str = "") -> Iterator[Room]:
    """A home with what a user may have in it. Skips where the tests cannot be this user."""
    user = user or usual[-1]
    if user == "ordinary":
        nobody.require()
    with tempfile.TemporaryDirectory(prefix="hostile-", dir="/var/tmp") as name:  # /tmp is not the same in a sandbox
        Path(name).chmod(0o755)
        place = Path(name).resolve()
        (place / "outside").mkdir()
        (place / "outside/secret.txt").write_text(SECRET)
        (place / "home").mkdir()
        made = Room(place / "home", user=user)
        made.write(".ssh/id_ed25519", SECRET)
        made.write(".bashrc", "# mine\n")
        made.write("x", "mine\n")
        made.workspace.mkdir()
        yield made


def finish(
    there: Room, *arguments: str, stdin: str = "", env: dict[str, str] | None = None, fresh: bool = False
) -> tuple[int, str]:
    """Run the program to its end, `fresh` in an interpreter of its own: the exit code and all it showed."""
    there.warm = there.user == "self" and not fresh
    if there.warm:
        done = there.run(*arguments, stdin=stdin, env=env)
        return done.code, done.text
    process = there.start(*arguments, env=env)
    out, err = process.communicate(stdin, timeout=60)
    assert "Traceback" not in out + err, out + err
    return process.returncode, out + err


def shell(line: str) -> Command:
    return command("execute_shell", command_line=line)


def write(filename: str, text: str = "hostile") -> Command:
    return command("write_to_file", filename=filename, text=text)


def _picture(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        return (status.st_mode,)
    content = path.read_bytes() if stat.S_ISREG(status.st_mode) else os.fsencode(path.readlink())
    return status.st_mode, status.st_mtime_ns, hashlib.sha256(content).hexdigest()


class Listener:
    """A server on loopback that nothing may reach; `port` is where it would be."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def reached(self) -> bool:
        """Whether somebody has connected since this was last asked."""
        try:
            self._socket.accept()[0].close()
            return True
        except BlockingIOError:
            return False


@dataclass(frozen=True)
class Told:
    """What came of one reply: the events of its step."""

    events: list[dict[str, Any]]

    @property
    def ran(self) -> bool:
        """Whether the command was begun; it may have been refused then."""
        return bool(self._of("started"))

    @property
    def ok(self) -> bool:
        return any(event["ok"] for event in self._of("returned"))

    @property
    def text(self) -> str:
        """What the model reads of it: the result, or why the reply or the command was refused."""
        for kind, field in (("returned", "text"), ("rejected", "problem"), ("decided", "reason")):
            if found := self._of(kind):
                return str(found[-1][field])
        raise AssertionError(f"nothing came of it: {self.events}")

    @property
    def data(self) -> dict[str, Any]:
        return dict(self._of("returned")[-1]["data"])

    @property
    def seconds(self) -> float:
        return float(self._of("returned")[-1]["seconds"])

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def assert_refused(self, *names: str) -> None:
        """Assert that nothing was done, in a line that names these and shows no inside of the program."""
        assert not self.ok, self.text
        for name in names:
            assert name in self.text, self.text
        assert "Traceback" not in self.text
        assert not self.text.startswith(("[Errno", "OSError", "Exception"))


@dataclass(frozen=True)
class Section:
    """A run that was given all the replies of a section, under their names, and has ended."""

    room: Room
    done: Done
    told: dict[str, Told]
    before: dict[str, tuple[object, ...]]
    server: ScriptedServer

    def __getitem__(self, name: str) -> Told:
        return self.told[name]

    def assert_went_on(self) -> None:
        """Assert that the run came to its end in order, and that nothing outside was changed."""
        assert self.room.log()[-1]["status"] == "finished"
        assert self.room.picture() == self.before


def drive(
    room: Room,
    replies: Mapping[str, Step],
    *flags: str,
    env: Mapping[str, str] | None = None,
    apart: bool = False,
    stdin: str = "",
    rejects: tuple[str, ...] = (),
    code: int = 0,
) -> Section:
    """Run the program in continuous mode on these replies, one a step, and let it finish, with this exit code.

    `apart`: a harmless command that brings something new stands between them, as a run that gets nowhere ends.
    """
    steps: list[Step] = []
    number: dict[str, int] = {}
    for name, reply in replies.items():
        steps.append(reply)
        number[name] = len(steps)
        if apart:
            steps.append(command("search_in_files", pattern=f"not-there-{len(steps)}", directory="."))
    with ScriptedServer(*steps, *FINISH, rejects=rejects) as server:
        room.point_at(server)
        before = room.picture()
        room.warm = room.user == "self"
        process = room.start("-c", "-m", "none", *GOAL, *flags, env=env)
        try:
            out, err = process.communicate(stdin, timeout=RUN_PATIENCE)
        finally:
            process.kill()
    done = Done(process.returncode, out, err)
    assert (done.code, bool(room.runs)) == (code, True), done.text
    log = room.log()
    told = {name: Told([event for event in log if event["step"] == step]) for name, step in number.items()}
    return Section(room, done, told, before, server)
