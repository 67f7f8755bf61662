"""Where the goals' own words stand in the workspace: names with an ending, lines with a word.

A small model, asked for the lines of a file that name Oslo, or for all files that end with .tmp, picks some that do and
some that do not. Beside what it picks from, it sees which do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from autoagent.core.task import Goal
from autoagent.text.named_files import named_endings, named_files
from autoagent.workspace.gate import shown

_WORD = re.compile(r"[^\W_][\w-]*")
_SHORTEST = 3  # letters of a word that is not written in capitals
_WORDS = 3  # that are shown
_LINES = 6  # of one file with one word
_LINE = 100  # characters of one
_ANY_TEXT = re.compile(  # words of instructions rather than of what they speak of
    "add|all|and|any|are|but|can|each|for|has|how|its|may|new|not|now|one|out|put|say|set|the|two|use|was|who|you|"
    "about|after|also|every|files?|find|from|have|into|lines?|list|make|most|names?|only|others?|over|read|save|"
    "should|some|such|text|than|that|their|them|then|there|these|they|this|those|what|when|where|which|will|with|"
    "words?|write|your",
    re.IGNORECASE,
)

_DELETES_ALL = re.compile(r"\W*(?:delete|remove|erase)\s+(?:all|every|each|any)\b", re.IGNORECASE)
_MOVES_ALL = re.compile(r"\W*(?:move|rename)\s+(?:all|every|each|any)\b", re.IGNORECASE)
_BUT_SOME = re.compile(
    r"\b(?:except|but|unless|without|not|no|if|when|only|older|newer|larger|smaller|empty|unused|contain\w*|hold\w*)\b",
    re.IGNORECASE,
)

_CHANGES = re.compile(  # at the beginning of a sentence or a part of one
    r"(?:^|[.;:,]\s+|\b(?:and|then)\s+)(?:add(?!\s+up\b)|change|complete|convert|correct|edit|extend|fill|fix|implement|"
    r"improve|insert|mend|rename|repair|replace|rewrite|set|shorten|simplify|sort|translate|update)\b",
    re.IGNORECASE,
)


def want_change(goals: Sequence[Goal]) -> bool:
    """Return whether a goal that names a file wants something changed."""
    return any(named_files(goal.text) and _CHANGES.search(goal.text) for goal in goals)


def endings_shown(goals: str, names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each ending that the goals speak of, with the names in the workspace that have it."""
    for ending in named_endings(goals):
        if having := [name for name in names if name.endswith(ending)]:
            yield f"Ending with {ending}: {', '.join(map(shown, having))}."


def left_to_delete(goals: Sequence[Goal], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names with an ending of which a goal wants all deleted, whatever else is true of them."""
    endings = tuple(ending for found in _endings_of_all(_DELETES_ALL, goals) for ending in found)
    return tuple(name for name in names if name.endswith(endings))


def left_to_move(goals: Sequence[Goal], names: Sequence[str], made: Collection[str]) -> tuple[str, ...]:
    """Return the names with an ending of which a goal wants all moved or renamed, without those that the run made."""
    endings = tuple(found[0] for found in _endings_of_all(_MOVES_ALL, goals) if found)
    return tuple(name for name in names if name.endswith(endings) and name not in made)


def _endings_of_all(wanted: re.Pattern[str], goals: Sequence[Goal]) -> list[tuple[str, ...]]:
    """Return the endings in each goal that wants this of all with them."""
    texts = (goal.text for goal in goals if wanted.match(goal.text) and not _BUT_SOME.search(goal.text))
    return [named_endings(text) for text in texts]


def lines_shown(goals: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield, for the words of the goals that stand in some lines and not in most, which these are, by file."""
    lines = {path: [line.strip() for line in text.splitlines() if line.strip()] for path, text in texts.items()}
    every = sum(map(len, lines.values()))
    left = _WORDS
    for word in _words(goals):
        stands = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        found = {path: having for path, all_ in lines.items() if (having := [x for x in all_ if stands.search(x)])}
        if left and 0 < sum(map(len, found.values())) <= every / 2:
            left -= 1
            for path, having in found.items():
                head = f'Lines of {shown(path)} with "{word}" ({len(having)} of {len(lines[path])}):'
                yield "\n".join([head, *(line[:_LINE] for line in having[:_LINES])])


def _words(goals: str) -> Iterable[str]:
    """Return the words that may tell lines apart, each once."""
    for path in named_files(goals):
        goals = goals.replace(path, " ")
    telling = (word for word in _WORD.findall(goals) if not _ANY_TEXT.fullmatch(word))
    return dict.fromkeys(word for word in telling if len(word) >= _SHORTEST or not word.islower())
