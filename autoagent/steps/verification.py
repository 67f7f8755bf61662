"""Verification: before a run ends, a model in a fresh context judges each goal by the files and outputs alone.

It sees the goals, the net changes since work on them began, and the output of programs after the last change, but never
the agent's thoughts. It judges goal by goal and quotes evidence. A quote that does not occur in its prompt proves
nothing. Small models are not asked, since they accept wrong work as readily as right work. For them only obvious faults
count: nothing was changed, the last program failed, a file is not of the type that its name says.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from autoagent.core.events import Event, Retried, Verified
from autoagent.core.model import Message
from autoagent.core.protocols import Snapshots
from autoagent.core.verdicts import VERIFICATION, VERIFIER, GoalVerdict
from autoagent.reply.lenient_json import UnreadableJson, read_object
from autoagent.steps.evidence import Evidence, collect
from autoagent.steps.run_state import RunState
from autoagent.steps.side_call import Question, SideCall
from autoagent.text.quoting import EXPLANATION
from autoagent.text.sanitize import shorten
from autoagent.workspace.gate import Workspace

_ROOM = 12_000  # tokens of evidence
_SHARE = 3  # of the window, one part may be evidence
_REPLY = 300  # tokens, and as many again for each goal
_WHY = 300  # characters of a reason
_SHORTEST = 8  # characters of a part of a quote that proves something by itself
_LEAST = 2  # characters of a whole quote, such as a number
_PARTS = re.compile(r"\n|…|\.\.\.")
_DOING = "checking the goals"
_UNCHANGED = "No file was changed, so nothing shows that it is done."
_TOO_SMALL = "A model of this size cannot judge the work. A check of the goal can, or a larger model (VERIFIER_LLM)."

_SYSTEM = f"""\
{VERIFIER} You see the goals it was given, what changed in its workspace since it began, and what programs printed \
after the last change. You see neither its thoughts nor its claims. Judge each goal by what is shown alone.
A goal is met only if it is done completely and correctly, and nothing was changed or deleted that should have stayed. \
Compare values, names and numbers with the files they come from.
{EXPLANATION}
Answer with one JSON object and nothing else:
{{"goals": [{{"n": 1, "why": "one sentence", "verdict": "met", "evidence": "a short quote"}}]}}
`verdict` is "met", "not met" or "cannot tell". `evidence` quotes, word for word, the text below that decides it."""

_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "goals": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "why": {"type": "string"},
                    "verdict": {"type": "string", "enum": ["met", "not met", "cannot tell"]},
                    "evidence": {"type": "string"},
                },
                "required": ["n", "why", "verdict", "evidence"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["goals"],
    "additionalProperties": False,
}


class Verification:
    """Judges the goals of a run. `snapshots`, if kept, gives the changes since the run began."""

    def __init__(self, state: RunState, call: SideCall, snapshots: Snapshots | None) -> None:
        self._state = state
        self._call = call
        self._snapshots = snapshots

    def judge(
        self, numbers: Sequence[int], workspace: Workspace, answer: str
    ) -> Generator[Event, None, tuple[GoalVerdict, ...]]:
        """Yield what happens and return a verdict for each goal in `numbers`, counted from 0.

        `answer` is the agent's reply to the user. It is evidence only if no file changed, as it is then the run's only
        result. The model is not asked again if nothing has happened since its last verdicts.
        """
        state = self._state
        if state.work.verdicts:
            return state.work.verdicts
        model = self._call.model
        evidence = collect(state, workspace, self._snapshots, min(_ROOM, model.window // _SHARE))
        if model.style.reasons:
            verdicts = yield from self._reasoned(numbers, evidence, answer)
        else:
            fault = evidence.fault or ("" if evidence.changed else _UNCHANGED)
            verdicts = tuple(
                GoalVerdict(number, "not met" if fault else "cannot tell", why=fault or _TOO_SMALL)
                for number in numbers
            )
        yield state.record(Verified(model=model.name, verdicts=verdicts))
        return verdicts

    def _reasoned(
        self, numbers: Sequence[int], evidence: Evidence, answer: str
    ) -> Generator[Event, None, tuple[GoalVerdict, ...]]:
        said = "" if evidence.changed else f"\n\nIts answer to the user:\n{answer}"
        shown = f"{evidence.text}{said}"
        messages = [Message("system", _SYSTEM), Message("user", f"{self._goals(numbers)}\n\n{shown}")]
        text = yield from self._ask(messages, _SCHEMA, _REPLY * (1 + len(numbers)))
        return _verdicts(text, numbers, shown)

    def _ask(self, messages: Sequence[Message], schema: Mapping[str, Any], reply: int) -> Generator[Event, None, str]:
        """Return the model's answer, '' if there is none."""
        answered = yield from self._call.ask(Question(messages, VERIFICATION, _DOING, reply, schema))
        if isinstance(answered, str):
            yield self._state.record(Retried(reason=f"The goals could not be verified: {answered}"))
            return ""
        return answered.text

    def _goals(self, numbers: Sequence[int]) -> str:
        goals = self._state.start.task.goals
        return "\n".join(["The goals:", *(f"{number + 1}. {goals[number].text}" for number in numbers)])


def _verdicts(text: str, numbers: Sequence[int], shown: str) -> tuple[GoalVerdict, ...]:
    """Read the verdicts of an answer. One whose evidence does not occur in `shown` becomes 'cannot tell'."""
    said = _object(text).get("goals")
    listed = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
    by_goal = {one["n"]: one for one in listed if isinstance(one.get("n"), int)}
    plain = _plain(shown)
    found = []
    for number in numbers:
        one = by_goal.get(number + 1) or (listed[0] if len(listed) == len(numbers) == 1 else {})
        why, quote = shorten(str(one.get("why") or ""), _WHY), str(one.get("evidence") or "")
        verdict = one.get("verdict")
        if verdict == "met" and _is_in(quote, plain):
            found.append(GoalVerdict(number, "met", shorten(quote, _WHY), why))
        elif verdict == "met":
            found.append(GoalVerdict(number, "cannot tell", why=f"{why} (its evidence was not found)".strip()))
        elif verdict == "not met":
            found.append(GoalVerdict(number, "not met", why=why))
        else:
            found.append(GoalVerdict(number, "cannot tell", why=why or _unread(text)))
    return tuple(found)


def _unread(text: str) -> str:
    return "The verifier's answer cannot be read." if text else "The verifier did not answer."


def _object(text: str) -> dict[str, Any]:
    """Return the first JSON object in an answer, an empty one if there is none."""
    start = text.find("{")
    try:
        return read_object(text, start)[0] if start >= 0 else {}
    except UnreadableJson:
        return {}


def _is_in(quote: str, plain: str) -> bool:
    """Return whether every part of a quote occurs in the text. Ellipses and line breaks separate parts."""
    parts = [part for part in (_plain(part).strip("\"'` ") for part in _PARTS.split(quote)) if part]
    telling = [part for part in parts if len(part) >= _SHORTEST] or parts
    return len("".join(telling)) >= _LEAST and all(part in plain for part in telling)


def _plain(text: str) -> str:
    return " ".join(text.split())
