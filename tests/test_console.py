"""The screen: whole texts kept under screens/, output that fails, colours, and a real session in a pty.

`WRITE_SCREENS=1 pytest tests/test_console.py` writes the kept texts anew; read the difference before committing it.
"""

# ruff: noqa: RUF001 (foreign letters are what is tested)

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pexpect
import pytest
from processes import PATIENCE, wait_for

from autoagent.core.commands import Call, CommandSpec, Parameter, Proposal
from autoagent.core.errors import SettingsError, StateError
from autoagent.core.events import (
    Changed,
    Decided,
    Ended,
    Event,
    Feedback,
    Prompted,
    Rejected,
    Resumed,
    Retried,
    Returned,
    RunStarted,
    Spent,
    Started,
    SystemNotice,
    Thought,
    Verified,
)
from autoagent.core.model import Thoughts, Usage
from autoagent.core.task import Goal, GoalVerdict, Status, Task
from autoagent.reply.reply_stream import ThoughtsStream
from autoagent.safety.question_dialog import InteractiveAuthorizer
from autoagent.terminal import rendering
from autoagent.terminal.console import Console
from autoagent.terminal.live_area import Activity, LiveArea
from autoagent.terminal.palette import DARK, LIGHT, palette_of
from autoagent.terminal.rendering import Page
from autoagent.terminal.screen import Style
from autoagent.text.redaction import MASK, Redactor
from autoagent.text.sanitize import width

SCREENS = Path(__file__).parent / "screens"

WRITE = CommandSpec(
    "write_to_file", "Write to a file", "files", "write", (Parameter("filename", "string"), Parameter("text", "string"))
)
SHELL = CommandSpec("execute_shell", "Run a shell command", "shell", "run", (Parameter("command_line", "string"),))
KEY = "hunter2-hunter2"
LONG = "All the notes are about the garden, so the summary names its beds, its trees and when each was planted."


def run_started(kind: type[RunStarted] = RunStarted, name: str = "GardenGPT", **more: object) -> RunStarted:
    values: dict[str, object] = {
        "run": "20261121-091500-ab12", "t": 1000.0, "version": "1", "model": "qwen2.5-coder-1.5b", "window": 8192,
        "task": Task(name, "an agent that keeps the notes of a garden",
                     (Goal("Read notes.txt"), Goal("Write summary.txt", "test -s summary.txt"))),
        "reply_tokens": 800, "system": "You are ...", "system_tokens": 900, "asking": "schema",
        "commands": ("read_file", "write_to_file", "task_complete"), "workspace": "autoagent_workspace",
    }  # fmt: skip
    return kind(**{**values, **more})  # type: ignore[arg-type]


def thought(thoughts: Thoughts, call: Call, cost: float | None = 0.0021, step: int = 1) -> Thought:
    return Thought(step=step, t=1007.5, thoughts=thoughts, call=call, text="", usage=Usage(1200, 80, 600, cost))


class Screen:
    """A console that writes into memory."""

    def __init__(self, columns: int = 80, stdin: str = "", **options: Any) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        looks = {name: options.pop(name) for name in ("color", "plain", "thoughts") if name in options}
        style = Style(columns=columns, **looks)
        self.console = Console(self.out, self.err, io.StringIO(stdin), style=style, **options)

    @property
    def text(self) -> str:
        return self.out.getvalue()

    @property
    def words(self) -> str:
        """The text, however it is broken into lines."""
        return " ".join(self.text.split())

    def show(self, *events: Event) -> None:
        for event in events:
            self.console.show(event)


# Whole screens ---------------------------------------------------------------------------------------------------


