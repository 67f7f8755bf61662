"""Parse a reply that is a file's text into the call that writes it.

A small model writes correct code in a Markdown block that it would get wrong inside a JSON string. Text outside of the
block is its thoughts. A reply without a block is the text itself, as is a Markdown document of blocks.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from autoagent.core.commands import Call, CommandSpec
from autoagent.core.errors import ReplyError
from autoagent.core.model import Completion, Reply, Thoughts
from autoagent.reply.parser import Check

_MARKDOWN = (".md", ".markdown")
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)")
_THINKING = re.compile(r"\A\s*<(think(?:ing)?)>.*?</\1>", re.DOTALL)


def parse_file(completion: Completion, file: str, writer: CommandSpec, check: Check, call_id: str) -> Reply:
    """Return the checked call that writes a completion's text to the file with the command `writer`.

    Raises ReplyError for a truncated or empty reply, or one with several blocks.
    """
    if completion.truncated:
        raise ReplyError(f"The reply was cut off before its end, so {file} was not written. Write a shorter one.")
    answer = _THINKING.sub("", completion.text)
    blocks, words = _blocks(answer)
    if document := _document_in_block(answer, file):
        blocks, words = [document], ""
    # Otherwise the reply is a Markdown document outside of a block.
    elif not blocks or (PurePath(file).suffix.lower() in _MARKDOWN and not _FENCE.match(answer.lstrip("\r\n"))):
        blocks, words = [answer], ""
    if len(blocks) > 1:
        raise ReplyError(f"The reply holds {len(blocks)} code blocks; answer with one that holds the whole of {file}.")
    text = blocks[0].strip("\n")
    if not text.strip():
        raise ReplyError(f"The reply is empty; answer with the whole text of {file} in one code block.")
    path_parameter, text_parameter = (parameter.name for parameter in writer.parameters[:2])
    call = check(Call(call_id, writer.name, {path_parameter: file, text_parameter: text + "\n"}))
    return Reply(Thoughts(text=words.strip()), call, completion.text)


def in_block(text: str) -> str:
    """Return a text in a Markdown code block with a fence that it does not contain."""
    max_length = max((len(marks) for marks in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * (max_length + 1)
    return f"{mark}\n{text.rstrip()}\n{mark}"


def _document_in_block(text: str, file: str) -> str:
    """Return the Markdown document in a block that is the whole reply and may itself hold blocks, or ''."""
    lines = _lines(text.strip())
    first, last = _FENCE.fullmatch(lines[0]), _FENCE.fullmatch(lines[-1])
    if PurePath(file).suffix.lower() not in _MARKDOWN or len(lines) == 1 or not first or not last:
        return ""
    inner = ""
    for line in lines[1:-1]:
        fence = _FENCE.fullmatch(line)
        if not inner and fence and fence["mark"].startswith(first["mark"]):
            inner = fence["mark"]
        elif inner and fence and _closes(fence, inner):
            inner = ""
    return "\n".join(lines[1:-1]) if not inner and _closes(last, first["mark"]) else ""


def _closes(fence: re.Match[str], mark: str) -> bool:
    return fence["mark"].startswith(mark) and not fence["info"].strip()


def _lines(text: str) -> list[str]:
    """Split a text at newlines only, unlike splitlines, since a string may hold other separators."""
    return text.replace("\r\n", "\n").split("\n")


def _blocks(text: str) -> tuple[list[str], str]:
    """Return the contents of a text's code blocks, and the words outside. The last block may be unclosed."""
    blocks: list[list[str]] = []
    words: list[str] = []
    mark = ""
    for line in _lines(text):
        fence = _FENCE.fullmatch(line)
        if not mark and fence:
            mark = fence["mark"]
            blocks.append([])
        elif mark and fence and _closes(fence, mark):
            mark = ""
        else:
            (blocks[-1] if mark else words).append(line)
    return ["\n".join(lines) for lines in blocks], "\n".join(words)
