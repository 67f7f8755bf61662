"""The answers at the question, and who decides: with a scripted terminal in place of a person."""

# ruff: noqa: RUF001 (letters that look alike are what is tested)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autoagent.core.commands import ANY_TEXT, Call, CommandSpec, Parameter, Proposal, Question, Verdict
from autoagent.core.errors import StopRun
from autoagent.safety.approval import ContinuousAuthorizer, FailClosedAuthorizer, RuleAuthorizer
from autoagent.safety.question_dialog import InteractiveAuthorizer
from autoagent.safety.rules import Rulebook, SavedRules
from autoagent.safety.typed_answers import UserAnswer, edit_arguments, read_answer

SPEC = CommandSpec(
    "write_to_file", "Write to a file", "files", "write",
    (Parameter("filename", "string", meaning="path"), Parameter("lines", "integer", required=False, default=1)),
)  # fmt: skip
PROPOSAL = Proposal(Call("1", "write_to_file", {"filename": "a.txt"}), SPEC, risk="write")
WARNED = replace(PROPOSAL, warning="This run has read evil.example and holds your file.")
CTRL_C = KeyboardInterrupt


class Script:
    """A terminal whose answers are written down; when they are used up, its input has ended."""

    def __init__(self, *answers: str | type[KeyboardInterrupt]) -> None:
        self.answers = list(answers)
        self.said: list[str] = []
        self.asked = 0
        self.discarded = 0
        self.shown = 0

    elsewhere = False

    def ask(self, prompt: str, *, question: Question = ANY_TEXT) -> str:
        assert self.discarded == self.asked + 1, "type-ahead is discarded before each question"
        self.asked += 1
        if not self.answers:
            raise EOFError
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return answer
        raise answer

    def say(self, text: str) -> None:
        self.said.append(text)

    words: Mapping[str, str] = {"cost": "what it has cost"}

    def show_word(self, word: str) -> None:
        self.said.append(f"shown: {word}")

    def edit(self, text: str, suffix: str) -> str | None:
        return None

    def rewrite(self, text: str) -> str | None:
        return None

    def show_whole(self, proposal: Proposal) -> None:
        self.shown += 1

    def discard_typeahead(self) -> None:
        self.discarded += 1


def ended_by(act: Callable[[], object]) -> str:
    """Return the status with which the act ends the run."""
    with pytest.raises(StopRun) as stop:
        act()
    return stop.value.outcome.status


# The grammar -----------------------------------------------------------------------------------------------------


MEANINGS: dict[UserAnswer, Sequence[str]] = {
    UserAnswer("run", 1): ("y", "Y", "  y  ", "yes", " Yes ", "YES", "y -1"),
    UserAnswer("run", 2): ("y-2", "y - 2"),
    UserAnswer("run", 3): ("yes -3",),
    UserAnswer("run", 5): ("y -5", "Y  -5"),
    UserAnswer("run", 7): ("y -007",),
    UserAnswer("run", 9999): ("y -9999",),
    UserAnswer("stop"): ("n", " N ", "no", "No", "exit", "QUIT", "q", "/quit"),
    UserAnswer("again"): ("", "   ", "\t"),
    UserAnswer("again", text="y runs it; anything else that you type is feedback."): (
        "ok", "Yep!", "sure", "ok, run it", "yes please", "go ahead", "OK then.", "do it",
    ),
    UserAnswer("edit"): ("e",),
    UserAnswer("whole"): ("D",),
    UserAnswer("always"): (" a ",),
    UserAnswer("explain"): ("?",),
    UserAnswer("rule", text="write_to_file"): ("a write_to_file",),
    UserAnswer("rule", text="execute_shell:git status"): ("A execute_shell:git status",),
    UserAnswer("rule", text="google:x"): ("a google:x",),
    UserAnswer("rule", text="write_to_file:Notes/*"): ("  a  write_to_file:Notes/*  ",),
    UserAnswer("word", text="cost"): ("/cost", " /COST "),
    UserAnswer("word", text="continuous 5"): ("/continuous 5",),
    UserAnswer("word", text="nothing there"): ("/nothing there",),
    UserAnswer("word"): ("/",),
}  # fmt: skip


@pytest.mark.parametrize(("line", "answer"), [(line, answer) for answer, lines in MEANINGS.items() for line in lines])
def test_what_a_line_means(line: str, answer: UserAnswer) -> None:
    assert read_answer(line) == answer