def session(screen: Screen) -> None:
    """Two steps: a file is written, after a question with a mistyped answer; an unusable reply; the end."""
    console = screen.console
    screen.show(run_started(), Prompted(step=1, t=1001.0, sha256="", tokens=1200, messages=3, at=1001.0, estimate=0.01))
    call = Call("1", "write_to_file", {"filename": "summary.txt", "text": "Apple tree, 1994\nPear tree, 2003\n"})
    thoughts = Thoughts(LONG, "The goals ask for a summary.", "- write the summary\n- check it\n- finish", "Be brief.")
    for piece in json.dumps({"thoughts": {"text": LONG, "reasoning": "..."}}):
        console.text(piece)
    console.show(thought(thoughts, call))
    diff = "--- summary.txt\n+++ summary.txt\n@@ -1,1 +1,2 @@\n-Nothing yet\n+Apple tree, 1994\n+Pear tree, 2003\n"
    proposal = Proposal(call, WRITE, diff)
    console.proposed(proposal)
    verdict = InteractiveAuthorizer(console).decide(proposal)
    screen.show(Decided(step=1, call_id="1", allowed=True, by=verdict.by), Started(step=1, t=1010.0, call=call))
    console.show(Returned(step=1, t=1010.1, call_id="1", ok=True, text="Wrote 33 characters to summary.txt.",
                          data={"changed": ["summary.txt"]}))  # fmt: skip
    console.text('{"thoughts": {"text": "Now I che')
    noon = time.mktime((2026, 1, 1, 12, 0, 0, 0, 1, -1))
    console.waiting("The connection to 127.0.0.1 broke", 4.0, noon)
    console.show(Retried(step=2, t=1012.0, reason="The connection to 127.0.0.1 broke"))
    console.show(Rejected(step=2, t=1014.0, problem="There is no command 'finish'. Did you mean task_complete(reason)?",
                          text="{}", usage=Usage(1300, 20, 1200, 0.0003)))  # fmt: skip
    console.show(Feedback(step=2, text="You are done, so end the run."))
    console.show(SystemNotice(step=2, text="The same call with the same result, 3 times over. Try something else."))
    read = Call("3", "read_file", {"filename": "gone.txt"})
    missing = Returned(step=3, call_id="3", ok=False, text="No such file: gone.txt")
    screen.show(thought(Thoughts("Read it."), read, step=3), Started(step=3, call=read), missing)
    barred = Decided(step=4, call_id="4", allowed=False, by="loop guard", reason="nothing has changed since step 3")
    screen.show(barred, Ended(step=4, t=1100.0, status=Status.STOPPED, reason="Ended by the user."))
    console.report(Path(".autoagent/runs/20261121-091500-ab12"))


def hostile(screen: Screen) -> None:
    """Text that tries to command the terminal, to hide a payload, and to pose as the program."""
    console = screen.console
    console.show(run_started(Resumed, name="\x1b[31mEvil\u202e", step=4))
    payload = "ls" + " " * 2000 + "; \u0430pt install \x1b]0;x\x07" + "A" * 100_000 + "rm -rf ."
    call = Call("1", "execute_shell", {"command_line": payload})
    text = "Fine.\nNEXT ACTION: COMMAND = list_files\x1b[2J\r\u200b\nRun it? y"
    console.show(thought(Thoughts(text, plan="- \x1b[8mhidden\U000e0041"), call, cost=None))
    console.proposed(Proposal(call, SHELL))
    lines = "".join(f"+line {number}\n" for number in range(500)) + "+" + "x" * 2000 + "\u202e\n"
    call = Call("2", "write_to_file", {"filename": " a.txt", "text": lines})
    console.proposed(Proposal(call, WRITE, "--- /dev/null\n+++ a.txt\n@@ -0,0 +1,501 @@\n" + lines))
    posing = Call("3", "write_to_file", {"filename": "", "text": "a\nNEXT ACTION: b\n\x1b[1m"})
    console.proposed(Proposal(posing, WRITE))
    returned = Returned(call_id="2", ok=True, text="one\x1b[2J\n" + "\n" * 3000 + "SYSTEM: two\nthree")
    lost = Returned(call_id="2", ok=False, known=False, text="The program ended while this command ran.")
    screen.show(Started(call=call), returned, lost)


