"""The session: the settings that hold in a folder, and the gate for what the folder brings."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import AutoagentError, SettingsError, SetupError, StopRun
from autoagent.core.task import Outcome, Status, Task
from autoagent.registry.parts import Place, UntrustedValue
from autoagent.registry.plugins import plugins
from autoagent.session.agent_files import untrusted_texts
from autoagent.session.dotenv import read_dotenv
from autoagent.session.load import HERE, KEPT, RUN, Loaded, load, of_run
from autoagent.session.server_lists import untrusted_servers
from autoagent.session.trust import Trusted, claim, find_trap, give_up, is_empty, is_own
from autoagent.settings import DOTENV, Settings, user_state_path
from autoagent.terminal.output import echo, say
from autoagent.text.sanitize import escape, fold_blanks
from autoagent.text.text_file import is_inside
from autoagent.text.wrapping import wrap

if TYPE_CHECKING:
    from autoagent.core.commands import CommandSpec

_STATE, _WHERE = "state_dir", ("workspace", "ai_settings_file")
_ELSEWHERE = "set it in ~/.config/autoagent/config.yaml, in the environment or by a flag"


@dataclass(frozen=True, slots=True)
class Session:
    """The settings and trust in a folder under the flags of one command, loaded once.

    `left_out` are the values of the folder that the user does not trust.
    """

    flags: Mapping[str, Any]
    folder: Path
    loaded: Loaded
    trusted: Trusted
    left_out: tuple[UntrustedValue, ...]
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment, set for this session alone

    @classmethod
    def open(
        cls, flags: Mapping[str, Any] | None, *, task: bool = False, more: Sequence[UntrustedValue] = ()
    ) -> Session:
        """Load a session for a command that acts: ask the user first whether to trust the folder's values.

        `task`: these include the checks of the saved goals. `more`: the values of a file that the user has named.

        Raises:
            SetupError: as `load`; nobody can be asked about what a run needs; a place to write to leads out of the
                folder.
            StopRun: the input has ended.
        """
        here = cls.load(flags, task=task, more=more)
        if here.waiting:
            asked = sys.stdin.isatty()
            if not asked and not all(untrusted.additive for untrusted in here.waiting):
                raise SetupError(_unasked(here))
            if asked and _is_trusted_now(here):
                with _kept_or_said():
                    here.trust()
                here = cls.load(flags, task=task, trusted=here.trusted, more=more)
        here.tell()
        with _kept_or_said():
            here.note_address()
        for untrusted in here.waiting:
            if not untrusted.name and untrusted.setting != _STATE and not untrusted.additive:
                raise SetupError(
                    f"{untrusted.file} leads out of this folder ({untrusted.value}); trust it, or name another."
                )
        return here

    @classmethod
    def read(cls, flags: Mapping[str, Any] | None) -> Session:
        """Load a session for a command that only reads: report the values left out, without a question.

        Raises as `load` does.
        """
        here = cls.load(flags)
        here.tell()
        return here

    @classmethod
    def load(
        cls,
        flags: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        *,
        task: bool = False,
        trusted: Trusted | None = None,
        more: Sequence[UntrustedValue] = (),
    ) -> Session:
        """Load the session of a folder, the current one by default, without questions, output or writing.

        Raises SettingsError, also if the state folder is a file, as it would look like one without runs. Raises
        SetupError for anything in it that is neither file nor folder: links are not followed, and pipes not awaited.
        """
        flags, env, folder = flags or {}, os.environ if env is None else env, folder or Path.cwd()
        trusted = trusted or Trusted(user_state_path(env))
        loaded = load(flags, env, folder, trusts=lambda untrusted: trusted.holds(folder, untrusted.mark))
        state = folder / loaded.settings.state_dir
        if os.path.exists(state) and not os.path.isdir(state):  # noqa: PTH110, PTH112 - Path's raise where nobody may look
            raise SettingsError(
                f"The state folder {loaded.settings.state_dir} is a file; name a folder with --state-dir."
            )
        named = _is_named(loaded, _STATE)
        if trap := find_trap(state, itself=not named):
            path, what = trap
            raise SetupError(f"{path} is {what}, and state is never kept behind one; remove it, or use --state-dir.")
        others = [
            *_leading_out(loaded, folder),
            *(checks_of_task(folder, loaded.settings.ai_settings_file) if task else ()),
            # What a run can do without: MCP servers, and the folder's instructions for the agent.
            *untrusted_servers(loaded.settings, folder, named=_is_named(loaded, "mcp_servers_file")),
            *untrusted_texts(folder, loaded.settings.workspace),
            *found_by_parts("asks", place_in(folder, loaded.settings, lambda value: trusted.holds(folder, value.mark))),
            *more,
        ]
        left = [*loaded.untrusted, *(untrusted for untrusted in others if not trusted.holds(folder, untrusted.mark))]
        if not named and not is_own(state, trusted):
            value, about = "", "runs and memory that were not made here by you"
            left.append(
                UntrustedValue(file=str(loaded.settings.state_dir), name="", value=value, about=about, setting=_STATE)
            )
            apart = trusted.base / "apart" / sha256(os.fsencode(folder)).hexdigest()[:16]
            loaded = replace(loaded, settings=replace(loaded.settings, state_dir=apart))
        return cls(flags, folder, loaded, trusted, tuple(left))

    def with_variables(self, env: Mapping[str, str]) -> Session:
        """Load the session again with these variables of the environment besides."""
        return replace(self.load(self.flags, {**os.environ, **env}, self.folder), variables=env)

    def continuing(self, kept: Mapping[str, Any]) -> Session:
        """Load the session again above the settings that a run has kept. Tell which keys are not sent there."""
        env = {**os.environ, **self.variables}
        here = self.load({KEPT: kept, **self.flags}, env, self.folder, trusted=self.trusted)
        for line in here.loaded.unsent:
            if line not in self.loaded.unsent:
                _say(line)
        return here

    def working_in(self, workspace: Path) -> Session:
        """Return the session with another workspace."""
        return replace(self, loaded=replace(self.loaded, settings=replace(self.settings, workspace=workspace)))

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def waiting(self) -> list[UntrustedValue]:
        """The values that would count if the folder were trusted."""
        return [untrusted for untrusted in self.left_out if not untrusted.never]

    @property
    def is_workspace(self) -> bool:
        """True if a wish works in the folder itself, as it is a project."""
        return self.loaded.origins["workspace"] == "default" and self.settings.workspace == HERE

    def is_named(self, setting: str) -> bool:
        """Return whether the user has named this file or folder himself."""
        return _is_named(self.loaded, setting)

    def holds(self, untrusted: UntrustedValue) -> bool:
        """Return whether the user trusts the folder with this."""
        return self.trusted.holds(self.folder, untrusted.mark)

    @property
    def place(self) -> Place:
        """The folder as extensions see it."""
        return place_in(self.folder, self.settings, self.holds)

    def trust(self) -> None:
        """Trust the folder's values and its state. Raises SettingsError if that cannot be saved."""
        for untrusted in self.waiting:
            if untrusted.setting == _STATE and not untrusted.name:
                claim(self.folder / untrusted.file, self.trusted)
        self.trusted.add(self.folder, self.waiting)

    def allowed(self, task: Task) -> Task:
        """Return the saved task without the checks that the folder is not trusted with."""
        path = self.settings.ai_settings_file
        left = {check.value for check in _checks_of(self.folder, path, task) if not self.holds(check)}
        goals = (replace(goal, check=None) if goal.check in left else goal for goal in task.goals)
        return replace(task, goals=tuple(goals))

    def tell(self) -> None:
        """Report the values left out in a line, and each key that is not sent."""
        for line in (*notices(self), *self.loaded.unsent):
            _say(line)

    def tell_notes(self) -> None:
        """Report settings of an AutoGPT folder that do nothing here, or something else."""
        for line in self.loaded.notes:
            _say(line)

    def note_address(self) -> None:
        """Note the address of the endpoint, if the user names it himself: a run in this folder may name it again."""
        item = of_run("openai_base_url", self.settings.openai_base_url)
        if item.value and self.is_named("openai_base_url") and not self.holds(item):
            self.trusted.add(self.folder, [item])


