"""Lead a fleet from its tasks or its record: the entry point for the command line and for Python programs.

from autoagent.fleet import Fleet

with Fleet("tasks.yaml", out="results", parallel=4, budget=5.0, continuous=True) as fleet:
    for row in fleet:
        print(row.job.id, row.status, row.usd)
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoagent import __version__
from autoagent.core.errors import SettingsError, SetupError, StateError
from autoagent.fleet.engine import Engine
from autoagent.fleet.head import Head, end_orphans
from autoagent.fleet.record import NAME, FleetRecord, FleetState, Row, check_made_here, read_record
from autoagent.fleet.task_list import STDIN, TaskList, read_tasks, tasks_of
from autoagent.models.openai.opening import ATTENDED_PATIENCE, UNATTENDED_PATIENCE
from autoagent.registry.memory import IN_EXTENSIONS
from autoagent.session import build
from autoagent.session.build import protected_paths
from autoagent.session.load import parse
from autoagent.session.session import Session
from autoagent.settings import Settings

LIMITS: Mapping[str, Any] = {
    "parallel": 2, "retries": 2, "budget": 0.0, "max_tokens": 0, "rpm": 0.0, "tpm": 0, "events": False,
    "engine": "local", "address": "auto",
}  # fmt: skip
"""The limits of a fleet by their flags, with their defaults: runs at the same time, tries of a run that fails without
a step forward, and in all USD, tokens, requests and tokens a minute, 0 for no limit. `events`: --json has whole events.
`engine`: where its workers run, local or ray, and the `address` of the Ray cluster.
"""


class Fleet(AbstractContextManager["Fleet"]):
    """Start a fleet, or resume it if `tasks` is None. Iterate over it for each run as it ends.

    `tasks` is a task file, its text from standard input as bytes, or objects with the keys of a task. All but a file
    count as the user's own words. `flags` are LIMITS, and those of `autoagent run` by the names of settings: `model`,
    `continuous`, `allow`. `json`: how it is shown on the screen, None for not at all.

    Raises:
        SettingsError: something in the tasks, or a limit, cannot be used.
        SetupError: the folder, the task file or the fleet has to be trusted first.
        StateError: another process leads a fleet in `out`, or there is one already.
    """

    def __init__(
        self,
        tasks: str | Path | bytes | Iterable[Mapping[str, Any]] | None = None,
        *,
        out: str | Path = "",
        json: bool | None = None,
        **flags: Any,
    ) -> None:
        limits = {name: flags.pop(name) for name in LIMITS if name in flags}
        self.out = Path(out) if out else Path(f"fleet-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        if shared := flags.get("memory_url"):
            flags |= shared_memory(flags)
        from autoagent.fleet.display import FleetScreen

        found = TaskList()
        if tasks is None:
            self.state = read_record(self.out)
            check_made_here(self.state)
            session = Session.open(flags)
        else:
            if (self.out / NAME).exists():
                raise StateError(f"{self.out}: already has a fleet; `autoagent fleet resume {self.out}` continues it.")
            if self.out.is_dir() and next(self.out.iterdir(), None):  # a run in it would be taken for one of ours
                raise StateError(f"{self.out}: is not empty; name a new folder.")
            found, session = _begun(tasks, flags)
            rows = {job.id: Row(job) for job in found.jobs}
            self.state = FleetState(self.out, LIMITS, rows, made=os.urandom(16).hex())
        self.state.settings = {**LIMITS, **self.state.settings, **limits}
        self._engine = engine_of(self.state, session)
        try:
            self._record = FleetRecord(self.out, build.mask_of(session.settings))
        except StateError:
            self._engine.close()
            raise
        self._screen = FleetScreen(self.state, as_json=json) if json is not None else None
        if self._screen:
            self._record.tell = self._screen.show
        if tasks is None:
            end_orphans(self.state)
            self._record.add("limits", settings=limits)
        else:
            versions = {"version": __version__, "python": platform.python_version()}
            jobs = [asdict(job) for job in found.jobs]
            with suppress(SettingsError):  # the fleet's own state reports that
                session.trusted.add(self.out.resolve(), [self.state.origin])
            self._record.add("fleet", made=self.state.made, settings=self.state.settings, runs=jobs, **versions)
        if shared:
            flags["memory_index"] = f"fleet-{self.state.made[:16]}"  # the same when resumed
        usual = UNATTENDED_PATIENCE if session.settings.continuous else ATTENDED_PATIENCE
        self.head = Head(self.state, self._record, flags, self._engine, session.settings.patience or usual)
        self.head.not_copied = {self.out.resolve(), *(Path(p).resolve() for p in protected_paths(session.settings))}
        if self._screen:
            self.head.say = self._screen.say

    def __iter__(self) -> Iterator[Row]:
        """Yield each run as it ends."""
        screen = self._screen
        for row in self.head.run():
            if screen:
                screen.show_end(row)
            yield row

    def __exit__(self, *exc: object) -> None:
        """Release the folder."""
        if self._screen:
            self._screen.close(self.head.ledger.exhausted)
        self._engine.close()
        os.close(self._record.lock)


def engine_of(state: FleetState, session: Session) -> Engine:
    """Return the fleet's engine. Raises SetupError, StateError."""
    if state.settings["engine"] == "local":
        return Engine()
    from autoagent.fleet.ray_engine import RayEngine

    try:
        return RayEngine(state.settings["address"], state.out, variables_of(session.loaded.lasting))
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise SetupError('--engine ray needs Ray; pip install "autoagent[ray]"') from error


def shared_memory(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags for the memory at an address (`-`: MEMORY_URL). Raises SettingsError."""
    url = flags["memory_url"]
    if url == "-" and not (url := Session.load({**flags, "memory_url": None}).settings.memory_url):
        raise SettingsError("--memory-url -: MEMORY_URL is not set.")
    for name in IN_EXTENSIONS:
        if url.startswith(name):
            return {"memory_url": url, "memory_backend": name}
    known = " or ".join(f"{name}://..." for name in IN_EXTENSIONS)
    raise SettingsError(f"--memory-url: is not the address of a shared memory; write {known}")


def variables_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as environment variables, for a worker on a machine without their sources."""
    found: dict[str, str] = {}
    for name, value in values.items():
        declared = Settings.__dataclass_fields__[name].metadata
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        words = [text, *(declared["choices"] or ())]
        with suppress(StopIteration):
            text = next(word for word in words if word and parse(name, word, name) == value)
            found |= {variable: text for variable in declared["env"][:1]}
    return found


def _begun(
    tasks: str | Path | bytes | Iterable[Mapping[str, Any]], flags: Mapping[str, Any]
) -> tuple[TaskList, Session]:
    """Read the tasks, and open the session after the user has trusted their content. Raises as Fleet does."""
    held = Session.load(flags).settings
    if isinstance(tasks, bytes):
        found = read_tasks(STDIN, held, tasks)
    else:
        found = read_tasks(Path(tasks), held) if isinstance(tasks, (str, Path)) else tasks_of(tasks, held)
    session = Session.open(flags, more=found.untrusted)
    for value in found.untrusted:
        if not session.holds(value):
            raise SettingsError(f"{value.location}: is not trusted; nothing was started.")
    for job in found.jobs:
        if "continuous_limit" in job.given and not flags.get("continuous"):
            raise SettingsError(f"{job.id}: `steps` goes with -c/--continuous.")
    return found, session
