"""Fifteen small tasks on files. A check looks at what lies in the workspace, never at what an agent says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """`files` are there at the start; `check` gets the workspace, and what it raises counts as not solved."""

    name: str
    goals: tuple[str, ...]
    check: Callable[[Path], bool]
    files: Mapping[str, str] = field(default_factory=dict)

    def solved(self, workspace: Path) -> bool:
        try:
            return self.check(workspace)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError):
            return False


def text(workspace: Path, name: str) -> str:
    return (workspace / name).read_text(errors="replace")


def holds(name: str, *words: str) -> Callable[[Path], bool]:
    return lambda workspace: all(word.lower() in text(workspace, name).lower() for word in words)


def lines(name: str, *expected: str) -> Callable[[Path], bool]:
    return lambda workspace: (
        tuple(text(workspace, name).split("\n")[: len(expected) + 1])
        in (
            expected,
            (*expected, ""),
        )
    )


def python(code: str, output: str = "") -> Callable[[Path], bool]:
    def check(workspace: Path) -> bool:
        ran = subprocess.run([sys.executable, "-c", code], cwd=workspace, capture_output=True, text=True, timeout=20)
        return ran.returncode == 0 and output in ran.stdout

    return check


def both(*checks: Callable[[Path], bool]) -> Callable[[Path], bool]:
    return lambda workspace: all(check(workspace) for check in checks)


def gone(*names: str) -> Callable[[Path], bool]:
    return lambda workspace: not any((workspace / name).exists() for name in names)


STOCK = "item,left,shelf\nrope,4,A\nlamp,0,B\noar,7,A\nflag,0,C\n"
DIARY = "".join(f"day {day}: {'storm' if day in (2, 5, 6, 11) else 'calm'}\n" for day in range(1, 15))

TASKS = (
    Task(
        "when",
        ("Read letter.txt", "Write reply.txt: one sentence with the day and the place of the visit"),
        holds("reply.txt", "thursday", "bergen"),
        {"letter.txt": "Dear Ida,\nwe shall be in Bergen on Thursday and hope to see you there.\nYours, Per\n"},
    ),
    Task(
        "double",
        ("Write double.py with a function double(n) that returns twice n",),
        python("import double; assert double.double(21) == 42 and double.double(-3) == -6"),
    ),
    Task(
        "storms",
        ("Count the days with a storm in diary.txt", "Write just that number to storms.txt"),
        lines("storms.txt", "4"),
        {"diary.txt": DIARY},
    ),
    Task(
        "seen",
        ("Add the line 'seen' at the end of one.txt and of two.txt", "Leave three.txt as it is"),
        both(lines("one.txt", "ash", "seen"), lines("two.txt", "elm", "seen"), lines("three.txt", "oak")),
        {"one.txt": "ash\n", "two.txt": "elm\n", "three.txt": "oak\n"},
    ),
    Task(
        "area",
        ("area.py is wrong: area(3, 4) has to return 12. Mend it",),
        python("import area; assert area.area(3, 4) == 12 and area.area(5, 5) == 25"),
        {"area.py": "def area(width, height):\n    return width + height\n"},
    ),
    Task(
        "sold_out",
        ("Read stock.csv", "Write the items of which none is left to sold_out.txt, one on each line"),
        lambda workspace: sorted(text(workspace, "sold_out.txt").split()) == ["flag", "lamp"],
        {"stock.csv": STOCK},
    ),
    Task(
        "backups",
        ("Delete each file that ends with .bak", "Keep all others"),
        both(gone("old.bak", "older.bak"), holds("bak.txt", "keep"), holds("plan.txt", "sail")),
        {"old.bak": "1", "older.bak": "2", "bak.txt": "keep", "plan.txt": "sail"},
    ),
    Task(
        "cubes",
        ("Write the cubes of 1 to 6 to cubes.txt, one on each line",),
        lines("cubes.txt", "1", "8", "27", "64", "125", "216"),
    ),
    Task(
        "verse",
        ("Read first.txt and second.txt", "Write verse.txt with both lines, that of first.txt first"),
        lines("verse.txt", "The sea is calm tonight,", "the tide is full."),
        {"first.txt": "The sea is calm tonight,\n", "second.txt": "the tide is full.\n"},
    ),
    Task(
        "evens",
        ("Write evens.py, which prints the even numbers from 2 to 20", "Run it", "Save what it prints in evens.txt"),
        lambda workspace: text(workspace, "evens.txt").split() == [str(n) for n in range(2, 21, 2)],
    ),
    Task(
        "rename",
        ("Rename draft.md to final.md without changing what it says",),
        both(gone("draft.md"), lines("final.md", "# Logbook", "Wind from the west.")),
        {"draft.md": "# Logbook\nWind from the west.\n"},
    ),
    Task(
        "key",
        ("One of red.txt, green.txt and blue.txt holds the word key: find out which", "Write its name to where.txt"),
        both(
            holds("where.txt", "green"), lambda w: not any(other in text(w, "where.txt") for other in ("red", "blue"))
        ),
        {"red.txt": "nail nail\n", "green.txt": "nail key nail\n", "blue.txt": "nail\n"},
    ),
    Task(
        "limerick",
        ("Write a poem of exactly four lines about the wind to wind.txt",),
        lambda workspace: len([line for line in text(workspace, "wind.txt").splitlines() if line.strip()]) == 4,
    ),
    Task(
        "settings",
        ("In a folder conf, make settings.json with the key port set to 8080",),
        lambda workspace: json.loads(text(workspace, "conf/settings.json"))["port"] in (8080, "8080"),
    ),
    Task(
        "german",
        ("Translate the German sentence in de.txt into English and save it as en.txt",),
        holds("en.txt", "dog", "garden"),
        {"de.txt": "Der Hund schläft im Garten.\n"},
    ),
)
