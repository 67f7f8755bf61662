"""A drawn task on files, and what its check compares: contents, never what an agent says of them."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LANGUAGES = {"English": "en", "German": "de", "French": "fr"}
Check = Callable[[Path], bool]
Changes = Mapping[str, str | None]  # the text of each file that is written, or None for one that is deleted


@dataclass(frozen=True)
class Task:
    """A task with its right end.

    `solution` is what a right end changes, `wrong` what plausible wrong ends change. A file that is not in `checks`
    has to be as the solution has it, or else as it was at the start. New files are allowed, but not `forbidden` ones.
    """

    family: str
    number: int
    language: str
    goals: tuple[str, ...]
    files: Mapping[str, str]
    solution: Changes = field(default_factory=dict)
    wrong: tuple[Changes, ...] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)
    forbidden: tuple[str, ...] = ()
    possible: bool = True

    @property
    def name(self) -> str:
        return f"{self.family}-{self.number}-{LANGUAGES[self.language]}"

    def lay_out(self, workspace: Path) -> None:
        """Write the files of the start."""
        apply(self.files, workspace)

    def right_files(self, workspace: Path) -> bool:
        """Tell whether the files are as a right end leaves them."""
        wanted = {**self.files, **self.solution}
        try:
            return not any((workspace / name).exists() for name in self.forbidden) and all(
                not (workspace / name).exists()
                if text is None
                else (workspace / name).is_file() and self.checks.get(name, same(text))(workspace / name)
                for name, text in wanted.items()
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error, subprocess.SubprocessError):
            return False

    def untouched(self, workspace: Path) -> bool:
        """Tell whether the workspace holds the files of the start, all as they were, and no others."""
        here = {path.relative_to(workspace).as_posix() for path in workspace.rglob("*") if path.is_file()}
        return here == set(self.files) and all(same(text)(workspace / name) for name, text in self.files.items())


def apply(changes: Changes, workspace: Path) -> None:
    """Write and delete files."""
    for name, text in changes.items():
        path = workspace / name
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


class Draw:
    """The chance of one task: the same seed, family and number draw the same task."""

    def __init__(self, seed: int, family: str, number: int, language: str) -> None:
        self.rng = random.Random(f"{seed}/{family}/{number}")
        self.family, self.number, self.language = family, number, language

    def say(self, english: str, german: str, french: str) -> str:
        """Return the text of the task's language."""
        return dict(zip(LANGUAGES, (english, german, french), strict=True))[self.language]

    def some(self, pool: Sequence[str], count: int) -> list[str]:
        """Draw different entries of a pool."""
        return self.rng.sample(list(pool), count)

    def one(self, pool: Sequence[Any]) -> Any:
        return self.rng.choice(pool)

    def integer(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def integers(self, count: int, low: int, high: int) -> list[int]:
        """Draw different numbers."""
        return self.rng.sample(range(low, high + 1), count)

    def task(self, *goals: str, **parts: Any) -> Task:
        return Task(self.family, self.number, self.language, goals, **parts)


def _words(text: str) -> list[str]:
    return text.split()


PEOPLE = _words("Albrecht Baumann Chevalier Dupuis Engström Fournier Gessner Hallam Iversen Jarvis Kowalski Lindgren")
GOODS = _words("hammer kettle ladder mirror needle pillow ribbon saddle teapot violin wallet basket candle drawer")
TOWNS = _words("Aarhus Bologna Coimbra Dresden Exeter Fribourg Ghent Haarlem Innsbruck Jena Kaunas Lyon")
WORDS = _words("amber birch cedar delta ember fjord grove heron inlet jasper kelp larch meadow north opal prairie")


def lines_of(text: str) -> list[str]:
    """The lines without the spaces at their ends, and without the empty ones at the end."""
    return re.sub(r"\s+\Z", "", "\n".join(line.rstrip() for line in text.lstrip("\ufeff").splitlines())).split("\n")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")


def same(text: str) -> Check:
    """The same lines; spaces at their ends and empty lines at the end do not count."""
    return lambda path: lines_of(read(path)) == lines_of(text)


def same_lines(*lines: str, ordered: bool = True) -> Check:
    """These lines, blank ones left out; the order counts where it was asked for."""

    def check(path: Path) -> bool:
        got = [line.strip() for line in read(path).splitlines() if line.strip()]
        return got == list(lines) if ordered else sorted(got) == sorted(lines)

    return check


def value(text: Any) -> Any:
    """A cell or a leaf: 7, "7", 7.0 and "7,00" are the same, and so are true, True and "true"."""
    plain = str(text).strip()
    number = plain.replace(",", ".") if plain.count(",") <= 1 and "." not in plain else plain
    return float(number) if re.fullmatch(r"[-+]?\d+(\.\d+)?", number) else plain.lower()


def just(expected: float | str) -> Check:
    """Nothing but this number or word."""
    return lambda path: value(read(path).strip().strip("\"'.")) == value(expected)


def tells(right: str, *wrong: str) -> Check:
    """A text that has this word or number, and none of the others."""

    def found(word: str, text: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None

    return lambda path: found(right, read(path)) and not any(found(word, read(path)) for word in wrong)


def leaves(data: Any) -> Any:
    """Data with its leaves as `value` has them."""
    if isinstance(data, dict):
        return {str(key): leaves(entry) for key, entry in data.items()}
    return [leaves(entry) for entry in data] if isinstance(data, list) else value(data)


def as_json(data: Any) -> Check:
    """The same data, however it is laid out."""
    return lambda path: leaves(json.loads(read(path))) == leaves(data)


def rows_of(text: str) -> list[list[Any]]:
    """The cells of a table with commas or semicolons."""
    separator = ";" if text.partition("\n")[0].count(";") else ","
    rows = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    return [[value(cell) for cell in row] for row in rows if row]


def table(text: str, *, ordered: bool = True) -> Check:
    """The same head and rows, however they are quoted; the order of rows counts where it was asked for."""
    head, *rows = rows_of(text)

    def check(path: Path) -> bool:
        got_head, *got = rows_of(read(path))
        return got_head == head and (got == rows if ordered else sorted(map(str, got)) == sorted(map(str, rows)))

    return check


def python(code: str, prints: str | None = None, argv: Sequence[str] = (), given: str = "") -> Check:
    """Python code that is run beside the file ends well, and prints these lines."""

    def check(path: Path) -> bool:
        ran = subprocess.run(
            [sys.executable, "-B", "-c", code, *argv],
            cwd=path.parent, input=given, capture_output=True, text=True, timeout=20,
        )  # fmt: skip
        return ran.returncode == 0 and (prints is None or lines_of(ran.stdout) == lines_of(prints))

    return check


def every(*checks: Check) -> Check:
    return lambda path: all(check(path) for check in checks)


def anything(path: Path) -> bool:
    """Whatever the file holds: the task leaves it open."""
    return path.exists()


def listing(lines: Sequence[object]) -> str:
    """Lines as the text of a file."""
    return "".join(f"{line}\n" for line in lines)


def sheet(head: str, rows: Sequence[Sequence[object]]) -> str:
    """A table with commas."""
    return listing([head, *(",".join(map(str, row)) for row in rows)])
