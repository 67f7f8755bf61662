"""A person answers as the model: sees what is new, replies in JSON or in short, is asked again after a slip."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from autoagent.core.commands import CommandSpec, Parameter
from autoagent.core.errors import StopRun
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Model
from autoagent.models.human import HumanModel, parse_short_form
from autoagent.reply.parser import parse

READ_FILE = CommandSpec(
    "read_file", "Read a file", "files", "read", (Parameter("filename", "string"),), aliases=("open_file",)
)


class Person:
    """Types the given lines, then ends the input; remembers what was shown."""

    def __init__(self, *lines: str) -> None:
        self.shown: list[str] = []
        self.prompts: list[str] = []
        self._lines: Iterator[str] = iter(lines)

    def ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        for line in self._lines:
            return line
        raise EOFError

    def as_model(self) -> Model:
        return HumanModel(self.shown.append, self.ask)


def answer(*lines: str) -> Completion:
    model = Person(*lines).as_model()
    return model.complete([Message("user", "Go on.")], commands=[READ_FILE], max_tokens=100)


def test_a_person_is_asked_in_text_costs_nothing_and_has_a_large_window() -> None:
    model = Person().as_model()
    assert (model.name, model.asking) == ("human", "text")
    assert model.price is not None
    assert model.price.prompt == model.price.completion == model.price.cached == 0
    assert model.window >= 1_000_000


def test_only_what_is_new_is_shown_and_never_the_persons_own_reply() -> None:
    person = Person("read_file filename=a", "read_file filename=b")
    model = person.as_model()
    first = [Message("system", "You are Ada."), Message("user", "Begin.")]
    model.complete(first, commands=[READ_FILE], max_tokens=100)
    second = [*first, Message("assistant", "..."), Message("user", "More.")]
    model.complete(second, commands=[READ_FILE], max_tokens=100)
    assert person.shown == ["[system]\nYou are Ada.", "[user]\nBegin.", "[user]\nMore."]


def test_a_message_that_lost_its_tail_is_not_shown_again() -> None:
    person = Person("read_file filename=a", "read_file filename=b")
    model = person.as_model()
    system = Message("system", "You are Ada.")
    model.complete([system, Message("user", "The run begins.\n\nIt is nine.")], commands=[READ_FILE], max_tokens=100)
    begun = (system, Message("user", "The run begins."), Message("assistant", "..."))
    model.complete([*begun, Message("user", "a: text\n\nIt is ten.")], commands=[READ_FILE], max_tokens=100)
    assert person.shown[1:] == ["[user]\nThe run begins.\n\nIt is nine.", "[user]\na: text\n\nIt is ten."]


def test_a_message_that_begins_like_an_earlier_one_or_repeats_it_is_shown() -> None:
    person = Person("read_file filename=a", "read_file filename=b")
    model = person.as_model()
    first = [Message("user", "1: Done.")]
    model.complete(first, commands=[READ_FILE], max_tokens=100)
    reply = Message("assistant", "...")
    later = [*first, reply, Message("user", "1"), reply, Message("user", "1: Done.")]
    model.complete(later, commands=[READ_FILE], max_tokens=100)
    assert person.shown == ["[user]\n1: Done.", "[user]\n1", "[user]\n1: Done."]


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ('read_file {"filename": "a b.txt"}', {"filename": "a b.txt"}),
        ("read_file {'filename': 'a.txt',}", {"filename": "a.txt"}),
        ("read_file filename=a.txt", {"filename": "a.txt"}),
        ('read_file filename="é = ü.txt"', {"filename": "é = ü.txt"}),
        ("  read_file   filename='' ", {"filename": ""}),
        ("read_file", {}),
        ('{"command": {"name": "read_file", "args": {"filename": "a"}}}', {"filename": "a"}),
    ],
)
def test_a_line_becomes_a_reply(line: str, args: dict[str, str]) -> None:
    completion = answer(line)
    call = parse(completion, lambda call: call, "s1").call
    assert (call.name, call.args) == ("read_file", args)
    assert completion.usage.cost == 0


def test_an_alias_is_a_command_too() -> None:
    assert json.loads(answer("open_file filename=a").text)["command"]["name"] == "open_file"


def test_json_may_be_pasted_over_several_lines() -> None:
    reply = '{"command": {\n  "name": "read_file",\n  "args": {"filename": "a"}\n}}'
    assert answer(*reply.split("\n"), "never read").text == reply


def test_an_empty_line_ends_json_that_is_not_complete() -> None:
    assert answer('{"command": {"name": "read_file"', "", "never read").text == '{"command": {"name": "read_file"'


@pytest.mark.parametrize(
    "slip",
    [
        "", "?", "please read the file", "reed_file filename=a", "read_file a.txt", "read_file filename='a",
        "read_file f=a f=b",
    ],
)  # fmt: skip
def test_a_slip_is_explained_and_asked_again(slip: str) -> None:
    person = Person(slip, "read_file filename=a")
    completion = person.as_model().complete([], commands=[READ_FILE], max_tokens=100)
    assert json.loads(completion.text)["command"]["args"] == {"filename": "a"}
    assert "command_name" in person.shown[0]
    assert "read_file(filename)" in person.shown[0]
    assert person.prompts == ["Your reply, as the model:"] * 2


def test_without_commands_the_answer_is_taken_as_it_is() -> None:
    assert Person("just words").as_model().complete([], max_tokens=100).text == "just words"


@pytest.mark.parametrize("lines", [(), ('{"command": {',), ("not a command",)])
def test_the_end_of_input_ends_the_run_unanswered(lines: tuple[str, ...]) -> None:
    with pytest.raises(StopRun) as stop:
        answer(*lines)
    assert stop.value.outcome.status == "unanswered"
    assert "end of input" in stop.value.outcome.reason


def test_prose_is_no_short_form() -> None:
    assert parse_short_form("read the file, please") is None
    assert parse_short_form("") is None
