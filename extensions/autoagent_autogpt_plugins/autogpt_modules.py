"""Provide the modules that plug-ins import from AutoGPT, in their process: thin, and mapped to this program.

docs/plugins.md lists each name and what it maps to. What is not here raises ModuleNotFoundError, which says so.
"""

from __future__ import annotations

import abc
import importlib.abc
import importlib.machinery
import logging
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Serve = Callable[..., Any]
Command = tuple[str, str, Mapping[str, Any], Any]
"""A command: its label, name, arguments and function."""

_LISTS = ("goals", "constraints", "resources", "performance_evaluation")


class Singleton(abc.ABCMeta, type):
    """Make classes of which only one instance exists."""

    _instances: dict[type, Any] = {}  # noqa: RUF012 - of the metaclass

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return the only instance."""
        if cls not in cls._instances:
            cls._instances[cls] = super().__call__(*args, **kwargs)
        return cls._instances[cls]


class AbstractSingleton(abc.ABC, metaclass=Singleton):
    """Have only one instance."""


class CommandRegistry:
    """Hold the commands that a plug-in registers without the prompt generator."""

    def __init__(self) -> None:
        self.commands: dict[str, Any] = {}

    def register(self, command: Any) -> None:
        """Add a command, with `name`, `description`, `method` and `parameters` or `signature`."""
        self.commands[command.name] = command

    def unregister(self, command: Any) -> None:
        """Remove a command."""
        self.commands.pop(getattr(command, "name", command), None)


class PromptGenerator:
    """Hold the parts of the prompt, in the form that AutoGPT's plug-ins expect."""

    def __init__(self) -> None:
        self.constraints: list[str] = []
        self.commands: list[dict[str, Any]] = []
        self.resources: list[str] = []
        self.performance_evaluation: list[str] = []
        self.goals: list[str] = []
        self.command_registry = CommandRegistry()
        self.name = ""
        self.role = ""
        self.response_format: Any = {}

    def take(self, state: Mapping[str, Any]) -> None:
        """Start with the parts of the prompt."""
        for key in _LISTS:
            setattr(self, key, list(state[key]))
        self.name, self.role, self.response_format = state["name"], state["role"], state["response_format"]

    def state(self) -> dict[str, Any]:
        """Return the current parts of the prompt."""
        lists = {key: [str(one) for one in getattr(self, key) or ()] for key in _LISTS}
        return {**lists, "name": str(self.name or ""), "role": str(self.role or "")}

    def added(self) -> Iterator[Command]:
        """Yield all commands that were added, however this was done."""
        for one in self.commands:
            yield str(one.get("label", "")), str(one["name"]), one.get("args") or {}, one.get("function")
        for name, command in self.command_registry.commands.items():
            named = getattr(command, "parameters", None) or ()
            params = {one.name: getattr(one, "description", "") for one in named if hasattr(one, "name")}
            method = getattr(command, "method", None) or command
            yield str(getattr(command, "description", name)), str(name), params, method

    def add_constraint(self, constraint: str) -> None:
        """Add a constraint."""
        self.constraints.append(constraint)

    def add_resource(self, resource: str) -> None:
        """Add a resource."""
        self.resources.append(resource)

    def add_performance_evaluation(self, evaluation: str) -> None:
        """Add a best practice."""
        self.performance_evaluation.append(evaluation)

    def add_command(
        self, command_label: str, command_name: str, params: Any = None, function: Any = None, *_: Any, **__: Any
    ) -> None:
        """Add a command. `params` maps each argument to a word about it.

        AutoGPT finds a command by its label or its name, and plug-ins give them in either order.
        """
        if command_label.isidentifier() and not command_name.isidentifier():
            command_label, command_name = command_name, command_label
        args = dict(params) if isinstance(params, Mapping) else {}
        self.commands.append({"label": command_label, "name": command_name, "args": args, "function": function})

    def generate_prompt_string(self, *_: Any, **__: Any) -> str:
        """Return a short prompt. The real one is built elsewhere."""
        parts = {"Constraints": self.constraints, "Resources": self.resources, "Goals": self.goals}
        return "\n\n".join(f"{title}:\n" + "\n".join(lines) for title, lines in parts.items())