def wide(screen: Screen) -> None:
    """Chinese, Japanese and emoji: every character of two columns."""
    console = screen.console
    goal = Goal("阅读所有笔记并写出一个简短而完整的摘要文件，包括每棵树的名字")
    console.show(run_started(task=Task("园丁", "一个照料花园笔记并写出清楚摘要的助手，从不猜测", (goal,))))
    tree = "苹果树，一九九四年种下，位于花园的北边，每年秋天结果。"
    call = Call("1", "write_to_file", {"filename": "摘要.txt", "text": tree * 3})
    text = "所有的笔记都是关于花园的，所以摘要要写出每一个花坛和每一棵树。 🙂 ガーデン e\u0301te\u0301"
    console.show(thought(Thoughts(text, plan="先写摘要\n再检查"), call))
    console.proposed(Proposal(call, WRITE))


@pytest.mark.parametrize("columns", [120, 80, 40])
@pytest.mark.parametrize("scene", [session, hostile, wide])
def test_the_screen_is_as_kept(scene: Callable[[Screen], None], columns: int) -> None:
    screen = Screen(columns, stdin="y -abc\ny -2\n")
    scene(screen)
    kept = SCREENS / f"{scene.__name__}-{columns}.txt"
    if os.environ.get("WRITE_SCREENS"):
        kept.write_text(screen.text, "utf-8", newline="\n")
    assert screen.text == kept.read_text("utf-8")
    assert max(width(line) for line in screen.text.split("\n")) <= columns
    assert not [char for char in screen.text if char < " " and char != "\n"]


def test_streamed_or_not_the_thoughts_look_the_same() -> None:
    texts = []
    for plain in (True, False):
        screen = Screen(plain=plain, stdin="y\n")
        session(screen)
        text = screen.text.replace("\nGARDENGPT THOUGHTS: Now I ...\n", "\n")
        further = r"  why: .*\n|REASONING: .*\n|PLAN:\n(- .*\n)*|CRITICISM: .*\n"  # folded where somebody can open them
        assert re.search(further, text)
        texts.append(re.sub(further, "", text).partition("\nGoals")[0])  # the report differs as well
    assert texts[0] == texts[1]


def test_thoughts_that_differ_from_what_streamed_are_shown_whole() -> None:
    screen = Screen()
    screen.console.text('{"thoughts": {"text": "Half of a rep')
    screen.show(thought(Thoughts("Something else."), Call("1", "x", {})))
    assert "AGENT THOUGHTS: Half of a ...\nAGENT THOUGHTS: Something else.\n" in screen.text


def test_no_raw_json_is_streamed() -> None:
    screen = Screen()
    deltas = 'Sure! ```json\n{"command": {"name": "x"},', ' "thoughts": {"reasoning": "a", "text"', ': " Hi"}}```'
    for delta in deltas:
        screen.console.text(delta)
    screen.show(thought(Thoughts("Hi"), Call("1", "x", {})))
    assert screen.text == "AGENT THOUGHTS: Hi\n"


# The text in a growing reply -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["plain", 'a "quoted" \\ back\nline\t', "漢字 🙂 é", "\ud83d lone", ""])
def test_the_text_is_read_out_of_a_growing_reply(text: str) -> None:
    for ascii_only in (True, False):
        written = {"thoughts": {"speak": "x", "text": text, "plan": "p"}, "command": {}}
        native = {"thoughts": [text, "reasoning", "p"], "filename": "a.txt"}
        replies = [json.dumps(reply, ensure_ascii=ascii_only) for reply in (written, native)]
        for whole, size in product(replies, (1, 3, 7, 999)):
            stream = ThoughtsStream()
            pieces = [stream.feed(whole[at : at + size]) for at in range(0, len(whole), size)]
            assert "".join(pieces) == text


@pytest.mark.parametrize("reply", ["no JSON at all " * 1000, '{"thoughts": "text"}', '{"thoughts": {"text": 5}}', ""])
def test_a_reply_without_such_a_text_streams_nothing(reply: str) -> None:
    assert ThoughtsStream().feed(reply) == ""


def test_a_broken_escape_ends_the_stream() -> None:
    stream = ThoughtsStream()
    assert stream.feed('{"thoughts": {"text": "good \\x bad, and more of it') == "good "
    assert stream.feed('"more') == ""


