"""Manage the plug-ins of a run: which are enabled and trusted, their processes, and the packages they require."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

from autoagent.core.errors import SetupError
from autoagent.text.sanitize import escape
from autoagent_autogpt_plugins.config import PluginEntry, configured

if TYPE_CHECKING:  # the first question does not wait for what few folders have
    from autoagent.extension import Place, RunOpening, RunPart
    from autoagent_autogpt_plugins.discovery import FoundPlugin
    from autoagent_autogpt_plugins.plugin_hooks import PluginHooks
    from autoagent_autogpt_plugins.process import PluginProcess, Served

MB = 1024 * 1024
INSTALL_SECONDS = 900.0
_GIVEN = ("PATH", "LANG", "LC_ALL", "TZ")  # of the environment, for each plug-in


@dataclass(frozen=True, slots=True)
class State:
    """Hold a plug-in that was found, its configuration, and why it is not used, or ''."""

    plugin: FoundPlugin
    entry: PluginEntry
    problem: str
    missing: tuple[str, ...]


@contextmanager
def opened(run: RunOpening) -> Iterator[RunPart | None]:
    """Start the enabled plug-ins that the user trusts this folder with, and end them. Report what each can reach.

    Raises SettingsError for a plugins_config.yaml that cannot be read, SetupError if --install-plugin-deps fails.
    """
    entries = configured(run.place)
    if not any(entry.enabled for entry in entries.values()):
        yield None
        return
    states = states_of(run.place)
    if run.flags.get("install_plugin_deps"):
        install(run.place, states, run.say)
        states = states_of(run.place)
    _tell_unused(entries, states, run.place.setting("plugins_dir"), run.warn)
    used = [state for state in states if not state.problem]
    hooks = started(run.place, used, run.warn)
    try:
        for state in used:
            if hooks.loaded[state.plugin.name]:
                run.say(_reach(state))
        yield hooks
    finally:
        hooks.close()


def states_of(place: Place) -> list[State]:
    """Return all plug-ins, and whether each is used."""
    from importlib.metadata import distributions

    from autoagent_autogpt_plugins.discovery import TEMPLATE, find_plugins, missing_requirements, untrusted_plugin

    entries, folder = configured(place), place.setting("plugins_dir")
    environment = deps_python(place).parent.parent
    places = [*map(str, environment.glob("lib/python*/site-packages")), *_search_path()]
    states = []
    for plugin in find_plugins(place.folder / folder, place.folder):
        entry = plugin.entry(entries)
        untrusted = untrusted_plugin(plugin, entry, str(place.setting("plugins_config_file")))
        problem = plugin.problem
        if not problem and not entry.enabled:
            problem = "it is not enabled"
        elif not problem and not place.trusts(untrusted):
            problem = "this folder is not trusted with it (`autoagent trust`)"
        elif not problem and not any(distributions(name=TEMPLATE, path=_search_path())):
            problem = "the package for plug-ins is not installed: pip install 'autoagent[plugins]'"
        missing = () if problem else tuple(missing_requirements((*plugin.requirements, *entry.requirements), places))
        states.append(State(plugin, entry, problem, missing))
    return states


def _tell_unused(
    entries: Mapping[str, PluginEntry], states: Sequence[State], folder: Path, warn: Callable[[str], None]
) -> None:
    """Report enabled plug-ins that are missing or cannot be used, and why."""
    known = {name for state in states for name in state.plugin.names}
    for name in (entry.name for entry in entries.values() if entry.enabled and entry.name not in known):
        warn(f"The plug-in {name} is enabled, but there is none in {folder} nor installed.")
    for state in states:
        if state.entry.enabled and state.problem:
            warn(f"The plug-in {state.plugin.name} is not used: {state.problem}.")
        elif not state.problem and state.missing:
            warn(
                f"The plug-in {state.plugin.name} asks for {', '.join(state.missing)}: --install-plugin-deps installs "
                "that in an environment of the plug-ins' own."
            )


def _reach(state: State) -> str:
    given = ", ".join(state.entry.env) or "nothing"
    return (
        f"The plug-in {state.plugin.name} runs in a process of its own, outside of the sandbox: it may use the network "
        f"and your files. Of the environment it is given {given}; what it prints goes to the state folder."
    )


# Processes -------------------------------------------------------------------------------------------------------


def started(place: Place, states: Sequence[State], warn: Callable[[str], None]) -> PluginHooks:
    """Start plug-ins. The caller closes them."""
    from autoagent_autogpt_plugins.plugin_hooks import PluginHooks
    from autoagent_autogpt_plugins.process import Served

    served = Served()
    processes = [_process(state, place, served) for state in states]
    return PluginHooks(processes, warn, place.setting, place.specs(), served)


def _process(state: State, place: Place, served: Served) -> PluginProcess:
    from autoagent.extension import runs_alone
    from autoagent_autogpt_plugins.process import Launch, PluginProcess

    plugin, entry, setting = state.plugin, state.entry, place.setting
    commands = {
        name: [parameter.name for parameter in spec.parameters]
        for spec in place.specs()
        for name in (spec.name, *spec.aliases)
        if runs_alone(spec)
    }
    facts = {
        "commands": commands, "requirements": [*plugin.requirements, *entry.requirements], "missing": state.missing,
        "plugin": entry.name, "workspace_path": str(setting("workspace").absolute()), "smart_llm": setting("smart_llm"),
        "smart_llm_model": setting("smart_llm"), "fast_llm": setting("fast_llm"), "fast_llm_model": setting("fast_llm"),
        "temperature": setting("temperature"), "continuous_mode": setting("continuous"), "debug_mode": setting("debug"),
        "speak_mode": setting("speak"), "authorise_key": setting("authorise_command_key"),
        "exit_key": setting("exit_key"),
        "chat_messages_enabled": setting("chat_messages"), "restrict_to_workspace": True,
        "user_agent": setting("user_agent"), "memory_backend": setting("memory_backend"),
        "memory_index": setting("memory_index"), "ai_settings_file": str(setting("ai_settings_file")),
    }  # fmt: skip
    own = deps_python(place)
    launch = Launch(
        python=str(own) if own.exists() else sys.executable,
        env=_environment(place, entry),
        first={"paths": _search_path(), "root": plugin.root, "alone": plugin.alone, "module": plugin.module,
               "config": dict(entry.config), "facts": facts},
        memory=setting("sandbox_memory") * MB,
        file=setting("sandbox_file") * MB,
        log=place.folder / setting("state_dir") / "plugins" / f"{plugin.module}.log",
        reads=plugin.reads,
    )  # fmt: skip
    return PluginProcess(plugin.name, launch, entry.seconds, served)


def _environment(place: Place, entry: PluginEntry) -> dict[str, str]:
    """Return the variables that the entry names, of `.env` before those of the environment, and the usual few."""
    given = {name: os.environ[name] for name in _GIVEN if name in os.environ}
    for name, value in entry.env.items():
        found = value if value is not None else place.variable(name)
        if found is not None:
            given[name] = found
    return given


def _search_path() -> list[str]:
    """Return the folders of installed packages, without the current folder, which may contain anything."""
    here = Path.cwd().resolve()
    return [place for place in sys.path if Path(place).is_absolute() and Path(place).resolve() != here]


# Their requirements ----------------------------------------------------------------------------------------------


def deps_python(place: Place) -> Path:
    """Return the interpreter of the environment for a folder's plug-ins, which may not be there yet."""
    digest = hashlib.sha256(os.fsencode(place.folder)).hexdigest()[:16]
    return place.user_state / "plugins" / digest / "bin" / "python"


