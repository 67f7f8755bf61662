"""Ask a person before a command. Only a rule of the user answers for them if there is a warning."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Protocol

from autoagent.core.commands import ANY_TEXT, Proposal, Question, QuestionKind, Verdict
from autoagent.core.errors import SettingsError, StateError, StopRun
from autoagent.core.events import Dropped
from autoagent.core.memory import memory_name
from autoagent.core.task import Status
from autoagent.safety.approval import NOBODY, stop_error
from autoagent.safety.rules import Rule, Rulebook
from autoagent.safety.typed_answers import (
    DIALOG_WORDS,
    Steering,
    UserAnswer,
    edit_arguments,
    read_answer,
    refuse_continuous,
    restore_secrets,
)

_EXPLAINED_WORDS = ("thoughts", "help", "quit", "drop", "ask", "write")  # by other lines of the explanation


class Questioner(Protocol):
    """Ask a person at a keyboard, or read the lines of a pipe."""

    def ask(self, prompt: str, *, question: Question = ANY_TEXT) -> str:
        """Ask for a line. Raises EOFError if nobody can answer, TimeoutError to go on without, KeyboardInterrupt."""

    @property
    def elsewhere(self) -> bool:
        """Return whether the last answer came from another terminal."""

    def say(self, text: str) -> None:
        """Show a text of one or more lines."""

    def show_whole(self, proposal: Proposal) -> None:
        """Show a proposal with its complete arguments and diff."""

    def edit(self, text: str, suffix: str) -> str | None:
        """Return the text edited in the user's editor as a file with this suffix, or None without one."""

    def rewrite(self, text: str) -> str | None:
        """Return the text edited on prefilled lines, or None without line editing."""

    @property
    def words(self) -> Mapping[str, str]:
        """Return the words that the user may type after a slash, and the help of each."""

    def show_word(self, word: str) -> None:
        """Show the text of one of the `words`."""

    def discard_typeahead(self) -> None:
        """Discard input typed before the question was readable, if the input is a terminal."""


