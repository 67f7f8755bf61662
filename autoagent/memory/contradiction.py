"""Detects by rule, without a model, that a new memory contradicts an old one. Pure functions.

A rule sees only explicit signs: a word of change together with something the old text names, or the same sentence with
another final figure. It only marks memories, as it may be wrong.
"""

from __future__ import annotations

import re

from autoagent.memory.evidence import terms

_CHANGE = re.compile(
    r"\b(?:no longer|not any ?more|any ?more|instead|is off|are off|was off|switched|moved|replaced|replaces|renamed|"
    r"changed|now|formerly|obsolete|outdated|wrong|correction|used to|nicht mehr|statt|jetzt|umgezogen|ersetzt|"
    r"ne plus|n'est plus|désormais|maintenant|remplacé|au lieu)\b",
    re.IGNORECASE,
)
_VALUE = re.compile(r"(?<=[ =:])\S*\d\S*\W*$")  # the last word, where it has a figure


def may_correct(text: str) -> bool:
    """Return whether a text may contradict an older text: it mentions a change, or ends in a figure."""
    return _CHANGE.search(text) is not None or _VALUE.search(text) is not None


def corrects(new: str, old: str) -> bool:
    """Return whether `new` says otherwise than `old`, given that both are about the same."""
    if _CHANGE.search(new) and not set(terms(new)).isdisjoint(terms(old)):
        return True
    frames = [_VALUE.sub("", text) for text in (new, old)]
    return frames[0] == frames[1] and new not in frames and old not in frames and new != old
