"""Let a person answer in the model's place."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

from autoagent.core.commands import CommandSpec
from autoagent.core.errors import StopRun
from autoagent.core.model import FULL, Asking, Completion, Message, Price, Usage, without_calls
from autoagent.core.protocols import RequestOptions
from autoagent.core.task import Outcome, Status

if TYPE_CHECKING:
    from autoagent.registry.models import ModelOpening

_QUESTION = "Your reply, as the model:"
_CONTINUE = "More of the JSON, or an empty line:"
_HELP = (
    'Answer with a JSON reply, or in short: command_name {"argument": "value"}, or command_name argument="a value". '
    "JSON may span several lines; an empty line ends it early."
)
_SHORT_FORM = re.compile(r"\s*([\w.-]+)(?:\s+(.*))?", re.DOTALL)
_ARGUMENT = re.compile(r"(\w+)=(.*)", re.DOTALL)


class HumanModel:
    """Show the new part of each prompt to a person and ask for the reply.

    `show(text)` displays a text. `ask(prompt)` returns a line and raises EOFError at the end of the input.
    """

    name = "human"
    window = 1_000_000
    price: Price | None = Price(0.0, 0.0, 0.0)
    reasoning_room = 0
    asking: Asking = "text"
    style = FULL

    def __init__(self, show: Callable[[str], None], ask: Callable[[str], str]) -> None:
        self._show = show
        self._ask = ask
        self._earlier: tuple[Message, ...] = ()  # the last prompt

    def take_usage(self) -> Usage:
        return Usage()  # none other than the completions'

    def complete(self, messages: Sequence[Message], **options: Unpack[RequestOptions]) -> Completion:
        """Return the person's reply, which is free and never truncated. Raises StopRun at the end of the input."""
        messages, commands = without_calls(messages), options.get("commands")
        earlier = list(self._earlier)
        for message in messages:
            # The last message has paragraphs at its end that it loses once another follows.
            start = f"{message.content}\n\n"
            same = (old for old in earlier if old.role == message.role and f"{old.content}\n\n".startswith(start))
            if match := next(same, None):
                earlier.remove(match)
            elif message.role != "assistant":
                self._show(f"[{message.role}]\n{message.content}")
        self._earlier = tuple(messages)
        try:
            return Completion(self._command(commands) if commands else self._ask(_QUESTION), Usage())
        except (EOFError, TimeoutError) as error:
            reason = "end of input" if isinstance(error, EOFError) else str(error).rstrip(".")
            outcome = Outcome(Status.UNANSWERED, f"The person who answers as the model gave no reply: {reason}.")
            raise StopRun(outcome) from error

    def _command(self, commands: Sequence[CommandSpec]) -> str:
        """Ask until the reply is valid JSON, so that a typo does not cost a step."""
        names = {name for spec in commands for name in (spec.name, *spec.aliases)}
        while True:
            answer = self._ask(_QUESTION).strip()
            if answer.startswith(("{", "`")):
                while not _is_json(answer) and (line := self._ask(_CONTINUE)).strip():
                    answer += "\n" + line
                return answer
            reply = parse_short_form(answer)
            if reply is not None and answer.split(maxsplit=1)[0] in names:
                return reply
            self._show(f"{_HELP} The commands are: {', '.join(spec.signature() for spec in commands)}.")


def parse_short_form(answer: str) -> str | None:
    """Read `read_file filename=a.txt` or `read_file {"filename": "a.txt"}` as a reply, else return None."""
    match = _SHORT_FORM.fullmatch(answer)
    if match is None:
        return None
    name, rest = match[1], (match[2] or "").strip()
    if rest.startswith("{"):
        return f'{{"command": {{"name": {json.dumps(name)}, "args": {rest}}}}}'
    try:
        words = [_ARGUMENT.fullmatch(word) for word in shlex.split(rest)]
    except ValueError:  # an unclosed quote
        return None
    args = {word[1]: word[2] for word in words if word is not None}
    if len(args) < len(words):  # a bare word, or a duplicate name
        return None
    return json.dumps({"command": {"name": name, "args": args}}, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except ValueError:
        return False
    return True


def open_model(opening: ModelOpening) -> HumanModel:
    """Return the person at the screen as a model."""
    return HumanModel(opening.show, opening.ask)
