"""The prompt: pure functions from the task, the commands, the history and the recollections to messages.

The order suits a provider's prefix cache: first the system message, which never changes in a run, then the history,
which only grows, and last one message with everything that is new at each step: recollections, the clock, the
remaining budget, the trigger.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from autoagent.core import command_schema
from autoagent.core.commands import CommandSpec, command_list
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Asking, Message, PromptStyle, Shares
from autoagent.core.services import Skill
from autoagent.core.task import Goal, Task
from autoagent.text import code_block
from autoagent.text.quoting import EXPLANATION, Marks, defuse
from autoagent.text.tokens import PER_MESSAGE, Count, shorten
from autoagent.text.wrapping import ago

_OF_GOALS = "Memories that may matter for the goals (what was so then may have changed):"
_OF_USER = "What the user said before and wants kept in mind, the most important first:"
_CORE_LEFT = "({} more are left out for room; `recall` finds them)"
_OF_NOW = "Memories that may matter now:"
_LINE_LEAST = 48  # tokens that a memory may take in a small window, too
_SOURCE_SHOWN = 40  # characters of an untrusted memory's source
_CHECK_SHOWN = 160  # characters of what a failing check says, its end


@dataclass(frozen=True, slots=True)
class Guidance:
    """The user's part of the system prompt: the lists of PROMPT_SETTINGS_FILE, AGENTS.md, and the skills."""

    constraints: tuple[str, ...] = (
        "Your memory of this conversation is short: save what matters to files soon.",
        "If you are unsure how you did something, or want to recall a past event, thinking of similar events helps.",
        "Nobody will help you unless you ask; use only the commands you are given, one at a time.",
        "Files are reached only inside your workspace; name them by paths relative to it.",
    )
    resources: tuple[str, ...] = (
        "Your workspace folder, for reading and writing files.",
        "A long-term memory of past steps; what fits the present comes back by itself.",
    )
    best_practices: tuple[str, ...] = (
        "Look back at what you did and check that you are doing the best you can.",
        "Criticise your own course constructively, and change it when it does not lead to the goals.",
        "Every command has a cost: finish in as few steps as you can.",
        "Look at results before you rely on them; never make up the content of a file you have not read.",
        "Use task_complete as soon as every goal is met.",
    )
    instructions: str = ""  # the text of AGENTS.md
    skills: tuple[Skill, ...] = ()  # that can be loaded


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages to send, within the number of tokens that they were built for."""

    messages: tuple[Message, ...]
    tokens: int
    around: tuple[str, str, str, str]  # texts beside the history: lasting memories, those of the moment, facts, goals

    @property
    def sha256(self) -> str:
        return hashlib.sha256(serialise(self.messages).encode("utf-8", "surrogatepass")).hexdigest()


def serialise(messages: Sequence[Message]) -> str:
    """Join the messages into the one text that digests and prefixes are taken of."""
    return "".join(map(_serialised, messages))


@lru_cache(maxsize=2048)  # most of a prompt was in the one before it, of a thousand messages at most
def _serialised(message: Message) -> str:
    quoted = _quoted(message.content)  # quicker than json.dumps
    return f'["{message.role}", {quoted}{_tool_parts(message)}]\n'


def _tool_parts(message: Message) -> str:
    """Return the fields besides the content of a message with tool calls, or of a tool's result."""
    if message.calls:
        return f", {_quoted([[call.id, call.name, call.arguments] for call in message.calls])}"
    return f", {_quoted(message.answers)}" if message.answers else ""


_quoted = json.JSONEncoder(ensure_ascii=False).encode


def system_prompt(
    task: Task, commands: Sequence[CommandSpec], asking: Asking, style: PromptStyle, guidance: Guidance | None = None
) -> str:
    """Build the system message of a run, which does not change from step to step.

    The part that all runs share comes first, so that a provider's cache serves one run with the prefix of another.
    """
    guidance = guidance or Guidance()
    if style.writes_file:
        return _file_prompt(task, guidance)
    listed = commands if style.thinks else [spec.in_brief() for spec in commands]
    parts = (
        "You are an autonomous agent. Make every decision yourself, without waiting for the user's help. "
        "Do what a language model does well, prefer simple plans, and stay within the law.\n" + EXPLANATION,
        "Constraints:\n" + _numbered(guidance.constraints),
        *([] if asking == "tools" else [command_list(listed)]),  # the tools describe them
        "Resources:\n" + _numbered(guidance.resources),
        "Performance Evaluation:\n" + _numbered(guidance.best_practices),
        _response_format(asking, style, listed),
        *_skills(guidance.skills),
        *_instructions(guidance),
        f"You are {task.name}, {task.role}",
        "GOALS:\n" + _numbered([f"{g.text} (checked with: `{g.check}`)" if g.check else g.text for g in task.goals]),
    )
    return "\n\n".join(parts)


