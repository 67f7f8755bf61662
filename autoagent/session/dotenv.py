"""Read and write `.env` as python-dotenv does, accepting other programs' files. Nothing is expanded or run."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.core.errors import SettingsError
from autoagent.core.frozen import dataclass
from autoagent.text.text_file import is_there, read_text, write_text

if TYPE_CHECKING:
    from dotenv.parser import Binding

_NAME = re.compile(r"\s*(?:export\s+)?'?(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_GAP = re.compile(r"[^\S\n]+")
_MAX_GAP_CHARACTERS = 500  # the parser's time grows with the square of a gap


@dataclass(frozen=True, slots=True)
class Variable:
    """The value of a variable in a `.env` file, and its first line."""

    value: str
    line: int
    problem: str = ""  # why it cannot be used; matters only if the variable is read


BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def boolean(text: str, label: str) -> bool:
    """Parse a variable as true or false. Raises SettingsError with the prefix `label`."""
    if (word := text.strip().lower()) not in BOOLEANS:
        raise SettingsError(f"{label}: must be true or false (1/0, yes/no, on/off), not {text!r}.")
    return BOOLEANS[word]


def number(text: str, label: str, expected: str, kind: type[int] | type[float] = float) -> float:
    """Parse a number of 0 or more. Raises SettingsError with the prefix `label`, naming what is `expected`."""
    try:
        if math.isfinite(parsed := kind(text)) and parsed >= 0:
            return parsed
    except (ValueError, OverflowError):  # OverflowError: a whole number beyond every float
        pass
    raise SettingsError(f"{label}: must be {expected}, not {text!r}.")


def read_dotenv(path: Path) -> dict[str, Variable]:
    """Return all variables of the file, including empty ones, or {} without a file. The last duplicate wins.

    Raises SettingsError like `read_text`, and for too many spaces in a row.
    """
    if not is_there(path):
        return {}
    variables: dict[str, Variable] = {}
    for binding in _bindings(path):
        line_text = binding.original.string
        line = binding.original.line + line_text[: len(line_text) - len(line_text.lstrip())].count("\n")
        match = _NAME.match(line_text)
        if binding.error and match:
            quote = re.search(r"=\s*(['\"])", line_text)
            is_open = quote and quote[1] not in line_text[quote.end() :]
            problem = "the value does not end with its quote." if is_open else "is not NAME=value."
            variables[match["name"]] = Variable("", line, problem)
        elif binding.key is not None:
            value, problem = binding.value or "", ""
            if binding.value is None:
                problem = "is not NAME=value."
            elif "}" in value.partition("${")[2] and not line_text.partition("=")[2].lstrip().startswith("'"):
                problem = "variables are not expanded; write the value itself, or put it in '...'."
            variables[binding.key] = Variable(value, line, problem)
    return variables


def _bindings(path: Path) -> Iterator[Binding]:
    """Yield the parsed pieces of the file without omissions."""
    text = read_text(path)
    for gap in _GAP.finditer(text):
        if len(gap[0]) > _MAX_GAP_CHARACTERS:
            line = text.count("\n", 0, gap.start()) + 1
            raise SettingsError(f"{path.name}:{line}: holds {len(gap[0]):,} spaces in a row; remove them.")
    from dotenv.parser import parse_stream  # slow to import, and only needed with a `.env`

    yield from parse_stream(io.StringIO(text))


def store_variables(path: Path, values: Mapping[str, str], *, quote: bool = False) -> None:
    """Set these variables in the file and make it private (0600), keeping all other lines.

    Raises SettingsError if the file cannot be read or written, or a value needs two lines, or quotes without `quote`.
    """
    new_values = {}
    for name, value in values.items():
        if not re.search(r"[\s'\"#\\$]", value):
            new_values[name] = value
        elif quote and not re.search(r"['\\\r\n]", value):
            new_values[name] = f"'{value}'"
        else:
            raise SettingsError(f"{name}: the value holds a space, quote, # or $; write it into {path} yourself.")
    bindings = _bindings(path) if is_there(path) else ()
    other_lines = "".join(binding.original.string for binding in bindings if binding.key not in values)
    other_lines += "\n" if other_lines and not other_lines.endswith("\n") else ""
    write_text(path, other_lines + "".join(f"{name}={value}\n" for name, value in new_values.items()), private=True)