@pytest.mark.parametrize(
    "line",
    ["y -abc", "y -", "y --5", "y -0", "y 5x", "y -999999999999", "y -10000", "y -1.5", "y 5", "y5", "y && x", "y.",
     "y!", "y;", "y -5 -6", "y -５", "y –5", "yes -", "yy", "ye", "ｙ", "у", "у -5", "y -٣", "y_",
     "y\u200b", "\ufeffy"],
)  # fmt: skip
def test_what_only_looks_like_an_answer_is_asked_again_with_a_reason(line: str) -> None:
    answer = read_answer(line)
    assert answer.kind == "again" and answer.text


@pytest.mark.parametrize(
    "line",
    ["use b.txt instead", "yes, but use b.txt", "y, but use b.txt", "you should stop", "no, use b.txt", "yesterday",
     "nothing of this", "n -", "é", "у меня есть идея", "5", "-5", "ok, use b.txt", "do it again",
     "run the tests", "x" * 1_000_000, "a better idea: use b.txt", "a file", "a: b", "a note: x",
     "write_to_file:notes/*", "/etc/passwd is not yours"],
)  # fmt: skip
def test_everything_else_is_feedback(line: str) -> None:
    assert read_answer(f" {line} ") == UserAnswer("feedback", text=line)


def test_other_keys() -> None:
    assert read_answer("go -3", yes="go", no="q") == UserAnswer("run", 3)
    assert read_answer("q", yes="go", no="q") == UserAnswer("stop")
    assert read_answer("q", yes="q") == UserAnswer("run", 1)
    assert read_answer("going home", yes="go", no="q").kind == "feedback"
    assert {read_answer(line, yes="go", no="q").kind for line in ("y", "yes", "y -5", "n", "no")} == {"again"}
    assert read_answer("e", yes="e", no="q") == UserAnswer("run", 1)
    assert read_answer("j", yes="j", no="j") == UserAnswer("stop"), "one key for both runs nothing"


# Asking ----------------------------------------------------------------------------------------------------------


def test_an_authorization_in_advance_holds_for_that_many_commands() -> None:
    terminal = Script("y -3", "n")
    ask = InteractiveAuthorizer(terminal)
    assert [ask.decide(PROPOSAL).allowed for _ in range(3)] == [True, True, True]
    assert terminal.asked == 1
    assert terminal.said == ["Authorized in advance; 1 more to come.", "Authorized in advance; the last one."]
    assert ended_by(lambda: ask.decide(PROPOSAL)) == "stopped"


def test_a_mistyped_authorization_runs_nothing_and_reaches_nobody() -> None:
    terminal = Script("", "y -abc", "use b.txt")
    assert InteractiveAuthorizer(terminal).decide(PROPOSAL) == Verdict(False, "user", "use b.txt")
    assert terminal.said == ["To authorize, type y, or y -N with N a whole number, such as y -5. Nothing was run."]


def test_the_end_of_input_is_nobody_to_answer() -> None:
    assert ended_by(lambda: InteractiveAuthorizer(Script("")).decide(PROPOSAL)) == "unanswered"


def test_ctrl_c_comes_back_to_the_question_and_a_second_one_ends() -> None:
    terminal = Script(CTRL_C, "?", CTRL_C, "d", CTRL_C, CTRL_C)
    assert ended_by(lambda: InteractiveAuthorizer(terminal).decide(PROPOSAL)) == "interrupted"
    assert terminal.shown == 1
    assert terminal.said[0] == "Nothing was run. Ctrl-C again saves and stops."
    assert "risk: write" in terminal.said[1]


def test_always_holds_for_that_command_alone_until_ctrl_c() -> None:
    terminal = Script("a", "other feedback", "", "n")
    ask = InteractiveAuthorizer(terminal)
    assert [ask.decide(PROPOSAL).by for _ in range(3)] == ["user (always write_to_file)"] * 3
    other = Proposal(Call("2", "delete_file", {}), CommandSpec("delete_file", "Delete", "files", "irreversible"))
    assert ask.decide(other) == Verdict(False, "user", "other feedback")
    assert ask.interrupted() == ""
    assert ended_by(lambda: ask.decide(PROPOSAL)) == "stopped"


# Warnings and rules ----------------------------------------------------------------------------------------------


def test_neither_advance_nor_always_covers_a_warning() -> None:
    terminal = Script("y -3", "y", "n")
    ask = InteractiveAuthorizer(terminal)
    assert [ask.decide(p).by for p in (PROPOSAL, WARNED, PROPOSAL, PROPOSAL)] == [
        "user", "user", "user (in advance)", "user (in advance)"
    ]  # fmt: skip
    assert terminal.asked == 2, "the warning used up nothing of what was authorized in advance"
    always = Script("a", "a", "not that")
    ask = InteractiveAuthorizer(always)
    assert ask.decide(PROPOSAL).allowed
    assert ask.decide(WARNED) == Verdict(False, "user", "not that")
    assert "'a' does not cover a warning" in always.said[0]


