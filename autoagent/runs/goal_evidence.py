"""How it is known that a goal is met: by its check, by evidence that is found, or by nothing but the agent's word.

Evidence is either of these: every file that the goal names is there, and the run has read or changed it; or the reason
for the end quotes, word for word, something that a result of the run says, and that the agent had not itself put into
the call.

Not covered: a file that is there and holds the wrong thing, a quotation that is there and proves nothing. What must be
certain needs a check.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from autoagent.core.commands import Call, CommandSpec, Proof
from autoagent.core.events import AgentMessage, Event, Returned, RunStarted, Started
from autoagent.core.task import Goal
from autoagent.text.named_files import named_files

SHORTEST = 3  # characters of a quotation
MOST = 20  # quotations that are looked for
LONGEST = 2000  # characters of one

_QUOTED = re.compile(r"```\w*\n?(.+?)```|`([^`]+)`|\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^'\n]+)'(?!\w)", re.DOTALL)
_NUMBERED = re.compile(r"(?:\b[Gg]oal\s*#?|^\s*)(\d+)\b[.):]?", re.MULTILINE)
_WORDS = re.compile(r"[\s'\"|&;()<>=]+")  # what parts the words of a shell line
_REMOVES = re.compile(r"\b(?:delete|remove|move|rename|erase)\b", re.IGNORECASE)

Results = Callable[[], Iterable[tuple[Call, Returned]]]
"""Gives the calls of the run with what came of them."""


class GoalEvidence:
    """Add every event in order; ask `proofs` before the run may end."""

    NOT_KEPT = ("_specs",)  # in a checkpoint

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self._root = ""
        self._call: Call | None = None
        self.handled: set[str] = set()  # workspace paths that were read or changed

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case RunStarted():
                self._root = event.workspace.rstrip("/") + "/"
            case Started():
                self._call = event.call
            case Returned():
                self.handled.update(event.meta.changed)
                if event.ok and not event.meta.failed and self._call is not None:
                    self.handled.update(self._named(self._call))
            case AgentMessage():
                self.handled.update(event.meta.changed)

    def proofs(
        self,
        goals: Sequence[Goal],
        met: Mapping[int, bool],
        reason: str,
        results: Results,
        is_there: Callable[[str], bool],
    ) -> tuple[Proof, ...]:
        """Return of each goal how it is known that it is met.

        `met` is what the checks say (see GoalChecks), `reason` what the agent says. `results` is asked only where
        something is quoted; `is_there` says whether a file exists.
        """
        found: list[Proof] = [
            "checked" if met.get(number) else "shown" if self._handled_files(goal, is_there) else "claimed"
            for number, goal in enumerate(goals)
        ]
        lacking = [number for number, proof in enumerate(found) if proof == "claimed"]
        quoted = _quoted(reason, lacking)
        if quoted:
            said = _found({text for texts in quoted.values() for text in texts}, results())
            found = ["shown" if said & quoted.get(number, set()) else proof for number, proof in enumerate(found)]
        return tuple(found)

    def _handled_files(self, goal: Goal, is_there: Callable[[str], bool]) -> bool:
        """Return whether the goal names files, and each of them was read or changed and is as the goal wants it."""
        removes = bool(_REMOVES.search(goal.text))
        files = [posixpath.normpath(path) for path in named_files(goal.text)]
        return bool(files) and all(path in self.handled and (removes or is_there(path)) for path in files)

    def _named(self, call: Call) -> Iterator[str]:
        """Yield the paths that a call names: its arguments that are paths, and the words of a shell line."""
        spec = self._specs.get(call.name)
        for parameter in spec.parameters if spec is not None else ():
            value = call.args.get(parameter.name)
            if isinstance(value, str) and parameter.meaning in ("path", "shell"):
                for word in [value] if parameter.meaning == "path" else _WORDS.split(value):
                    yield posixpath.normpath(word.removeprefix(self._root).removeprefix("/workspace/"))


def lacking(goals: Sequence[Goal], proofs: Sequence[Proof]) -> str:
    """Tell the model which goals are only claimed, and what would show that they are met; '' if none is."""
    claimed = [number for number, proof in enumerate(proofs, 1) if proof == "claimed"]
    if not claimed:
        return ""
    return "\n".join([
        "Not ended yet. Nothing in this run shows that these goals are met:",
        *(f"Goal {number}: {goals[number - 1].text}" for number in claimed),
        "Read the file, or run what shows it. Then use task_complete with a reason that quotes, word for word and in "
        f'quotation marks, what the result said: Goal {claimed[0]}: "..."',
    ])  # fmt: skip


def _quoted(reason: str, lacking: Sequence[int]) -> dict[int, set[str]]:
    """Return what the reason quotes, by goal (from 0): what follows its number, or all where one alone is lacking."""
    parts = _NUMBERED.split(reason)
    quoted = {int(number) - 1: _quotations(text) for number, text in zip(parts[1::2], parts[2::2], strict=True)}
    if len(lacking) == 1 and lacking[0] not in quoted:
        quoted = {lacking[0]: _quotations(reason)}
    return {number: texts for number in lacking if (texts := quoted.get(number))}


def _quotations(text: str) -> set[str]:
    found = (_plain("".join(match.groups(default="")))[:LONGEST] for match in _QUOTED.finditer(text))
    return set([quotation for quotation in found if len(quotation) >= SHORTEST][:MOST])


def _found(quoted: set[str], results: Iterable[tuple[Call, Returned]]) -> set[str]:
    """Return those that a result holds, and that its call did not."""
    found: set[str] = set()
    for call, result in results:
        if result.put_off or result.meta.finished is not None:
            continue
        text = _plain(result.text)
        given = [_plain(value) for value in call.args.values() if isinstance(value, str)]
        found |= {one for one in quoted - found if one in text and not any(one in value for value in given)}
        if found == quoted:
            break
    return found


def _plain(text: str) -> str:
    return " ".join(text.split())
