"""The commands that MCP servers offer: `mcp__SERVER__TOOL`, with the arguments that their schemas name.

They declare no effects, so that each call is asked about and each result counts as untrusted and private, whatever a
server says of its tools' effects. Its texts and schemas are bounded before a model reads them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from autoagent.core.commands import CommandSpec, Parameter, ResultMeta
from autoagent.extension import Command, CommandError, CommandOutput, Context, folded
from autoagent.text.quoting import defuse
from autoagent.text.sanitize import escape, shorten
from autoagent_mcp.tool_servers import PREFIX, ServerTool

if TYPE_CHECKING:
    from autoagent_mcp.client import ConnectedServer

NAME = 64  # characters of a command's name that endpoints take
DESCRIPTION, HELP = 800, 200  # characters of a tool's description, and of an argument's
SCHEMA = 12_000  # characters of the schema of a tool's arguments, as a model is shown it
_DEPTH, _NODES = 6, 400  # of a schema, what is beyond says nothing
_LARGEST = 1e300  # of the numbers in a schema
_RESERVED = "thoughts"  # an argument of every native tool call

_ARGUMENT = re.compile(r"[\w.$-]{1,64}", re.ASCII)  # an argument's name, which stands in the prompt
_KINDS = ("string", "integer", "number", "boolean", "array", "object")
_Kind = Literal["string", "integer", "number", "boolean", "array", "object", "any"]


def command_name(server: str, tool: str) -> str:
    """Return the name of the command for a tool of a server."""
    name = PREFIX + re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{tool}")
    if len(name) <= NAME:
        return name
    return f"{name[: NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def category_of(server: str) -> str:
    """Return the category of a server's commands."""
    return f"{PREFIX}{server}"


def server_commands(
    server: ConnectedServer, tools: Iterable[ServerTool], say: Callable[[str], None]
) -> list[tuple[ServerTool, Command]]:
    """Return the commands of a server for these tools. `say` hears which cannot be used, and why."""
    found: dict[str, tuple[ServerTool, Command]] = {}  # by the name as all spellings have it
    for tool in tools:
        name = command_name(server.entry.name, tool.name)
        problem = "another one has its name already" if folded(name) in found else ""
        try:
            parameters = _parameters(tool.schema)
        except ValueError as error:
            problem = str(error)
        if problem:
            say(f"{name} is left out: {problem}.")
        else:
            found[folded(name)] = tool, _command(server, tool, name, parameters)
    return list(found.values())


def _command(server: ConnectedServer, tool: ServerTool, name: str, parameters: tuple[Parameter, ...]) -> Command:
    source = f"the MCP server {server.entry.name}"

    def call(context: Context, /, **args: Any) -> CommandOutput:
        answer = server.call(tool, args)
        for file, data in answer.files.items():
            context.workspace.write(file, data)
        if answer.failed:
            raise CommandError(answer.text or "The server says that it failed, and not why.")
        return CommandOutput(answer.text or "(nothing)", ResultMeta(untrusted=source, changed=tuple(answer.files)))

    spec = CommandSpec(
        name=name,
        label=f"{_line(tool.description, DESCRIPTION) or tool.name} [MCP server {server.entry.name}]",
        category=category_of(server.entry.name),
        risk="irreversible" if tool.kind == "tool" else "network",
        parameters=parameters,
        repeatable=True,
        always_offered=True,
    )
    return Command(spec, call)


def _parameters(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return the arguments that a schema names. Raises ValueError, with the reason, for one that cannot be used."""
    simple = _Simplified(schema).of(schema, 0)
    properties = simple.get("properties", {})
    if wrong := next((name for name in properties if not _ARGUMENT.fullmatch(name)), None):
        raise ValueError(f"an argument of it is called {shorten(wrong, 40)!r}")
    if _RESERVED in properties:
        raise ValueError(f"an argument of it is called {_RESERVED!r}")
    if len(json.dumps(simple)) > SCHEMA:
        raise ValueError("its arguments take too much room to describe")
    required = set(simple.get("required", ()))
    return tuple(_parameter(name, found, name in required) for name, found in properties.items())


def _parameter(name: str, schema: dict[str, Any], required: bool) -> Parameter:
    kind = schema.get("type")
    choices = tuple(schema.get("enum", ())) if kind == "string" else ()
    return Parameter(
        name,
        cast(_Kind, kind) if kind in _KINDS else "any",
        required,
        None if required else schema.get("default"),
        schema.get("description", ""),
        tuple(one for one in choices if isinstance(one, str)),
        schema=schema,
    )


class _Simplified:
    """A schema in the few words that every endpoint and grammar takes, its references filled in, within bounds."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def of(self, schema: Any, depth: int) -> dict[str, Any]:
        """Return the schema of a value. `{}`, which allows anything, if it is too deep, too large or not a schema."""
        self._nodes += 1
        if depth > _DEPTH or self._nodes > _NODES or not isinstance(schema, Mapping):
            return {}
        if isinstance(schema.get("$ref"), str):
            return self.of(self._referred(schema["$ref"]), depth + 1)
        simple: dict[str, Any] = {key: schema[key] for key in ("minimum", "maximum") if _is_number(schema.get(key))}
        kind = schema.get("type")
        if isinstance(kind, str) and kind in (*_KINDS, "null"):
            simple["type"] = kind
        if isinstance(schema.get("enum"), list) and len(schema["enum"]) <= 100:
            choices = [one for one in schema["enum"] if one is None or _is_plain(one)]
            simple |= {"enum": choices} if choices else {}
        if _is_plain(schema.get("default")):
            simple["default"] = schema["default"]
        if isinstance(schema.get("description"), str):
            simple["description"] = _line(schema["description"], HELP)
        if isinstance(schema.get("properties"), Mapping):
            properties = schema["properties"].items()
            simple["properties"] = {
                name: self.of(one, depth + 1) for name, one in properties if not depth or _ARGUMENT.fullmatch(str(name))
            }
            required = schema.get("required")
            named = required if isinstance(required, list) else []
            simple["required"] = [name for name in named if isinstance(name, str) and name in simple["properties"]]
        if kind == "array":
            simple["items"] = self.of(schema.get("items", {}), depth + 1)
        if isinstance(several := schema.get("anyOf", schema.get("oneOf")), list) and several:
            simple["anyOf"] = [self.of(one, depth + 1) for one in several]
        return simple

    def _referred(self, reference: str) -> Any:
        """Resolve a reference within the schema, or None for any other."""
        found: Any = self._root
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found if reference.startswith("#/") else None


def _is_number(value: Any) -> bool:
    """Return whether it is a number that JSON has, and every reader of it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def _is_plain(value: Any) -> bool:
    """Return whether a value can be shown as it is: it cannot be changed, as the server takes no other."""
    return isinstance(value, bool) or _is_number(value) or (isinstance(value, str) and _line(value, HELP) == value)


def _line(text: str, limit: int) -> str:
    """Return a server's words in one line that hides nothing and cannot pass for marks."""
    return shorten(" ".join(escape(defuse(text)).split()), limit)