def test_a_count_at_a_warning_holds_for_the_calls_after_it_that_have_none() -> None:
    terminal = Script("y -2", "n")
    ask = InteractiveAuthorizer(terminal)
    assert ask.decide(WARNED).allowed and ask.decide(PROPOSAL).by == "user (in advance)"
    assert ended_by(lambda: ask.decide(WARNED)) == "stopped"


def test_who_drops_a_memory_takes_back_what_was_authorized_in_advance() -> None:
    ask = InteractiveAuthorizer(Script("y -5", "/drop", "a", "/drop 7", "y"))
    recalled = replace(WARNED, recalled=(7,))
    proposals = (PROPOSAL, recalled, PROPOSAL, recalled, PROPOSAL)
    always = "user (always write_to_file)"
    assert [ask.decide(p).by for p in proposals] == ["user", "user (drop)", always, "user (drop)", "user"]


def test_continuous_mode_asks_about_a_warning_and_refuses_where_nobody_can_answer() -> None:
    assert ContinuousAuthorizer(InteractiveAuthorizer(Script("y"))).decide(WARNED) == Verdict(True, "user")
    verdict = ContinuousAuthorizer().decide(WARNED)
    assert not verdict.allowed and verdict.by == "guard"
    assert WARNED.warning in verdict.reason and "Go on without it" in verdict.reason


def book(*given: str, saved: SavedRules | None = None) -> Rulebook:
    return Rulebook([SPEC], given, saved)


def test_a_rule_allows_without_a_question_and_in_spite_of_a_warning() -> None:
    rules = RuleAuthorizer(book("write_to_file:*.txt"), ContinuousAuthorizer())
    assert rules.decide(WARNED) == Verdict(True, "rule write_to_file:*.txt")
    other = replace(WARNED, call=Call("2", "write_to_file", {"filename": "x/a.txt"}))
    assert rules.decide(other).by == "guard"


def test_a_rule_made_at_the_question_shows_what_it_would_have_let_through_and_is_saved(tmp_path: Path) -> None:
    saved = SavedRules(tmp_path / "rules.json", tmp_path)
    terminal = Script("y", "a write_to_file:*.md", "a write_to_file:*.txt", "y")
    rulebook = book(saved=saved)
    rulebook.logged_calls = lambda: [("", PROPOSAL.call)]
    rules = RuleAuthorizer(rulebook, InteractiveAuthorizer(terminal, rulebook=rulebook))
    assert rules.decide(PROPOSAL).by == "user"
    second = replace(WARNED, call=Call("2", "write_to_file", {"filename": "b.txt"}))
    assert rules.decide(second) == Verdict(True, "user (rule write_to_file:*.txt)")
    assert terminal.said[0] == "The rule write_to_file:*.md does not match this call. Nothing was run or saved."
    assert terminal.said[1].splitlines() == [
        "write_to_file:*.txt would have allowed 2 of the 2 calls of this run:",
        "  write_to_file(filename='a.txt')",
        "  write_to_file(filename='b.txt')",
    ]
    assert rules.decide(replace(second, call=Call("3", "write_to_file", {"filename": "c.txt"}))).by.startswith("rule ")
    assert [str(rule) for rule in saved.load()] == ["write_to_file:*.txt"]


@pytest.mark.parametrize("answer", ["", "y -2", "no idea"])
def test_a_rule_that_is_not_confirmed_is_neither_saved_nor_followed(answer: str, tmp_path: Path) -> None:
    saved = SavedRules(tmp_path / "rules.json", tmp_path)
    terminal = Script("a write_to_file", answer, "leave it")
    assert InteractiveAuthorizer(terminal, rulebook=book(saved=saved)).decide(PROPOSAL) == Verdict(
        False, "user", "leave it"
    )
    assert terminal.said[-1] == "The rule was not saved. Nothing was run."
    assert saved.load() == []


def test_a_rule_for_a_command_that_is_not_there_is_asked_again() -> None:
    terminal = Script("a fly_away", "stop that")
    assert InteractiveAuthorizer(terminal, rulebook=book()).decide(PROPOSAL) == Verdict(False, "user", "stop that")
    assert "there is no command 'fly_away'" in terminal.said[0]


def test_edited_arguments_come_back_undecided() -> None:
    terminal = Script("e", '{"filename": 1', "wrong=1", "filename = b.txt")
    assert InteractiveAuthorizer(terminal).decide(PROPOSAL) == Verdict(False, "user", args={"filename": "b.txt"})
    assert terminal.said[0] == "Editing filename of write_to_file."
    assert '"filename": "a.txt"' in terminal.said[1]
    assert terminal.said[2].startswith("That is not valid JSON")
    assert terminal.said[3] == "Write NAME=VALUE with one of: filename, lines; or a JSON object. Nothing was changed."