def test_work_that_takes_long_is_not_called_a_wait() -> None:
    screen = Screen()
    screen.console.working("the embedded model reads: 0 of 204 tokens", 6.8)
    screen.console.working("the embedded model reads: 128 of 204 tokens", 2.0)
    assert screen.text == "WORKING: the embedded model reads: 0 of 204 tokens (about 7 s)\n"


@pytest.fixture
def live() -> Iterator[tuple[Activity, list[str]]]:
    """What is shown of an activity, and all that was drawn of it so far."""
    shown: list[str] = []
    area = LiveArea(shown.append, lambda: 0)
    yield Activity(area, str), shown
    area.close()


@pytest.mark.slow
def test_what_takes_long_says_how_far_it_is_and_never_when_it_ends(live: tuple[Activity, list[str]]) -> None:
    activity, shown = live
    for told in ("reads: 0 of 204 tokens", "reads: 128 of 204 tokens"):
        activity.show_operation(told)
        wait_for(lambda told=told: bool(shown) and f"{told} | 0 s" in shown[-1])  # type: ignore[misc]
    activity.show_request("local", 204)
    activity.feed_reply("def f():\n    return 1\n")
    wait_for(lambda: "writing, 3 lines | " in shown[-1] and "tokens/s" in shown[-1])
    assert not any("left" in text or "%" in text for text in shown)


def test_what_the_verifier_finds_of_several_goals_is_said_once() -> None:
    screen = Screen()
    verdicts = [GoalVerdict(n, "cannot tell", why="It is too small.") for n in (0, 2)]
    screen.show(Verified(model="m", verdicts=(*verdicts, GoalVerdict(1, "met", "It is 42", "So it is."))))
    assert "VERIFIER: goals 1, 3 cannot tell: It is too small.\n" in screen.text
    assert 'VERIFIER: goal 2 met "It is 42": So it is.\n' in screen.text


@pytest.mark.parametrize("thoughts", [["I write.", "r"], {"text": "I write.", "plan": "p"}])
def test_the_text_of_a_file_is_no_thought(live: tuple[Activity, list[str]], thoughts: object) -> None:
    activity, shown = live
    activity.show_request("gpt", 204)
    half = json.dumps({"thoughts": thoughts, "filename": "a.txt", "text": "1\n2\n3"})
    activity.feed_reply(half[: half.index('"filename')])
    wait_for(lambda: bool(shown) and "thinking | " in shown[-1])
    activity.feed_reply(half[half.index('"filename') : -2])
    wait_for(lambda: "writing a.txt, 3 lines | " in shown[-1])
    assert "thinking" not in shown[-1]


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_what_is_to_be_copied_from_the_report_is_never_broken(columns: int) -> None:
    screen = Screen(columns)
    screen.console.show(run_started())
    screen.console.report(Path(".autoagent/runs/20261121-091500-ab12/events.jsonl"))
    lines = screen.text.replace("Log: ", "Log:\n").replace("Resume: ", "Resume:\n").splitlines()
    assert lines[lines.index("Log:") + 1] == ".autoagent/runs/20261121-091500-ab12/events.jsonl"
    assert lines[lines.index("Resume:") + 1] == "autoagent resume 20261121-091500-ab12"


MARKDOWN = (
    "# Report\n\nSee [it](https://e.example), &#27;[2J, <!-- a --> and ![p](x.png).\n\n- **done**\n- `a.py`\x1b[2J\n\n"
    "FINISHED: this is no line of the program\n\n[it]: https://e.example\n\n```\n$ ls\n```\n"
)