def install(
    place: Place, states: Sequence[State], say: Callable[[str], None], seconds: float = INSTALL_SECONDS
) -> None:
    """Install the missing packages of the used plug-ins in an environment of their own, and report progress.

    Raises SetupError if it fails, or takes longer than `seconds`.
    """
    wanted = list(dict.fromkeys(line for state in states if not state.problem for line in state.missing))
    if not wanted:
        say("No requirement of the plug-ins is missing.")
        return
    python = deps_python(place)
    say(f"Installing {', '.join(wanted)} in {python.parent.parent}, for at most {seconds:g} seconds.")
    end = time.monotonic() + seconds
    if not python.with_name("pip").exists():  # or an earlier try was interrupted
        _installed([sys.executable, "-I", "-m", "venv", "--clear", str(python.parent.parent)], say, end)
    pip = [str(python), "-I", "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    _installed([*pip, "--disable-pip-version-check", "--", *wanted], say, end)


def _installed(command: Sequence[str], say: Callable[[str], None], end: float) -> None:
    """Run a command and show its output. Raises SetupError if it fails or has not ended by then."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(  # noqa: S603 - the user has asked for it; not where a file may be called like a package
        command, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    late = Timer(max(0, end - time.monotonic()), lambda: os.killpg(process.pid, signal.SIGKILL))
    late.start()
    last = ""
    assert process.stdout is not None
    try:
        with process.stdout as lines:
            for line in lines:
                last = escape(line.strip()) or last
                if not line.startswith((" ", "Requirement already")):
                    say(f"  {last}")
        status = process.wait()
    except BaseException:  # Ctrl-C does not reach it, as it has its own session
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        late.cancel()
    if status:
        why = "it took too long" if status == -signal.SIGKILL else last.removeprefix("ERROR: ")
        raise SetupError(f"The requirements of the plug-ins cannot be installed: {why}")
