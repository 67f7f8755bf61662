"""Show the parts of a prompt, rebuilt from the log as the program built it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from autoagent.core.events import Event, Prompted
from autoagent.core.memory import memory_name
from autoagent.core.model import Message
from autoagent.session.prompt_replay import BuiltPrompt, prompt_of_step, prompts
from autoagent.text.sanitize import escape
from autoagent.web.report import Text

PARTS = ("system", "memories", "summary", "history", "result", "moment", "goals")  # in the order of a prompt


def part_sizes(built: BuiltPrompt) -> dict[str, Any]:
    """Return the token counts kept during a run, by part. `rest` is memories, moment and goals."""
    history, system = built.sources.history, built.sources.start.system_tokens
    summary, earlier, newest, summed, counted = history.outline
    rest = max(0, built.prompted.tokens - system - summary - earlier - newest)
    shown = min((step for _, step in history.steps), default=0)
    tokens = {"system": system, "summary": summary, "history": earlier, "result": newest, "rest": rest}
    return {**tokens, "shown": shown, "summed": summed, "counted": counted}


def whole_prompt(built: BuiltPrompt) -> dict[str, Any]:
    """Return all parts of a prompt as texts with their tokens, and the parts left out of it.

    `same` tells whether the rebuilt prompt has the sha256 of the sent prompt.
    """
    prompt, history = built.prompt(), built.sources.history.messages
    lasting, memories, moment, goals = prompt.other_texts
    newest = max((n for n, message in enumerate(history) if message.role == "assistant"), default=len(history))
    texts = {
        "system": [Text(prompt.messages[0].content, shared=True)],
        "memories": [Text(text, shared=True) for text in (lasting, memories) if text],
        "summary": [_message_text(message) for message in history[:1]],
        "history": [_message_text(message) for message in history[1:newest]],
        "result": [_message_text(message) for message in history[newest:]],
        "moment": [Text(moment, shared=True)],
        "goals": [Text(goals, shared=True)],
    }
    tokens, count = part_sizes(built), built.sources.count
    for part in ("memories", "goals"):
        lines = [line for text in texts[part] for line in text.text.split("\n")]
        tokens[part] = sum(count(line) + 1 for line in lines)
    tokens["moment"] = max(0, tokens.pop("rest") - tokens["memories"] - tokens["goals"])
    left_out = [[memory_name(m.id), round(m.evidence, 2), escape(m.reason)] for m in built.left_out]
    shown = [memory_name(memory.id) for memory in built.shown]
    is_same = prompt.sha256 == built.prompted.sha256
    return {**tokens, "texts": texts, "in": shown, "gate": built.gate, "others": left_out, "same": is_same}


def _message_text(message: Message) -> Text:
    """Return a message as text, beginning with its sender."""
    calls = [f"{call.name}({call.arguments})" for call in message.calls]
    return Text("\n".join([message.role, *filter(None, (message.content, *calls))]), shared=True)


def parts_of_prompts(events: Iterable[Event], max_whole: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the log position and the parts of each prompt: whole for the newest `max_whole`, else only their sizes."""
    event_list = list(events)
    first_whole = sum(isinstance(event, Prompted) for event in event_list) - max_whole
    for number, built in enumerate(prompts(event_list)):
        yield built.prompted.seq, whole_prompt(built) if number >= first_whole else part_sizes(built)


def prompt_text(state_dir: Path, run: str, step: int) -> str:
    """Return the newest prompt of a step of the run's own agent as text. Raises StateError as `trace`."""
    prompt = prompt_of_step(state_dir, run, step).prompt()
    return escape("\n\n".join(f"--- {_message_text(message).text}" for message in prompt.messages)) + "\n"