def test_markdown_of_the_agents_is_drawn_and_nothing_in_it_is_hidden_or_a_link() -> None:
    screen = Screen(40, stdin="yes\n")
    screen.show(Ended(status=Status.FINISHED, reason=MARKDOWN))
    assert screen.console.ask(MARKDOWN, label="The agent asks:") == "yes"
    lines = screen.text.splitlines()
    assert [line for line in lines if line and not line.startswith("  ")] == ["FINISHED:", "The agent asks:", "> yes"]
    shown = "".join(screen.text.split())
    links = ["[it](https://e.example)", "![p](x.png)", "[it]:https://e.example"]
    for kept in [*links, "&#27;[2J", "<!--a-->", "\\x1b[2J"]:
        assert shown.count(kept) == 2
    assert "Report" in shown and "# Report" not in screen.text and "**" not in shown and "`" not in shown
    assert max(map(width, lines)) <= 40 and "\x1b" not in screen.text
    plain = Screen(plain=True)
    plain.show(Ended(status=Status.FINISHED, reason=MARKDOWN))
    assert "# Report" in plain.text and "**done**" in plain.text


def test_the_end_tells_the_cost_by_model_where_there_were_several() -> None:
    screen, call = Screen(), Call("1", "list_files", {})
    screen.show(run_started(), thought(Thoughts("One."), call, 0.25))
    assert "1,280 tokens" not in screen.text
    changed = run_started(Changed, model="other", what="the model is other")
    screen.show(changed, thought(Thoughts("Two."), call, 0.5))
    screen.console.report(Path("log"))
    assert "CHANGED: the model is other" in screen.words and "Cost $0.7500 other" in screen.words
    assert "$0.2500 qwen2.5-coder-1.5b, 1,280 tokens $0.5000 other, 1,280 tokens" in screen.words


def test_thoughts_are_shown_in_short_or_not_at_all() -> None:
    thoughts = Thoughts("I look around. " * 9, "Because it is wanted.", "- look", "None.")
    for how, lines in (("full", None), ("short", 2), ("none", 1)):  # with the rule of the step
        screen = Screen(thoughts=how)
        screen.console.text(json.dumps({"thoughts": {"text": thoughts.text}}))
        screen.show(thought(thoughts, Call("1", "list_files", {})))
        assert ("REASONING: Because it is wanted." in screen.text) is (how == "full")
        assert lines is None or len(screen.text.splitlines()) == lines


# Colours ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "isatty", "color"),
    [
        ({"TERM": "xterm"}, True, True), ({"TERM": "xterm"}, False, False), ({"TERM": "dumb"}, True, False),
        ({}, True, False), ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True), ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR_FORCE": "0"}, False, False), ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "CLICOLOR": "0"}, True, False),
    ],
)  # fmt: skip
def test_colour_is_decided_once(env: dict[str, str], isatty: bool, color: bool) -> None:
    assert (palette_of((), env, isatty) is not None) is color


def test_a_theme_and_the_users_own_colours() -> None:
    xterm = {"TERM": "xterm"}
    assert palette_of(("auto",), xterm, True) == DARK
    assert palette_of((), {**xterm, "COLORFGBG": "0;15"}, True) == palette_of(("light",), xterm, True) == LIGHT
    assert palette_of(("dark",), {**xterm, "COLORFGBG": "0;15"}, True) == DARK
    assert palette_of(("none",), xterm, True) is None
    own = palette_of(("light", "thought = bold bright-cyan", "quiet=244", "label=default"), xterm, True)
    assert own is not None
    assert Page(80, own).ink("thought", "x") == "\x1b[1m\x1b[96mx\x1b[0m" and Page(80, own).ink("label", "x") == "x"
    assert own.codes == {**LIGHT.codes, "thought": "\x1b[1m\x1b[96m", "quiet": "\x1b[38;5;244m", "label": ""}
    for wrong in ("solarized", "thought=", "mood=red", "thought=pink", "thought=256"):
        with pytest.raises(SettingsError, match=r"^AUTOAGENT_THEME: "):
            palette_of((wrong,), xterm, True)


def test_a_diff_is_coloured() -> None:
    screen = Screen(color=DARK)
    screen.console.proposed(Proposal(Call("1", "x", {}), WRITE, "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n"))
    assert "\x1b[31m  -old\x1b[0m\n\x1b[32m  +\x1b[0mnew" in screen.text


# Other ways out --------------------------------------------------------------------------------------------------


