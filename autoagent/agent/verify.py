"""Verify goals: before a run ends, a model with a fresh context judges each goal by files and outputs alone.

The model sees the goals, the net changes since work on them began, and later program output, but never the agent's
thoughts. In continuous mode the workspace's tests and the programs that the goals name are run for it, too.

It judges goal by goal and quotes evidence, or names an absent file or text. A quote that does not occur in its prompt
proves nothing, and neither does an absence that the program cannot confirm.

Small models accept wrong work as readily as correct work, so their word is no proof. With them, only obvious faults
count (nothing changed, tests or the last program failed, a file does not match its type). A goal is met if tests, or
programs that the goals name, failed before the work, pass now, and were not changed themselves.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from autoagent.agent.evidence import Evidence, collect, contains, defuse_titles
from autoagent.agent.side_call import SideCall, SideRequest
from autoagent.agent.state import State
from autoagent.agent.trial_run import TEST_SETTINGS
from autoagent.core.command_schema import object_schema
from autoagent.core.events import Event, Retried, Verified
from autoagent.core.model import Message
from autoagent.core.task import VERIFICATION, VERIFIER, GoalVerdict
from autoagent.reply.lenient_json import read_object
from autoagent.reply.written_reply import MAX_BRACES
from autoagent.text.quoting import EXPLANATION
from autoagent.text.sanitize import shorten
from autoagent.workspace.gate import Workspace, shown

_MAX_EVIDENCE_TOKENS = 12_000
_WINDOW_DIVISOR = 3  # evidence takes at most a third of the window
_REPLY_TOKENS = 300  # plus the same again for each goal
_MAX_REASON_CHARACTERS = 300
_MIN_PART_CHARACTERS = 8  # that a part of a quote needs to prove something by itself
_MIN_QUOTE_CHARACTERS = 2  # that a whole quote needs, which may be a number
_PART_SEPARATOR = re.compile(r"\n|…|\.\.\.")
_ACTIVITY = "checking the goals"
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

_STRING = {"type": "string"}
_VERDICT = {
    "n": {"type": "integer"},
    "why": _STRING,
    "verdict": {**_STRING, "enum": ["met", "not met", "cannot tell"]},
    "evidence": _STRING,
    "absent_file": _STRING,
    "absent_text": _STRING,
}
_SCHEMA = object_schema({"goals": {"type": "array", "items": object_schema(_VERDICT)}})


class Verification:
    """Judge the goals of a run."""

    def __init__(self, state: State, call: SideCall) -> None:
        self._state = state
        self._call = call

    def judge(
        self, numbers: Sequence[int], workspace: Workspace, answer: str
    ) -> Generator[Event, None, tuple[GoalVerdict, ...]]:
        """Yield events and return a verdict for each goal in `numbers`, counted from 0.

        `answer` is the agent's reply to the user, evidence only if no file changed. Earlier verdicts are reused if
        nothing has happened since and they cover these goals.
        """
        state = self._state
        if set(numbers) <= {verdict.goal for verdict in state.work.verdicts}:
            return state.work.verdicts
        model = self._call.model
        max_tokens = min(_MAX_EVIDENCE_TOKENS, model.window // _WINDOW_DIVISOR)
        evidence = collect(state, workspace, max_tokens)
        if model.style.reasons:
            verdicts = yield from self._ask_verdicts(numbers, evidence, answer, workspace)
        else:
            fault = evidence.fault or ("" if evidence.changed else _UNCHANGED)
            verdicts = tuple(self._judge_by_tests(number, evidence, fault) for number in numbers)
        yield state.record(Verified(model=model.name, verdicts=verdicts))
        return verdicts

    def _judge_by_tests(self, number: int, evidence: Evidence, fault: str) -> GoalVerdict:
        """Judge without a model: a goal is met if every test that failed before the work passes now, unchanged.

        It must name one of them, or be the only goal.
        """
        goals, draft_result = self._state.start.task.goals, self._state.work.draft_result
        failed_paths = draft_result.failed if draft_result else ()
        if fault:
            return GoalVerdict(number, "not met", why=fault)
        named = {path for path in failed_paths if path.rpartition("/")[2] in goals[number].text}
        test_files = {*failed_paths, *(p for p in evidence.changed if p.rpartition("/")[2] in TEST_SETTINGS)}
        is_intact = not evidence.absent and test_files.isdisjoint(evidence.changed)
        if (named or (failed_paths and len(goals) == 1)) and is_intact and {*failed_paths} <= evidence.passed:
            why = f"Failed before the work and passes now: {', '.join(map(shown, failed_paths))}."
            return GoalVerdict(number, "met", why=why)
        return GoalVerdict(number, "cannot tell", why=_TOO_SMALL)

    def _ask_verdicts(
        self, numbers: Sequence[int], evidence: Evidence, answer: str, workspace: Workspace
    ) -> Generator[Event, None, tuple[GoalVerdict, ...]]:
        answer_part = "" if evidence.changed else f"\n\nIts answer to the user:\n{defuse_titles(answer)}"
        prompt_text = f"{evidence.text}{answer_part}"
        goals = "\n".join(f"{number + 1}. {self._state.start.task.goals[number].text}" for number in numbers)
        messages = [Message("system", _SYSTEM), Message("user", f"The goals:\n{goals}\n\n{prompt_text}")]
        tokens = _REPLY_TOKENS * (1 + len(numbers))
        reply = yield from self._call.ask(SideRequest(messages, VERIFICATION, _ACTIVITY, tokens, _SCHEMA))
        if isinstance(reply, str):
            yield self._state.record(Retried(reason=f"The goals could not be verified: {reply}"))
        text = "" if isinstance(reply, str) else reply.text
        verdicts = []
        for number, claim in _claims_by_goal(text, numbers):
            proof = _valid_quote(claim, prompt_text) or self._confirm_absence(claim, evidence, workspace)
            verdicts.append(_judge_claim(number, claim, proof, text))
        return tuple(verdicts)

    def _confirm_absence(self, claim: Mapping[str, Any], evidence: Evidence, workspace: Workspace) -> str:
        """Describe the absence that a verdict names, or return '' if the program cannot confirm it.

        A file has to be deleted or named in the goals. A missing text has to occur in the goals or the evidence, since
        a file lacks countless other texts.
        """
        path, text = (str(claim.get(name) or "").strip() for name in ("absent_file", "absent_text"))
        if not text:
            return f"There is no file {shown(path)}." if path in evidence.absent else ""
        is_known = text in evidence.text or any(text in goal.text for goal in self._state.start.task.goals)
        if path and is_known and contains(path, text, self._state, workspace) is False:
            return f'{shown(path)} does not contain "{shorten(text, _MAX_REASON_CHARACTERS)}".'
        return ""


def _claims_by_goal(text: str, numbers: Sequence[int]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the model's claim about each goal from the first JSON object with goals in its answer, or an empty one."""
    claims: Any = []
    for brace in islice(re.finditer(r"\{", text), MAX_BRACES):  # a model may think aloud before it answers
        with suppress(ValueError):
            claims = read_object(text, brace.start())[0].get("goals")
            if isinstance(claims, list) and claims:
                break
    valid = [claim for claim in claims if isinstance(claim, dict)] if isinstance(claims, list) else []
    by_goal = {str(claim.get("n")): claim for claim in valid}  # without a schema, a model may quote the number
    default = valid[0] if len(valid) == len(numbers) == 1 else {}
    return [(number, by_goal.get(str(number + 1)) or default) for number in numbers]