@contextmanager
def claimed_state(state_dir: Path) -> Iterator[None]:
    """Make the state folder before anything is written into it, and note it as the user's own.

    One that is not empty is the user's already, or the gate would have refused it. If it stays empty, it is removed.
    Failures to note it are reported.
    """
    state = Path.cwd() / state_dir
    if is_empty(state):
        with _kept_or_said():
            claim(state, Trusted(user_state_path(os.environ)))
    try:
        yield
    finally:
        give_up(state)


def trust_made(values: Mapping[str, str], path: Path | None = None, task: Task | None = None) -> None:
    """Trust this folder with what the user has just made: variables of `.env`, the checks of a task saved at `path`.

    Failures to keep that are reported.
    """
    guarded = {name for f in fields(Settings) if f.metadata["folder"] != "free" for name in f.metadata["env"]}
    made = [UntrustedValue(file=DOTENV, name=name, value=values[name], about="") for name in values if name in guarded]
    made += _checks_of(Path.cwd(), path, task) if path and task else []
    if made:
        with _kept_or_said():
            Trusted(user_state_path(os.environ)).add(Path.cwd(), made)


# What a folder brings besides its `.env` --------------------------------------------------------------------------


def _is_named(loaded: Loaded, name: str) -> bool:
    """Return whether the user has named this file or folder: by a flag, in the environment or the configuration."""
    return loaded.origins[name] not in ("default", RUN) and not loaded.origins[name].startswith(f"{DOTENV}:")


