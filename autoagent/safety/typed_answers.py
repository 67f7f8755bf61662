"""Parse the answers that a person types at a question about a command.

Nothing runs without a plain authorization. After an answer that only resembles it, the user is asked again.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from autoagent.core.commands import SOURCED, Change, Parameter, Question
from autoagent.core.frozen import dataclass
from autoagent.text.redaction import MASK, holds_mask

MAX_ADVANCE_COMMANDS = 9999  # the largest N of `y -N`


@dataclass(frozen=True, slots=True)
class UserAnswer:
    """A parsed line.

    For `run`, `count` is the number of commands. By kind, `text` is the feedback, the `rule` to save, the reason to ask
    `again`, the argument to `edit` or new arguments as JSON, or the `word` after a slash and its argument.
    """

    kind: Literal["run", "stop", "feedback", "again", "edit", "whole", "always", "rule", "explain", "word"]
    count: int = 0
    text: str = ""


_LETTERS: Mapping[str, UserAnswer] = {
    "e": UserAnswer("edit"), "d": UserAnswer("whole"), "a": UserAnswer("always"), "?": UserAnswer("explain"),
    "t": UserAnswer("word", text="thoughts"),
}  # fmt: skip

_YES_WORDS = frozenset(
    ("ok", "okay", "yep", "yeah", "yup", "sure", "fine", "alright", "please", "yes", "go", "do", "run", "proceed")
)
_WORDS_WITH_YES = _YES_WORDS | {"it", "on", "ahead", "this", "then", "that", "so"}

DIALOG_WORDS: Mapping[str, str] = {
    "continuous": "run all commands (5: five) unasked, until Ctrl-C or /ask",
    "ask": "ask before every command again",
    "write": "write feedback in your editor",
    "help": "the possible answers",
    "quit": "save and stop",
}

# Letters and dashes of other scripts that look like those of an authorization.
_LOOKALIKES = str.maketrans("уеѕаоУЕЅАО‐‑‒–—−", "yesaoYESAO------")  # noqa: RUF001 (they are the point)


@dataclass(frozen=True, slots=True)
class Steering:
    """The parts of a run that a person may change at a question.

    `words` are the words after a slash, with descriptions. `change` returns the change requested by a word and its
    argument, or None after telling the person why nothing changed.
    """

    words: Mapping[str, str]
    change: Callable[[str, str], Change | None]


def read_answer(line: str, yes: str = "y", no: str = "n") -> UserAnswer:
    """Parse a line typed at the question. `yes` and `no` are the keys that run and stop.

    Spaces and case do not matter. Text is feedback, unless it begins like an authorization without being one.
    """
    text = line.strip()
    folded = " ".join(text.lower().split())
    yes, no = yes.strip().lower(), no.strip().lower()
    if not folded:
        return UserAnswer("again")
    default_stops = {"no": no == "n", "q": yes != "q"}  # unless the keys give them another meaning
    if folded in (no, "exit", "quit", "/quit", "/exit") or default_stops.get(folded):
        return UserAnswer("stop")
    if (answer := _authorization(folded, yes)) is not None:
        return answer
    if folded in _LETTERS:
        return _LETTERS[folded]
    # paths contain further slashes
    if word := re.fullmatch(r"/([a-z]*)(?:\s+(\S.*))?", text, re.IGNORECASE | re.DOTALL):
        return UserAnswer("word", text=f"{word[1].lower()} {word[2] or ''}".strip())
    if argument := re.fullmatch(r"[eE]\s+(\w+|\{.*)", text, re.DOTALL):
        return UserAnswer("edit", text=argument[1])
    if rule := re.fullmatch(rf"[aA]\s+([a-z_]+:\S.*|[a-z]+(?:_[a-z]+)+|{SOURCED}(?::\S.*)?)", text):
        return UserAnswer("rule", text=rule[1])
    # the default keys, if others are configured
    if folded in ("n", "no") or _authorization(folded, "y") is not None:
        return UserAnswer("again", text=f"The keys are {yes!r} to run it and {no!r} to stop.")
    plain_text = unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)
    plain_text = "".join(char for char in plain_text if unicodedata.category(char) != "Cf")  # invisible characters
    if plain_text != text and (answer := read_answer(plain_text, yes, no)).kind != "feedback":
        return UserAnswer("again", text=answer.text or "That only looks like an answer: it has other characters.")
    if (words := re.findall(r"[^\W_]+", folded[:40])) and words[0] in _YES_WORDS and _WORDS_WITH_YES.issuperset(words):
        return UserAnswer("again", text=f"{yes} runs it; anything else that you type is feedback.")
    return UserAnswer("feedback", text=text)


def _authorization(folded: str, yes: str) -> UserAnswer | None:
    """Return the answer to a line that begins like an authorization, or None for any other."""
    if yes == "y" and re.fullmatch(r"y{2,}|ye|yess+", folded):
        return UserAnswer("again", text="To authorize, type y.")
    keys = "y|yes" if yes == "y" else re.escape(yes)
    match = re.fullmatch(rf"(?:{keys})(?![^\W\d_])\s*(.*)", folded)
    if match is None:
        return None
    rest = match[1]
    if not rest:
        return UserAnswer("run", 1)
    if count := re.fullmatch(r"-\s?([0-9]+)", rest):
        digits = count[1].lstrip("0")
        if not digits:
            return UserAnswer("again", text=f"{yes} -0 runs nothing.")
        if len(digits) > len(str(MAX_ADVANCE_COMMANDS)):
            return UserAnswer("again", text=f"At most {MAX_ADVANCE_COMMANDS} commands can be authorized in advance.")
        return UserAnswer("run", int(digits))
    if re.match(r"[^\W\d_]", rest) or (rest[0] in ",.;:!('\"" and re.search(r"[^\W\d_]", rest)):
        return None  # "yes, but into another file": words, so feedback
    return UserAnswer("again", text=f"To authorize, type {yes}, or {yes} -N with N a whole number, such as {yes} -5.")


def refusal(text: str, question: Question) -> str:
    """Return why a text from another terminal does not answer a question, or ''."""
    answer = read_answer(text, question.yes, question.no)
    is_blank = not text.strip()
    if question.kind == "text":
        return "An empty text is no answer." if is_blank else ""
    if question.kind == "decision":
        return _why_undecided(answer, question)
    if is_blank or answer.kind == "stop" or answer == UserAnswer("run", 1):
        return ""
    if question.kind == "remark" and answer.kind == "feedback":
        return ""
    return f"The answer is {question.yes} to go on or {question.no} to stop."


def _why_undecided(answer: UserAnswer, question: Question) -> str:
    """Return why an answer does not decide on a command, at all or from another terminal."""
    yes, no = question.yes, question.no
    if answer.kind == "always" and question.warned:
        return f"'a' does not cover a warning: {yes} runs it this once."
    if answer.kind == "word":
        word, _, rest = answer.text.partition(" ")
        if word == "continuous":
            return refuse_continuous(rest, yes, warned=question.warned)
        may_decide = word in ("ask", "undo") or (rest and word not in DIALOG_WORDS)
        return "" if may_decide else f"/{word} is for the terminal of the run."
    if answer.kind == "edit" and answer.text.startswith("{"):
        try:
            json.loads(answer.text)
        except json.JSONDecodeError as error:
            return _not_json(error)
        return ""
    if answer.kind in ("run", "stop", "feedback", "always", "rule"):
        return ""
    if answer.kind == "again" and answer.text:
        return answer.text
    return f"The answer is {yes}, {yes} -N, {no}, or feedback; the rest is for the terminal of the run."


def refuse_continuous(rest: str, yes: str, *, warned: bool) -> str:
    """Return why `/continuous` with this argument does not decide, or ''."""
    if rest and not rest.isdecimal():
        return f"/continuous takes a number or nothing, not {rest!r}."
    if rest and not 0 < int(rest) <= MAX_ADVANCE_COMMANDS:
        return f"/continuous takes a number from 1 to {MAX_ADVANCE_COMMANDS}."
    return f"A command with a warning is decided alone: {yes} runs it this once." if warned else ""


def edit_arguments(args: Mapping[str, Any], line: str, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the arguments after an edit: a JSON object replaces all, `name=value` one of them.

    A string may be written without quotes. Raises ValueError, with a sentence, for a line that is neither.
    """
    if line.startswith("{"):
        try:
            return dict(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(_not_json(error)) from error
    name, sign, value = (part.strip() for part in line.partition("="))
    kinds = {p.name: p.kind for p in parameters}
    if not sign or name not in kinds:
        raise ValueError(f"Write NAME=VALUE with one of: {', '.join(kinds)}; or a JSON object.")
    if kinds[name] == "string" and not value.startswith('"'):
        return {**args, name: value}
    try:
        return {**args, name: json.loads(value)}
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} is of type {kinds[name]}, and {value!r} is not.") from error


def _not_json(error: json.JSONDecodeError) -> str:
    return f"That is not valid JSON: {error.msg} at column {error.colno}."


def restore_secrets(new_args: Mapping[str, Any], masked: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the edited arguments, with the secrets of `args` in place of the unchanged `masked` values.

    Raises ValueError if an edited argument still holds a mask.
    """
    unchanged = {name for name, value in new_args.items() if name in args and value == masked[name]}
    for name in new_args.keys() - unchanged:
        if name in args and masked[name] != args[name] and holds_mask(new_args[name]):
            raise ValueError(f"{MASK} in {name} stands for a hidden secret; write the whole value again.")
    return {name: args[name] if name in unchanged else value for name, value in new_args.items()}
