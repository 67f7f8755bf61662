"""Verification: before a run ends, a model in a fresh context judges each goal by the files and outputs alone.

It sees the goals, the net changes since work on them began, and the output of programs after the last change, but never
the agent's thoughts. In continuous mode the tests in the workspace, and programs that the goals name, are run for it.
It judges goal by goal and quotes evidence, or names what is absent. A quote that does not occur in its prompt proves
nothing, nor does an absence that the program does not find.

Small models are not asked, since they accept wrong work as readily as right work. For them only obvious faults count:
nothing was changed, tests or the last program failed, a file is not of the type that its name says.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from itertools import islice
from typing import Any

from autoagent.agent.evidence import Evidence, collect, holds
from autoagent.agent.goal_words import names_in
from autoagent.agent.side_call import Question, SideCall
from autoagent.agent.state import Policy, State, Tools
from autoagent.agent.trial_run import TrialRun, run_tests
from autoagent.core.errors import CommandError
from autoagent.core.events import Event, Retried, Verified
from autoagent.core.model import Message
from autoagent.core.task import VERIFICATION, VERIFIER, GoalVerdict
from autoagent.reply.lenient_json import UnreadableJson, read_object
from autoagent.text.quoting import EXPLANATION
from autoagent.text.sanitize import shorten
from autoagent.workspace.gate import NOT_ENTERED, Workspace, WorkspaceEntry, shown

_ROOM = 12_000  # tokens of evidence
_WALKED = 5_000  # entries of the workspace
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
Damage that no goal asks for counts against the goal that the damaged file has most to do with. \
Compare values, names and numbers with the files they come from.
{EXPLANATION}
Answer with one JSON object and nothing else:
{{"goals": [{{"n": 1, "why": "one sentence", "verdict": "met", "evidence": "a short quote", "absent_file": "", \
"absent_text": ""}}]}}
`verdict` is "met", "not met" or "cannot tell". `evidence` quotes, word for word, the text below that decides it. \
If an absence decides it, leave `evidence` empty, and name in `absent_file` the file that is not there, or the file \
that does not contain `absent_text`, a text from below or from the goals."""

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
                    "absent_file": {"type": "string"},
                    "absent_text": {"type": "string"},
                },
                "required": ["n", "why", "verdict", "evidence", "absent_file", "absent_text"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["goals"],
    "additionalProperties": False,
}


class Verification:
    """Judges the goals of a run."""

    def __init__(self, state: State, call: SideCall, tools: Tools, policy: Policy) -> None:
        self._state = state
        self._call = call
        self._snapshots = tools.snapshots
        self._context = tools.context
        self._policy = policy
        self._may_test = policy.runs_tests and any(
            spec.effects is not None and spec.effects.runs_programs for spec in tools.registry.specs
        )

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
        entries = _entries(workspace)
        room = min(_ROOM, model.window // _SHARE)
        evidence = collect(state, workspace, self._snapshots, entries, lambda: self._tests(entries), room)
        if model.style.reasons:
            verdicts = yield from self._reasoned(numbers, evidence, answer, workspace)
        else:
            fault = evidence.fault or ("" if evidence.changed else _UNCHANGED)
            verdicts = tuple(
                GoalVerdict(number, "not met" if fault else "cannot tell", why=fault or _TOO_SMALL)
                for number in numbers
            )
        yield state.record(Verified(model=model.name, verdicts=verdicts))
        return verdicts

    def _tests(self, entries: Sequence[WorkspaceEntry]) -> list[TrialRun]:
        """Run the tests, and programs that the goals name, if the run may unasked. Ctrl-C leaves them out."""
        if not self._may_test:
            return []
        try:
            with self._policy.interruptible():
                goals = "\n".join(goal.text for goal in self._state.start.task.goals)
                return run_tests(self._context, entries, names_in(goals))
        except KeyboardInterrupt:
            return []

    def _reasoned(
        self, numbers: Sequence[int], evidence: Evidence, answer: str, workspace: Workspace
    ) -> Generator[Event, None, tuple[GoalVerdict, ...]]:
        said = "" if evidence.changed else f"\n\nIts answer to the user:\n{answer}"
        seen = f"{evidence.text}{said}"
        messages = [Message("system", _SYSTEM), Message("user", f"{self._goals(numbers)}\n\n{seen}")]
        text = yield from self._ask(messages, _SCHEMA, _REPLY * (1 + len(numbers)))
        return tuple(
            _verdict(number, one, _proof(one, seen) or self._absence(one, evidence, workspace), text)
            for number, one in _by_goal(text, numbers)
        )

    def _absence(self, one: Mapping[str, Any], evidence: Evidence, workspace: Workspace) -> str:
        """Describe the absence that a verdict names if the program finds it so, else return ''.

        A file has to be named in the goals or deleted. A text has to stand in the goals or the evidence: that a file
        lacks some other text says nothing.
        """
        path, text = str(one.get("absent_file") or "").strip(), str(one.get("absent_text") or "").strip()
        if not text:
            return f"There is no file {shown(path)}." if path in evidence.absent else ""
        told = text in evidence.text or any(text in goal.text for goal in self._state.start.task.goals)
        if path and told and holds(path, text, self._state, workspace) is False:
            return f'{shown(path)} does not contain "{shorten(text, _WHY)}".'
        return ""

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


def _by_goal(text: str, numbers: Sequence[int]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the verdict that an answer gives on each of the goals, an empty one where it gives none."""
    said = _object(text).get("goals")
    listed = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
    by_goal = {one["n"]: one for one in listed if isinstance(one.get("n"), int)}
    alone = listed[0] if len(listed) == len(numbers) == 1 else {}
    return [(number, by_goal.get(number + 1) or alone) for number in numbers]


def _verdict(number: int, one: Mapping[str, Any], proof: str, text: str) -> GoalVerdict:
    """Return the verdict on a goal. It is 'cannot tell' where a goal is called met without a `proof`."""
    why, finding = shorten(str(one.get("why") or ""), _WHY), one.get("verdict")
    if finding == "met" and proof:
        return GoalVerdict(number, "met", proof, why)
    if finding == "met":
        return GoalVerdict(number, "cannot tell", why=f"{why} (its evidence was not found)".strip())
    if finding == "not met":
        return GoalVerdict(number, "not met", why=why)
    unread = "The verifier's answer cannot be read." if text else "The verifier did not answer."
    return GoalVerdict(number, "cannot tell", why=why or unread)


def _proof(one: Mapping[str, Any], seen: str) -> str:
    """Return the quote of a verdict if it occurs in what the model has seen, else ''."""
    quote = str(one.get("evidence") or "")
    return shorten(quote, _WHY) if _is_in(quote, _plain(seen)) else ""


def _entries(workspace: Workspace) -> list[WorkspaceEntry]:
    try:
        return list(islice(workspace.walk(".", NOT_ENTERED), _WALKED))
    except CommandError:
        return []


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