class InteractiveAuthorizer:
    """Ask a person about every command, unless it was authorized in advance.

    Ctrl-C revokes all advance authorizations. An edited call comes back as a new proposal. A proposal with a warning is
    always asked about, and uses up no advance authorization. `rulebook` stores rules made at the question. `mask` masks
    secrets in arguments to be edited. `steering` changes the run at the person's request.
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
        self._steering = steering or Steering({}, lambda word, argument: None)
        self._mask = mask
        self._yes = yes
        self._no = no
        self._rulebook = rulebook or Rulebook([])
        self._advance_count = 0  # commands that still run without a question
        self._allowed_names: set[str] = set()
        self._runs_all = False  # whether only warnings are asked about

    def decide(self, proposal: Proposal) -> Verdict:
        name, effects = proposal.call.name, proposal.spec.effects
        if not proposal.warning:
            if effects is not None and effects.asks_user:
                return Verdict(True, "it asks the user")
            if self._runs_all:
                return Verdict(True, "user (continuous)")
            if name in self._allowed_names:
                return Verdict(True, f"user (always {name})")
            if self._advance_count:
                self._advance_count -= 1
                remainder = f"{self._advance_count} more to come" if self._advance_count else "the last one"
                self._terminal.say(f"Authorized in advance; {remainder}.")
                return Verdict(True, "user (in advance)")
        try:
            return replace(self._ask_user(proposal), elsewhere=self._terminal.elsewhere)
        except TimeoutError as error:
            return Verdict(False, NOBODY, f"{error} So it was not run. Go on with what can be done without it.")

    def _ask_user(self, proposal: Proposal) -> Verdict:
        name, question = proposal.call.name, self._question(proposal)
        decision = self._form("decision", proposal)
        while True:
            answer = read_answer(self._ask_twice(question, decision), self._yes, self._no)
            if answer.kind == "run":
                if answer.count > 1 or not proposal.warning:
                    self._advance_count = answer.count - 1
                return Verdict(True, "user")
            if answer.kind == "always" and not proposal.warning:
                self._allowed_names.add(name)
                return Verdict(True, f"user (always {name})")
            if answer.kind == "rule" and (rule := self._confirm_rule(answer.text, proposal)) is not None:
                return Verdict(True, f"user (rule {rule})")
            if answer.kind == "feedback":
                return Verdict(False, "user", answer.text)
            if answer.kind == "stop":
                raise stop_error(Status.STOPPED)
            if answer.kind == "edit" and (args := self._edit(proposal, answer.text)) is not None:
                return Verdict(False, "user", args=args)
            if answer.kind == "word" and (verdict := self._run_word(answer.text, proposal)) is not None:
                return verdict
            if answer.kind == "whole":
                self._terminal.show_whole(proposal)
            elif answer.kind == "explain" or (answer.kind == "word" and answer.text in ("help", "")):
                self._terminal.say(self._explanation(proposal))
            elif answer.kind == "always":
                self._terminal.say(
                    f"'a' does not cover a warning: {self._yes} runs it this once, and a rule, such as 'a {name}', "
                    "holds from now on. Nothing was run."
                )
            elif answer.kind == "again" and answer.text:
                self._terminal.say(f"{answer.text} Nothing was run.")

    def _run_word(self, text: str, proposal: Proposal) -> Verdict | None:
        """Execute a word after a slash. Return the verdict if it decides on the proposal."""
        word, _, rest = text.partition(" ")
        if word == "continuous":
            if problem := refuse_continuous(rest, self._yes, warned=bool(proposal.warning)):
                self._terminal.say(f"{problem} Nothing was run.")
                return None
            self._runs_all, self._advance_count = not rest, int(rest or 1) - 1
            return Verdict(True, "user")
        if word == "ask":
            self._revoke()
            self._terminal.say("Every command is asked about.")
        elif word == "write":
            if (feedback := self._terminal.edit("", ".md")) is None:
                self._terminal.say("No editor is set: set EDITOR. Alt-Enter begins a new line here.")
            elif feedback.strip():
                return Verdict(False, "user", feedback.strip())
        elif word == "drop":
            return self._drop_memories(rest, proposal.recalled)
        elif word in self._steering.words:
            return self._steer(word, rest.strip())
        elif word not in ("help", ""):
            self._show_word(word)
        return None

    def _steer(self, word: str, argument: str) -> Verdict | None:
        """Change the run at the person's request. Return the verdict that carries the change, or None without one."""
        change = self._steering.change(word, argument)
        return Verdict(False, "user", change=change) if change is not None else None

    def _drop_memories(self, name: str, recalled: Sequence[int]) -> Verdict | None:
        """Return the verdict that removes recalled memories, all or one, from the run.

        The call and the rest of its reply do not run, since they may stem from these memories. Advance authorizations
        are revoked.
        """
        memories = [memory for memory in recalled if name in ("", memory_name(memory))]
        if not memories and not (recalled and name.isdecimal()) and "drop" in self._steering.words:
            return self._steer("drop", name)
        if not memories:
            choices = ", ".join(map(memory_name, recalled)) or "there is none"
            self._terminal.say(f"/drop takes a memory that brought text from outside: {choices}. Nothing was run.")
            return None

        def change(record: Callable[[Any], Any]) -> None:
            for memory in memories:
                record(Dropped(memory=memory, ends_reply=True))

        self._revoke()
        names = ", ".join(map(memory_name, memories))
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
            known_words = ", ".join(f"/{name}" for name in self._words)
            self._terminal.say(f"There is no /{word}; use {known_words}. Nothing was run or sent.")

    @property
    def _words(self) -> Mapping[str, str]:
        return {**self._terminal.words, **self._steering.words, **DIALOG_WORDS}

    def _revoke(self) -> None:
        self._advance_count, self._runs_all = 0, False
        self._allowed_names.clear()

    def interrupted(self) -> str:
        self._revoke()
        self._terminal.say("")  # the terminal has echoed ^C
        question = f"Interrupted. Enter continues, text is feedback, {self._no} or Ctrl-C again saves and stops."
        while True:
            try:
                line = self._answer(question, self._form("remark"))
            except KeyboardInterrupt:
                raise stop_error(Status.INTERRUPTED) from None
            except TimeoutError:
                return ""
            answer = read_answer(line, self._yes, self._no)
            if answer.kind == "stop":
                raise stop_error(Status.STOPPED)
            if answer.kind == "feedback":
                return answer.text
            if not line.strip() or answer == UserAnswer("run", 1):
                return ""
            if answer.kind == "word":
                self._show_word(answer.text.partition(" ")[0])
            else:
                self._terminal.say("Nothing waits to be authorized now. Enter continues.")

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
                raise stop_error(Status.STOPPED)
            if not line.strip() or answer == UserAnswer("run", 1):
                return True
            self._terminal.say("The model cannot read that now. Enter tries again.")

    def accepts(self, claims: str) -> Verdict:
        question = f"{claims}\nAccept it as done? {self._yes} = yes, {self._no} = leave it unverified, or type feedback"
        while True:
            try:
                line = self._ask_twice(question, self._form("decision"))
            except TimeoutError:
                return Verdict(False, NOBODY)
            except StopRun as error:
                if error.outcome.status is not Status.UNANSWERED:  # a signal, Ctrl-C or Ctrl-D: the run can be resumed
                    raise
                return Verdict(False, NOBODY)
            answer = read_answer(line, self._yes, self._no)
            if answer == UserAnswer("run", 1):
                return Verdict(True, "user")
            if answer.kind == "stop":
                return Verdict(False, "user")
            if answer.kind == "feedback":
                return Verdict(False, "user", answer.text)
            self._terminal.say(f"Answer {self._yes} or {self._no}, or type what is still to do.")

    def _question(self, proposal: Proposal) -> str:
        if proposal.warning:
            names = ", ".join(map(memory_name, proposal.recalled))
            drop = f"/drop = continue without memory {names}, " if names else ""
            return (
                f"Run it anyway? {self._yes} = yes, this once, {self._no} = stop, {drop}or type feedback "
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
            "e": "edit the text to be written, then decide; e NAME: an argument",
            "d, t": "show all arguments and the whole diff; all thoughts of this step",
            "a": f"run every {name} unasked until the run ends, or Ctrl-C",
            "a RULE": f"save a rule, such as {name}:PATTERN, for every run",
            "text": "feedback; nothing is run. Alt-Enter: a new line; /write: your editor",
            **{f"/{word}": help for word, help in self._words.items() if word not in _EXPLAINED_WORDS},
        }
        if proposal.recalled:
            rows["/drop"] = "continue without the memories from outside, or one of them (/drop 12)"
        title = f"{proposal.spec.label} ({name}, risk: {proposal.risk})"
        return "\n".join([title, *(f"{answer:<12}{help}" for answer, help in rows.items())])

    def _confirm_rule(self, text: str, proposal: Proposal) -> Rule | None:
        try:
            rule = self._rulebook.parse(text)
            if not self._rulebook.matches(rule, proposal.call):
                self._terminal.say(f"The rule {rule} does not match this call. Nothing was run or saved.")
                return None
            self._terminal.say(self._rulebook.forecast(rule))
            question = f"Save the rule {rule}? {self._yes} = yes, Enter = no"
            confirmation = self._ask_twice(question, self._form("going on"))
            if read_answer(confirmation, self._yes, self._no) != UserAnswer("run", 1):
                self._terminal.say("The rule was not saved. Nothing was run.")
                return None
            self._rulebook.save(rule)
        except (SettingsError, StateError) as error:
            self._terminal.say(f"{error} Nothing was run.")
            return None
        self._terminal.say(f"Saved; `autoagent rules remove '{rule}'` revokes it.")
        return rule

    def _form(self, kind: QuestionKind, proposal: Proposal | None = None) -> Question:
        is_warned = proposal is not None and bool(proposal.warning)
        return Question(kind, self._yes, self._no, is_warned, proposal, words=tuple(self._words))

    def _ask_twice(self, prompt: str, question: Question) -> str:
        """Read an answer. The first Ctrl-C returns to the question, a second ends the run."""
        try:
            return self._answer(prompt, question)
        except KeyboardInterrupt:
            self._terminal.say("Nothing was run. Ctrl-C again saves and stops.")
        try:
            return self._answer(prompt, question)
        except KeyboardInterrupt:
            raise stop_error(Status.INTERRUPTED) from None

    def _answer(self, prompt: str, question: Question) -> str:
        self._terminal.discard_typeahead()
        try:
            return self._terminal.ask(prompt, question=question)
        except EOFError:
            raise stop_error(Status.UNANSWERED) from None

    def _edit(self, proposal: Proposal, name: str) -> dict[str, Any] | None:
        """Return new arguments, or None if unchanged. `name` is the argument to change, or '' for the default."""
        args = dict(proposal.call.args)
        displayed = dict(self._mask(args))
        if name and not name.startswith("{") and name not in displayed:
            self._terminal.say(f"There is no argument {name}; use {', '.join(displayed)}. Nothing was changed.")
            return None

        def restored(new_args: Mapping[str, Any]) -> dict[str, Any] | None:
            complete_args = restore_secrets(new_args, displayed, args)
            return complete_args if complete_args != args else None

        try:
            if name.startswith("{"):
                return restored(edit_arguments(displayed, name, proposal.spec.parameters))
            if (edited_args := self._edit_text(proposal, displayed, name)) is not None:
                return restored(edited_args)
        except ValueError as error:
            self._terminal.say(f"{error} Nothing was changed.")
            return None
        self._terminal.say(json.dumps(displayed, ensure_ascii=False, indent=2))
        prompt = "New arguments: one line of JSON, or NAME=VALUE; Enter keeps them"
        while line := self._ask_twice(prompt, ANY_TEXT).strip():
            try:
                return restored(edit_arguments(displayed, line, proposal.spec.parameters))
            except ValueError as error:
                self._terminal.say(f"{error} Nothing was changed.")
        return None

    def _edit_text(self, proposal: Proposal, displayed: Mapping[str, Any], name: str) -> dict[str, Any] | None:
        """Return the arguments with one text edited by the user, or None if only names can be edited.

        Without a `name`, that is the program or the text of the file, or else the last text that is not a path: the
        replacement in an edit, not its target.
        """
        texts = [p for p in proposal.spec.parameters if isinstance(displayed.get(p.name), str)]
        if not texts or (name and not isinstance(displayed[name], str)):
            return None
        default_name = max(texts, key=lambda p: (bool(p.code), p.meaning not in ("path", "entry"), texts.index(p))).name
        name = name or default_name
        path = next((displayed[p.name] for p in texts if p.meaning == "path"), "")
        before, others = displayed[name], ", ".join(f"e {p.name}" for p in texts if p.name != name)
        self._terminal.say(f"Editing {name} of {proposal.call.name}{f' (or: {others})' if others else ''}.")
        if (new_text := self._terminal.edit(before, PurePath(path).suffix or ".txt")) is None:
            new_text = self._terminal.rewrite(before)
        if new_text is None:
            return None
        if not before.endswith("\n"):  # an editor ends each line
            new_text = new_text.removesuffix("\n")
        return {**displayed, name: new_text}