def test_a_long_diff_leaves_its_command_in_sight() -> None:
    call = Call("1", "write_to_file", {"filename": "a.txt", "text": "".join(f"{n}\n" for n in range(99))})
    diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,99 @@\n" + "".join(f"+{n}\n" for n in range(99))
    for rows, most in ((24, 12), (10, 6), (0, 60)):
        lines = list(rendering.proposal(Proposal(call, WRITE, diff), Page(80, rows=rows)))
        assert len(lines) == most + 3 and lines[0].startswith("NEXT ACTION (read): COMMAND = write_to_file  filename")
        assert lines[1] == "  @@ -1 +1,99 @@" and lines[-1] == "  (d shows the whole diff)"
    elsewhere = Proposal(Call("1", "write_to_file", {"filename": "link", "text": "x\n"}), WRITE, diff)
    assert "  +++ b/a.txt" in list(rendering.proposal(elsewhere, Page(80))), "the name is another one"


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_output_that_cannot_be_written_ends_the_showing_and_asks_nobody() -> None:
    console = Console(FullDisk(), io.StringIO(), io.StringIO("y\n"))
    console.text('{"thoughts": {"text": "a b c')
    console.say("nothing is raised here")
    with pytest.raises(EOFError):
        console.ask("Run it?")
    with pytest.raises(StateError, match="No space left on device"):
        console.show(run_started())


def test_d_shows_everything() -> None:
    screen = Screen(stdin="d\ny\n")
    payload = "A" * 20_000 + ";rm\t-rf\t.;" + "B" * 20_000
    proposal = Proposal(Call("1", "execute_shell", {"command_line": payload}), SHELL)
    screen.console.proposed(proposal)
    assert ";rm" not in screen.text and "characters left out of 40,010" in screen.text
    assert InteractiveAuthorizer(screen.console).decide(proposal).allowed
    assert "".join(payload.split()) in "".join(screen.text.split())


def test_a_warning_stands_last_before_the_question_which_offers_nothing_in_advance() -> None:
    screen = Screen(stdin="y\n")
    proposal = Proposal(
        Call("1", "execute_shell", {"command_line": "curl x"}), SHELL, "Runs in a shell: curl.", risk="run",
        warning="This run has read text from outside (https://e.example/\x1b[2J) and holds private data (a.txt).",
    )  # fmt: skip
    screen.console.proposed(proposal)
    assert InteractiveAuthorizer(screen.console).decide(proposal).allowed
    warning, question = screen.words.split("WARNING: ")[1].split("Run it anyway?")
    assert warning.startswith("This run has read text from outside (https://e.example/\\x1b[2J)")
    assert "(a.txt)" in warning and "-N" not in question and "this once" in question


def test_an_argument_with_a_masked_secret_is_pointed_out_also_in_the_middle_of_a_long_one() -> None:
    for secret, says in (
        (MASK, "The agent wrote [masked] itself"),
        (KEY, "An argument holds what looks like a secret."),
    ):
        screen = Screen(mask=Redactor([KEY]).mask_json)
        text = f"{'a' * 50_000}{secret}{'b' * 50_000}"
        screen.console.proposed(Proposal(Call("1", "write_to_file", {"filename": "a", "text": text}), WRITE))
        assert says in screen.text


def test_a_secret_in_thoughts_that_stream_in_is_never_shown() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0B\n" * 3 + "-----END PRIVATE KEY-----"
    said = {"text": f"The key is {KEY}, and 北京 has\n{pem}\nto itself."}
    redactor = Redactor([KEY])
    screen = Screen(mask=redactor.mask_json)
    for char in json.dumps({"thoughts": said}, ensure_ascii=False):
        screen.console.text(char)
    assert "The key is [masked], and 北京 has" in screen.text
    masked = Thoughts(redactor.mask(said["text"]))
    screen.console.show(Thought(step=1, thoughts=masked, call=Call("1", "do_nothing", {}), text="", usage=Usage()))
    assert "hunter2" not in screen.text and "MIIEv" not in screen.text
    assert screen.text.count("to itself.") == 1


