"""Load the settings in effect in a folder, and ask the user to trust the folder's other values."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any

from autoagent.core.errors import AutoagentError, SettingsError, SetupError, StopRun
from autoagent.core.frozen import dataclass
from autoagent.core.task import Outcome, Status, Task
from autoagent.registry.parts import Place, UntrustedValue
from autoagent.registry.plugins import lazy_function, plugins
from autoagent.session.dotenv import read_dotenv, store_variables
from autoagent.session.folder_texts import untrusted_texts
from autoagent.session.load import CURRENT_FOLDER, LOGGED_SETTINGS, RUN, Loaded, load, saved_address
from autoagent.session.permissions import BOUNDS_VARIABLE, remove_from_path
from autoagent.session.task_file import checks_in, write_task
from autoagent.session.trust import Trusted, claim_folder, find_unsafe, is_foreign, is_own, lock_state, unlock_state
from autoagent.settings import DOTENV, Settings, all_settings, user_config_path, user_state_path
from autoagent.terminal.output import echo, say
from autoagent.text.sanitize import escape, fold_blanks
from autoagent.text.text_file import is_inside
from autoagent.text.wrapping import wrap

_STATE_SETTING = "state_dir"
_PATHS = ("workspace", "ai_settings_file")
_ALL_SPECS = lazy_function("autoagent.commands.selection:all_specs")  # loads every command
_TRUSTED_PLACES = "in ~/.config/autoagent/config.yaml, in the environment or by a flag"


@dataclass(frozen=True, slots=True)
class Session:
    """The settings in effect in a folder under one command's flags, and the user's trust in it, loaded once."""

    flags: Mapping[str, Any]
    folder: Path
    loaded: Loaded
    trusted: Trusted
    left_out: tuple[UntrustedValue, ...]  # values of the folder that the user does not trust
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables for this session only

    @classmethod
    def open(
        cls, flags: Mapping[str, Any] | None, *, task: bool = False, file_values: Sequence[UntrustedValue] = ()
    ) -> Session:
        """Load a session for a command that acts, asking the user first whether to trust the folder's values.

        With `task`, include the checks of the saved goals. `file_values` are those of a file that the user has named.
        Raises SetupError like `load`, and if nobody can be asked about values that a run needs, or a place to write to
        leads out of the folder. Raises StopRun if the input has ended.
        """
        session = cls.load(flags, task=task, file_values=file_values)
        if session.waiting:
            can_ask = sys.stdin.isatty()
            if not can_ask and not all(value.additive for value in session.waiting):
                raise SetupError(_trust_advice(session))
            if can_ask and _ask_for_trust(session):
                with _reporting_failure():
                    session.trust()
                session = cls.load(flags, task=task, trusted=session.trusted, file_values=file_values)
        session.report_left_out()
        with _reporting_failure():
            session.note_address()
        for value in session.waiting:
            if not value.name and value.setting != _STATE_SETTING and not value.additive:
                raise SetupError(f"{value.file} leads out of this folder ({value.value}); trust it, or name another.")
        return session

    @classmethod
    def read(cls, flags: Mapping[str, Any] | None) -> Session:
        """Load a session for a read-only command. Report untrusted values without a question. Raises like `load`."""
        session = cls.load(flags)
        session.report_left_out()
        return session

    @classmethod
    def load(
        cls,
        flags: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        *,
        task: bool = False,
        trusted: Trusted | None = None,
        file_values: Sequence[UntrustedValue] = (),
    ) -> Session:
        """Load the session of a folder, by default the current one, without questions, output or writing.

        Raises SettingsError, also if the state folder is a file, since that would look like no runs. Raises SetupError
        if anything in it is neither file nor folder, since links lead elsewhere and opening a pipe blocks.
        """
        flags, folder = flags or {}, folder or Path.cwd()
        env = os.environ if env is None else env
        trusted = trusted or Trusted(user_state_path(env))
        loaded = load(flags, env, folder, trusts=lambda untrusted: trusted.holds(folder, untrusted.mark))
        session = cls(flags, folder, loaded, trusted, ())
        settings = session.settings
        remove_from_path(folder / settings.workspace, os.environ)
        state = folder / settings.state_dir
        if os.path.exists(state) and not os.path.isdir(state):  # noqa: PTH110, PTH112 - Path's raise where nobody may look
            raise SettingsError(f"The state folder {settings.state_dir} is a file; name a folder with --state-dir.")
        is_named = session.is_named(_STATE_SETTING)
        if unsafe := find_unsafe(state, checks_state=not is_named):
            path, kind = unsafe
            raise SetupError(f"{path} is {kind}, and state is never kept behind a link; remove it, or use --state-dir.")
        others = [
            *session._links_outside(),
            *(checks_of_task(folder, settings.ai_settings_file) if task else ()),
            *untrusted_texts(folder, settings.workspace),
            *found_by_parts("asks", session.place),
            *file_values,
        ]
        left_out = [*loaded.untrusted, *(untrusted for untrusted in others if not session.trusts(untrusted))]
        if not is_named and not is_own(state, trusted):
            about = "runs and memory that you did not make here"
            left_out.append(
                UntrustedValue(file=str(settings.state_dir), name="", value="", about=about, setting=_STATE_SETTING)
            )
            own_folder = trusted.base / "apart" / sha256(os.fsencode(folder)).hexdigest()[:16]
            loaded = replace(loaded, settings=replace(settings, state_dir=own_folder))
        return replace(session, loaded=loaded, left_out=tuple(left_out))

    def with_variables(self, env: Mapping[str, str]) -> Session:
        """Load the session again with these additional environment variables."""
        return replace(self.load(self.flags, {**os.environ, **env}, self.folder), variables=env)

    def continuing(self, logged: Mapping[str, Any]) -> Session:
        """Load the session again on top of a run's logged settings, and report withheld keys."""
        env = {**os.environ, **self.variables}
        session = self.load({LOGGED_SETTINGS: logged, **self.flags}, env, self.folder, trusted=self.trusted)
        for line in session.loaded.withheld_keys:
            if line not in self.loaded.withheld_keys:
                _say(line)
        return session

    def working_in(self, workspace: Path) -> Session:
        return replace(self, loaded=replace(self.loaded, settings=replace(self.settings, workspace=workspace)))

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def waiting(self) -> list[UntrustedValue]:
        """Return the values that trust in the folder would enable."""
        return [untrusted for untrusted in self.left_out if not untrusted.never]

    @property
    def works_in_folder(self) -> bool:
        """Return whether a wish works in the folder itself, because it is a project."""
        return self.loaded.origins["workspace"] == "default" and self.settings.workspace == CURRENT_FOLDER

    def is_named(self, setting: str) -> bool:
        """Return whether a flag, the environment or the user's configuration names this file or folder."""
        origin = self.loaded.origins[setting]
        return origin not in ("default", RUN) and not origin.startswith(f"{DOTENV}:")

    def trusts(self, untrusted: UntrustedValue) -> bool:
        return self.trusted.holds(self.folder, untrusted.mark)

    @property
    def place(self) -> Place:
        """Return the folder as extensions see it."""
        return replace(place_in(self.folder, self.settings), trusts=self.trusts, is_named=self.is_named)

    def _links_outside(self) -> Iterator[UntrustedValue]:
        """Yield writable places in the folder behind a link that leads out of it."""
        paths = [(name, getattr(self.settings, name)) for name in _PATHS if self.loaded.origins[name] == "default"]
        for setting, path in (*paths, ("", Path(DOTENV))):
            if not is_inside(self.folder, path):
                target, about = os.path.realpath(self.folder / path), "leads out of it"
                yield UntrustedValue(file=str(path), name="", value=f"-> {target}", about=about, setting=setting)

    def trust(self) -> None:
        """Trust the folder's values and its state. Raises SettingsError if that cannot be saved."""
        for untrusted in self.waiting:
            if untrusted.setting == _STATE_SETTING and not untrusted.name:
                claim_folder(self.folder / untrusted.file, self.trusted)
        self.trusted.add(self.folder, self.waiting)

    def check_made_here(self, run: str) -> None:
        """Raise SetupError for a run that others made: its log can name any workspace, its snapshots hold any file."""
        state = self.settings.state_dir
        if not self.is_named(_STATE_SETTING) and is_foreign(self.folder / state, run, self.trusted):
            raise SetupError(f"The run {run} was not made here. Go on only if you made it: --state-dir {state}.")

    def without_untrusted_checks(self, task: Task) -> Task:
        """Return the saved task with only the checks that the user trusts."""
        path = self.settings.ai_settings_file
        untrusted_checks = {check.value for check in _check_values(self.folder, path, task) if not self.trusts(check)}
        goals = (replace(goal, check=None) if goal.check in untrusted_checks else goal for goal in task.goals)
        return replace(task, goals=tuple(goals))

    def report_left_out(self) -> None:
        """Report the untrusted values in one line, then each withheld key and each setting that no longer exists."""
        for line in (*notices(self), *self.loaded.withheld_keys, *self.loaded.removed_settings):
            _say(line)

    def report_notes(self) -> None:
        """Report settings of an AutoGPT folder that have no effect, or a different one, here."""
        for line in self.loaded.notes:
            _say(line)

    def note_address(self) -> None:
        """Note an endpoint address that the user names, so that a run in this folder may name it again."""
        item = saved_address("openai_base_url", self.settings.openai_base_url)
        if item.value and self.is_named("openai_base_url") and not self.trusts(item):
            self.trusted.add(self.folder, [item])


