"""The answers at the question, and who decides: with a scripted terminal in place of a person."""

# ruff: noqa: RUF001 (letters that look alike are what is tested)

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autoagent.errors import StopRun
from autoagent.messages import Call, CommandSpec, Parameter, Proposal, Verdict
from autoagent.permissions import AllOf, Answer, Ask, Continuous, edit_arguments, read_answer

SPEC = CommandSpec(
    "write_to_file", "Write to a file", "files", "write",
    (Parameter("filename", "string"), Parameter("lines", "integer", required=False, default=1)),
)  # fmt: skip
PROPOSAL = Proposal(Call("1", "write_to_file", {"filename": "a.txt"}), SPEC)
CTRL_C = KeyboardInterrupt


class Script:
    """A terminal whose answers are written down; when they are used up, its input has ended."""

    def __init__(self, *answers: str | type[KeyboardInterrupt]) -> None:
        self.answers = list(answers)
        self.said: list[str] = []
        self.asked = 0
        self.discarded = 0
        self.shown = 0

    def ask(self, prompt: str) -> str:
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

    def show_whole(self, proposal: Proposal) -> None:
        self.shown += 1

    def discard_typeahead(self) -> None:
        self.discarded += 1


def outcome(stop: pytest.ExceptionInfo[StopRun]) -> str:
    return stop.value.outcome.status


# The grammar -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "count"),
    [("y", 1), ("Y", 1), ("  y  ", 1), ("yes", 1), (" Yes ", 1), ("YES", 1), ("y -1", 1), ("y -5", 5), ("Y  -5", 5),
     ("y-2", 2), ("y - 2", 2), ("yes -3", 3), ("y -007", 7), ("y -9999", 9999)],
)  # fmt: skip
def test_authorizations(line: str, count: int) -> None:
    assert read_answer(line) == Answer("run", count)


@pytest.mark.parametrize("line", ["n", " N ", "no", "No", "exit", "QUIT"])
def test_what_stops(line: str) -> None:
    assert read_answer(line) == Answer("stop")


@pytest.mark.parametrize(
    "line",
    ["y -abc", "y -", "y --5", "y -0", "y 5x", "y -999999999999", "y -10000", "y -1.5", "y 5", "y5", "y && x", "y.",
     "y!", "y;", "y -5 -6", "y -５", "y –5", "yes -", "yy", "ye", "ｙ", "у", "у -5", "y -٣", "y_",
     "y\u200b", "\ufeffy"],
)  # fmt: skip
def test_what_only_looks_like_an_answer_is_asked_again_with_a_reason(line: str) -> None:
    answer = read_answer(line)
    assert answer.kind == "again" and answer.text


@pytest.mark.parametrize("line", ["", "   ", "\t"])
def test_blank_is_asked_again(line: str) -> None:
    assert read_answer(line) == Answer("again")


@pytest.mark.parametrize(
    "line",
    ["use b.txt instead", "yes, but use b.txt", "y, but use b.txt", "you should stop", "no, use b.txt", "yesterday",
     "nothing of this", "n -", "é", "у меня есть идея", "5", "-5", "ok then", "x" * 1_000_000],
)  # fmt: skip
def test_everything_else_is_feedback(line: str) -> None:
    assert read_answer(f" {line} ") == Answer("feedback", text=line)


@pytest.mark.parametrize(("line", "kind"), [("e", "edit"), ("D", "whole"), (" a ", "always"), ("?", "explain")])
def test_letters(line: str, kind: str) -> None:
    assert read_answer(line).kind == kind


def test_other_keys() -> None:
    assert read_answer("go -3", yes="go", no="q") == Answer("run", 3)
    assert read_answer("q", yes="go", no="q") == Answer("stop")
    assert read_answer("going home", yes="go", no="q").kind == "feedback"
    assert {read_answer(line, yes="go", no="q").kind for line in ("y", "yes", "y -5", "n", "no")} == {"again"}
    assert read_answer("e", yes="e", no="q") == Answer("run", 1)
    assert read_answer("j", yes="j", no="j") == Answer("stop"), "one key for both runs nothing"


# Asking ----------------------------------------------------------------------------------------------------------


def test_an_authorization_in_advance_holds_for_that_many_commands() -> None:
    terminal = Script("y -3", "n")
    ask = Ask(terminal)
    assert [ask.decide(PROPOSAL).allowed for _ in range(3)] == [True, True, True]
    assert terminal.asked == 1
    assert terminal.said == ["Authorized in advance; 1 more to come.", "Authorized in advance; the last one."]
    with pytest.raises(StopRun) as stop:
        ask.decide(PROPOSAL)
    assert outcome(stop) == "stopped"


def test_a_mistyped_authorization_runs_nothing_and_reaches_nobody() -> None:
    terminal = Script("", "y -abc", "use b.txt")
    assert Ask(terminal).decide(PROPOSAL) == Verdict(False, "user", "use b.txt")
    assert terminal.said == ["To authorize, type y, or y -N with N a whole number, such as y -5. Nothing was run."]


def test_the_end_of_input_is_nobody_to_answer() -> None:
    with pytest.raises(StopRun) as stop:
        Ask(Script("")).decide(PROPOSAL)
    assert outcome(stop) == "unanswered"


