"""Authorization of commands: the answers a person can give, and the authorizers that give them.

Nothing runs without a plain authorization: look-alikes are asked about again, failures refuse. A proposal with a
warning (see exfiltration_guard) needs an answer of its own: no advance authorization covers it except a rule of the
user's.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, Protocol

from autoagent.core.commands import ANY_TEXT, Change, Parameter, Proposal, Question, QuestionKind, Verdict
from autoagent.core.errors import SettingsError, StateError, StopRun
from autoagent.core.events import Dropped
from autoagent.core.memory import memory_name
from autoagent.core.protocols import Authorizer
from autoagent.core.task import Outcome, Status
from autoagent.core.tool_servers import PREFIX
from autoagent.safety.rules import Rule, Rulebook
from autoagent.text.redaction import MASK, holds_mask

ASKS_AT_ONCE = "it asks the user"  # who says so by answering: to be asked about a question is one question too many
NOBODY = "nobody"  # who refuses a call that nobody has decided on in time
MOST_IN_ADVANCE = 9999  # the largest N of `y -N`


class Questioner(Protocol):
    """A person at a keyboard, or the lines of a pipe."""

    def ask(self, prompt: str, *, question: Question = ANY_TEXT) -> str:
        """Ask for one line. Raises EOFError if nobody can answer, KeyboardInterrupt, TimeoutError to go on without."""

    @property
    def elsewhere(self) -> bool:
        """Whether the last answer came from another terminal."""

    def say(self, text: str) -> None:
        """Show a text of one or more lines."""

    def show_whole(self, proposal: Proposal) -> None:
        """Show a proposal with nothing left out of its arguments and its diff."""

    def edit(self, text: str, suffix: str) -> str | None:
        """Return the text as the user leaves it in an editor, or None where there is no editor or it fails.

        `suffix` is that of a file with such a text (`.py`).
        """

    def rewrite(self, text: str) -> str | None:
        """Return the text as the user leaves it on lines that hold it already, or None where no lines are edited."""

    @property
    def words(self) -> Mapping[str, str]:
        """The words that the user may type after a slash, and the text that each shows."""

    def show_word(self, word: str) -> None:
        """Show what one of the `words` asks for."""

    def discard_typeahead(self) -> None:
        """Forget what was typed before the question could be read, or nothing where the input is no terminal."""


class Steering(Protocol):
    """The parts of a run that a person may change at a question."""

    @property
    def words(self) -> Mapping[str, str]:
        """The words after a slash that change something, and the change of each."""

    def change(self, word: str, rest: str) -> Change | None:
        """Return the change that one of the `words`, with what followed it, asks for.

        None where nothing is to be changed; then the person has been told why, or shown what there is.
        """


# The grammar of answers ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UserAnswer:
    """A line understood.

    `count`: commands to run, for `run`. `text`: the feedback, the `rule` to save, why it is asked `again`, the argument
    to `edit` or new arguments as JSON, or the `word` that stood behind a slash, with what followed it.
    """

    kind: Literal["run", "stop", "feedback", "again", "edit", "whole", "always", "rule", "explain", "word"]
    count: int = 0
    text: str = ""


_LETTERS: Mapping[str, UserAnswer] = {
    "e": UserAnswer("edit"), "d": UserAnswer("whole"), "a": UserAnswer("always"), "?": UserAnswer("explain"),
    "t": UserAnswer("word", text="thoughts"),
}  # fmt: skip

_YES = frozenset(
    ("ok", "okay", "yep", "yeah", "yup", "sure", "fine", "alright", "please", "yes", "go", "do", "run", "proceed")
)
_WITH_YES = _YES | {"it", "on", "ahead", "this", "then", "that", "so"}

_OWN_WORDS: Mapping[str, str] = {
    "continuous": "run all from here on (5: five) unasked, until Ctrl-C or /ask",
    "ask": "ask before every command again",
    "write": "write feedback in your editor",
    "help": "what can be answered",
    "quit": "save and stop",
}

_TOLD_ELSEWHERE = (
    "thoughts",
    "help",
    "quit",
    "drop",
    "ask",
    "write",
)  # words that another line explains

_DROP = "go on without the memories from outside, or one of them (/drop 12)"

_NEW_ARGUMENTS = "New arguments: one line of JSON, or NAME=VALUE; Enter keeps them"

# Letters and dashes of other keyboards and fonts that look like those of an authorization.
_DISGUISED = str.maketrans("уеѕаоУЕЅАО‐‑‒–—−", "yesaoYESAO------")  # noqa: RUF001 (they are the point)


def read_answer(line: str, yes: str = "y", no: str = "n") -> UserAnswer:
    """Interpret a line typed at the question. `yes` and `no` are the keys that run and that stop.

    Spaces and case do not matter. Text is feedback, unless it begins like an authorization and is none.
    """
    text = line.strip()
    folded = " ".join(text.lower().split())
    yes, no = yes.strip().lower(), no.strip().lower()
    if not folded:
        return UserAnswer("again")
    usual = {"no": no == "n", "q": yes != "q"}  # unless these stand for something else here
    if folded in (no, "exit", "quit", "/quit", "/exit") or usual.get(folded):
        return UserAnswer("stop")
    if (answer := _authorization(folded, yes)) is not None:
        return answer
    if folded in _LETTERS:
        return _LETTERS[folded]
    if word := re.fullmatch(r"/([a-z]*)(?:\s+(\S.*))?", text, re.IGNORECASE | re.DOTALL):  # no path: those go on
        return UserAnswer("word", text=f"{word[1].lower()} {word[2] or ''}".strip())
    if argument := re.fullmatch(r"[eE]\s+(\w+|\{.*)", text, re.DOTALL):
        return UserAnswer("edit", text=argument[1])
    if rule := re.fullmatch(rf"[aA]\s+([a-z_]+:\S.*|[a-z]+(?:_[a-z]+)+|{PREFIX}[\w-]+(?::\S.*)?)", text):
        return UserAnswer("rule", text=rule[1])
    if folded in ("n", "no") or _authorization(folded, "y") is not None:  # the usual keys, where others are set
        return UserAnswer("again", text=f"The keys are {yes!r} to run it and {no!r} to stop.")
    plain = unicodedata.normalize("NFKC", text).translate(_DISGUISED)
    plain = "".join(char for char in plain if unicodedata.category(char) != "Cf")  # without invisible ones
    if plain != text and (read := read_answer(plain, yes, no)).kind != "feedback":
        return UserAnswer(
            "again", text=read.text or "That only looks like an answer: there are other characters in it."
        )
    if (words := re.findall(r"[^\W_]+", folded[:40])) and words[0] in _YES and _WITH_YES.issuperset(words):
        return UserAnswer("again", text=f"{yes} runs it; anything else that you type is feedback.")
    return UserAnswer("feedback", text=text)


def _authorization(folded: str, yes: str) -> UserAnswer | None:
    """Return the answer to a line that begins like an authorization, or None for any other."""
    if yes == "y" and re.fullmatch(r"y{2,}|ye|yess+", folded):
        return UserAnswer("again", text="To authorize, type y.")
    keys = "y|yes" if yes == "y" else re.escape(yes)
    begins = re.fullmatch(rf"(?:{keys})(?![^\W\d_])\s*(.*)", folded)
    if begins is None:
        return None
    rest = begins[1]
    if not rest:
        return UserAnswer("run", 1)
    if count := re.fullmatch(r"-\s?([0-9]+)", rest):
        digits = count[1].lstrip("0")
        if not digits:
            return UserAnswer("again", text=f"{yes} -0 runs nothing.")
        if len(digits) > len(str(MOST_IN_ADVANCE)):
            return UserAnswer("again", text=f"At most {MOST_IN_ADVANCE} commands can be authorized in advance.")
        return UserAnswer("run", int(digits))
    if re.match(r"[^\W\d_]", rest) or (rest[0] in ",.;:!('\"" and re.search(r"[^\W\d_]", rest)):
        return None  # "yes, but into another file": words, so feedback
    return UserAnswer("again", text=f"To authorize, type {yes}, or {yes} -N with N a whole number, such as {yes} -5.")


def refusal(text: str, question: Question) -> str:
    """Return why a text that comes from another terminal is no answer to a question, or '' if it is one."""
    answer = read_answer(text, question.yes, question.no)
    blank, yes, no = not text.strip(), question.yes, question.no
    if question.kind == "text":
        return "An empty text is no answer." if blank else ""
    if question.kind == "decision":
        return _undecided(answer, question)
    if blank or answer.kind == "stop" or answer == UserAnswer("run", 1):
        return ""
    if question.kind == "remark" and answer.kind == "feedback":
        return ""
    return f"The answer is {yes} to go on or {no} to stop."


def _undecided(answer: UserAnswer, question: Question) -> str:
    """Return why an answer decides nothing on a command, or could not from another terminal."""
    yes, no = question.yes, question.no
    if answer.kind == "always" and question.warned:
        return f"'a' does not hold where there is a warning: {yes} runs it this once."
    if answer.kind == "word":
        word, _, rest = answer.text.partition(" ")
        if word == "continuous":
            return _no_continuous(rest, yes, warned=question.warned)
        changes = word in ("ask", "undo") or (rest and word not in _OWN_WORDS)
        return "" if changes else f"/{word} is for the terminal of the run."
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


def _no_continuous(rest: str, yes: str, *, warned: bool) -> str:
    """Return why `/continuous` with this behind it decides nothing, or '' if it does."""
    if rest and not rest.isdecimal():
        return f"/continuous takes a number or nothing, not {rest!r}."
    if rest and not 0 < int(rest) <= MOST_IN_ADVANCE:
        return f"/continuous takes a number from 1 to {MOST_IN_ADVANCE}."
    return f"What has a warning is decided by itself: {yes} runs it this once." if warned else ""


# Authorizers -----------------------------------------------------------------------------------------------------


class Ask:
    """Asks a person about every command, unless it was authorized in advance.

    Ctrl-C takes back all that was. An edit allows nothing: the edited call comes back as a new proposal. A proposal
    with a warning is always asked about, and uses up nothing of what was authorized in advance. `rulebook` takes the
    rules that are made at the question. `mask` takes secrets out of the arguments that are shown to be edited.
    `steering` changes the run where the person asks for it.
    """

    def __init__(
        self,
        terminal: Questioner,
        yes: str = "y",
        no: str = "n",
        rulebook: Rulebook | None = None,
        mask: Callable[[Any], Any] = lambda value: value,
        steering: Steering | None = None,
    ) -> None:
        self._terminal = terminal
        self._steering = steering
        self._mask = mask
        self._yes = yes
        self._no = no
        self._rulebook = rulebook
        self._credit = 0  # commands that still run without a question
        self._always: set[str] = set()
        self._all = False  # whether nothing is asked about but what has a warning

    def decide(self, proposal: Proposal) -> Verdict:
        if (verdict := self._in_advance(proposal)) is not None:
            return verdict
        try:
            return replace(self._asked(proposal), elsewhere=self._terminal.elsewhere)
        except TimeoutError as error:
            return Verdict(False, NOBODY, f"{error} So it was not run. Go on with what can be done without it.")

    def _in_advance(self, proposal: Proposal) -> Verdict | None:
        name, effects = proposal.call.name, proposal.spec.effects
        if proposal.warning:
            return None
        if effects is not None and effects.asks_user:
            return Verdict(True, ASKS_AT_ONCE)
        if self._all:
            return Verdict(True, "user (continuous)")
        if name in self._always:
            return Verdict(True, f"user (always {name})")
        if self._credit:
            self._credit -= 1
            left = f"{self._credit} more to come" if self._credit else "the last one"
            self._terminal.say(f"Authorized in advance; {left}.")
            return Verdict(True, "user (in advance)")
        return None

    def _asked(self, proposal: Proposal) -> Verdict:
        name, words = proposal.call.name, self._question(proposal)
        decision = self._form("decision", proposal)
        while True:
            answer = read_answer(self._listen(words, decision), self._yes, self._no)
            if answer.kind == "run":
                if answer.count > 1 or not proposal.warning:
                    self._credit = answer.count - 1
                return Verdict(True, "user")
            if answer.kind == "always" and not proposal.warning:
                self._always.add(name)
                return Verdict(True, f"user (always {name})")
            if answer.kind == "rule" and (rule := self._made_rule(answer.text, proposal)) is not None:
                return Verdict(True, f"user (rule {rule})")
            if answer.kind == "feedback":
                return Verdict(False, "user", answer.text)
            if answer.kind == "stop":
                raise _ended(Status.STOPPED)
            if answer.kind == "edit" and (args := self._edit(proposal, answer.text)) is not None:
                return Verdict(False, "user", args=args)
            if answer.kind == "word" and (verdict := self._word(answer.text, proposal)) is not None:
                return verdict
            self._respond(answer, proposal)

    def _respond(self, answer: UserAnswer, proposal: Proposal) -> None:
        """Say what an answer comes to that decides nothing."""
        if answer.kind == "whole":
            self._terminal.show_whole(proposal)
        elif answer.kind == "explain" or (answer.kind == "word" and answer.text in ("help", "")):
            self._terminal.say(self._explanation(proposal))
        elif answer.kind == "always":
            self._terminal.say(
                f"'a' does not hold where there is a warning: {self._yes} runs it this once, and a rule, such as "
                f"'a {proposal.call.name}', holds from now on. Nothing was run."
            )
        elif answer.kind == "again" and answer.text:
            self._terminal.say(f"{answer.text} Nothing was run.")

    def _word(self, text: str, proposal: Proposal) -> Verdict | None:
        """Do what a word behind a slash asks for. Return the verdict if it decides on the proposal."""
        word, _, rest = text.partition(" ")
        if word == "continuous":
            if problem := _no_continuous(rest, self._yes, warned=bool(proposal.warning)):
                self._terminal.say(f"{problem} Nothing was run.")
                return None
            self._all, self._credit = not rest, int(rest or 1) - 1
            return Verdict(True, "user")
        if word == "ask":
            self._forfeit()
            self._terminal.say("Every command is asked about.")
        elif word == "write":
            if (written := self._terminal.edit("", ".md")) is None:
                self._terminal.say("There is no editor: set EDITOR. Alt-Enter begins a new line here.")
            elif written.strip():
                return Verdict(False, "user", written.strip())
        elif word == "drop":
            return self._dropped(rest, proposal.recalled)
        elif self._steering is not None and word in self._steering.words:
            if (change := self._steering.change(word, rest.strip())) is not None:
                return Verdict(False, "user", change=change)
        elif word not in ("help", ""):
            self._show_word(word)
        return None

    def _dropped(self, which: str, recalled: Sequence[int]) -> Verdict | None:
        """Return the verdict that takes recalled memories, all or one, out of the run.

        The call is not run, nor what else its reply asks for: it was asked for with them in the prompt, and so may be
        what comes next, which nothing allows in advance any more.
        """
        dropped = [memory for memory in recalled if which in ("", memory_name(memory))]
        if not dropped and not (recalled and which.isdecimal()) and self._steering and "drop" in self._steering.words:
            change_of = self._steering.change("drop", which)
            return Verdict(False, "user", change=change_of) if change_of is not None else None
        if not dropped:
            there = ", ".join(map(memory_name, recalled)) or "there is none"
            self._terminal.say(f"/drop takes a memory that brought text from outside: {there}. Nothing was run.")
            return None

        def change(record: Callable[[Any], Any]) -> None:
            for memory in dropped:
                record(Dropped(memory=memory, ends_reply=True))

        self._forfeit()
        names = ", ".join(map(memory_name, dropped))
        reason = (
            f"The user has taken out of this run what came from outside by memory {names}. Decide again without it."
        )
        return Verdict(False, "user (drop)", reason, change=change)

    def _show_word(self, word: str) -> None:
        if word in self._terminal.words:
            self._terminal.show_word(word)
        elif word in self._words:
            self._terminal.say(f"/{word} is for the question before a command. Nothing was sent.")
        else:
            known = ", ".join(f"/{name}" for name in self._words)
            self._terminal.say(f"There is no /{word}; there are {known}. Nothing was run, and nothing sent.")

    @property
    def _words(self) -> Mapping[str, str]:
        """All that may be asked for here with a slash in front."""
        return {**self._terminal.words, **(self._steering.words if self._steering else {}), **_OWN_WORDS}

    def _forfeit(self) -> None:
        self._credit, self._all = 0, False
        self._always.clear()

    def interrupted(self) -> str:
        self._forfeit()
        self._terminal.say("")  # the terminal has echoed ^C
        question = f"Interrupted. Enter goes on, text is feedback, {self._no} saves and stops; Ctrl-C again stops too."
        while True:
            try:
                line = self._answer(question, self._form("remark"))
            except KeyboardInterrupt:
                raise _ended(Status.INTERRUPTED) from None
            except TimeoutError:
                return ""
            answer = read_answer(line, self._yes, self._no)
            if answer.kind == "stop":
                raise _ended(Status.STOPPED)
            if answer.kind == "feedback":
                return answer.text
            if not line.strip() or answer == UserAnswer("run", 1):
                return ""
            if answer.kind == "word":
                self._show_word(answer.text.partition(" ")[0])
            else:
                self._terminal.say("Nothing waits to be authorized now. Enter goes on.")

    def waits_on(self, reason: str) -> bool:
        question = f"{reason}\nKeep trying? Enter = yes, {self._no} = save and stop"
        while True:
            self._terminal.discard_typeahead()
            try:
                line = self._terminal.ask(question, question=self._form("going on"))
            except EOFError:
                return False
            except TimeoutError:
                return True
            answer = read_answer(line, self._yes, self._no)
            if answer.kind == "stop":
                raise _ended(Status.STOPPED)
            if not line.strip() or answer == UserAnswer("run", 1):
                return True
            self._terminal.say("There is no model to read that. Enter tries again.")

    def accepts(self, claims: str) -> Verdict:
        question = f"{claims}\nAccept it as done? {self._yes} = yes, {self._no} = leave it unverified, or type feedback"
        while True:
            try:
                line = self._listen(question, self._form("decision"))
            except (TimeoutError, StopRun):
                return Verdict(False, NOBODY)
            answer = read_answer(line, self._yes, self._no)
            if answer == UserAnswer("run", 1):
                return Verdict(True, "user")
            if answer.kind == "stop":
                return Verdict(False, "user")
            if answer.kind == "feedback":
                return Verdict(False, "user", answer.text)
            self._terminal.say(f"Answer {self._yes}, {self._no}, or type what is still to do.")

    def _question(self, proposal: Proposal) -> str:
        if proposal.warning:
            names = ", ".join(map(memory_name, proposal.recalled))
            drop = f"/drop = go on without memory {names}, " if names else ""
            return (
                f"Run it all the same? {self._yes} = yes, this once, {self._no} = stop, {drop}or type feedback "
                "(e, d, t, ? = help)"
            )
        return (
            f"Run it? {self._yes} = yes, {self._yes} -N = N commands, {self._no} = stop, or feedback "
            "(e, d, a, t, ? = help)"
        )

    def _explanation(self, proposal: Proposal) -> str:
        name, yes, no = proposal.call.name, self._yes, self._no
        rows = {
            f"{yes}, {yes} -5": "run it; run it and the next 4 without a question",
            no: "save and stop, as Ctrl-D and Ctrl-C twice do; it can be resumed",
            "e": "edit what is to be written, then be asked again; e NAME: an argument",
            "d, t": "show all arguments and the whole diff; all thoughts of this step",
            "a": f"run every {name} unasked until the run ends, or Ctrl-C",
            "a RULE": f"save a rule, such as {name}:PATTERN, for every run",
            "text": "feedback; nothing is run. Alt-Enter: a new line; /write: your editor",
            **{f"/{word}": what for word, what in self._words.items() if word not in _TOLD_ELSEWHERE},
            **({"/drop": _DROP} if proposal.recalled else {}),
        }
        head = f"{proposal.spec.label} ({name}, risk: {proposal.risk})"
        return "\n".join([head, *(f"{answer:<12}{what}" for answer, what in rows.items())])

    def _made_rule(self, text: str, proposal: Proposal) -> Rule | None:
        """Return the rule, saved once the user has confirmed it, or None if it stays unsaved and nothing is decided."""
        if self._rulebook is None:
            self._terminal.say("No rules can be saved here. Nothing was run.")
            return None
        try:
            rule = self._rulebook.parse(text)
            if not self._rulebook.fits(rule, proposal.call):
                self._terminal.say(f"The rule {rule} does not let this call through. Nothing was run or saved.")
                return None
            self._terminal.say(self._rulebook.forecast(rule))
            question = f"Save the rule {rule}? {self._yes} = yes, Enter = no"
            confirmed = self._listen(question, self._form("going on"))
            if read_answer(confirmed, self._yes, self._no) != UserAnswer("run", 1):
                self._terminal.say("The rule was not saved. Nothing was run.")
                return None
            self._rulebook.save(rule)
        except (SettingsError, StateError) as error:
            self._terminal.say(f"{error} Nothing was run.")
            return None
        self._terminal.say(f"Saved; `autoagent rules remove '{rule}'` revokes it.")
        return rule

    def _form(self, kind: QuestionKind, proposal: Proposal | None = None) -> Question:
        warned = proposal is not None and bool(proposal.warning)
        return Question(kind, self._yes, self._no, warned, proposal, words=tuple(self._words))

    def _listen(self, words: str, question: Question) -> str:
        """Read a line of answer. The first Ctrl-C returns to the question, a second ends the run."""
        try:
            return self._answer(words, question)
        except KeyboardInterrupt:
            self._terminal.say("Nothing was run. Ctrl-C again saves and stops.")
        try:
            return self._answer(words, question)
        except KeyboardInterrupt:
            raise _ended(Status.INTERRUPTED) from None

    def _answer(self, words: str, question: Question) -> str:
        self._terminal.discard_typeahead()
        try:
            return self._terminal.ask(words, question=question)
        except EOFError:
            raise _ended(Status.UNANSWERED) from None

    def _edit(self, proposal: Proposal, name: str) -> dict[str, Any] | None:
        """Return new arguments, or None if they stay as they are. `name` is the one to change, '' for the usual."""
        args = dict(proposal.call.args)
        shown = dict(self._mask(args))
        if name and not name.startswith("{") and name not in shown:
            self._terminal.say(f"There is no argument {name}; there are {', '.join(shown)}. Nothing was changed.")
            return None
        try:
            if name.startswith("{"):
                edited: dict[str, Any] | None = edit_arguments(shown, name, proposal.spec.parameters)
            else:
                edited = self._rewritten(proposal, shown, name)
            if edited is not None:
                args_now = _with_secrets(edited, shown, args)
                return args_now if args_now != args else None
        except ValueError as error:
            self._terminal.say(f"{error} Nothing was changed.")
            return None
        self._terminal.say(json.dumps(shown, ensure_ascii=False, indent=2))
        while line := self._listen(_NEW_ARGUMENTS, ANY_TEXT).strip():
            try:
                args_now = _with_secrets(edit_arguments(shown, line, proposal.spec.parameters), shown, args)
            except ValueError as error:
                self._terminal.say(f"{error} Nothing was changed.")
                continue
            return args_now if args_now != args else None
        return None

    def _rewritten(self, proposal: Proposal, shown: Mapping[str, Any], name: str) -> dict[str, Any] | None:
        """Return the arguments with one text as the user left it, or None where nothing can be edited but by its name.

        Without a `name` it is the program or the text of the file, else the last text that is no path: what an edit
        puts in, not what it takes out.
        """
        texts = [p for p in proposal.spec.parameters if isinstance(shown.get(p.name), str)]
        if not texts or (name and not isinstance(shown[name], str)):
            return None
        usual = max(texts, key=lambda p: (bool(p.code), p.meaning not in ("path", "entry"), texts.index(p))).name
        name = name or usual
        path = next((shown[p.name] for p in texts if p.meaning == "path"), "")
        before, others = shown[name], ", ".join(f"e {p.name}" for p in texts if p.name != name)
        self._terminal.say(f"Editing {name} of {proposal.call.name}{f' (or: {others})' if others else ''}.")
        if (after := self._terminal.edit(before, PurePath(path).suffix or ".txt")) is None:
            after = self._terminal.rewrite(before)
        if after is None:
            return None
        if "\n" not in before:  # an editor ends each line
            after = after.removesuffix("\n")
        return {**shown, name: after}


def edit_arguments(args: Mapping[str, Any], line: str, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the arguments after an edit: a JSON object replaces them all, `name=value` one of them.

    The value of a string may be written bare. Raises ValueError, with a sentence, for a line that is neither.
    """
    if line.startswith("{"):
        try:
            return dict(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(_not_json(error)) from error
    name, mark, value = (part.strip() for part in line.partition("="))
    kinds = {p.name: p.kind for p in parameters}
    if not mark or name not in kinds:
        raise ValueError(f"Write NAME=VALUE with one of: {', '.join(kinds)}; or a JSON object.")
    if kinds[name] == "string" and not value.startswith('"'):
        return {**args, name: value}
    try:
        return {**args, name: json.loads(value)}
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} is of type {kinds[name]}, and {value!r} is not.") from error


