"""Replies that are the text of a file, in a Markdown code block or without one."""

from __future__ import annotations

import pytest

from autoagent.commands.registry import Registry
from autoagent.commands.selection import own_commands
from autoagent.core.errors import ReplyError
from autoagent.core.model import Completion, Usage
from autoagent.reply.file_reply import in_block, parse_file

REGISTRY = Registry(own_commands(), {})


def written(text: str, file: str = "a.py", *, truncated: bool = False) -> str:
    completion = Completion(text, Usage(), truncated=truncated)
    reply = parse_file(completion, file, REGISTRY.spec("write_to_file"), REGISTRY.check, "1")
    assert (reply.call.name, reply.call.args["filename"]) == ("write_to_file", file)
    return str(reply.call.args["text"])


@pytest.mark.parametrize(
    ("file", "reply", "text"),
    [
        ("a.py", "Here:\n```python\nprint('\\n')\n```\nDone.", "print('\\n')\n"),
        ("a.py", "print(1)", "print(1)\n"),
        ("a.py", "~~~\n```\n~~~", "```\n"),
        ("a.py", "````\n```py\nx\n```\n````", "```py\nx\n```\n"),
        ("a.py", "```\nx = 1", "x = 1\n"),
        ("a.py", "<think>\n```\nno\n```\n</think>\n```\nyes\n```", "yes\n"),
        ("a.py", "```html\n<think>x</think>\n```", "<think>x</think>\n"),
        ("a.py", "```\nA = 'x\x0cy\x1c\x85\u2028'\n```", "A = 'x\x0cy\x1c\x85\u2028'\n"),
        ("a.py", "Here:\r\n```python\r\nx = 1\r\ny = 2\r\n```\r\n", "x = 1\ny = 2\n"),
        ("a.md", "```markdown\n# A\n```", "# A\n"),
        ("a.md", "```markdown\n# A\n```sh\nls\n```\nB\n```\ncd\n```\n```\n", "# A\n```sh\nls\n```\nB\n```\ncd\n```\n"),
        ("a.md", "```md\r\n# A\r\n```sh\r\nls\r\n```\r\n```", "# A\n```sh\nls\n```\n"),
        ("a.md", "````md\n```sh\nls\n````", "```sh\nls\n"),
        ("a.md", "# A\n```sh\nls\n```\n```sh\ncd\n```\n", "# A\n```sh\nls\n```\n```sh\ncd\n```\n"),
    ],
)
def test_what_is_written(file: str, reply: str, text: str) -> None:
    assert written(reply, file) == text


@pytest.mark.parametrize(
    ("file", "reply", "problem"),
    [
        ("a.py", "", "empty"),
        ("a.py", "```\n```", "empty"),
        ("a.py", "```\na\n```\n```\nb\n```", "2 code blocks"),
        ("a.md", "```md\n# A\n```\nor\n```md\n# B\n```", "2 code blocks"),
        ("a.md", "```md\n```", "empty"),
        ("a.py", "<think>x</think>", "empty"),
    ],
)
def test_what_is_not(file: str, reply: str, problem: str) -> None:
    with pytest.raises(ReplyError, match=problem):
        written(reply, file)


def test_a_reply_that_was_cut_off_is_not_written() -> None:
    with pytest.raises(ReplyError, match="cut off"):
        written("```\nx = 1", truncated=True)


def test_no_text_ends_the_block_it_stands_in() -> None:
    assert written(in_block("```\n````\n```")) == "```\n````\n```\n"
