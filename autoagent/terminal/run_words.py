"""Slash commands at a question: `/cost`, `/goals`. All of them read the events so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from autoagent.core.events import Event, Prompted, Recalled, Returned, RunStarted, Thought
from autoagent.core.memory import memory_name
from autoagent.core.model import Thoughts
from autoagent.terminal import rendering
from autoagent.terminal.rendering import Canvas

if TYPE_CHECKING:
    from autoagent.agent.stats import RunStats

WORDS: Mapping[str, str] = {
    "cost": "what the run has cost so far, and its budget",
    "goals": "the goals, and which of them their checks call met",
    "context": "what the last prompt held, in tokens",
    "memory": "the memories that came to mind for this step",
    "thoughts": "all thoughts of this step",
    "full": "the whole last result, in a pager",
}


class RunWords:
    """Add every event of the run's own agent. `tally` is the fold over the events of all."""

    NOT_KEPT = ("_tally", "_recalled")  # in a checkpoint

    def __init__(self, tally: RunStats) -> None:
        self._tally = tally
        self._system = 0  # tokens
        self._prompted: Prompted | None = None
        self._recalled: Recalled | None = None
        self._core: Recalled | None = None
        self._thoughts: Thoughts | None = None
        self.result = ""  # the text of the last one

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case RunStarted():
                self._system = event.system_tokens
            case Prompted():
                self._prompted = event
            case Recalled(core=True):
                self._core = event
            case Recalled():
                self._recalled = event
            case Thought():
                self._thoughts = event.thoughts
            case Returned():
                self.result = event.text

    def lines(self, word: str, page: Canvas) -> Iterator[str]:
        """Yield the lines that answer one of the WORDS but `full`."""
        answers: Mapping[str, Callable[[Canvas], Iterator[str]]] = {
            "cost": lambda page: rendering.costs(self._tally, page),
            "goals": lambda page: rendering.goals(self._tally, page),
            "thoughts": lambda page: rendering.all_of(self._thoughts, page) if self._thoughts else iter(()),
            "context": self._context,
            "memory": self._memories,
        }
        yield from answers[word](page)

    def _context(self, page: Canvas) -> Iterator[str]:
        if self._prompted is None:
            yield page.said("Prompt:", "none was sent yet", "label")
            return
        tokens, window = self._prompted.tokens, self._tally.window
        memories = len(self._recalled.memories) if self._recalled else 0
        yield page.said("Prompt:", f"{tokens:,} of {window:,} tokens, {tokens / max(1, window):.0%}", "label")
        yield page.said("  goals, rules and commands:", f"{self._system:,}", "label")
        rest = f"{tokens - self._system:,}, in {rendering.counted(self._prompted.messages - 1, 'message')}"
        yield page.said("  steps, memories and limits:", rest, "label")
        yield page.said("Memories:", f"{memories} came to mind, and as many are shown as fit", "label")
        if self._prompted.left:
            yield page.said("Limits:", self._prompted.left, "label")

    def _memories(self, page: Canvas) -> Iterator[str]:
        core = self._core.memories if self._core else ()
        memories = (*core, *(self._recalled.memories if self._recalled else ()))
        for memory in memories:
            yield page.said(f"{memory_name(memory.id)}:", memory.text)
        if self._core and self._core.left_out:
            yield f"{len(self._core.left_out)} that you want kept in mind found no room; /memory core lists them."
        if not memories:
            yield "No memory came to mind for this step."