def test_what_has_no_price_is_named_once() -> None:
    screen = Screen()
    spent = Spent(purpose="generate_image", usage=Usage(cost=None))
    screen.show(run_started(), Started(call=Call("1", "generate_image", {})), spent)
    for step in (1, 2):
        screen.show(thought(Thoughts("Looking."), Call("1", "read_file", {"filename": "notes.txt"}), step=step))
    assert screen.words.count("THE COST OF THIS RUN IS UNKNOWN: no price is known for generate_image.") == 1
    assert "$?" in screen.text


def test_the_model_of_a_worker_that_has_no_price_is_named_and_not_the_runs_own() -> None:
    screen = Screen()
    rejected = Rejected(agent="1", text="", problem="", usage=Usage(cost=None))
    screen.show(run_started(), replace(run_started(model="unlisted"), agent="1"), rejected)
    screen.show(thought(Thoughts("Next."), Call("1", "list_files", {})))
    assert "no price is known for unlisted." in screen.words


def test_what_a_rule_allows_is_shown() -> None:
    screen = Screen()
    by_rule = Decided(step=1, call_id="1", allowed=True, by="rule execute_shell:git status")
    screen.show(run_started(), by_rule, replace(by_rule, by="continuous mode"))
    assert screen.text.endswith("ALLOWED: rule execute_shell:git status\n")


# Real processes --------------------------------------------------------------------------------------------------


def test_a_file_is_named_also_if_its_text_names_it() -> None:
    screen = Screen()
    call = Call("1", "write_to_file", {"filename": "main.py", "text": "# main.py\n"})
    screen.console.proposed(Proposal(call, WRITE, "--- /dev/null\n+++ main.py\n@@ -0,0 +1 @@\n+# main.py\n"))
    assert "filename = main.py" in screen.words and "text =" not in screen.words


PROGRAM = """
import sys
from autoagent.terminal.console import Console
from autoagent.core.errors import StopRun
from autoagent.core.commands import Call, CommandSpec, Proposal
from autoagent.safety.question_dialog import InteractiveAuthorizer

console = Console(sys.stdout, sys.stderr, sys.stdin)
ask = InteractiveAuthorizer(console)
spec = CommandSpec("list_files", "List files", "files", "read")
try:
    for number in range(9):
        proposal = Proposal(Call(str(number), "list_files", {"directory": f"folder{number}"}), spec)
        console.proposed(proposal)
        console.say(f"VERDICT {number}: {ask.decide(proposal)}")
except StopRun as stop:
    console.say(f"END: {stop.outcome.status}")
"""


def test_a_question_waits_no_longer_than_it_is_told() -> None:
    program = (
        "import sys\nfrom autoagent.terminal.console import Console\n"
        "console = Console(sys.stdout, sys.stderr, sys.stdin)\n"
        "print('GOT', console.ask('The agent asks: Which bed?\\nRun it?', timeout=60))\n"
        "try:\n    console.ask('Still there?', timeout=0.2)\nexcept TimeoutError:\n    console.say('TOO LATE')\n"
    )
    child = pexpect.spawn(sys.executable, ["-c", program], encoding="utf-8", timeout=PATIENCE)
    child.expect_exact("The agent asks: Which bed?\r\n  Run it?\r\n")
    child.expect_exact("> ")
    child.send("the long one\r")
    child.expect_exact("GOT the long one")
    child.expect_exact("TOO LATE")
    child.expect(pexpect.EOF)
    child.close()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what Linux says of a process")
def test_the_question_needs_little_memory_and_no_heavy_import() -> None:
    program = PROGRAM + (
        "import readline\nfrom pathlib import Path\n"
        "heavy = {'openai', 'numpy', 'requests', 'rich', 'yaml', 'sqlite3'} & set(sys.modules)\n"
        "most = next(line for line in Path('/proc/self/status').open() if line.startswith('VmHWM'))\n"
        "print('HEAVY', sorted(heavy), int(most.split()[1]) < 30 * 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input="n\n", capture_output=True, text=True)
    assert done.stdout.endswith("END: stopped\nHEAVY [] True\n")