@pytest.mark.parametrize("text", ["x = 1", "x = 1\ny = 2", "x = 1\n"])
def test_an_editor_that_ends_the_last_line_changes_nothing(text: str) -> None:
    class Editor(Script):
        def edit(self, text: str, suffix: str) -> str | None:
            return f"{text.removesuffix(chr(10))}\n"

    spec = replace(SPEC, parameters=(*SPEC.parameters, Parameter("text", "string")))
    call = Call("1", "write_to_file", {"filename": "a.txt", "text": text})
    assert InteractiveAuthorizer(Editor("e", "y")).decide(Proposal(call, spec, risk="write")) == Verdict(True, "user")


def test_an_edit_can_be_left_with_everything_as_it_was() -> None:
    assert InteractiveAuthorizer(Script("e", "", "e", "filename=a.txt", "y")).decide(PROPOSAL) == Verdict(True, "user")


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ('{"filename": "b"}', {"filename": "b"}),
        ("lines=3", {"filename": "a.txt", "lines": 3}),
        ('filename=" b "', {"filename": " b "}),
        ("filename=x=y", {"filename": "x=y"}),
    ],
)
def test_edits(line: str, args: dict[str, object]) -> None:
    assert edit_arguments(PROPOSAL.call.args, line, SPEC.parameters) == args


@pytest.mark.parametrize("line", ["b.txt", "lines=many", 'filename="b', "{", "=", "{} {}"])
def test_edits_that_cannot_be_read(line: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        edit_arguments(PROPOSAL.call.args, line, SPEC.parameters)


# Ctrl-C outside a question ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answers", "status"), [(["n"], "stopped"), ([CTRL_C], "interrupted"), ([], "unanswered")])
def test_an_interruption_can_end_the_run(answers: Sequence[str], status: str) -> None:
    assert ended_by(lambda: InteractiveAuthorizer(Script(*answers)).interrupted()) == status


def test_an_interruption_can_carry_feedback_but_no_authorization() -> None:
    terminal = Script("y -5", "y -x", "look at b.txt first")
    ask = InteractiveAuthorizer(terminal)
    assert ask.interrupted() == "look at b.txt first"
    assert len(list(filter(None, terminal.said))) == 2
    assert ended_by(lambda: ask.decide(PROPOSAL)) == "unanswered"


# Others ----------------------------------------------------------------------------------------------------------


class Broken:
    def decide(self, proposal: Proposal) -> Verdict:
        raise OSError("disk on fire")

    def interrupted(self) -> str:
        return ""


def test_continuous_mode_allows_everything() -> None:
    assert ContinuousAuthorizer().decide(PROPOSAL).allowed
    assert ended_by(lambda: ContinuousAuthorizer().interrupted()) == "interrupted"
    assert ContinuousAuthorizer(InteractiveAuthorizer(Script("slower"))).interrupted() == "slower"


def test_an_authorizer_that_fails_has_refused() -> None:
    reason = "Whether this may run could not be decided (OSError: disk on fire)."
    assert FailClosedAuthorizer(Broken()).decide(PROPOSAL) == Verdict(False, "fault", reason)
    assert ended_by(lambda: FailClosedAuthorizer(InteractiveAuthorizer(Script("n"))).decide(PROPOSAL)) == "stopped"
    with pytest.raises(KeyboardInterrupt):
        FailClosedAuthorizer(_Interrupting()).decide(PROPOSAL)


class _Interrupting(Broken):
    def decide(self, proposal: Proposal) -> Verdict:
        raise KeyboardInterrupt


@pytest.mark.parametrize("answer", ["", "be quick"])
def test_what_was_authorized_in_advance_is_forfeited_at_an_interruption(answer: str) -> None:
    ask = InteractiveAuthorizer(Script("y -9", answer, "n"))
    assert ask.decide(PROPOSAL).allowed
    assert FailClosedAuthorizer(ask).interrupted() == answer
    assert ended_by(lambda: ask.decide(PROPOSAL)) == "stopped"


def test_continuous_from_a_question_on_asks_about_warnings_and_ends_with_ctrl_c() -> None:
    ask = InteractiveAuthorizer(terminal := Script("/continuous", "n", "", "/ask", "n"))
    assert [ask.decide(PROPOSAL).allowed for _ in range(3)] == [True, True, True]
    assert ended_by(lambda: ask.decide(WARNED)) == "stopped"
    assert terminal.asked == 2
    ask.interrupted()
    assert ended_by(lambda: ask.decide(PROPOSAL)) == "stopped"
    assert "Every command is asked about." in terminal.said
