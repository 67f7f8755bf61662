"""`.env`: one `NAME=value` a line, read as a shell would read plain assignments; nothing is expanded or run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autoagent.errors import SettingsError
from autoagent.textfile import read_text, write_text

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<rest>.*)")
_SINGLE = re.compile(r"'(?P<value>[^']*)'\s*(?:#.*)?")
_DOUBLE = re.compile(r'"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Variable:
    """A value of a `.env` file and the line it stands in."""

    value: str
    line: int


def read_dotenv(path: Path) -> dict[str, Variable]:
    """All variables of the file, also the empty ones; {} where there is no file.

    Raises:
        SettingsError: names file and line of what is no assignment, a quote without its end, a `${NAME}` (which other
            readers would replace), or a name given twice with different values.
    """
    if not path.exists():
        return {}
    found: dict[str, Variable] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        where = f"{path.name}:{number}"
        assignment = _LINE.fullmatch(stripped)
        if assignment is None:
            raise SettingsError(f"{where}: is not NAME=value.")
        name = assignment["name"]
        value = _value(f"{where}: {name}", assignment["rest"])
        earlier = found.setdefault(name, Variable(value, number))
        if earlier.value != value:
            raise SettingsError(f"{where}: {name} is given twice (first in line {earlier.line}); keep one of them.")
    return found


def _value(where: str, rest: str) -> str:
    if rest.startswith("'"):
        if single := _SINGLE.fullmatch(rest):
            return single["value"]
        raise SettingsError(f"{where}: the value does not end with its quote.")
    if rest.startswith('"'):
        double = _DOUBLE.fullmatch(rest)
        if double is None:
            raise SettingsError(f"{where}: the value does not end with its quote.")
        value = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), double["value"])
    else:
        value = re.split(r"(?:^|\s)#", rest, maxsplit=1)[0].strip()
    if re.search(r"\$\{\w+\}", value):
        raise SettingsError(f"{where}: variables are not replaced; write the value itself, or put it in '...'.")
    return value


def store_variables(path: Path, values: Mapping[str, str]) -> None:
    """Set these variables in the file, which only its owner may read then (0600); all other lines stay.

    Raises SettingsError where the file cannot be read or written, or a value cannot be kept on one line.
    """
    for name, value in values.items():
        if re.search(r"[\s'\"#\\$]", value):
            raise SettingsError(f"{name}: the value holds a space, quote, # or $; write it into {path} yourself.")
    lines = read_text(path).splitlines() if path.exists() else []
    kept = [line for line in lines if _assigned(line) not in values]
    write_text(path, "\n".join([*kept, *(f"{name}={value}" for name, value in values.items()), ""]), private=True)


def _assigned(line: str) -> str:
    assignment = _LINE.fullmatch(line.strip())
    return assignment["name"] if assignment else ""
