"""Build prompts from the task, the commands, the history and the retrieved memories.

The order suits a provider's prefix cache: the system message never changes in a run, the history only grows, and one
last message holds everything new at each step: memories, clock, remaining budget, instruction.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from autoagent.core import command_schema
from autoagent.core.commands import CommandSpec, command_list
from autoagent.core.frozen import dataclass
from autoagent.core.memory import RetrievedMemory, memory_name
from autoagent.core.model import Asking, Message, PromptStyle, Shares, cached_by_message
from autoagent.core.services import Skill
from autoagent.core.task import Goal, Task
from autoagent.text import code_block
from autoagent.text.figures import ago
from autoagent.text.quoting import EXPLANATION, Marks, defuse
from autoagent.text.tokens import TOKENS_PER_MESSAGE, Count, shorten

_GOALS_HEADING = "Memories that may matter for the goals (things may have changed since):"
_USER_HEADING = "What the user said before and wants kept in mind, the most important first:"
_CORE_OMITTED = "({} more are left out for room; `recall` finds them)"
_STEP_HEADING = "Memories that may matter now:"
_MIN_LINE_TOKENS = 48  # per memory, even in a small window
_MAX_SOURCE_CHARACTERS = 40  # of the source of an untrusted memory
_INSTRUCTIONS = "Instructions of the user for this folder:"
_SKILLS = "Skills (load one before you do what it is for):"
_MAX_OUTPUT_CHARACTERS = 160  # at the end of a failing check's output


@dataclass(frozen=True, slots=True)
class Guidance:
    """The user's part of the system prompt: the lists of PROMPT_SETTINGS_FILE, AGENTS.md, and skills."""

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
    skills: tuple[Skill, ...] = ()  # loadable


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages to send, within the token limit that they were built for."""

    messages: tuple[Message, ...]
    tokens: int
    other_texts: tuple[str, str, str, str]  # besides the history: lasting memories, current memories, facts, goals

    @property
    def sha256(self) -> str:
        return hashlib.sha256(serialize(self.messages).encode("utf-8", "surrogatepass")).hexdigest()


def serialize(messages: Sequence[Message]) -> str:
    """Join the messages into the text used for digests and prefixes."""
    return "".join(map(_cached_json, messages))


@cached_by_message
def _cached_json(message: Message) -> str:
    tool_parts = [[call.id, call.name, call.arguments] for call in message.calls] or message.answers
    return _encode([message.role, message.content, *([tool_parts] if tool_parts else [])]) + "\n"


_encode = json.JSONEncoder(ensure_ascii=False).encode  # faster than json.dumps


def system_prompt(
    task: Task, commands: Sequence[CommandSpec], asking: Asking, style: PromptStyle, guidance: Guidance | None = None
) -> str:
    """Build the system message of a run, which stays the same in every step.

    The part common to all runs comes first, so that runs share a provider's cached prefix.
    """
    guidance = guidance or Guidance()
    if style.writes_file:
        return _file_prompt(task, guidance)
    specs = commands if style.thinks else [spec.brief() for spec in commands]
    skills = _numbered([f"{skill.name}: {' '.join(skill.description.split())}" for skill in guidance.skills])
    parts = (
        "You are an autonomous agent. Make every decision yourself, without waiting for the user's help. "
        "Do what a language model does well, prefer simple plans, and stay within the law.\n" + EXPLANATION,
        "Constraints:\n" + _numbered(guidance.constraints),
        "" if asking == "tools" else command_list(specs),  # with native tools, the tool schemas describe them
        "Resources:\n" + _numbered(guidance.resources),
        "Performance Evaluation:\n" + _numbered(guidance.best_practices),
        _response_format(asking, style, specs),
        f"{_SKILLS}\n{skills}" if skills else "",
        f"{_INSTRUCTIONS}\n{guidance.instructions}" if guidance.instructions else "",
        f"You are {task.name}, {task.role}",
        "GOALS:\n" + _numbered([f"{g.text} (checked with: `{g.check}`)" if g.check else g.text for g in task.goals]),
    )
    return "\n\n".join(filter(None, parts))


def _file_prompt(task: Task, guidance: Guidance) -> str:
    """Build the short system message of an agent that writes one file without commands."""
    checks = [f"It is then checked with: `{goal.check}`" for goal in task.goals if goal.check]
    rule = f"The whole text of {task.file}, in one Markdown code block, and nothing else: it is written to that file."
    parts = (
        f"You are {task.name}, {task.role}\n{EXPLANATION}",
        f"{_INSTRUCTIONS}\n{guidance.instructions}" if guidance.instructions else "",
        "\n".join(["Response Format:", rule, *checks]),
    )
    return "\n\n".join(filter(None, parts))


def is_usual(system: str) -> bool:
    """Return whether a system message has the default guidance, and nothing from the user but the task."""
    default = Guidance()
    lists = (
        f"Constraints:\n{_numbered(default.constraints)}",
        f"Resources:\n{_numbered(default.resources)}",
        f"Performance Evaluation:\n{_numbered(default.best_practices)}",
    )
    has_user_part = any(heading in system for heading in (_INSTRUCTIONS, _SKILLS))
    return not has_user_part and all(f"\n\n{text}\n\n" in system for text in lists)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """The facts of the moment, which follow the history in the prompt, and those of the run, which precede it.

    Attributes:
        goals: shown last, where a small model still attends to them.
        reminders: past commands, failures, feedback and remaining limits, cut to their share.
        files: the line that lists the workspace.
        met: goals, from 0, whose checks pass.
        failing: goals whose checks fail, with the check output; its end is shown.
        core: memories in every prompt, of which `core_left` did not fit; read at `core_at`. They precede `lasting`.
        lasting: memories retrieved for the goals. They open the first message, so that the text before the history
            stays the same.
        lasting_at: seconds since the epoch when these were retrieved; ages count to then.
        now: seconds since the epoch, shown as the time `zone` seconds ahead of UTC, or as local time if None.
        file: the one file to write, or ''.
    """

    goals: Sequence[Goal]
    reminders: str = ""
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
    """Assemble the prompt of one step.

    Args:
        history: messages from the user's first to the newest result, or none.
        recollections: the best first; as many are used as fit their share.
        fixed_tokens: tokens of the system message and the history.
    """
    local_time = time.localtime(facts.now) if facts.zone is None else time.gmtime(facts.now + facts.zone)
    memories = _recollections(_STEP_HEADING, recollections, shares.step_memories, count, facts.now)
    clock = f"Current time and date: {time.strftime('%a %b %d %H:%M:%S %Y', local_time)}"
    moment = "\n\n".join(filter(None, (shorten(facts.reminders, shares.reminders, count), facts.files, clock)))
    goals = _closing_instruction(facts, is_begun=bool(history))
    tail = "\n\n".join(filter(None, (memories, moment, goals)))
    line_tokens = (count(line) + 1 for line in tail.split("\n"))  # cached: most lines were counted in an earlier step
    tokens = fixed_tokens + sum(line_tokens) + 2 * TOKENS_PER_MESSAGE
    core = _recollections(_USER_HEADING, facts.core, shares.core, count, facts.core_at)
    core += f"\n{_CORE_OMITTED.format(facts.core_left)}" if core and facts.core_left else ""
    lasting = _recollections(_GOALS_HEADING, facts.lasting, shares.goal_memories, count, facts.lasting_at)
    opening = "\n\n".join(filter(None, (core, lasting)))
    other_texts = (opening, memories, moment, goals)
    if opening:
        tokens += sum(count(line) + 1 for line in opening.split("\n")) + 1
        tail = tail if history else f"{opening}\n\n{tail}"
        history = [replace(history[0], content=f"{opening}\n\n{history[0].content}"), *history[1:]] if history else []
    if history and history[-1].role == "user":
        last = replace(history[-1], content=f"{history[-1].content}\n\n{tail}")
        return Prompt((Message("system", system), *history[:-1], last), tokens, other_texts)
    return Prompt((Message("system", system), *history, Message("user", tail)), tokens, other_texts)


def _closing_instruction(facts: StepFacts, *, is_begun: bool) -> str:
    goals, met, failing = facts.goals, facts.met, facts.failing
    if facts.file:
        text = "\n".join(f"{goal.text.strip()}{_result_of(number, met, failing)}" for number, goal in enumerate(goals))
        manner = "anew and whole" if is_begun else "whole"
        return f"{text}\n\nWrite {facts.file} {manner}, in one Markdown code block."
    numbered = _numbered([f"{goal.text}{_result_of(number, met, failing)}" for number, goal in enumerate(goals)])
    if not is_begun:  # a small model that is asked what it did will claim to have done it
        request = f"Use the first command for these goals:\n{numbered}"
    elif goals and len(met) == len(goals):
        request = f"These goals are met, as their checks say:\n{numbered}\nUse task_complete."
    else:
        request = (
            f"The goals:\n{numbered}\n"
            f"What of this is still to do? Use the one command that does it; if nothing is, use task_complete."
        )
    return f"{request}\nAnswer in the response format."


def _result_of(number: int, met: Collection[int], failing: Mapping[int, str]) -> str:
    """Return ' (met)', the end of a failing check's output in brackets, or '' if the goal has no result."""
    if number in met:
        return " (met)"
    if number not in failing:
        return ""
    output = " ".join(failing[number].split())
    if len(output) > _MAX_OUTPUT_CHARACTERS:
        output = f"…{output[-_MAX_OUTPUT_CHARACTERS:]}"
    return f" (its check fails: {output})" if output else " (its check fails)"