@contextmanager
def claimed_state(state_dir: Path) -> Iterator[None]:
    """Create the state folder before anything is written into it, and record it as the user's own.

    A folder that is not empty is the user's own already, as loading the session has ensured. It is removed again if it
    stays empty and no other process uses it.
    """
    state, descriptor = Path.cwd() / state_dir, -1
    with _reporting_failure():
        descriptor = lock_state(state, Trusted(user_state_path(os.environ)))
    try:
        yield
    finally:
        unlock_state(state, descriptor)


def save_variables(values: Mapping[str, str]) -> None:
    """Store the user's own variables in `.env`, and trust this folder with them. Raises SettingsError."""
    store_variables(Path.cwd() / DOTENV, values)
    guarded = {name for f in fields(all_settings()) if f.metadata["folder"] != "free" for name in f.metadata["env"]}
    user_values = [item for item in values.items() if item[0] in guarded]
    _trust_own([UntrustedValue(file=DOTENV, name=name, value=value, about="") for name, value in user_values])


def save_task(path: Path, task: Task) -> None:
    """Write the user's own task, and trust this folder with its checks. Raises SettingsError."""
    write_task(path, task)
    _trust_own(_check_values(Path.cwd(), path, task))


def _trust_own(values: Sequence[UntrustedValue]) -> None:
    if values:
        with _reporting_failure():
            Trusted(user_state_path(os.environ)).add(Path.cwd(), values)