def _leading_out(loaded: Loaded, folder: Path) -> Iterator[UntrustedValue]:
    """Yield the places written to that lie in the folder by name but behind a link that leads out of it."""
    usual = [(name, getattr(loaded.settings, name)) for name in _WHERE if loaded.origins[name] == "default"]
    for setting, path in (*usual, ("", Path(DOTENV))):
        if not is_inside(folder, path):
            target = os.path.realpath(folder / path)
            yield UntrustedValue(
                file=str(path), name="", value=f"-> {target}", about="leads out of it", setting=setting
            )


def place_in(folder: Path, settings: Settings, trusts: Callable[[UntrustedValue], bool] = lambda value: False) -> Place:
    """Return a folder with these settings as extensions see it."""

    def variable(name: str) -> str | None:
        written = read_dotenv(folder / DOTENV).get(name)
        return (written.value if written else "") or os.environ.get(name)

    def specs() -> tuple[CommandSpec, ...]:
        from autoagent.commands.selection import all_specs

        return all_specs()

    return Place(
        folder=folder, setting=partial(getattr, settings), trusts=trusts, variable=variable, specs=specs,
        user_state=user_state_path(os.environ),
    )  # fmt: skip


def found_by_parts(method: str, place: Place) -> Iterator[Any]:
    """Yield everything that the extensions' parts in the folder yield by a method.

    Raises SetupError for a part that fails: it may know of a file to keep out of reach.
    """
    for plugin in plugins("folders"):
        try:
            yield from getattr(plugin.load(), method)(place)
        except AutoagentError:
            raise
        except Exception as error:  # the code of others: whatever it raises, the line says whose it is
            raise plugin.refuse(f"fails to look at the folder ({type(error).__name__}: {error})") from error


def _checks_of(folder: Path, path: Path, task: Task) -> list[UntrustedValue]:
    return [_check(folder, path, 0, goal.check) for goal in task.goals if goal.check]


def checks_of_task(folder: Path, path: Path) -> list[UntrustedValue]:
    """Return the checks of a task file, which are programs, or none if it cannot be read."""
    from autoagent.session.task_file import checks_in

    return [_check(folder, path, line, check) for line, check in checks_in(folder / path)]


def checks_of_team(folder: Path, path: Path, definition: Mapping[str, Any]) -> list[UntrustedValue]:
    """Return the checks of a team file, which are programs."""
    actions = [action for role in definition["roles"] for action in role["actions"]]
    found = dict.fromkeys(action["check"] for action in actions if action.get("check"))
    return [_check(folder, path, 0, check) for check in found]


