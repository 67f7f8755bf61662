"""Find near-duplicates by their vectors, and corrections by their words. Pure functions.

Words such as "now" or a shared name do not make a correction. The only corrections are sentences that differ just in
a number, date or name that the sentence equates with its subject ("The port is 5433", "PORT=5433"). A
relation ("listens on port 80", "is at 8:00", "works on Alpha") and a label ("Error: E1187") may hold for several values
at once, and are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile

import numpy as np

from autoagent.core.frozen import dataclass
from autoagent.core.memory import PRIVATE_SOURCES, RetrievedMemory, plain_sources

MAX_COSINES = 20_000_000  # cosines computed at once: 80 MB
MAX_SOURCES = 20  # sources listed for a merged memory


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """A memory to keep, and its near-duplicates."""

    kept: RetrievedMemory
    others: tuple[RetrievedMemory, ...]

    @property
    def sources(self) -> str:
        """Return the distinct sources of all members, private sources first: `a.html, run-1/3`.

        The marks are those of the kept memory alone: what the user said of a different text, or what superseded it.
        """
        origins = [plain_sources(m.source) or (f"{m.run}/{m.step}" if m.run else "") for m in (self.kept, *self.others)]
        names = dict.fromkeys(name for origin in origins for name in origin.split(", ") if name)
        distinct = sorted(names, key=lambda name: name not in PRIVATE_SOURCES)
        more = [f"and {len(distinct) - MAX_SOURCES} more"] if len(distinct) > MAX_SOURCES else []
        plain_of_kept = plain_sources(self.kept.source).split(", ")
        marks = [name for name in self.kept.source.split(", ") if name and name not in plain_of_kept]
        return ", ".join([*distinct[:MAX_SOURCES], *more, *marks])


def find_groups(
    memories: Sequence[RetrievedMemory], vectors: Mapping[int, bytes], cosine: float
) -> list[DuplicateGroup]:
    """Return the disjoint groups of two or more near-duplicates. Memories without a vector are in no group.

    The firmest memory (the newest of equals) takes all remaining memories whose cosine to it is at least
    `cosine`, and so on, so every member is near the kept memory. Memories that differ in kind, trust or a number
    stay apart: embedders hardly distinguish numbers, and `the code is 7421` is not `the code is 7422`.
    """
    order = sorted((m for m in memories if m.id in vectors), key=lambda m: (-m.level, -m.t, m.id))
    if not order:
        return []
    matrix = np.frombuffer(b"".join(vectors[memory.id] for memory in order), "<f4").reshape(len(order), -1)
    free = np.ones(len(order), bool)
    result = []
    block = max(MAX_COSINES // len(order), 1)
    for start in range(0, len(order), block):
        close = matrix[start : start + block] @ matrix[start:].T >= cosine
        for offset in np.flatnonzero(np.count_nonzero(close, axis=1) > 1).tolist():  # each is close to itself
            row = start + offset
            if not free[row]:
                continue
            free[row] = False
            neighbours = np.flatnonzero(close[offset] & free[start:]) + start
            same = [other for other in neighbours.tolist() if _merge_key(order[other]) == _merge_key(order[row])]
            if same:
                free[same] = False
                result.append(DuplicateGroup(order[row], tuple(order[other] for other in same)))
    return result


def _merge_key(memory: RetrievedMemory) -> tuple[str, bool, list[str]]:
    return memory.kind, memory.trusted, sorted(re.findall(r"\w*\d\w*", memory.text))


_TOKEN = re.compile(r"[^\s=:,;!?]+(?:[:,][^\s=:,;!?]+)*|[=:,;!?]")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NAME = re.compile(r"[^\W\d_a-z]|\S*\w[/@._]\S*\w|/\S")  # a capitalized word, or a path, an address or a host
_MAX_VALUE_WORDS = 4  # for example "5 May 2027", "Mrs Ada Lovelace"

_PLURAL_FRAME = re.compile(  # an indefinite subject, or a statement that allows several values
    r"^(?:an?|some|another|any|each|every|one|there is|ein|eine|un|une)\b|\b(?:one of|not|never|no|also|only|always"
    r"|used to|friend|brother|sister|cousin|colleague|child(?:ren)?|son|daughter|member|customer|client|supplier"
    r"|example|option|reason|part|nicht|auch|nie|nur|pas|aussi)\b",
    re.IGNORECASE,
)
_VALUE_FRAME = re.compile(  # an equation: the value is all that follows the verb
    r"(?P<subject>.*?\S) ?(?:=|\b(?P<verb>is|are|ist|lautet|kostet|beträgt|heißt|est|coûte|costs|takes|lasts|weighs|"
    r"has(?= ?$))\b(?: (?:called|named|set to|limited to))?) ?",
    re.IGNORECASE,
)
_PEOPLE = re.compile(r"(?:the )?(?:user|i|he|she|we|they)|[^\W\d_a-z]\w*", re.IGNORECASE)


def corrects(new: str, old: str) -> bool:
    """Return whether `new` repeats `old` in the same words, but with another value."""
    ours, theirs = (_TOKEN.findall(text.strip().rstrip(".!")) for text in (new, old))
    if ours[-1:] == ["now"]:
        ours.pop()
    first = _common_prefix(ours, theirs)
    last = _common_prefix(ours[first:][::-1], theirs[first:][::-1])
    ours, theirs, prefix = ours[first : len(ours) - last], theirs[first : len(theirs) - last], ours[:first]
    kind = _value_kind(ours)
    if not kind or _value_kind(theirs) != kind:
        return False
    stops = [n for n, token in enumerate(prefix) if token.endswith(".")]
    frame = " ".join(prefix[stops[-1] + 1 if stops else 0 :])
    match = _VALUE_FRAME.fullmatch(frame)
    if match is None or _PLURAL_FRAME.search(frame):
        return False
    if kind == "number":
        return True
    allows_several = match["verb"] in ("are", "ist", "est", "has")  # and German nouns look like names
    return not (allows_several or (frame.endswith(" is") and _PEOPLE.fullmatch(match["subject"])))


def _common_prefix(ours: list[str], theirs: list[str]) -> int:
    pairs = zip(ours, theirs, strict=False)
    return len(list(takewhile(lambda pair: pair[0].casefold() == pair[1].casefold(), pairs)))


def _value_kind(value: list[str]) -> str:
    """Return `number` (a figure, date or version) or `name`, or '' for anything else."""
    if not 1 <= len(value) <= _MAX_VALUE_WORDS:
        return ""
    words = [word.rstrip(".") for word in value]
    figures = [bool(re.search(r"\d", word)) or word.casefold() in _NUMBERS for word in words]
    if any(figures) and all(figure or _NAME.match(word) for figure, word in zip(figures, words, strict=True)):
        return "number"
    return "name" if all(_NAME.match(word) for word in words) else ""
