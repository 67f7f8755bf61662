"""Find the goals' own words in the workspace: names with an ending, lines with a word.

A small model, asked for the lines of a file that name Oslo, or for all files that end with .tmp, picks some that do and
some that do not. So the prompt shows which ones match. Nothing is decided by these words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from autoagent.workspace.gate import shown

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff"  # letters of scripts that set no spaces between words
_WORD = re.compile(rf"[^\W_{_UNSPACED}](?:[^\W{_UNSPACED}]|-)*")
_ENDING = re.compile(r"(?<![\w/.)\]])\*?(\.[A-Za-z]\w{0,9})(?![\w/(]|\.\w)", re.ASCII)
_NAME = re.compile(
    rf"(?<![^\W{_UNSPACED}])(?<![@/:.-])(?:[^\W{_UNSPACED}]|[./-])*[^\W{_UNSPACED}]\.[A-Za-z][A-Za-z0-9]{{1,9}}(?![A-Za-z0-9@(/])"
)
_BEFORE, _AFTER = rf"(?<![^\W{_UNSPACED}])(?<![.@:-])", rf"(?![^\W{_UNSPACED}])(?![.@-]\w)"  # a word by itself
_SHORTEST = 3  # letters of a word that is not written in capitals
_WORDS = 3  # that are shown
_LINES = 6  # of one file with one word
_LINE = 100  # characters of one


def groups_shown(goals: str, names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each group of names that the goals speak of."""
    for title, group in groups_meant(goals, names).items():
        yield f"{title}: {', '.join(map(shown, group))}."


def names_meant(goals: str, names: Sequence[str]) -> list[str]:
    """Return the names in the workspace that the goals hold, then those of the groups that they speak of."""
    named = [name for name in names if name.rpartition("/")[2].casefold() in goals.casefold()]
    return list(dict.fromkeys([*named, *(name for group in groups_meant(goals, names).values() for name in group)]))


def groups_meant(goals: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names with an ending, and those in a folder, that the goals speak of, by what they have in common."""
    said, folded = goals.casefold(), {name: name.casefold() for name in names}
    groups = {f"Ending with {end}": end for end in map(str.casefold, _ENDING.findall(goals))}
    found = {title: [name for name in names if folded[name].endswith(end)] for title, end in groups.items()}
    for folder in sorted({folder for name in folded.values() for folder in name.split("/")[:-1]}):
        if re.search(rf"{_BEFORE}{re.escape(folder)}{_AFTER}", said):
            found[f"In the folder {folder}"] = [name for name in names if folder in folded[name].split("/")[:-1]]
    return {title: group for title, group in found.items() if group}


def names_in(goals: str) -> list[str]:
    """Return the names of files in the goals: words with an ending, perhaps with folders before them."""
    return list(dict.fromkeys(name.removeprefix("./") for name in _NAME.findall(goals)))


def lines_shown(goals: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield for the words of the goals that fewest lines hold, and not most of them, which lines these are, by file."""
    lines = {path: [line.strip() for line in text.splitlines() if line.strip()] for path, text in texts.items()}
    every = sum(map(len, lines.values()))
    found: dict[str, dict[str, list[str]]] = {}
    for word in _words(goals, texts):
        stands = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        matches = {path: [line for line in all_ if stands.search(line)] for path, all_ in lines.items()}
        found[word] = {path: having for path, having in matches.items() if having}
    held = {word: sum(map(len, by_file.values())) for word, by_file in found.items()}
    telling = sorted((word for word, number in held.items() if 0 < number <= every / 2), key=held.__getitem__)
    for word in telling[:_WORDS]:
        for path, having in found[word].items():
            head = f'Lines of {shown(path)} with "{word}" ({len(having)} of {len(lines[path])}):'
            yield "\n".join([head, *(line[:_LINE] for line in having[:_LINES])])


def _words(goals: str, paths: Iterable[str]) -> Iterable[str]:
    """Return the words that may tell lines apart and the parts of compound ones, each once; names of files do not."""
    for path in paths:
        goals = goals.replace(path, " ")
    parts = (part for word in _WORD.findall(goals) for part in (word, *word.split("-")))
    return dict.fromkeys(part for part in parts if len(part) >= _SHORTEST or (part and not part.islower()))
