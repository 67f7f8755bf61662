"""Its own tests: what it registers, and what its command does. `pytest` in this folder runs them."""

from pathlib import Path

import autoagent_example

from autoagent.extension import registered, try_command


def test_it_registers_one_of_everything() -> None:
    added = registered(autoagent_example.register)
    assert [command.spec.name for command in added.commands] == ["count_words"]
    assert {group: [record.name for record in records] for group, records in added.records.items()} == {
        "models": ["parrot"],
        "memory": ["shelf"],
        "embedders": ["letters"],
        "sandbox": ["bare"],
    }
    around = ["decide", "listen", "think", "authorize", "execute", "store"]
    assert added.hook_names == [*around, "retrieve", "gate", "rerank", "forget", "sleep", "render returned"]


def test_the_command_counts(tmp_path: Path) -> None:
    result = try_command(registered(autoagent_example.register), "count_words", tmp_path, text="one two")
    assert (result.ok, result.text) == (True, "2 words.")