def _not_json(error: json.JSONDecodeError) -> str:
    return f"That is not valid JSON: {error.msg} at column {error.colno}."


def _with_secrets(edited: Mapping[str, Any], shown: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the edited arguments. One left as it was shown keeps its secret.

    Raises ValueError for one that was changed around a secret which was not shown.
    """
    kept = {name for name, value in edited.items() if name in args and value == shown[name]}
    for name in edited.keys() - kept:
        if name in args and shown[name] != args[name] and holds_mask(edited[name]):
            raise ValueError(f"{MASK} stands in {name} for a secret that is not shown; write the whole value again.")
    return {name: args[name] if name in kept else value for name, value in edited.items()}


class Continuous:
    """Allows every command without a warning. Those with one are asked about, or refused where nobody can answer.

    Ctrl-C ends the run, or asks where there is somebody to ask.
    """

    def __init__(self, ask: Authorizer | None = None) -> None:
        self._ask = ask

    def decide(self, proposal: Proposal) -> Verdict:
        if not proposal.warning:
            return Verdict(True, "continuous mode")
        if self._ask is not None:
            return self._ask.decide(proposal)
        reason = f"{proposal.warning} Nobody is here to allow it. Go on without it, with what you have."
        return Verdict(False, "guard", reason)

    def interrupted(self) -> str:
        if self._ask is None:
            raise _ended(Status.INTERRUPTED)
        return self._ask.interrupted()

    def waits_on(self, reason: str) -> bool:
        return False  # the patience was for an unattended agent

    def accepts(self, claims: str) -> Verdict:
        return Verdict(False, "continuous mode")


class AuthorizerWrapper:
    """An authorizer around another one, to which it leaves all that it does not decide itself."""

    def __init__(self, inner: Authorizer) -> None:
        self._inner = inner

    def decide(self, proposal: Proposal) -> Verdict:
        return self._inner.decide(proposal)

    def interrupted(self) -> str:
        return self._inner.interrupted()

    def waits_on(self, reason: str) -> bool:
        return self._inner.waits_on(reason)

    def accepts(self, claims: str) -> Verdict:
        return self._inner.accepts(claims)


class RuleAuthorizer(AuthorizerWrapper):
    """Allows what a rule lets through, without a question and in spite of a warning. Leaves all else to `inner`."""

    def __init__(self, rulebook: Rulebook, inner: Authorizer) -> None:
        super().__init__(inner)
        self._rulebook = rulebook

    def decide(self, proposal: Proposal) -> Verdict:
        self._rulebook.see(proposal.call, proposal.agent)
        rule = self._rulebook.allows(proposal.call)
        if rule is not None and (not proposal.guarded or proposal.guarded == (rule.pattern,)):  # named, not swept up
            return Verdict(True, f"rule {rule}")
        return self._inner.decide(proposal)


class FailClosed(AuthorizerWrapper):
    """Refuses where `inner` fails, so that decide raises StopRun and KeyboardInterrupt alone."""

    def decide(self, proposal: Proposal) -> Verdict:
        try:
            return self._inner.decide(proposal)
        except StopRun:
            raise
        except Exception as error:  # whatever failed, nobody has allowed the call
            reason = f"Whether it may run could not be decided ({type(error).__name__}: {error})."
            return Verdict(False, "fault", reason)


_REASONS: Mapping[Status, str] = {
    Status.STOPPED: "Ended by the user.",
    Status.INTERRUPTED: "Ended by Ctrl-C.",
    Status.UNANSWERED: "A question was asked and nobody could answer it; pass -c to run without questions.",
}


def _ended(status: Status) -> StopRun:
    return StopRun(Outcome(status, _REASONS[status]))
