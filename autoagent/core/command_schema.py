"""Build JSON schemas of a command's arguments, a whole reply and native tools from command specs.

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

TEXT_FORM = (  # for models without an enforced schema
    "Answer with one JSON object of this form and nothing around it; it is read by a program. "
    "It holds exactly one command:\n" + json.dumps(_FORM, indent=4)
)


def arguments(spec: CommandSpec) -> dict[str, Any]:
    """Return the schema of the `args` object of a command."""
    required = [p.name for p in spec.parameters if p.required]
    return object_schema({p.name: parameter(p) for p in spec.parameters}, required)


def reply(specs: Sequence[CommandSpec], thought_names: Sequence[str] = THOUGHTS) -> dict[str, Any]:
    """Return the schema of a whole reply: the named thoughts, then a command with its arguments."""
    commands = [
        object_schema({"name": {"type": "string", "const": spec.name}, "args": arguments(spec)}) for spec in specs
    ]
    thoughts = object_schema({name: {"type": "string"} for name in thought_names})
    members = {"thoughts": thoughts} if thought_names else {}
    return object_schema({**members, "command": {"anyOf": commands}})


def tools(specs: Sequence[CommandSpec], thought_names: Sequence[str] = THOUGHTS) -> list[dict[str, Any]]:
    """Return the commands as OpenAI tools. Each takes the named thoughts as a list argument.

    Each prompt pays for every word here, so the description of an argument is omitted if an earlier tool has the same.
    """
    tools: list[dict[str, Any]] = []
    earlier_texts: set[tuple[str, str]] = set()
    for spec in specs:
        schema = arguments(spec)
        del schema["additionalProperties"]  # the registry checks each call anyway, and this costs tokens in each tool
        for name, argument in schema["properties"].items():
            if (text := argument.get("description", "")) and (name, text) in earlier_texts:
                del argument["description"]
            earlier_texts.add((name, text))
        if thought_names:
            thoughts = {"type": "array", "items": {"type": "string"}}  # repeated in each tool, so minimal
            schema["properties"] = {"thoughts": thoughts, **schema["properties"]}
            schema["required"] = ["thoughts", *schema["required"]]
        function = {"name": spec.name, "description": spec.label, "parameters": schema}
        tools.append({"type": "function", "function": function})
    return tools


def parameter(spec: Parameter) -> dict[str, Any]:
    """Return the schema of an argument's value."""
    if spec.schema is not None:
        return dict(spec.schema)
    schema: dict[str, Any] = {} if spec.kind == "any" else {"type": spec.kind}
    if spec.kind == "array":
        schema["items"] = {"type": spec.item}
    if spec.choices:
        schema["enum"] = list(spec.choices)
    if spec.help:
        schema["description"] = spec.help
    return schema


def object_schema(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    """Return the schema of an object with these properties, all or some of them `required`, and no others."""
    required = [*properties] if required is None else required
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