def place_in(folder: Path, settings: Settings) -> Place:
    """Return a folder with these settings as extensions see it: trusted with nothing, no file named by the user."""

    def variable(name: str) -> str | None:
        entry = read_dotenv(folder / DOTENV).get(name)
        return (entry.value if entry else "") or os.environ.get(name)

    return Place(
        folder=folder, setting=partial(getattr, settings), trusts=lambda value: False, variable=variable,
        specs=_ALL_SPECS, is_named=lambda name: False, user_state=user_state_path(os.environ),
        user_config=user_config_path(os.environ).parent, is_scenario=BOUNDS_VARIABLE in os.environ,
    )  # fmt: skip


def found_by_parts(method: str, place: Place) -> Iterator[Any]:
    """Yield the findings of a method of the extensions' parts in the folder. Raises SetupError if a part fails."""
    for plugin in plugins("folders"):
        try:
            part = plugin.load()
            if hasattr(part, method) or method != "needs":  # `needs` is optional
                yield from getattr(part, method)(place)
        except AutoagentError:
            raise
        except Exception as error:  # foreign code, which may know of a file to protect
            raise plugin.refuse(f"fails to look at the folder ({type(error).__name__}: {error})") from error


def _check_values(folder: Path, path: Path, task: Task) -> list[UntrustedValue]:
    return [_check_value(folder, path, 0, goal.check) for goal in task.goals if goal.check]


def checks_of_task(folder: Path, path: Path) -> list[UntrustedValue]:
    """Return the checks of a task file, which are programs, or none if it cannot be read."""
    return [_check_value(folder, path, line, check) for line, check in checks_in(folder / path)]


def checks_of_team(folder: Path, path: Path, definition: Mapping[str, Any]) -> list[UntrustedValue]:
    """Return the checks of a team file, which are programs."""
    actions = [action for role in definition["roles"] for action in role["actions"]]
    checks = dict.fromkeys(action["check"] for action in actions if action.get("check"))
    return [_check_value(folder, path, 0, check) for check in checks]