def _judge_claim(number: int, claim: Mapping[str, Any], proof: str, text: str) -> GoalVerdict:
    """Turn a claim into the verdict on a goal: 'cannot tell' if it says "met" without a `proof`."""
    reason = shorten(str(claim.get("why") or ""), _MAX_REASON_CHARACTERS)
    finding = claim.get("verdict")
    if finding == "met" and proof:
        return GoalVerdict(number, "met", proof, reason)
    if finding == "met":
        return GoalVerdict(number, "cannot tell", why=f"{reason} (its evidence was not found)".strip())
    if finding == "not met":
        return GoalVerdict(number, "not met", why=reason)
    problem = "The verifier's answer cannot be read." if text else "The verifier did not answer."
    return GoalVerdict(number, "cannot tell", why=reason or problem)


def _valid_quote(claim: Mapping[str, Any], prompt_text: str) -> str:
    """Return the claim's quote if each part of it (between ellipses or line breaks) occurs in the prompt, else ''."""
    quote, normalized = str(claim.get("evidence") or ""), " ".join(prompt_text.split())
    parts = [" ".join(part.split()).strip("\"'` ") for part in _PART_SEPARATOR.split(quote)]
    parts = [part for part in parts if part]
    significant = [part for part in parts if len(part) >= _MIN_PART_CHARACTERS] or parts
    occurs = len("".join(significant)) >= _MIN_QUOTE_CHARACTERS and all(part in normalized for part in significant)
    return shorten(quote, _MAX_REASON_CHARACTERS) if occurs else ""
