"""Make untrusted text safe to display.

Characters that a terminal would execute, reorder or hide are shown as escapes. Long texts are cut in the middle, with a
note of the length left out. Not covered: lookalikes within one script (`rn` for `m`, `l` for `1`), and words written
entirely in lookalikes of another script.

Python's own Unicode tables give the width of a text in ten lines, so wcwidth is not a dependency.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# Control characters except newline and tab, the soft hyphen, invisible letters and joiners, bidi controls
# (CVE-2021-42574), lone surrogates, variation selectors (they can carry bytes), and the whole tag plane.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    # A single presentation selector often follows an emoji. Anywhere else it is suspicious.
    r"|(?<![\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f]"
)

_WORD = re.compile(r"\w+")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_LOOKALIKES = {
    "Cyrillic": re.compile("[\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0455\u0456\u0458"
                           "\u04bb\u04cf\u0501\u051b\u051d\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422"
                           "\u0423\u0425\u0405\u0406\u0408\u04c0]"),
    "Greek": re.compile("[\u03b1\u03b9\u03ba\u03bd\u03bf\u03c1\u03c5\u03c7\u0391\u0392\u0395\u0396\u0397\u0399\u039a"
                        "\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03f2\u03f3]"),
}  # fmt: skip

_BLANK = r"[^\S\n]|\u2800"  # of any width, or the empty Braille cell
_BLANKS = re.compile(rf"(?:{_BLANK}){{81,}}|\n(?:(?:{_BLANK})*\n){{7,}}")


def valid_text(text: str) -> str:
    """Return the text as valid UTF-8: surrogate pairs are joined, and a lone surrogate becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def escape(text: str) -> str:
    r"""Escape hidden and harmful characters visibly (`\x1b`, `\u202e`). Keep \n and \t."""
    return _HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def escape_json(text: str) -> str:
    r"""Return JSON text with the same characters as JSON escapes (`\u202e`), so that its values stay the same."""

    def escaped(match: re.Match[str]) -> str:
        data = match[0].encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))

    return _HIDDEN.sub(escaped, text)


def script_notes(text: str) -> tuple[str, ...]:
    r"""Return a note for each word that mixes Latin with lookalikes: `'...' (Cyrillic: \u0430pt)`."""
    notes: dict[str, None] = {}
    for word in _WORD.findall(text):
        if word.isascii() or not _LATIN.search(word):
            continue
        for script, letters in _LOOKALIKES.items():
            if letters.search(word):
                notes[f"'{escape(word)}' ({script}: {word.encode('unicode_escape').decode('ascii')})"] = None
    return tuple(notes)


def width(text: str) -> int:
    """Count the terminal columns of an escaped text: 2 for a wide character, 0 for a combining character."""
    if text.isascii():
        return len(text)
    spacing = (char for char in text if unicodedata.category(char) not in ("Mn", "Me"))
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in spacing)


def fold_blanks(text: str) -> str:
    """Replace long runs of spaces or empty lines with a note of their length, so that nothing hides behind them."""

    def note(match: re.Match[str]) -> str:
        line_ends = match[0].count("\n")
        return f"\n... {line_ends - 1:,} blank lines ...\n" if line_ends else f" ... {len(match[0]):,} spaces ... "

    return _BLANKS.sub(note, text)


def shorten(text: str, limit: int) -> str:
    """Fold long runs of blanks, and cut the middle of a text over `limit` characters if that saves any.

    Two thirds of the limit go to the beginning. The note in the middle gives the length left out and the total.
    """
    folded = fold_blanks(text)
    head, tail = limit - limit // 3, limit // 3
    left_out = len(folded) - head - tail
    note = f" ... {left_out:,} characters left out of {len(folded):,} ... "
    if left_out <= len(note):
        return folded
    return folded[:head] + note + folded[len(folded) - tail :]


def one_line(text: str, limit: int) -> str:
    """Return the text on one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def shorten_lines(lines: Sequence[str], most: int, indent: str = "", tail: int = 0) -> list[str]:
    """Return at most `most` lines, plus a note in the middle if more than one line is left out.

    `tail` is the number of lines after the note, a third of `most` by default.
    """
    if len(lines) <= most + 1:
        return list(lines)
    tail = tail or most // 3
    note = f"{indent}... {len(lines) - most:,} lines left out of {len(lines):,} ..."
    return [*lines[: most - tail], note, *lines[len(lines) - tail :]]


def cut_to_lines(text: str, limit: int, most: int, tail: int = 0) -> list[str]:
    """Return at most `most` lines, each cut so that together they have about `limit` characters."""
    lines = shorten_lines(text.split("\n"), most, tail=tail)
    lengths = sorted(map(len, lines))
    each = limit
    for shorter, length in enumerate(lengths):  # longer lines get the room that short lines leave
        each = max(0, limit - sum(lengths[:shorter])) // (len(lengths) - shorter)
        if length > each:
            break
    return [shorten(line, each) for line in lines]
