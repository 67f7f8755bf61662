"""Start or resume a fleet: the entry point for the command line and for Python programs.

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
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoagent import __version__
from autoagent.core.errors import SettingsError, SetupError, StateError
from autoagent.fleet.engine import Engine
from autoagent.fleet.head import Head, end_orphans
from autoagent.fleet.record import RECORD_FILE, FleetRecord, FleetState, Row, check_made_here, read_record
from autoagent.fleet.task_list import STDIN, TaskList, read_tasks, tasks_of
from autoagent.models.openai.opening import ATTENDED_PATIENCE, UNATTENDED_PATIENCE
from autoagent.registry.memory import EXTENSION_BACKENDS
from autoagent.session import build
from autoagent.session.build import protected_paths
from autoagent.session.load import parse
from autoagent.session.session import Session
from autoagent.settings import Settings

LIMITS: Mapping[str, Any] = {
    "parallel": 2, "retries": 2, "budget": 0.0, "max_tokens": 0, "rpm": 0.0, "tpm": 0, "events": False,
    "engine": "local", "address": "auto",
}  # fmt: skip
"""The limits of a fleet with their defaults, named like their flags.

`parallel` is the number of runs at the same time, and `retries` that of a run that fails without progress. `budget`
(USD), `max_tokens`, `rpm` and `tpm` limit all runs together; 0 means no limit. With `events`, --json includes whole
events. `engine` is where workers run, local or ray, and `address` that of the Ray cluster.
"""


class Fleet(AbstractContextManager["Fleet"]):
    """Start a fleet, or resume one if `tasks` is None. Iterate over it to receive each run as it ends.

    `tasks` is a task file, the bytes of one from standard input, or objects with the keys of a task. Anything but a
    file counts as the user's own words. `flags` are LIMITS and the flags of `autoagent run`, named like the settings:
    `model`, `continuous`, `allow`. `json` is True to print JSON, False to show progress, None for neither.

    Raises:
        SettingsError: a task or a limit is not valid.
        SetupError: the folder, the task file or the fleet must be trusted first.
        StateError: `out` already has a fleet, or another process leads it.
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
        if has_shared_memory := flags.get("memory_url"):
            flags |= shared_memory(flags)
        from autoagent.fleet.display import FleetScreen

        task_list = TaskList()
        if tasks is None:
            self.state = read_record(self.out)
            check_made_here(self.state)
            session = Session.open(flags)
        else:
            if (self.out / RECORD_FILE).exists():
                raise StateError(f"{self.out}: already has a fleet; `autoagent fleet resume {self.out}` continues it.")
            if self.out.is_dir() and next(self.out.iterdir(), None):  # its content would be mistaken for runs
                raise StateError(f"{self.out}: is not empty; name a new folder.")
            task_list, session = _read_and_open(tasks, flags)
            rows = {job.id: Row(job) for job in task_list.jobs}
            self.state = FleetState(self.out, LIMITS, rows, made=os.urandom(16).hex())
        self.state.settings = {**LIMITS, **self.state.settings, **limits}
        if has_shared_memory:
            flags["memory_index"] = f"fleet-{self.state.made[:16]}"  # the same on resume
        self._screen = FleetScreen(self.state, as_json=json) if json is not None else None
        with ExitStack() as stack:
            engine = engine_of(self.state, session)
            stack.callback(engine.close)
            record = FleetRecord(self.out, build.mask_of(session.settings))
            stack.callback(os.close, record.lock)
            if self._screen:
                record.on_line = self._screen.show_entry
            if tasks is None:
                end_orphans(self.state)
                record.add("limits", settings=limits)
            else:
                versions = {"version": __version__, "python": platform.python_version()}
                jobs = [asdict(job) for job in task_list.jobs]
                with suppress(SettingsError):  # reading the fleet's state reports that
                    session.trusted.add(self.out.resolve(), [self.state.origin])
                record.add("fleet", made=self.state.made, settings=self.state.settings, runs=jobs, **versions)
            default_patience = UNATTENDED_PATIENCE if session.settings.continuous else ATTENDED_PATIENCE
            self.head = Head(self.state, record, flags, engine, session.settings.patience or default_patience)
            self.head.not_copied = {self.out.resolve(), *(Path(p).resolve() for p in protected_paths(session.settings))}
            if self._screen:
                self.head.notify = self._screen.say
            self._resources = stack.pop_all()

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
        self._resources.close()


def engine_of(state: FleetState, session: Session) -> Engine:
    """Return the fleet's engine. Raises SettingsError, SetupError, StateError."""
    if state.settings["engine"] == "local":
        return Engine()
    from autoagent.fleet.ray_engine import RayEngine

    try:
        return RayEngine(state.settings["address"], state.out, variables_of(session.loaded.persistent_values))
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise SetupError('--engine ray needs Ray; pip install "autoagent[ray]"') from error


def shared_memory(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags for a memory at an address, `-` for MEMORY_URL. Raises SettingsError."""
    url = flags["memory_url"]
    if url == "-" and not (url := Session.load({**flags, "memory_url": None}).settings.memory_url):
        raise SettingsError("--memory-url -: MEMORY_URL is not set.")
    for name in EXTENSION_BACKENDS:
        if url.startswith(name):
            return {"memory_url": url, "memory_backend": name}
    schemes = " or ".join(f"{name}://..." for name in EXTENSION_BACKENDS)
    raise SettingsError(f"--memory-url: is not the address of a shared memory; write {schemes}")


def variables_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as environment variables, for a worker on a machine without their sources.

    Raises SettingsError for a list with an entry that a variable cannot hold.
    """
    variables: dict[str, str] = {}
    for name, value in values.items():
        metadata = Settings.__dataclass_fields__[name].metadata
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        words = [text, *(metadata["choices"] or ())]
        if metadata["env"] and isinstance(value, tuple) and any("," in entry for entry in value):
            raise SettingsError(f"{name}: an entry with a comma cannot be passed to the workers of --engine ray.")
        with suppress(StopIteration):
            text = next(word for word in words if word and parse(name, word, name) == value)
            variables |= {variable: text for variable in metadata["env"][:1]}
    return variables


def _read_and_open(
    tasks: str | Path | bytes | Iterable[Mapping[str, Any]], flags: Mapping[str, Any]
) -> tuple[TaskList, Session]:
    """Read the tasks, and open the session once the user has trusted them. Raises the same errors as Fleet."""
    settings = Session.load(flags).settings
    if isinstance(tasks, bytes):
        task_list = read_tasks(STDIN, settings, tasks)
    else:
        task_list = read_tasks(Path(tasks), settings) if isinstance(tasks, (str, Path)) else tasks_of(tasks, settings)
    session = Session.open(flags, file_values=task_list.untrusted)
    for value in task_list.untrusted:
        if not session.trusts(value):
            raise SettingsError(f"{value.location}: is not trusted; nothing was started.")
    for job in task_list.jobs:
        if "continuous_limit" in job.given and not flags.get("continuous"):
            raise SettingsError(f"{job.id}: `steps` goes with -c/--continuous.")
    return task_list, session
