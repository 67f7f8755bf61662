"""AutoGPT's plug-ins in a run: which are enabled and trusted, their processes, and their requests to the program."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from autoagent.core.commands import Call, CommandSpec
from autoagent.core.errors import CommandError, SetupError
from autoagent.core.protocols import NO_HOOKS, StepHooks
from autoagent.core.task import Goal, Task
from autoagent.session.dotenv import read_dotenv
from autoagent.session.plugins_config import PluginEntry, configured
from autoagent.settings import DOTENV, Settings, user_state_path
from autoagent.text.sanitize import escape

if TYPE_CHECKING:  # the first question does not wait for what few folders have
    from autoagent.commands.context import Context
    from autoagent.commands.registry import Command, Registry
    from autoagent.core.events import Event
    from autoagent.core.protocols import Authorizer, Embedder, Model
    from autoagent.plugins.discovery import FoundPlugin
    from autoagent.plugins.plugin_hooks import PluginHooks
    from autoagent.prompt import Guidance
    from autoagent.session.session import Session

MB = 1024 * 1024
INSTALL_SECONDS = 900.0
_GIVEN = ("PATH", "LANG", "LC_ALL", "TZ")  # of the environment, to each


@dataclass(frozen=True, slots=True)
class State:
    """A plug-in that was found, its configuration, and why it is not used ('' if it is)."""

    plugin: FoundPlugin
    entry: PluginEntry
    problem: str
    missing: tuple[str, ...]


@dataclass(slots=True)
class RunPlugins:
    """The plug-ins of a run. `commands` are those they add, once the prompt was shown to them."""

    hooks: StepHooks = NO_HOOKS
    plugins: PluginHooks | None = None
    served: _Served = field(default_factory=lambda: _Served())
    chats: bool = False
    commands: tuple[Command, ...] = ()

    def shape(self, task: Task, guidance: Guidance) -> tuple[Task, Guidance]:
        """Return the task and the lists of the prompt as the plug-ins change them."""
        if self.plugins is None:
            return task, guidance
        from autoagent.commands.selection import all_specs
        from autoagent.core.command_schema import TEXT_FORM
        from autoagent.plugins.plugin_hooks import PromptParts

        specs = all_specs()
        goals = {goal.text: goal for goal in task.goals}
        parts = PromptParts(
            task.name, task.role, tuple(goals), guidance.constraints, guidance.resources, guidance.best_practices
        )
        parts, commands = self.plugins.prompt(parts, TEXT_FORM, specs)
        self.plugins.watch(specs)
        self.commands = tuple(commands)
        changed = tuple(goals.get(text, Goal(text)) for text in parts.goals)
        lists = {name: getattr(parts, name) for name in ("constraints", "resources", "best_practices")}
        return replace(task, name=parts.name, role=parts.role, goals=changed), replace(guidance, **lists)

    @property
    def answer(self) -> bool:
        """Whether one of them answers in the place of the model."""
        return self.plugins is not None and self.plugins.handles("chat_completion")

    def model(self, settings: Settings, opened: Callable[[], Model]) -> Model:
        """Return the model, or a plug-in that answers in its place."""
        if not self.answer:
            return opened()
        from autoagent.plugins.plugin_model import PluginModel

        assert self.plugins is not None
        return PluginModel(self.plugins, settings, opened)

    def embedder(self) -> Embedder | None:
        """Return the plug-in that embeds, or None if none does."""
        if self.plugins is None or not self.plugins.handles("text_embedding"):
            return None
        from autoagent.plugins.plugin_model import PluginEmbedder

        return PluginEmbedder(self.plugins)

    def authorizer(self, asked: Authorizer) -> Authorizer:
        """Return who is asked before a command: a plug-in that answers for the user, before the user is."""
        if not self._chat("user_input"):
            return asked
        from autoagent.plugins.plugin_model import PluginAuthorizer

        assert self.plugins is not None
        return PluginAuthorizer(self.plugins, asked)

    def asked(self, ask: Callable[[str, float | None], str]) -> Callable[[str, float | None], str]:
        """Return the function with which a command asks the user: a plug-in that answers for the user, before."""
        plugins = self.plugins
        if plugins is None or not self._chat("user_input"):
            return ask
        return lambda question, timeout: plugins.answered(question)[0] or ask(question, timeout)

    def hear(self, event: Event) -> None:
        """Report an event to the plug-ins that show it in a chat."""
        if self._chat("report"):
            self.hooks.hear(event)

    def _chat(self, hook: str) -> bool:
        return self.chats and self.plugins is not None and self.plugins.handles(hook)

    def attach(self, context: Context, registry: Registry) -> None:
        """Let plug-ins use the run's context and commands."""
        self.served.context, self.served.registry = context, registry


