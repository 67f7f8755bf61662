"""Build the grammar of a reply with one of the offered commands, in llguidance's format.

%llguidance {}

start: "{"command": {"name": "" (call_0 | call_1 | …)

The lexer takes the longest match and never backtracks, so common prefixes of commands come first. Each value is bound
by its JSON schema, and the content of a JSON file starts and ends as an object or a list. Code is free, but only the
line that ends its block begins with a backtick (`autoagent/text/code_block.py`): small models continue after any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autoagent.core import command_schema
from autoagent.core.commands import CODE, CommandSpec, Parameter
from autoagent.text import code_block

# The only whitespace between JSON tokens: otherwise small models fill their reply with it.
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

_LETTER = r'([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))'  # in a JSON string
_UNFENCED = r"^(`{0,2}([^`][\s\S]*)?)$"  # a string that is not taken for a block, as a pattern for a JSON schema
_NAME = r'[^"\\\x00-\x1f]+'
_RULES = (
    r'block: LANGUAGE "\n" code',
    f"LANGUAGE: /({'|'.join(code_block.CODE_LANGUAGES)})?/",  # otherwise models write an object like the reply here
    rf"code[lazy]: /[^{code_block.OMITTED}`]([^\n]|\n[^`])*\n{code_block.PLACEHOLDER}/",
    rf"CODE_FILE: /{_NAME}\.({'|'.join(code_block.CODE_SUFFIXES)})/",
    rf"JSON_FILE: /{_NAME}\.json/",
    rf"OTHER_FILE: /{_NAME}/ & ~CODE_FILE & ~JSON_FILE",
    # JSON strings; one that begins like a block would be taken for one
    rf'UNFENCED: /"{_LETTER}*"/ & ~/"{code_block.PLACEHOLDER}(?s:.*)/',
    rf'JSON_TEXT: /"[{{\[]{_LETTER}*[}}\]](\\n)?"/',
)


def reply_grammar(commands: Sequence[CommandSpec]) -> str:
    """Return the grammar of one compact object, followed by code if a command declares it."""
    names = " | ".join(f"call_{number}" for number in range(len(commands)))
    start = f"start: {_literal(_BEGIN)} ({names})"
    calls = [f"call_{number}: {_call_grammar(spec)}" for number, spec in enumerate(commands)]
    return "\n".join(["%llguidance {}", start, *calls, *_RULES, ""])


def schema_grammar(schema: Mapping[str, Any]) -> str:
    """Return the grammar of one compact object that fits a JSON schema."""
    return f"%llguidance {{}}\nstart: {_json_grammar(schema)}\n"


def _call_grammar(spec: CommandSpec) -> str:
    """Return the grammar of the reply, starting with the command's name."""
    begin = _literal(f'{spec.name}", "args": ')
    code = next((parameter for parameter in spec.parameters if parameter.code), None)
    file = next((parameter for parameter in spec.parameters if parameter.meaning == "path"), None)
    if code is None or not all(parameter.required for parameter in spec.parameters):
        arguments = command_schema.arguments(spec)
        for value in arguments["properties"].values():
            if value.get("type") == "string" and "enum" not in value:
                value["pattern"] = _UNFENCED
        return f"{begin} {_json_grammar(arguments)} {_literal(_END)}"
    placeholder = {code.name: _literal(json.dumps(code_block.PLACEHOLDER))}
    if code.code == CODE:
        return f"{begin} {_arguments_grammar(spec, placeholder)} {_BLOCK}"
    assert file is not None, f"{spec.name} declares the text of a file and no file"
    forms = (
        ("CODE_FILE", placeholder[code.name], _BLOCK),
        ("JSON_FILE", "JSON_TEXT", _literal(_END)),
        ("OTHER_FILE", "UNFENCED", _literal(_END)),
    )
    files = {kind: _file_name_grammar(kind, file) for kind, _, _ in forms}
    alternatives = [
        f"{_arguments_grammar(spec, {file.name: files[kind], code.name: text})} {end}"
        for kind, text, end in forms
        if files[kind]
    ]
    return f"{begin} ({' | '.join(alternatives)})"


def _file_name_grammar(kind: str, file: Parameter) -> str:
    """Return the grammar of the names of one kind of file, limited to the parameter's choices, or '' if none fits."""
    if not file.choices:
        return rf'"\"" {kind} "\""'
    names = []
    for name in file.choices:
        other_kind = "JSON_FILE" if name.endswith(".json") else "OTHER_FILE"
        if kind == ("CODE_FILE" if code_block.is_code(name) else other_kind):
            names.append(_literal(json.dumps(name, ensure_ascii=False)))
    return f"({' | '.join(names)})" if names else ""


def _arguments_grammar(spec: CommandSpec, fixed: Mapping[str, str]) -> str:
    """Return the grammar of the `args` object, with the given values fixed."""
    parts = []
    for number, parameter in enumerate(spec.parameters):
        parts.append(_literal(f"{', ' if number else '{'}{json.dumps(parameter.name)}: "))
        parts.append(fixed.get(parameter.name) or _json_grammar(command_schema.parameter(parameter)))
    return " ".join([*parts, _literal("}")])


def _json_grammar(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': _COMPACT})}"


_literal = json.dumps  # the format writes a literal as JSON does
_BEGIN = '{"command": {"name": "'
_END = "}}"
_BLOCK = f"{_literal(_END + chr(10) + code_block.PLACEHOLDER)} block"
