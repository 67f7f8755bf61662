"""Which commands a run offers, and what the model is told of the others."""

from __future__ import annotations

import pytest

from autoagent.commands import catalogue
from autoagent.errors import ReplyError
from autoagent.messages import Call, Goal
from autoagent.settings import Settings


@pytest.mark.parametrize(
    ("wanted", "window", "left_out"),
    [((), 8192, "do_nothing"), ((), 8192, "remember"), (("files",), 128_000, "do_nothing")],
    ids=["small window", "an alias", "--commands"],
)
def test_a_command_that_is_left_out_is_refused_with_the_reason(
    wanted: tuple[str, ...], window: int, left_out: str
) -> None:
    registry = catalogue.choose(catalogue.available(Settings()), wanted, [Goal("Write a.txt")], window)
    with pytest.raises(ReplyError) as refused:
        registry.check(Call("1", left_out, {}))
    assert f"The command '{left_out}' cannot be used here: it is not offered in this run." in str(refused.value)
    assert "The commands are: read_file, write_to_file" in str(refused.value)


def test_a_command_that_does_not_exist_is_another_matter() -> None:
    registry = catalogue.choose(catalogue.available(Settings()), (), [Goal("Write a.txt")], 8192)
    with pytest.raises(ReplyError, match="There is no command 'dance'"):
        registry.check(Call("1", "dance", {}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "1e999"])
def test_a_number_that_no_command_can_use_is_refused(value: object) -> None:
    with pytest.raises(ReplyError, match="'timeout' of ask_user is no number that can be used"):
        catalogue.available(Settings()).check(Call("1", "ask_user", {"question": "q", "timeout": value}))