@dataclass(slots=True)
class _Served:
    """Answers requests of plug-ins to the program (see plugins.process.Serve)."""

    context: Context | None = None
    registry: Registry | None = None

    def __call__(self, what: str, given: Mapping[str, Any]) -> Any:
        if self.context is None or self.registry is None:
            raise CommandError("The run has not begun yet.")
        if what == "complete":
            return self.context.complete(str(given.get("prompt", "")))
        if what == "run":
            return self._run(str(given.get("name", "")), dict(given.get("args") or {}))
        raise CommandError(f"There is nothing here for {what!r}.")

    def _run(self, name: str, args: dict[str, Any]) -> str:
        assert self.registry is not None
        assert self.context is not None
        call = self.registry.check(Call("plug-in", name, args))
        if not _is_for_plugins(self.registry.spec(call.name)):
            raise CommandError(f"A plug-in may not run {call.name} by itself; the agent may be asked for it.")
        result = self.registry.execute(call, self.context)
        if not result.ok:
            raise CommandError(result.text)
        return result.text


def _is_for_plugins(spec: CommandSpec) -> bool:
    """Return whether a plug-in may run the command by itself: it stays in the workspace, and can be undone."""
    return spec.category == "files" and spec.risk in ("read", "write")


@contextmanager
def opened_plugins(session: Session, say: Callable[[str], None], warn: Callable[[str], None]) -> Iterator[RunPlugins]:
    """Start the enabled plug-ins that the user trusts this folder with, and end them. Report what each can reach.

    Raises SettingsError for a plugins_config.yaml that cannot be read, SetupError if --install-plugin-deps fails.
    """
    settings = session.settings
    entries = configured(settings, session.folder)
    if not any(entry.enabled for entry in entries.values()):
        yield RunPlugins()
        return
    from autoagent.plugins.plugin_hooks import PluginHooks

    states = states_of(session)
    if session.flags.get("install_plugin_deps"):
        install(states, say)
        states = states_of(session)
    _tell_unused(entries, states, settings.plugins_dir, warn)
    used = [state for state in states if not state.problem]
    served = _Served()
    hooks = PluginHooks([_process(state, settings, served) for state in used], warn)
    try:
        for state in used:
            if hooks.loaded[state.plugin.name]:
                say(_reach(state))
        yield RunPlugins(hooks, hooks, served, settings.chat_messages)
    finally:
        hooks.close()


def states_of(session: Session) -> list[State]:
    """Return every plug-in that there is, and whether it is used."""
    from importlib.metadata import distributions

    from autoagent.plugins.discovery import TEMPLATE, find_plugins, missing_requirements, untrusted_plugin

    settings = session.settings
    entries = configured(settings, session.folder)
    environment = deps_python(session.folder).parent.parent
    places = [*map(str, environment.glob("lib/python*/site-packages")), *_search_path()]
    states = []
    for plugin in find_plugins(session.folder / settings.plugins_dir, session.folder):
        entry = plugin.entry(entries)
        untrusted = untrusted_plugin(plugin, entry, str(settings.plugins_config_file))
        problem = plugin.problem
        if not problem and not entry.enabled:
            problem = "it is not enabled"
        elif not problem and not session.holds(untrusted):
            problem = "this folder is not trusted with it (`autoagent trust`)"
        elif not problem and not any(distributions(name=TEMPLATE, path=_search_path())):
            problem = "the package for plug-ins is not installed: pip install 'autoagent[plugins]'"
        missing = () if problem else tuple(missing_requirements((*plugin.requirements, *entry.requirements), places))
        states.append(State(plugin, entry, problem, missing))
    return states


def _tell_unused(
    entries: Mapping[str, PluginEntry], states: Sequence[State], place: Path, warn: Callable[[str], None]
) -> None:
    """Report enabled plug-ins that are missing or cannot be used, and why."""
    known = {name for state in states for name in state.plugin.names}
    for name in (entry.name for entry in entries.values() if entry.enabled and entry.name not in known):
        warn(f"The plug-in {name} is enabled, but there is none in {place} nor installed.")
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