class Logger:
    """Stand in for `autogpt.logs.logger`, and write to the plug-in's log."""

    def __init__(self) -> None:
        self.chat_plugins: list[Any] = []

    def typewriter_log(self, title: str = "", title_color: str = "", content: Any = "", *_: Any, **__: Any) -> None:
        """Write a line."""
        self.info(f"{title} {' '.join(map(str, content)) if isinstance(content, list) else content}".strip())

    def info(self, message: Any = "", *_: Any, **__: Any) -> None:
        """Write a line."""
        sys.stderr.write(f"{message}\n")

    debug = warn = warning = error = double_check = log_json = log = info


class _Config(SimpleNamespace):
    """Hold those of AutoGPT's settings that have a meaning here. Any other is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def install(
    serve: Serve, facts: Mapping[str, Any], config: Mapping[str, Any], prompt: Callable[[], PromptGenerator]
) -> None:
    """Serve `autogpt` in this process. `facts` are the settings, `config` is what is configured for the plug-in.

    AutoGPT also brought `openai` 0.27: it is served to a plug-in that does not require a version of its own.
    """
    modules = _modules(serve, facts, config, prompt)
    if not any(re.match(r"openai\b", line) for line in facts["requirements"]):
        modules["openai"] = {"ChatCompletion": _openai_chat(_chatter(serve)), "api_key": None, "api_base": None}
    sys.meta_path.insert(0, _Finder(modules))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find `autogpt` and its modules, and nothing else."""

    def __init__(self, modules: Mapping[str, Mapping[str, Any]]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a provided module. Raises ModuleNotFoundError for any other module of AutoGPT."""
        if name.partition(".")[0] != "autogpt" and name not in self._modules:
            return None
        below = any(known.startswith(f"{name}.") for known in self._modules)
        if name not in self._modules and not below:
            raise ModuleNotFoundError(f"{name} of AutoGPT is not served here; docs/plugins.md lists what is", name=name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        """Use the default."""
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        """Fill the module."""
        module.__dict__.update(self._modules.get(module.__name__, {}))


def _modules(
    serve: Serve, facts: Mapping[str, Any], config: Mapping[str, Any], prompt: Callable[[], PromptGenerator]
) -> dict[str, dict[str, Any]]:
    entry = SimpleNamespace(name=facts.get("plugin", ""), enabled=True, config=dict(config))
    plugins = SimpleNamespace(
        plugins={entry.name: entry}, get=lambda name: entry, is_enabled=lambda name: name == entry.name
    )
    settings = _Config(**{**facts, "plugins_config": plugins, "plugins": []})

    class Config:
        """Return the settings."""

        def __new__(cls, *_: Any, **__: Any) -> Any:
            return settings

    run, chat, logger = _runner(serve), _chatter(serve), Logger()
    files = {name: run(name, *given) for name, given in facts.get("commands", {}).items()}
    chats = {"create_chat_completion": chat, "call_ai_function": _ai_function(chat)}
    counts = {"count_string_tokens": _count, "count_message_tokens": lambda messages, *_: _count(str(messages))}
    generator = {"PromptGenerator": PromptGenerator}
    commands = {"CommandRegistry": CommandRegistry, "Command": SimpleNamespace}
    singletons = {"Singleton": Singleton, "AbstractSingleton": AbstractSingleton}
    execute = {"execute_command": lambda command_name, arguments, *_, **__: run(command_name)(**arguments)}
    chat_types = {"Message": dict, "MessageDict": dict, "ChatSequence": list}
    return {
        "autogpt": {},
        "autogpt.agent": {}, "autogpt.agents": {},
        "autogpt.app": execute,
        "autogpt.commands": {},
        "autogpt.commands.command": {"command": _decorator, **commands},
        "autogpt.commands.file_operations": files,
        "autogpt.command_decorator": {"command": _decorator},
        "autogpt.config": {"Config": Config},
        "autogpt.config.config": {"Config": Config},
        "autogpt.config.ai_config": {"AIConfig": _ai_config(prompt)},
        "autogpt.llm": {**chat_types, **chats},
        "autogpt.llm.base": chat_types,
        "autogpt.llm.token_counter": counts,
        "autogpt.llm.utils": {**chats, **counts},
        "autogpt.llm_utils": chats,
        "autogpt.logs": {"logger": logger, "Logger": Logger},
        "autogpt.models": {},
        "autogpt.models.command": commands,
        "autogpt.models.command_registry": commands,
        "autogpt.promptgenerator": generator,
        "autogpt.prompts": {},
        "autogpt.prompts.generator": generator,
        "autogpt.singleton": singletons,
        "autogpt.speech": {"say_text": lambda text, *_: logger.info(text)},
        "autogpt.spinner": {"Spinner": _Spinner},
        "autogpt.token_counter": counts,
        "autogpt.utils": {},
        "autogpt.workspace": {
            "Workspace": _workspace(facts), "path_in_workspace": lambda path: _inside(facts, path),
            "safe_path_join": lambda base, *paths: _inside(facts, os.path.join(base, *paths)),  # noqa: PTH118
            "WORKSPACE_PATH": Path(str(facts.get("workspace_path", "."))),
        },
    }  # fmt: skip


def _ai_config(prompt: Callable[[], PromptGenerator]) -> type:
    class AIConfig(SimpleNamespace):
        """Hold a name, a role and goals. `load` returns those of the run, once they are known."""

        @classmethod
        def load(cls, *_: Any, **__: Any) -> Any:
            """Return the record of the run, whichever file is named."""
            return cls()

        def __getattr__(self, name: str) -> Any:
            if name not in ("ai_name", "ai_role", "ai_goals", "api_budget"):
                raise AttributeError(name)
            return getattr(prompt(), name.removeprefix("ai_"), 0.0)

    return AIConfig


def _openai_chat(chat: Callable[..., Any]) -> type:
    class ChatCompletion:
        """Answer with the run's model, whichever model is named. The cost is part of the run's."""

        @staticmethod
        def create(messages: Any = (), **_: Any) -> Any:
            """Return a response with one choice."""
            message = _Response(role="assistant", content=chat(messages))
            return _Response(choices=[_Response(index=0, message=message, finish_reason="stop")])

    return ChatCompletion


class _Response(dict[str, Any]):
    """Hold a response as openai 0.27 returned it, with its values as items and attributes."""

    __getattr__ = dict.__getitem__


def _runner(serve: Serve) -> Callable[..., Callable[..., Any]]:
    def runner(name: str, *names: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            known = {key: str(value) for key, value in given.items() if key not in ("agent", "should_log")}
            return serve("run", name=name, args=known)

        return run

    return runner


def _chatter(serve: Serve) -> Callable[..., Any]:
    def create_chat_completion(messages: Any = None, *_: Any, **kwargs: Any) -> Any:
        given = messages if messages is not None else kwargs.get("prompt", "")
        return serve("complete", prompt=given if isinstance(given, str) else _joined(given))

    return create_chat_completion


def _joined(messages: Iterable[Any]) -> str:
    def part(message: Any, name: str) -> str:
        return str(message.get(name, "") if isinstance(message, dict) else getattr(message, name, ""))

    return "\n\n".join(f"{part(one, 'role')}: {part(one, 'content')}" for one in messages)


def _ai_function(chat: Callable[..., Any]) -> Callable[..., Any]:
    def call_ai_function(function: str, args: Sequence[Any], description: str, *_: Any, **__: Any) -> Any:
        given = ", ".join(str(one) if one is not None else "None" for one in args)
        return chat(f"You are this function, and answer with its return value alone:\n# {description}\n{function}\n"
                    f"Its arguments: {given}")  # fmt: skip

    return call_ai_function


def _count(text: Any, *_: Any) -> int:
    return len(str(text)) // 4


def _decorator(name: str, description: str = "", *_: Any, **__: Any) -> Callable[[Any], Any]:
    """Mark a function as a command, as AutoGPT's `@command` does. It is offered once it is registered."""

    def mark(function: Any) -> Any:
        function.command = SimpleNamespace(name=name, description=description, method=function)
        return function

    return mark


class _Spinner:
    """Show no spinner."""

    def __init__(self, *_: Any, **__: Any) -> None:
        logging.getLogger(__name__)

    def __enter__(self) -> _Spinner:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _inside(facts: Mapping[str, Any], path: Any) -> Path:
    """Return a path in the workspace. Raises ValueError for a path that leads out of it."""
    root = Path(str(facts.get("workspace_path", "."))).resolve()
    joined = Path(root, path).resolve()
    if not joined.is_relative_to(root):
        raise ValueError(f"{path} is outside of the workspace")
    return joined


def _workspace(facts: Mapping[str, Any]) -> type:
    class Workspace:
        """Give access to the run's workspace."""

        root = Path(str(facts.get("workspace_path", ".")))

        def __init__(self, *_: Any, **__: Any) -> None:
            self.restrict_to_workspace = True

        def get_path(self, path: Any) -> Path:
            """Return a path in it."""
            return _inside(facts, path)

    return Workspace
