"""JSON schemas made from command specs: of a command's arguments, of a whole reply, of native tools.

A model that is bound to these cannot write a malformed command; one that is not is checked against the same specs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoagent.messages import CommandSpec, Parameter

THOUGHTS = ("text", "reasoning", "plan", "criticism", "speak")


def arguments(spec: CommandSpec) -> dict[str, Any]:
    """The schema of the `args` object of one command."""
    return _object(
        {p.name: _parameter(p) for p in spec.parameters}, required=[p.name for p in spec.parameters if p.required]
    )


def reply(specs: Sequence[CommandSpec]) -> dict[str, Any]:
    """The schema of a whole reply: the thoughts, then exactly one of the commands with its arguments."""
    commands = [
        _object({"name": {"type": "string", "const": spec.name}, "args": arguments(spec)}, ["name", "args"])
        for spec in specs
    ]
    return _object({"thoughts": thoughts(), "command": {"anyOf": commands}}, ["thoughts", "command"])


def tools(specs: Sequence[CommandSpec]) -> list[dict[str, Any]]:
    """The commands as OpenAI tools. The thoughts are an argument of each, so that a tool call never comes without."""
    return [{"type": "function", "function": _function(spec)} for spec in specs]


def thoughts() -> dict[str, Any]:
    """The schema of the `thoughts` object."""
    return _object({name: {"type": "string"} for name in THOUGHTS}, list(THOUGHTS))


def _function(spec: CommandSpec) -> dict[str, Any]:
    schema = arguments(spec)
    schema["properties"] = {"thoughts": thoughts(), **schema["properties"]}
    schema["required"] = ["thoughts", *schema["required"]]
    return {"name": spec.name, "description": spec.label, "parameters": schema}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.kind == "array":
        schema["items"] = {"type": "string"}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.help:
        schema["description"] = parameter.help
    return schema


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