def open_one(state: State, settings: Settings, warn: Callable[[str], None]) -> PluginHooks:
    """Start one plug-in by itself, to look at it. The caller closes it."""
    from autoagent.plugins.plugin_hooks import PluginHooks

    return PluginHooks([_process(state, settings, _Served())], warn)


def _process(state: State, settings: Settings, served: _Served) -> Any:
    from autoagent.commands.selection import all_specs
    from autoagent.plugins.process import Launch, PluginProcess

    plugin, entry = state.plugin, state.entry
    commands = {
        name: [parameter.name for parameter in spec.parameters]
        for spec in all_specs()
        for name in (spec.name, *spec.aliases)
        if _is_for_plugins(spec)
    }
    facts = {
        "commands": commands, "requirements": [*plugin.requirements, *entry.requirements], "missing": state.missing,
        "plugin": entry.name, "workspace_path": str(settings.workspace.absolute()), "smart_llm": settings.smart_llm,
        "smart_llm_model": settings.smart_llm, "fast_llm": settings.fast_llm, "fast_llm_model": settings.fast_llm,
        "temperature": settings.temperature, "continuous_mode": settings.continuous, "debug_mode": settings.debug,
        "speak_mode": settings.speak, "authorise_key": settings.authorise_command_key, "exit_key": settings.exit_key,
        "chat_messages_enabled": settings.chat_messages, "restrict_to_workspace": True,
        "user_agent": settings.user_agent, "memory_backend": settings.memory_backend,
        "memory_index": settings.memory_index, "ai_settings_file": str(settings.ai_settings_file),
    }  # fmt: skip
    own = deps_python(Path.cwd())
    launch = Launch(
        python=str(own) if own.exists() else sys.executable,
        env=_environment(entry),
        first={"paths": _search_path(), "root": plugin.root, "alone": plugin.alone, "module": plugin.module,
               "config": dict(entry.config), "facts": facts},
        memory=settings.sandbox_memory * MB,
        file=settings.sandbox_file * MB,
        log=Path.cwd() / settings.state_dir / "plugins" / f"{plugin.module}.log",
        reads=plugin.reads,
    )  # fmt: skip
    return PluginProcess(plugin.name, launch, entry.seconds, served)


def _environment(entry: PluginEntry) -> dict[str, str]:
    """Return the variables that the entry names, of `.env` before those of the environment, and the usual few."""
    written = {name: found.value for name, found in read_dotenv(Path.cwd() / DOTENV).items()}
    given = {name: os.environ[name] for name in _GIVEN if name in os.environ}
    for name, value in entry.env.items():
        found = value if value is not None else written.get(name) or os.environ.get(name)
        if found is not None:
            given[name] = found
    return given


def _search_path() -> list[str]:
    """Return where installed packages are. Never the current folder, where anything may lie."""
    here = Path.cwd().resolve()
    return [place for place in sys.path if Path(place).is_absolute() and Path(place).resolve() != here]


# Their requirements ----------------------------------------------------------------------------------------------


def deps_python(folder: Path) -> Path:
    """Return the interpreter of the environment for a folder's plug-ins, which may not be there yet."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return user_state_path(os.environ) / "plugins" / digest / "bin" / "python"


def install(states: Sequence[State], say: Callable[[str], None], seconds: float = INSTALL_SECONDS) -> None:
    """Install the missing packages of the used plug-ins in an environment of their own, and report progress.

    Raises SetupError if it fails, or takes longer than `seconds`.
    """
    wanted = list(dict.fromkeys(line for state in states if not state.problem for line in state.missing))
    if not wanted:
        say("No requirement of the plug-ins is missing.")
        return
    python = deps_python(Path.cwd())
    say(f"Installing {', '.join(wanted)} in {python.parent.parent}, for at most {seconds:g} seconds.")
    end = time.monotonic() + seconds
    if not python.exists():
        _installed([sys.executable, "-I", "-m", "venv", str(python.parent.parent)], say, end)
    pip = [str(python), "-I", "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    _installed([*pip, "--disable-pip-version-check", "--", *wanted], say, end)


def _installed(command: Sequence[str], say: Callable[[str], None], end: float) -> None:
    """Run a command and show its output. Raises SetupError if it fails or has not ended by then."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(  # noqa: S603 - the user has asked for it
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
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
    except BaseException:  # Ctrl-C is not told to it, as it has a session of its own
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        late.cancel()
    if status:
        why = "it took too long" if status == -signal.SIGKILL else last.removeprefix("ERROR: ")
        raise SetupError(f"The requirements of the plug-ins cannot be installed: {why}")