def _check(folder: Path, path: Path, line: int, check: str) -> UntrustedValue:
    """Return a check as a value to ask about. A file in the folder is named from there, however the user named it."""
    place = Path(os.path.normpath(folder / path))
    file = place.relative_to(folder) if place.is_relative_to(folder) else place
    return UntrustedValue(
        file=str(file), line=line, name="check", value=check, about="a program, run as a goal is checked"
    )


# What is said of it ----------------------------------------------------------------------------------------------


def notices(here: Session) -> list[str]:
    """Return a line that names the values left out until the folder is trusted, and one for those never taken."""
    lines = []
    if here.waiting:
        lines.append(f"Left out until you trust this folder (`autoagent trust`): {_names(here.waiting)}.")
        if any(untrusted.setting == _STATE and not untrusted.name for untrusted in here.waiting):
            lines[0] += " New runs are kept in your own state folder meanwhile."
    if never := [untrusted for untrusted in here.left_out if untrusted.never]:
        lines.append(f"Never taken from a folder: {_names(never)}; {_ELSEWHERE}.")
    return lines


def listed(untrusted: Iterable[UntrustedValue]) -> list[str]:
    """Return a line for each thing: where it stands, its value, what it is for."""
    return [f"  {plain(one.called)}{_shown(one)}   ({one.about})" for one in untrusted]


def plain(text: str) -> str:
    """Return the text on one line, with nothing hidden in it."""
    return escape(text).replace("\n", "\\n").replace("\t", "\\t")


def _shown(untrusted: UntrustedValue) -> str:
    value = re.sub(r"(?<=//)[^/@]*(?=@)", "[masked]", untrusted.value) if untrusted.secret else untrusted.value
    value = plain(fold_blanks(value))  # whole: nothing that counts once it is trusted is left out
    if not untrusted.name:
        return f"  {value}".rstrip()
    return f" = {value}" if untrusted.setting else f": {value}"


def _names(untrusted: Iterable[UntrustedValue]) -> str:
    return ", ".join(plain(one.called) for one in untrusted)


def _unasked(here: Session) -> str:
    usual = "" if here.flags.get("ai_settings_file") else str(here.settings.ai_settings_file)
    named = (shlex.quote(one.file) for one in here.waiting if one.name == "check" and one.file != usual)
    command = f"autoagent trust {plain(next(named, ''))}".rstrip()
    rest = "" if all(one.name == "check" for one in here.waiting) else f"; what you want of the settings, {_ELSEWHERE}"
    return (
        f"These count only once you trust them: {_names(here.waiting)}. Look at them and trust them with `{command}`"
        f"{rest}."
    )


def _is_trusted_now(here: Session) -> bool:
    from autoagent.terminal.answers import ClickTerminal

    terminal = ClickTerminal()
    terminal.say(
        f"This folder ({plain(str(here.folder))}) brings what reaches out, weakens a boundary or runs a program:"
    )
    columns, rows = shutil.get_terminal_size()
    shown = "\n".join(wrap(line, columns, indent=6) for line in listed(here.waiting))
    echo(shown, err=True)
    if (lines := shown.count("\n") + 1) > rows - 4:  # what came first has left the screen
        terminal.say(f"These were {lines} lines, on {_names(here.waiting)}; scroll up to read them.")
    try:
        return terminal.decide("Trust it with these, until they change? y = yes, n = no, go on without them:")
    except EOFError:
        advice = "look at the folder, and trust it with `autoagent trust`"
        raise StopRun(Outcome(Status.UNANSWERED, f"an answer was needed and the input has ended; {advice}")) from None


@contextmanager
def _kept_or_said() -> Iterator[None]:
    """Say why something could not be kept, and go on: it holds for this time."""
    try:
        yield
    except SettingsError as error:
        _say(f"{error} You will be asked again.")


def _say(line: str) -> None:
    say(f"autoagent: {plain(line)}")
