"""A person in the place of a role's model: reads what the model would read, and answers in one line or many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoagent.core.errors import StopRun
from autoagent.core.outcome import Outcome

if TYPE_CHECKING:
    from autoagent.teams.role import Role
    from autoagent.terminal.console import Console

LEAVING = ("exit", "quit")
QUOTES = '"""'
_HOW = f"Your answer; an empty line ends it, or {QUOTES} if it began with {QUOTES}. `exit` saves and ends."


def ask_person(console: Console, role: Role, prompt: str) -> str:
    """Show the prompt and return what the person at the terminal answers to it.

    Raises:
        StopRun: the person ends the work, or nobody is there.
        KeyboardInterrupt: Ctrl-C.
    """
    console.discard_typeahead()
    console.say(prompt)
    question = f"You are {role.name}, {role.profile}. {_HOW}"
    lines: list[str] = []
    quoted = False
    while True:
        try:
            line = console.ask(question if not lines else "")
        except EOFError:
            if lines:
                return "\n".join(lines).strip()
            reason = f"{role} is a person, and nobody is there to answer; run it in a terminal, or pipe the answer in."
            raise StopRun(Outcome("unanswered", reason)) from None
        if not lines and line.strip().lower() in LEAVING:
            raise StopRun(Outcome("stopped", f"Ended by {role}."))
        if not lines and line.strip().startswith(QUOTES):
            quoted, line = True, line.strip().removeprefix(QUOTES)
        if quoted and line.rstrip().endswith(QUOTES):
            return "\n".join([*lines, line.rstrip().removesuffix(QUOTES)]).strip()
        if not quoted and not line.strip():
            if lines:
                return "\n".join(lines)
            continue
        lines.append(line)
