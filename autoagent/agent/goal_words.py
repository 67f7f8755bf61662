"""Match the words of the goals against the workspace: names with a suffix, lines with a word.

A small model that is asked for all lines that mention Oslo, or all files that end with .tmp, misses some. The prompt
therefore lists the matches. Nothing else depends on these words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from autoagent.workspace.gate import shown

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff"  # letters of scripts without spaces between words
# Patterns, compiled on first use, as that takes 20 ms and few runs need them.
_WORD = rf"[^\W_{_UNSPACED}](?:[^\W{_UNSPACED}]|-)*"
_ENDING = r"(?a)(?<![\w/.)\]])\*?(\.[A-Za-z]\w{0,9})(?![\w/(]|\.\w)"
_NAME = (
    rf"(?<![^\W{_UNSPACED}])(?<![@/:.-])(?:[^\W{_UNSPACED}]|[./-])*[^\W{_UNSPACED}]"
    r"\.[A-Za-z][A-Za-z0-9]{1,9}(?![A-Za-z0-9@(/])"
)
_WORD_START = rf"(?<![^\W{_UNSPACED}])(?<![.@:-])"
_WORD_END = rf"(?![^\W{_UNSPACED}])(?![.@-]\w)"
_MIN_LETTERS = 3  # of a lowercase word
_MAX_WORDS = 3  # words whose lines are listed
_MAX_LINES = 6  # per file and word
_MAX_LINE_CHARACTERS = 100


def mentioned_names(goals: str, names: Sequence[str]) -> list[str]:
    """Return the workspace names that occur in the goals, then those of mentioned groups."""
    exact = [name for name in names if name.rpartition("/")[2].casefold() in goals.casefold()]
    return list(dict.fromkeys([*exact, *(name for group in mentioned_groups(goals, names).values() for name in group)]))


def mentioned_groups(goals: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names that share a suffix or folder mentioned in the goals, as groups by title."""
    text, folded = goals.casefold(), {name: name.casefold() for name in names}
    endings = {f"Ending with {end}": end for end in map(str.casefold, re.findall(_ENDING, goals))}
    groups = {title: [name for name in names if folded[name].endswith(end)] for title, end in endings.items()}
    for folder in sorted({folder for name in folded.values() for folder in name.split("/")[:-1]}):
        if re.search(rf"{_WORD_START}{re.escape(folder)}{_WORD_END}", text):
            groups[f"In the folder {folder}"] = [name for name in names if folder in folded[name].split("/")[:-1]]
    return {title: group for title, group in groups.items() if group}


def names_in(goals: str) -> list[str]:
    """Return the file names in the goals: words with a suffix and optional folders."""
    return list(dict.fromkeys(name.removeprefix("./") for name in re.findall(_NAME, goals)))


def describe_lines(goals: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the matching lines by file for those goal words that occur in few lines."""
    lines = {path: [line.strip() for line in text.splitlines() if line.strip()] for path, text in texts.items()}
    total = sum(map(len, lines.values()))
    lines_by_word: dict[str, dict[str, list[str]]] = {}
    for path in texts:
        goals = goals.replace(path, " ")
    parts = (part for word in re.findall(_WORD, goals) for part in (word, *word.split("-")))
    for word in dict.fromkeys(parts):  # parts of compounds may tell lines apart, too
        if not word or (word.islower() and len(word) < _MIN_LETTERS):
            continue
        pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        by_file = {path: [line for line in file_lines if pattern.search(line)] for path, file_lines in lines.items()}
        lines_by_word[word] = {path: matches for path, matches in by_file.items() if matches}
    counts = {word: sum(map(len, by_file.values())) for word, by_file in lines_by_word.items()}
    selective = sorted((word for word, number in counts.items() if 0 < number <= total / 2), key=counts.__getitem__)
    for word in selective[:_MAX_WORDS]:
        for path, matches in lines_by_word[word].items():
            head = f'Lines of {shown(path)} with "{word}" ({len(matches)} of {len(lines[path])}):'
            yield "\n".join([head, *(line[:_MAX_LINE_CHARACTERS] for line in matches[:_MAX_LINES])])
