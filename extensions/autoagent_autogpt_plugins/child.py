"""Run in a plug-in's process: load the plug-in and answer requests, each a line of JSON.

It needs nothing but the standard library, so that it runs in the plug-ins' own environment too.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import queue
import re
import resource
import socket
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import Any

from autoagent_autogpt_plugins import autogpt_modules
from autoagent_autogpt_plugins.autogpt_modules import PromptGenerator

_PACKAGE = "autogpt_plugins"
HOOKS = (
    "post_prompt", "on_planning", "post_planning", "pre_instruction", "on_instruction", "post_instruction",
    "pre_command", "post_command", "on_response", "chat_completion", "text_embedding", "user_input", "report",
)  # fmt: skip
_TRIED_WITH: Mapping[str, Mapping[str, Any]] = {  # what `can_handle_...` is given, where the template gives something
    "chat_completion": {"messages": [], "model": "", "temperature": 0.0, "max_tokens": 1},
    "text_embedding": {"text": ""},
    "user_input": {"user_input": ""},
    "report": {"message": ""},
}
_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"}


def main() -> None:
    """Serve the socket whose number is the last argument, until it closes."""
    channel = _Channel(socket.socket(fileno=int(sys.argv[-1])))
    child = _Child(channel)
    while True:
        message = channel.receive()
        try:
            channel.send({"result": child.do(message)})
        except BaseException as error:  # foreign code: whatever it raises, even SystemExit, is its answer
            channel.send({"error": child.reason(error)})


class _Channel:
    """Connect to the program. A thread reads, so that the process ends with the program whatever it is doing."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def receive(self) -> dict[str, Any]:
        """Return the next message."""
        message: dict[str, Any] = json.loads(self._lines.get())
        return message

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. Values that are not JSON are sent as text."""
        self._socket.sendall(json.dumps(message, default=str).encode() + b"\n")

    def serve(self, what: str, **given: Any) -> Any:
        """Ask the program for something. Raises RuntimeError if it refuses."""
        self.send({"serve": what, "given": given})
        answer = self.receive()["served"]
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def _read(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                self._lines.put(line)
        os._exit(0)


class _Alone(MetaPathFinder):
    """Find one package in a folder, and nothing else there, as the user was asked only about this."""

    def __init__(self, root: str, package: str) -> None:
        self._root = root
        self._names = (package, f"{_PACKAGE}.{package}")

    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> Any:
        """Return the location of the package; see importlib."""
        return PathFinder.find_spec(name, [self._root]) if name in self._names else None


class _Child:
    def __init__(self, channel: _Channel) -> None:
        self._channel = channel
        self._plugins: list[Any] = []
        self._commands: dict[str, Callable[..., Any]] = {}
        self._generator = PromptGenerator()
        self._module = ""
        self._missing: list[str] = []

    def reason(self, error: BaseException) -> str:
        """Return why the plug-in failed. For a module that is not installed, which one and what installs it.

        The first error of the chain counts: plug-ins catch it, try another import, and fail with a misleading message.
        """
        first, missing, seen = error, "", {id(error)}
        while (before := first.__cause__ or first.__context__) is not None and id(before) not in seen:
            first = before  # not for ever: an error may be its own cause
            seen.add(id(first))
        if isinstance(error, ImportError) and isinstance(first, ModuleNotFoundError):
            missing = first.name or ""
        elif isinstance(error, ImportError) and error.name == self._module:
            missing = self._module  # the plug-in has the name of the package that it needs, and found itself
        if missing.partition(".")[0] == "autogpt":
            return str(first)
        if not missing:
            return f"it raised {type(error).__name__}: {error}".removesuffix(": ")
        words = set(re.split(r"[_.]", missing.lower()))
        packages = [re.split(r"[^A-Za-z0-9._-]", line)[0] for line in self._missing]
        named = [package for package in packages if words <= set(re.split(r"[-_.]", package.lower()))] or packages
        brings = f"--install-plugin-deps installs {', '.join(named)}" if named else (
            "its requirements.txt does not name it: name what brings it under `requirements:` of its entry"
        )  # fmt: skip
        return f"it needs the module {missing}, which is not installed ({brings})"

    def do(self, message: dict[str, Any]) -> Any:
        """Carry out a request. Raises whatever the plug-in raises."""
        what = message.pop("ask")
        known: dict[str, Callable[..., Any]] = {
            "load": self._load, "about": self._about, "prompt": self._prompt, "hook": self._hook,
            "command": lambda name, args: _as_text(_awaited(self._commands[name](**args))),
        }  # fmt: skip
        return known[what](**message)

    def _load(
        self,
        limits: list[int],
        paths: list[str],
        root: str,
        alone: bool,
        module: str,
        config: dict[str, Any],
        facts: dict[str, Any],
    ) -> None:
        """Import the plug-in."""
        self._module, self._missing = module, facts["missing"]
        kinds_of_limits = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)
        for limit, most in zip(kinds_of_limits, limits, strict=True):
            with suppress(ValueError, OSError):  # it is already lower, or this system has no such limit
                resource.setrlimit(limit, (most, most))
        sys.pycache_prefix = f"{os.devnull}/none"  # compiled files might differ from the source that was checked
        sys.path += [path for path in paths if path not in sys.path]
        if root:  # under a package of their own, as one may be called like a module of Python's (`email`)
            package = types.ModuleType(_PACKAGE)
            package.__path__ = [] if alone else [root]
            sys.modules[_PACKAGE] = package
            if alone:
                sys.meta_path.append(_Alone(root, module))
            else:
                sys.path.append(root)
            module = f"{_PACKAGE}.{module}"
        autogpt_modules.install(self._channel.serve, facts, config, lambda: self._generator)
        template = importlib.import_module("auto_gpt_plugin_template").AutoGPTPluginTemplate
        loaded = importlib.import_module(module)
        kinds: list[Any] = [kind for _, kind in inspect.getmembers(loaded, inspect.isclass)]
        for kind in kinds:
            if issubclass(kind, template) and kind is not template:
                kind.__abstractmethods__ = frozenset()  # a missing hook does nothing
                self._plugins.append(kind())

    def _about(self) -> list[dict[str, Any]]:
        """Describe the plug-ins' classes and what they can currently handle."""
        return [
            {
                "name": str(getattr(plugin, "_name", type(plugin).__name__)),
                "version": str(getattr(plugin, "_version", "")),
                "description": str(getattr(plugin, "_description", "")),
                "hooks": [hook for hook in HOOKS if _may_handle(plugin, hook)],
            }
            for plugin in self._plugins
        ]

    def _prompt(self, state: dict[str, Any]) -> dict[str, Any]:
        """Let the plug-ins change the parts of the prompt. Return these, and the commands that they add."""
        generator, failed = PromptGenerator(), ""
        generator.take(state)
        for plugin in self._plugins:
            try:
                changed = plugin.post_prompt(generator) if _handles(plugin, "post_prompt", {}) else None
                generator = changed if isinstance(changed, PromptGenerator) else generator
            except Exception as error:  # foreign code
                failed = self.reason(error)  # keep what it added before that
        self._generator = generator
        commands = []
        for label, name, params, function in generator.added():
            if callable(function):
                self._commands[name] = function
                commands.append({"name": name, "label": label, "parameters": _parameters(params, function)})
        return {**generator.state(), "commands": commands, "failed": failed, "about": self._about()}

    def _hook(self, hook: str, given: dict[str, Any]) -> Any:
        """Ask every plug-in that can handle a hook in turn. Each receives the result of the previous one."""
        result: Any = None
        for plugin in self._plugins:
            if not _handles(plugin, hook, given if hook in _TRIED_WITH else {}):
                continue
            value, given = self._one(plugin, hook, given)
            result = value if value is not None else result
        return result

    def _one(self, plugin: Any, hook: str, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return a plug-in's answer to a hook, or None, and the arguments for the next plug-in."""
        if hook == "on_planning":
            said = plugin.on_planning(self._generator, given["messages"])
            return said or None, given
        if hook == "pre_command":
            changed = plugin.pre_command(given["command_name"], given["arguments"])
            if not (isinstance(changed, tuple | list) and len(changed) == 2):
                return None, given
            given = {"command_name": changed[0], "arguments": changed[1]}
            return list(changed), given
        method = getattr(plugin, hook if hook in _TEMPLATES_NAME else f"handle_{hook}", None) or getattr(plugin, hook)
        value = _called(method, given)
        if value is not None and hook in _PASSED_ON:
            given = {**given, _PASSED_ON[hook]: value}
        return value, given


_TEMPLATES_NAME = frozenset(HOOKS) - {"chat_completion", "text_embedding"}
_PASSED_ON = {  # the argument in which the next plug-in receives the previous result
    "post_planning": "response", "post_instruction": "response", "post_command": "response", "on_response": "response",
}  # fmt: skip


def _handles(plugin: Any, hook: str, given: Mapping[str, Any]) -> bool:
    """Return whether a plug-in says that it can handle a hook."""
    can = getattr(plugin, f"can_handle_{hook}", None)
    return can is not None and bool(_called(can, given))


def _may_handle(plugin: Any, hook: str) -> bool:
    """Return whether it may handle a hook: one that fails to say so is asked again, and may fail, at its time."""
    try:
        return _handles(plugin, hook, _TRIED_WITH.get(hook, {}))
    except Exception:  # foreign code: a failure with one hook must not disable the others
        return True


def _called(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call a function with these arguments by name, by position or not at all, as its signature requires."""
    signature = inspect.signature(function)
    for args, kwargs in (((), given), (tuple(given.values()), {}), ((), {})):
        with suppress(TypeError):
            signature.bind(*args, **kwargs)
            break
    return function(*args, **kwargs)


def _parameters(params: Mapping[str, Any], function: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the arguments of a command: those it names, else those of its function."""
    try:
        signature = inspect.signature(function).parameters
    except (TypeError, ValueError):
        signature = {}  # type: ignore[assignment] # of a function in C
    plain = [one for one in signature.values() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    found = []
    for name, help_text in (params or {one.name: "" for one in plain}).items():
        one = signature.get(name)
        hint: Any = getattr(one, "annotation", None)
        hints = {kind.__name__: kind for kind in _KINDS}
        kind = hints.get(hint, str) if isinstance(hint, str) else hint
        optional = one is not None and one.default is not inspect.Parameter.empty
        found.append({"name": name, "help": str(help_text), "kind": _KINDS.get(kind, "any"), "required": not optional})
    return found


def _awaited(value: Any) -> Any:
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, indent=1)
    except (TypeError, ValueError):
        return str(value)
