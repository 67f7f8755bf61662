"""Reads and writes `.env` as python-dotenv does, accepting files of other programs. Nothing is expanded or run."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.core.errors import SettingsError
from autoagent.text.text_file import is_there, read_text, write_text

if TYPE_CHECKING:
    from dotenv.parser import Binding

_NAME = re.compile(r"\s*(?:export\s+)?'?(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_GAP = re.compile(r"[^\S\n]+")
_LONGEST_GAP = 500  # characters; for each the parser takes time that grows with the square


@dataclass(frozen=True, slots=True)
class Variable:
    """A value of a `.env` file and the line it begins in.

    `problem` says why it cannot be used, '' if it can: it counts only for a name that somebody reads.
    """

    value: str
    line: int
    problem: str = ""

    def use(self, where: str) -> str:
        """Return the value. Raises SettingsError, which begins with `where`, if there is a problem with it."""
        if self.problem:
            raise SettingsError(f"{where}: {self.problem}")
        return self.value


def read_dotenv(path: Path) -> dict[str, Variable]:
    """Return all variables of the file, even empty ones, or {} if there is no file. The last of a repeated name counts.

    A problem with a single variable is kept in its `problem`. Raises SettingsError as `read_text` does, and for a
    malformed gap.
    """
    if not is_there(path):
        return {}
    found: dict[str, Variable] = {}
    for binding in _bindings(path):
        written = binding.original.string
        line = binding.original.line + written[: len(written) - len(written.lstrip())].count("\n")
        named = _NAME.match(written)
        if binding.error and named:
            found[named["name"]] = Variable("", line, _complaint(written))
        elif binding.key is not None:
            found[binding.key] = _variable(binding.value, written, line)
    return found


def _bindings(path: Path) -> Iterator[Binding]:
    """Yield the parsed pieces of the file without leaving anything out."""
    text = read_text(path)
    for gap in _GAP.finditer(text):
        if len(gap[0]) > _LONGEST_GAP:
            line = text.count("\n", 0, gap.start()) + 1
            raise SettingsError(f"{path.name}:{line}: holds {len(gap[0]):,} spaces in a row; take them out.")
    from dotenv.parser import parse_stream  # loads much of the standard library, for those alone who have a `.env`

    yield from parse_stream(io.StringIO(text))


def _variable(value: str | None, written: str, line: int) -> Variable:
    if value is None:
        return Variable("", line, "is not NAME=value.")
    single = written.partition("=")[2].lstrip().startswith("'")
    if not single and "}" in value.partition("${")[2]:
        return Variable(value, line, "variables are not replaced; write the value itself, or put it in '...'.")
    return Variable(value, line)


def _complaint(written: str) -> str:
    opened = re.search(r"=\s*(['\"])", written)
    if opened and opened[1] not in written[opened.end() :]:
        return "the value does not end with its quote."
    return "is not NAME=value."


def store_variables(path: Path, values: Mapping[str, str], *, quote: bool = False) -> None:
    """Set these variables in the file and make it private (0600). All other lines stay.

    `quote`: quote values that need it. Raises SettingsError if the file cannot be read or written, or a value does not
    fit on one line.
    """
    written = {}
    for name, value in values.items():
        if not re.search(r"[\s'\"#\\$]", value):
            written[name] = value
        elif quote and not re.search(r"['\\\r\n]", value):
            written[name] = f"'{value}'"
        else:
            raise SettingsError(f"{name}: the value holds a space, quote, # or $; write it into {path} yourself.")
    bindings = _bindings(path) if is_there(path) else ()
    kept = "".join(binding.original.string for binding in bindings if binding.key not in values)
    kept += "\n" if kept and not kept.endswith("\n") else ""
    write_text(path, kept + "".join(f"{name}={value}\n" for name, value in written.items()), private=True)