def test_ctrl_c_comes_back_to_the_question_and_a_second_one_ends() -> None:
    terminal = Script(CTRL_C, "?", CTRL_C, "d", CTRL_C, CTRL_C)
    with pytest.raises(StopRun) as stop:
        Ask(terminal).decide(PROPOSAL)
    assert outcome(stop) == "interrupted"
    assert terminal.shown == 1
    assert terminal.said[0] == "Nothing was run. Ctrl-C again saves and stops."
    assert "risk: write" in terminal.said[1]


def test_always_holds_for_that_command_alone_until_ctrl_c() -> None:
    terminal = Script("a", "other feedback", "", "n")
    ask = Ask(terminal)
    assert [ask.decide(PROPOSAL).by for _ in range(3)] == ["user (always write_to_file)"] * 3
    other = Proposal(Call("2", "delete_file", {}), CommandSpec("delete_file", "Delete", "files", "irreversible"))
    assert ask.decide(other) == Verdict(False, "user", "other feedback")
    assert ask.interrupted() == ""
    with pytest.raises(StopRun):
        ask.decide(PROPOSAL)


def test_edited_arguments_come_back_undecided() -> None:
    terminal = Script("e", '{"filename": 1', "wrong=1", "filename = b.txt")
    assert Ask(terminal).decide(PROPOSAL) == Verdict(False, "user", args={"filename": "b.txt"})
    assert '"filename": "a.txt"' in terminal.said[0]
    assert terminal.said[1].startswith("That is not valid JSON")
    assert terminal.said[2] == "Write NAME=VALUE with one of: filename, lines; or a JSON object. Nothing was changed."


def test_an_edit_can_be_left_with_everything_as_it_was() -> None:
    assert Ask(Script("e", "", "e", "filename=a.txt", "y")).decide(PROPOSAL) == Verdict(True, "user")


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


def test_an_interruption_forfeits_what_was_allowed_in_advance() -> None:
    terminal = Script("y -5", "", "n")
    ask = Ask(terminal)
    assert ask.decide(PROPOSAL).allowed
    assert ask.interrupted() == ""
    with pytest.raises(StopRun):
        ask.decide(PROPOSAL)


@pytest.mark.parametrize(("answers", "status"), [(["n"], "stopped"), ([CTRL_C], "interrupted"), ([], "unanswered")])
def test_an_interruption_can_end_the_run(answers: Sequence[str], status: str) -> None:
    with pytest.raises(StopRun) as stop:
        Ask(Script(*answers)).interrupted()
    assert outcome(stop) == status


def test_an_interruption_can_carry_feedback_but_no_authorization() -> None:
    terminal = Script("y -5", "y -x", "look at b.txt first")
    ask = Ask(terminal)
    assert ask.interrupted() == "look at b.txt first"
    assert len(list(filter(None, terminal.said))) == 2
    with pytest.raises(StopRun):
        ask.decide(PROPOSAL)


# Others ----------------------------------------------------------------------------------------------------------


class Fixed:
    """Always the same verdict."""

    def __init__(self, verdict: Verdict, feedback: str = "") -> None:
        self.verdict = verdict
        self.feedback = feedback

    def decide(self, proposal: Proposal) -> Verdict:
        return self.verdict

    def interrupted(self) -> str:
        return self.feedback


class Broken:
    def decide(self, proposal: Proposal) -> Verdict:
        raise OSError("disk on fire")

    def interrupted(self) -> str:
        return ""


def test_continuous_mode_allows_everything() -> None:
    assert Continuous().decide(PROPOSAL).allowed
    with pytest.raises(StopRun) as stop:
        Continuous().interrupted()
    assert outcome(stop) == "interrupted"
    assert Continuous(Ask(Script("slower"))).interrupted() == "slower"


def test_all_must_agree() -> None:
    yes, no = Fixed(Verdict(True, "rules")), Fixed(Verdict(False, "guard", "too dangerous"))
    assert AllOf([yes, Continuous()]).decide(PROPOSAL) == Verdict(True, "rules, continuous mode")
    assert AllOf([yes, no, Broken()]).decide(PROPOSAL) == no.verdict
    with pytest.raises(ValueError, match="at least one"):
        AllOf([])


def test_an_authorizer_that_fails_has_refused() -> None:
    verdict = AllOf([Broken(), Continuous()]).decide(PROPOSAL)
    assert verdict == Verdict(False, "Broken", "The check Broken failed (OSError: disk on fire).")
    with pytest.raises(StopRun):
        AllOf([Ask(Script("n"))]).decide(PROPOSAL)
    with pytest.raises(KeyboardInterrupt):
        AllOf([_Interrupting()]).decide(PROPOSAL)


class _Interrupting(Broken):
    def decide(self, proposal: Proposal) -> Verdict:
        raise KeyboardInterrupt


def test_everybody_hears_of_an_interruption() -> None:
    terminal = Script("y -9", "be quick", "n")
    ask = Ask(terminal)
    assert ask.decide(PROPOSAL).allowed
    assert AllOf([Fixed(Verdict(True, "rules")), ask]).interrupted() == "be quick"
    with pytest.raises(StopRun):
        ask.decide(PROPOSAL)