def _recollections(heading: str, memories: Sequence[RetrievedMemory], room: int, count: Count, now: float) -> str:
    lines = recollection_lines(memories, room, count, now=now)
    return "\n".join([heading, *lines]) if lines else ""


def core_fitting(memories: Sequence[RetrievedMemory], room: int, count: Count, now: float) -> int:
    """Return how many memories fit into the core, headings included."""
    heading_tokens = count(_USER_HEADING) + count(_CORE_OMITTED.format(len(memories))) + 2
    return len(recollection_lines(memories, room - heading_tokens, count, now=now))


def recollection_lines(memories: Sequence[RetrievedMemory], room: int, count: Count, *, now: float) -> list[str]:
    """Render the first memories, one per line, as many as fit, each cut to its fair share."""
    lines: list[str] = []
    share = max(room // 4, _MIN_LINE_TOKENS)
    for memory in memories:
        line = f"- ({_origin(memory, now)}) {_memory_line(memory, share, count)}"
        cost = count(line) + 1
        if cost > room:
            break
        lines.append(line)
        room -= cost
    return lines


def _origin(memory: RetrievedMemory, now: float) -> str:
    """Describe when, by whom and in which run a memory was made, since it may be outdated."""
    age, newer = ago(memory.made, now), memory.superseded_by
    age += "" if newer is None else f", SUPERSEDED by memory {memory_name(newer)}"
    if memory.of_user:
        return f"{age}, from the user's own memory"
    if memory.kind == "note":
        return f"{age}, {'a note of the user' if memory.source.startswith('user') else 'your note'}"
    return f"{age}, a {memory.kind}" + (f" of run {memory.run}" if memory.run else "")


def _memory_line(memory: RetrievedMemory, share: int, count: Count) -> str:
    """Render a memory in one line of about `share` tokens, with outside text between marks."""
    if memory.trusted:
        return " ".join(shorten(memory.text, share, count).split("\n"))
    marks = Marks.of(memory.text, memory.source, run=memory.run, step=memory.step, source_limit=_MAX_SOURCE_CHARACTERS)
    room = max(24, share - count(marks.quote_line("")))
    return marks.quote_line(shorten(defuse(memory.text), room, count))


def _response_format(asking: Asking, style: PromptStyle, specs: Sequence[CommandSpec]) -> str:
    """Describe the response format, with an example where no schema enforces it. A small model copies the example."""
    fields = "text, reasoning, plan (as short bullets), criticism (of yourself), speak (one sentence for the user)"
    if asking == "tools":
        thoughts = f" Its argument `thoughts` is a list: {fields}." if style.thinks else ""
        return f"Response Format:\nCall exactly one command as a tool.{thoughts}"
    if not style.thinks:
        shows_code = style.blocks and any(p.code for spec in specs for p in spec.parameters)
        note = f" {code_block.NOTE}" if shows_code else ""
        return f"Response Format:\nOne JSON object with `command`, the one to use next.{note}"
    if asking == "schema":
        return f"Response Format:\nOne JSON object: `thoughts` with {fields}; then `command`, the one to use next."
    return f"Response Format:\n{command_schema.TEXT_FORM}"


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