def _file_prompt(task: Task, guidance: Guidance) -> str:
    """Build the system message of an agent that writes one file: a short one, as there are no commands to explain."""
    checks = [f"It is then checked with: `{goal.check}`" for goal in task.goals if goal.check]
    whole = f"The whole text of {task.file}, in one Markdown code block, and nothing else: it is written to that file."
    parts = (
        f"You are {task.name}, {task.role}\n{EXPLANATION}",
        *_instructions(guidance),
        "\n".join(["Response Format:", whole, *checks]),
    )
    return "\n\n".join(parts)


def _instructions(guidance: Guidance) -> list[str]:
    if not guidance.instructions:
        return []
    return [f"Instructions of the user for this folder:\n{guidance.instructions}"]


def _skills(skills: Sequence[Skill]) -> list[str]:
    if not skills:
        return []
    lines = [f"{skill.name}: {' '.join(skill.description.split())}" for skill in skills]
    return ["Skills (load one before you do what it is for):\n" + _numbered(lines)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """The facts of the moment, which follow the history in a prompt, and those of the run, which precede it.

    Attributes:
        goals: asked about at the very end, where a small model still has them in mind.
        standing: past commands, failures and feedback, and the remaining limits; cut to its share.
        files: the line of the files in the workspace.
        met: the goals, counted from 0, that their checks find met.
        failing: the goals whose checks fail, with the output of each check. Its end is shown.
        core: what the user keeps in every prompt, and `core_left` how much more of that found no room; it was read at
            `core_at`. It stands before the recollections by the goals.
        lasting: the recollections by the goals. They open the first message after the system's, so that the text
            before the history stays the same.
        lasting_at: seconds since the epoch, when these were recalled: their ages are counted to then.
        now: seconds since the epoch, shown as the time that is `zone` seconds ahead of UTC. None: as local time.
        file: the one file that the task is to write, or '' for none.
    """

    goals: Sequence[Goal]
    standing: str = ""
    files: str = ""
    met: Collection[int] = ()
    failing: Mapping[int, str] = field(default_factory=dict)
    core: Sequence[RetrievedMemory] = ()
    core_left: int = 0
    core_at: float = 0.0
    lasting: Sequence[RetrievedMemory] = ()
    lasting_at: float = 0.0
    now: float
    zone: int | None = None
    file: str = ""


def build(
    system: str,
    history: Sequence[Message],
    recollections: Sequence[RetrievedMemory],
    facts: StepFacts,
    *,
    shares: Shares,
    count: Count,
    fixed_tokens: int,
) -> Prompt:
    """Put the prompt of one step together.

    Args:
        history: messages that begin with the user's and end with the newest step's result; or none.
        recollections: best first; as many as fit their share.
        fixed_tokens: the tokens of system and history together, counted before.
    """
    shown = time.localtime(facts.now) if facts.zone is None else time.gmtime(facts.now + facts.zone)
    memories = _recollections(_OF_NOW, recollections, shares.recollections, count, facts.now)
    clock = f"Current time and date: {time.strftime('%a %b %d %H:%M:%S %Y', shown)}"
    moment = "\n\n".join(filter(None, (shorten(facts.standing, shares.standing, count), facts.files, clock)))
    goals = _trigger(facts, begun=bool(history))
    tail = "\n\n".join(filter(None, (memories, moment, goals)))
    by_line = (count(line) + 1 for line in tail.split("\n"))  # as most lines were counted at an earlier step
    tokens = fixed_tokens + sum(by_line) + 2 * PER_MESSAGE
    core = core_text(facts.core, facts.core_left, shares.core, count, facts.core_at)
    lasting = _recollections(_OF_GOALS, facts.lasting, shares.lasting, count, facts.lasting_at)
    opening = "\n\n".join(filter(None, (core, lasting)))
    around = (opening, memories, moment, goals)
    if opening:
        tokens += sum(count(line) + 1 for line in opening.split("\n")) + 1
        tail = tail if history else f"{opening}\n\n{tail}"
        history = [replace(history[0], content=f"{opening}\n\n{history[0].content}"), *history[1:]] if history else []
    if history and history[-1].role == "user":
        last = replace(history[-1], content=f"{history[-1].content}\n\n{tail}")
        return Prompt((Message("system", system), *history[:-1], last), tokens, around)
    return Prompt((Message("system", system), *history, Message("user", tail)), tokens, around)


def _trigger(facts: StepFacts, *, begun: bool) -> str:
    goals, met, failing = facts.goals, facts.met, facts.failing
    if facts.file:
        asked = "\n".join(f"{goal.text.strip()}{_state(number, met, failing)}" for number, goal in enumerate(goals))
        how = "anew and whole" if begun else "whole"
        return f"{asked}\n\nWrite {facts.file} {how}, in one Markdown code block."
    listed = _numbered([f"{goal.text}{_state(number, met, failing)}" for number, goal in enumerate(goals)])
    if not begun:  # a small model asked what it did will claim to have done it
        asked = f"Use the first command for these goals:\n{listed}"
    elif goals and len(met) == len(goals):
        asked = f"These goals are met, as their checks say:\n{listed}\nUse task_complete."
    else:
        asked = (
            f"The goals:\n{listed}\n"
            f"What of this is still to do? Use the one command that does it; if nothing is, use task_complete."
        )
    return f"{asked}\nAnswer in the response format."


def _state(number: int, met: Collection[int], failing: Mapping[int, str]) -> str:
    """Return the last output of a goal's check, or '' if it has none or was not run."""
    if number in met:
        return " (met)"
    if number not in failing:
        return ""
    said = " ".join(failing[number].split())
    if len(said) > _CHECK_SHOWN:
        said = f"…{said[-_CHECK_SHOWN:]}"
    return f" (its check fails: {said})" if said else " (its check fails)"


def _recollections(heading: str, memories: Sequence[RetrievedMemory], room: int, count: Count, now: float) -> str:
    lines = recollection_lines(memories, room, count, now=now)
    return "\n".join([heading, *lines]) if lines else ""


def core_fitting(memories: Sequence[RetrievedMemory], room: int, count: Count, now: float) -> int:
    """Return how many of the memories fit into the core beside the lines around them."""
    around = count(_OF_USER) + count(_CORE_LEFT.format(len(memories))) + 2
    return len(recollection_lines(memories, room - around, count, now=now))


def core_text(memories: Sequence[RetrievedMemory], left: int, room: int, count: Count, now: float) -> str:
    """Render what the user keeps in every prompt, and how much of it is left out. '' if there is nothing."""
    text = _recollections(_OF_USER, memories, room, count, now)
    return f"{text}\n{_CORE_LEFT.format(left)}" if text and left else text


def recollection_lines(memories: Sequence[RetrievedMemory], room: int, count: Count, *, now: float) -> list[str]:
    """Render the first memories, one per line, as many as fit.
    Each is cut to its fair share, none dropped for length.
    """
    lines: list[str] = []
    share = max(room // 4, _LINE_LEAST)
    for memory in memories:
        line = f"- ({_origin(memory, now)}) {_line(memory, share, count)}"
        cost = count(line) + 1
        if cost > room:
            break
        lines.append(line)
        room -= cost
    return lines


def _origin(memory: RetrievedMemory, now: float) -> str:
    """Describe when a memory was made, by whom and in which run: it may no longer be true."""
    made = ago(memory.made, now) + (", SUPERSEDED by a newer one" if memory.superseded_by is not None else "")
    if memory.of_user:
        return f"{made}, from the user's own memory"
    if memory.kind == "note":
        return f"{made}, {'a note of the user' if memory.source.startswith('user') else 'your note'}"
    return f"{made}, a {memory.kind}" + (f" of run {memory.run}" if memory.run else "")


def _line(memory: RetrievedMemory, share: int, count: Count) -> str:
    """Render a memory in one line of about `share` tokens, with text from outside between marks."""
    if memory.trusted:
        return " ".join(shorten(memory.text, share, count).split("\n"))
    marks = Marks.of(memory.text, memory.source, run=memory.run, step=memory.step, named=_SOURCE_SHOWN)
    room = max(24, share - count(marks.around_line("")))
    return marks.around_line(shorten(defuse(memory.text), room, count))


def _response_format(asking: Asking, style: PromptStyle, listed: Sequence[CommandSpec]) -> str:
    """Describe the response format, and show it where no schema enforces it: a small model copies the words it sees."""
    named = "text, reasoning, plan (as short bullets), criticism (of yourself), speak (one sentence for the user)"
    if asking == "tools":
        thoughts = f" Its argument `thoughts` is a list: {named}." if style.thinks else ""
        return f"Response Format:\nCall exactly one command as a tool.{thoughts}"
    if not style.thinks:
        has_code = style.blocks and any(p.code for spec in listed for p in spec.parameters)
        note = f" {code_block.NOTE}" if has_code else ""
        return f"Response Format:\nOne JSON object with `command`, the one to use next.{note}"
    if asking == "schema":
        return f"Response Format:\nOne JSON object: `thoughts` with {named}; then `command`, the one to use next."
    return f"Response Format:\n{command_schema.TEXT_FORM}"


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
