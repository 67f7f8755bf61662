"""Whether a new memory says otherwise than an old one about the same: by rule, without a model. Pure.

A rule sees only what is said openly: a word that tells of a change, and something of the old text that the new one
names; or the same sentence with another figure at its end. It marks, and deletes nothing, as it may be wrong.
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
    """Return whether a text may say otherwise than an older one at all: it tells of a change, or ends in a figure."""
    return _CHANGE.search(text) is not None or _VALUE.search(text) is not None


def corrects(new: str, old: str) -> bool:
    """Return whether `new` says otherwise than `old`, given that both are about the same."""
    if _CHANGE.search(new) and not set(terms(new)).isdisjoint(terms(old)):
        return True
    frames = [_VALUE.sub("", text) for text in (new, old)]
    return frames[0] == frames[1] and new not in frames and old not in frames and new != old
