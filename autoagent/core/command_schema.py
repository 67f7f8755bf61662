"""JSON schemas of a command's arguments, of a whole reply and of native tools, made from command specs.

A model constrained by these cannot write a malformed command. Other replies are checked against the same specs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autoagent.core.commands import CommandSpec, Parameter

_FORM: dict[str, dict[str, Any]] = {
    "thoughts": {
        "text": "thought",
        "reasoning": "reasoning",
        "plan": "- the way to the goals\n- as short bullets",
        "criticism": "constructive self-criticism",
        "speak": "one sentence for the user",
    },
    "command": {"name": "command name", "args": {"arg name": "value"}},
}

THOUGHTS = tuple(_FORM["thoughts"])

TEXT_FORM = (
    "Answer with one JSON object of this form and nothing around it; it is read by a program. "
    "It holds exactly one command:\n" + json.dumps(_FORM, indent=4)
)
"""What a model is told of the form of its reply where nothing binds it to that."""


def arguments(spec: CommandSpec) -> dict[str, Any]:
    """Return the schema of the `args` object of one command."""
    return _object(
        {p.name: parameter(p) for p in spec.parameters}, required=[p.name for p in spec.parameters if p.required]
    )


def reply(specs: Sequence[CommandSpec], named: Sequence[str] = THOUGHTS) -> dict[str, Any]:
    """Return the schema of a whole reply: the named thoughts, then a command with its arguments."""
    commands = [
        _object({"name": {"type": "string", "const": spec.name}, "args": arguments(spec)}, ["name", "args"])
        for spec in specs
    ]
    said = {"thoughts": thoughts(named)} if named else {}
    return _object({**said, "command": {"anyOf": commands}}, [*said, "command"])


def tools(specs: Sequence[CommandSpec], named: Sequence[str] = THOUGHTS) -> list[dict[str, Any]]:
    """Return the commands as OpenAI tools. The list of thoughts, if any are named, is an argument of each."""
    return [{"type": "function", "function": _function(spec, named)} for spec in specs]


def thoughts(named: Sequence[str] = THOUGHTS) -> dict[str, Any]:
    """Return the schema of the `thoughts` object with the named thoughts."""
    return _object({name: {"type": "string"} for name in named}, list(named))


def _function(spec: CommandSpec, named: Sequence[str]) -> dict[str, Any]:
    schema = arguments(spec)
    if named:
        said = {"type": "array", "items": {"type": "string"}}  # in each tool, so no more than needed
        schema["properties"] = {"thoughts": said, **schema["properties"]}
        schema["required"] = ["thoughts", *schema["required"]]
    return {"name": spec.name, "description": spec.label, "parameters": schema}


def parameter(declared: Parameter) -> dict[str, Any]:
    """Return the schema of the value of one argument."""
    if declared.schema is not None:
        return dict(declared.schema)
    schema: dict[str, Any] = {"type": declared.kind}
    if declared.kind == "array":
        schema["items"] = {"type": declared.item}
    if declared.choices:
        schema["enum"] = list(declared.choices)
    if declared.help:
        schema["description"] = declared.help
    return schema


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