def _check_value(folder: Path, path: Path, line: int, check: str) -> UntrustedValue:
    """Return a check as a value that needs trust. A file in the folder is named by its relative path."""
    place = Path(os.path.normpath(folder / path))
    file = place.relative_to(folder) if place.is_relative_to(folder) else place
    return UntrustedValue(file=str(file), line=line, name="check", value=check, about="a program that checks a goal")


def notices(session: Session) -> list[str]:
    """Return a line that names the values ignored until trusted, and one for those never accepted."""
    lines = []
    if session.waiting:
        lines.append(f"Left out until you trust this folder (`autoagent trust`): {_locations(session.waiting)}.")
        if any(value.setting == _STATE_SETTING and not value.name for value in session.waiting):
            lines[0] += " New runs are kept in your own state folder meanwhile."
    return [*lines, *filter(None, (refused_notice(session),))]


def refused_notice(session: Session) -> str:
    """Return a line that names the values never accepted from a folder, or ''."""
    refused = [value for value in session.left_out if value.never]
    return f"Never taken from a folder: {_locations(refused)}; set it {_TRUSTED_PLACES}." if refused else ""


def describe_values(values: Iterable[UntrustedValue]) -> list[str]:
    """Return a line for each value: location, content, purpose."""
    lines = []
    for untrusted in values:
        value = re.sub(r"(?<=//)[^/@]*(?=@)", "[masked]", untrusted.value) if untrusted.secret else untrusted.value
        value = one_line(fold_blanks(value))  # shown whole, as trust covers all of it
        content = (f" = {value}" if untrusted.setting else f": {value}") if untrusted.name else f"  {value}".rstrip()
        lines.append(f"  {one_line(untrusted.location)}{content}   ({untrusted.about})")
    return lines


def one_line(text: str) -> str:
    """Return the text on one line, with control characters escaped."""
    return escape(text).replace("\n", "\\n").replace("\t", "\\t")


def _locations(values: Iterable[UntrustedValue]) -> str:
    return ", ".join(one_line(value.location) for value in values)


def _trust_advice(session: Session) -> str:
    usual_file = "" if session.flags.get("ai_settings_file") else str(session.settings.ai_settings_file)
    task_values = [v for v in session.waiting if v.name == "check" or (v.line and not v.setting)]  # not of `.env`
    other_files = (quote(value.file) for value in task_values if value.file != usual_file)
    backend = any(value.setting == "memory_url" for value in session.waiting) and session.flags.get("memory_backend")
    command = f"autoagent {f'-m {backend} ' if backend else ''}trust {one_line(next(other_files, ''))}".rstrip()
    settings_advice = "" if len(task_values) == len(session.waiting) else f"; set those you want {_TRUSTED_PLACES}"
    return (
        f"These count only once you trust them: {_locations(session.waiting)}. "
        f"Review and trust them with `{command}`{settings_advice}."
    )


def _ask_for_trust(session: Session) -> bool:
    from autoagent.terminal.answers import ClickTerminal

    terminal = ClickTerminal()
    terminal.say(
        f"This folder ({one_line(str(session.folder))}) has values that reach out, weaken a boundary or run a program:"
    )
    columns, rows = shutil.get_terminal_size()
    text = "\n".join(wrap(line, columns, indent=6) for line in describe_values(session.waiting))
    echo(text, err=True)
    if (line_count := text.count("\n") + 1) > rows - 4:  # the beginning has scrolled away
        terminal.say(f"These were {line_count} lines, on {_locations(session.waiting)}; scroll up to read them.")
    try:
        return terminal.decide("Trust it with these, until they change? y = yes, n = no, continue without them:")
    except EOFError:
        advice = "review the folder, and trust it with `autoagent trust`"
        raise StopRun(Outcome(Status.UNANSWERED, f"an answer was needed and the input has ended; {advice}")) from None


@contextmanager
def _reporting_failure() -> Iterator[None]:
    """Report why something could not be saved, and continue, as it still applies this time."""
    try:
        yield
    except SettingsError as error:
        _say(f"{error} You will be asked again.")


def _say(line: str) -> None:
    say(f"autoagent: {one_line(line)}")
