"""Pairs of memories that say the same: near-duplicates by their vectors, and corrections by their words. Pure.

A word of change and a shared name are no correction. So the rule sees one thing only: the same words but for one
number, date or name, where the sentence gives its subject that one value ("The port is 5433", "Kim lives in Bonn").
What holds for several values at once ("Kim likes Bach") is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoagent.core.memory import PRIVATE_SOURCES, RetrievedMemory

AT_ONCE = 20_000_000  # cosines computed at once: 80 MB
LISTED = 20  # sources that a merged memory names


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """A memory to keep and those that are nearly the same."""

    kept: RetrievedMemory
    others: tuple[RetrievedMemory, ...]

    @property
    def sources(self) -> str:
        """The distinct sources of all members: `a.html, run-1/3`, with those that make a memory private first."""
        origins = (m.source or (f"{m.run}/{m.step}" if m.run else "") for m in (self.kept, *self.others))
        every = [name for origin in origins for name in origin.split(", ") if name]
        named = sorted(dict.fromkeys(every), key=lambda name: name not in PRIVATE_SOURCES)
        more = f", and {len(named) - LISTED} more" if len(named) > LISTED else ""
        return ", ".join(named[:LISTED]) + more


def groups(memories: Sequence[RetrievedMemory], vectors: Mapping[int, bytes], alike: float) -> list[DuplicateGroup]:
    """Return the groups of two or more. Each memory is in at most one. Memories without a vector are in none.

    The firmest memory (the newest of equals) takes all remaining memories whose cosine to it is at least `alike`, and
    so on, so every member is near the one that is kept. Memories that differ in kind, trust or a number stay apart:
    embedders hardly see numbers, and `the code is 7421` is not `the code is 7422`.
    """
    order = sorted((m for m in memories if m.id in vectors), key=lambda m: (-m.level, -m.t, m.id))
    if not order:
        return []
    matrix = np.frombuffer(b"".join(vectors[memory.id] for memory in order), "<f4").reshape(len(order), -1)
    free = np.ones(len(order), bool)
    found = []
    block = max(AT_ONCE // len(order), 1)
    for start in range(0, len(order), block):
        close = matrix[start : start + block] @ matrix[start:].T >= alike
        for at in np.flatnonzero(np.count_nonzero(close, axis=1) > 1).tolist():  # each is close to itself
            row = start + at
            if not free[row]:
                continue
            free[row] = False
            near = np.flatnonzero(close[at] & free[start:]) + start
            same = [other for other in near.tolist() if _key(order[other]) == _key(order[row])]
            if same:
                free[same] = False
                found.append(DuplicateGroup(order[row], tuple(order[other] for other in same)))
    return found


def _key(memory: RetrievedMemory) -> tuple[str, bool, list[str]]:
    return memory.kind, memory.trusted, sorted(re.findall(r"\w*\d\w*", memory.text))


_TOKEN = re.compile(r"[^\s=:,;!?]+(?:[:,][^\s=:,;!?]+)*|[=:,;!?]")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NAME = re.compile(r"[^\W\d_a-z]|\S*\w[/@._]\S*\w|/\S")  # starts with a capital, or is a path, an address, a host
_LONGEST = 4  # words of a value: "5 May 2027", "Mrs Ada Lovelace"

_MANY = re.compile(  # a subject that is one of several, or what several values hold for
    r"^(?:an?|some|another|any|each|every|one|there is|ein|eine|un|une)\b|\b(?:one of|not|never|no|also|only|always"
    r"|used to|friend|brother|sister|cousin|colleague|child(?:ren)?|son|daughter|member|customer|client|supplier"
    r"|example|option|reason|part|nicht|auch|nie|nur|pas|aussi)\b",
    re.IGNORECASE,
)
_GIVES = re.compile(  # the verb, and what may stand between it and its only value
    r"(?P<subject>.*?\S) ?(?:[=:]|\b(?P<verb>is|are|ist|lautet|kostet|beträgt|heißt|est|coûte|costs|takes|lasts|weighs|"
    r"listens|runs|lives|works|starts|ends|has(?= ?$))\b)"
    r"(?: (?:due|called|named|set|limited|scheduled|planned|deployed|hosted|located|based|led|run|owned|maintained"
    r"|stored|written|born|reached|at|on|in|to|by|for|from|until|under|of|port|room|floor|the|am|auf|im|à))* ?",
    re.IGNORECASE,
)
_PEOPLE = re.compile(r"(?:the )?(?:user|i|he|she|we|they)|[^\W\d_a-z]\w*", re.IGNORECASE)


def corrects(new: str, old: str) -> bool:
    """Return whether `new` gives another value for what `old` says, in the same words."""
    ours, theirs = (_TOKEN.findall(text.strip().rstrip(".!")) for text in (new, old))
    if ours[-1:] == ["now"]:
        ours.pop()
    first = _same(ours, theirs)
    last = _same(ours[first:][::-1], theirs[first:][::-1])
    ours, theirs, before = ours[first : len(ours) - last], theirs[first : len(theirs) - last], ours[:first]
    kinds = {_kind(value) for value in (ours, theirs)}
    if len(kinds) > 1 or "" in kinds:
        return False
    stops = [n for n, token in enumerate(before) if token.endswith(".")]
    frame = " ".join(before[stops[-1] + 1 if stops else 0 :])
    given = _GIVES.fullmatch(frame)
    if given is None or _MANY.search(frame):
        return False
    subject, verb = given["subject"], given["verb"] or ""
    if kinds == {"number"}:
        return True
    if verb in ("are", "ist", "est", "has", "runs"):  # of several; and German nouns look like names
        return False
    return not (frame.endswith(" is") and _PEOPLE.fullmatch(subject))


def _same(ours: list[str], theirs: list[str]) -> int:
    """Return how many tokens both begin with."""
    return next(
        (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a.casefold() != b.casefold()),
        min(len(ours), len(theirs)),
    )


def _kind(value: list[str]) -> str:
    """Return `number` (a figure, date or version) or `name`, or '' for anything else."""
    if not 1 <= len(value) <= _LONGEST:
        return ""
    words = [word.rstrip(".") for word in value]
    figures = [bool(re.search(r"\d", word)) or word.casefold() in _NUMBERS for word in words]
    if any(figures) and all(figure or _NAME.match(word) for figure, word in zip(figures, words, strict=True)):
        return "number"
    return "name" if all(_NAME.match(word) for word in words) else ""
