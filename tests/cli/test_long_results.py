"""Long results and files: what is cut says so rightly, nothing is lost, and what is missing can be read."""

from __future__ import annotations

import json
import re

import pytest
from driver import FINISH, GOAL, Home
from server import ScriptedServer, command

QUIET = ("-c", "-m", "none")
LINES = "".join(f"{n} of five thousand lines\n" for n in range(1, 5001))
WIDE = {"COLUMNS": "200"}


def results(home: Home) -> list[dict[str, object]]:
    return [event for event in home.log() if event["type"] == "returned"]


def newest(server: ScriptedServer, number: int) -> str:
    """What the model was told in a request."""
    return server.requests[number].prompt


def test_the_log_holds_the_whole_result_and_a_command_pages_through_it(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/long.txt", LINES)
    server.add(command("execute_shell", command_line="cat long.txt"))
    server.add(command("read_result", step=1, first_line=2001, lines=3), *FINISH)
    done = served.succeed(*GOAL, *QUIET, env=WIDE)
    assert results(served)[0]["text"] == f"Exit status 0. It printed:\n{LINES}"
    shown = newest(server, 1)
    left_out = re.search(r"\[… lines ([\d,]+) to ([\d,]+) of 5,001 left out; read_result\(step=1, ", shown)
    assert left_out
    first, last = (int(number.replace(",", "")) for number in left_out.groups())
    assert f"first_line={first}) shows them …]" in shown
    assert f"\n{first - 2} of five thousand lines\n[…" in shown, "the line before it is the last one shown"
    assert f"…]\n{last} of five thousand lines\n" in shown
    page = newest(server, 2)
    assert "\n2000 of five thousand lines\n2001 of" in page
    assert "[lines 2,001 to 2,003 of 5,001; go on with read_result(step=1, first_line=2004)]" in page
    assert "... 4,993 lines left out of 5,001 ..." in done.text, "on the screen too"
    assert served.run("replay", served.runs[0], "--verify").code == 0


@pytest.mark.slow
def test_a_single_long_line_is_kept_and_read_on(served: Home, server: ScriptedServer) -> None:
    server.add(command("execute_shell", command_line="head -c 84000 /dev/zero | tr '\\0' x; echo; echo end"))
    server.add(command("read_result", step=1, first_line=2, column=83991), *FINISH)
    assert served.run(*GOAL, *QUIET).code == 0
    assert str(results(served)[0]["text"]).endswith(f"\n{'x' * 84000}\nend\n")
    assert "\nxxxxxxxxxx\nend\n[lines 2 to 3 from column 83,991 of 3: the end]" in newest(server, 2)


def test_nothing_is_cut_that_saves_nothing(served: Home, server: ScriptedServer) -> None:
    server.add(command("execute_shell", command_line="seq 8"), *FINISH)  # and a line before it
    done = served.run(*GOAL, *QUIET)
    assert all(f"  | {n}\n" in done.text for n in range(1, 9))
    assert "left out" not in done.text


def test_a_page_carries_the_labels_of_the_result(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/mine.txt", "private words\n")
    server.add(command("execute_shell", command_line="cat mine.txt"))
    server.add(command("read_result", step=1), *FINISH)
    assert served.run(*GOAL, *QUIET, env={"AUTOAGENT_SANDBOX_NETWORK": "true"}).code == 0
    first, again = (event["data"] for event in results(served)[:2])
    assert isinstance(first, dict) and isinstance(again, dict)
    assert first["untrusted"] == "the network" and first["private"] is True
    assert (again["untrusted"], again["private"]) == (first["untrusted"], first["private"])
    assert re.search(r"read_result returned:\n<untrusted-\w+ from \"the network\">", newest(server, 2))


def test_a_step_without_a_result_is_named(served: Home, server: ScriptedServer) -> None:
    server.add(command("read_result", step=9), *FINISH)
    assert served.run(*GOAL, *QUIET).code == 0
    assert "read_result failed: Step 9 has no result." in newest(server, 1)


@pytest.mark.parametrize("window", [8_192, 32_000, 128_000])
def test_read_file_shows_up_to_a_quarter_of_the_window_and_goes_on(
    served: Home, server: ScriptedServer, window: int
) -> None:
    from autoagent.text.tokens import counter

    served.write("autoagent_workspace/long.txt", LINES * 10)
    server.add(command("read_file", filename="long.txt"))
    env = {"AUTOAGENT_WINDOW": str(window)}
    assert served.run(*GOAL, *QUIET, "-l", "1", "--commands", "files", env=env).code == 4
    [read] = results(served)
    text = str(read["text"])
    note = re.search(
        r'\n\[lines 1 to ([\d,]+) of 50,000; go on with read_file\("long.txt", first_line=(\d+)\)\]\Z', text
    )
    assert note
    last = int(note[1].replace(",", ""))
    assert int(note[2]) == last + 1
    assert text[: note.start()] == (LINES * 10)[: note.start()]
    assert text[: note.start()].count("\n") + 1 == last
    assert window * 0.17 < counter("test-model")(text) <= window / 4
    server.add(command("read_file", filename="long.txt", first_line=last + 1, lines=2), *FINISH)
    served.succeed("resume", "-c", "-l", "9", env=env)
    assert text in newest(server, 1), "uncut"
    following = LINES * 10
    assert f"\n{''.join(following.splitlines(True)[last : last + 2])}[lines" in newest(server, 1 + 1)


def test_the_root_of_the_workspace_has_many_names(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/notes/a.txt", "needle\n")
    roots = ["", "/", ".", "./", " "]
    server.add(*(command("list_files", directory=root) for root in roots))
    server.add(*(command("search_in_files", pattern="needle", directory=root) for root in ("", "/")), *FINISH)
    served.succeed(*GOAL, *QUIET)
    given = [(event["ok"], event["text"]) for event in results(served)]
    assert given[:5] == [(True, "notes/\nnotes/a.txt")] * 5
    assert given[5:7] == [(True, "notes/a.txt:1: needle")] * 2


def test_the_root_by_another_name_is_as_tainted_and_as_private(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/mine.txt", "needle\n")
    server.add(*(command("search_in_files", pattern="needle", directory=root) for root in (".", "/", "")), *FINISH)
    assert served.run(*GOAL, *QUIET).code == 0
    assert [json.dumps(event["data"].get("private")) for event in results(served)[:3]] == ["true"] * 3  # type: ignore[attr-defined]
