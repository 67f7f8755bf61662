"""An extension of autoagent that adds one of everything. Take what you need."""

from __future__ import annotations

import json
import math
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from autoagent.core.events import Returned
from autoagent.core.model import Usage
from autoagent.extension import (
    Backend,
    Call,
    CommandOutput,
    Completion,
    Context,
    Effects,
    Embedder,
    EmbedderKind,
    EmbedderOpening,
    Event,
    Host,
    MemoryStore,
    Message,
    Model,
    ModelOpening,
    Proposal,
    Provider,
    Result,
    ResultMeta,
    RetrievedMemory,
    SandboxKind,
    StoreOpening,
    Verdict,
    command,
)

# A command ------------------------------------------------------------------------------------------------------


@command("count_words", "Count the words of a text", risk="read", effects=Effects())
def count_words(context: Context, text: Annotated[str, "the text", "text"]) -> CommandOutput:
    words = len(text.split())
    return CommandOutput(f"{words} words.", ResultMeta(details={"words": words}))


# A model: `--model parrot`, or `parrot:TEXT` -----------------------------------------------------------------------


def open_parrot(opening: ModelOpening) -> Model:
    from autoagent.models.replay import ReplayModel

    calls: list[tuple[str, dict[str, Any]]] = [
        ("count_words", {"text": opening.argument or "polly"}),
        ("task_complete", {"reason": "Counted."}),
    ]
    model = ReplayModel([json.dumps({"command": {"name": name, "args": args}}) for name, args in calls], name="parrot")
    model.skip(opening.answered)
    return model


# A memory: `-m shelf` ----------------------------------------------------------------------------------------------


def open_shelf(opening: StoreOpening) -> MemoryStore:
    from autoagent.memory.sqlite.store import LocalStore

    return LocalStore(Path.home() / ".shelf", opening.embedder, opening.listen)


# An embedder: `EMBEDDING_MODEL=letters` ----------------------------------------------------------------------------


class Letters:
    """Texts are alike that have the same letters."""

    name = "letters"
    dim = 26

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        return [self._vector(text) for text in texts], Usage()

    def _vector(self, text: str) -> bytes:
        found = Counter(text.lower())
        values = [float(found[chr(ord("a") + place)]) for place in range(self.dim)]
        length = math.sqrt(sum(value * value for value in values)) or 1.0
        return struct.pack(f"<{self.dim}f", *(value / length for value in values))


def open_letters(opening: EmbedderOpening) -> Embedder:
    return Letters()


# A kind of sandbox: `--sandbox bare`. It says itself what it does not hold. -----------------------------------------


def open_bare(workspace: Any, limits: Any, python: str) -> Any:
    from autoagent.sandbox.supervised import Unconfined

    return Unconfined(workspace, limits, python)


# Who decides, who listens, what is shown ---------------------------------------------------------------------------


def keep_files(proposal: Proposal) -> Verdict | None:
    """Refuse to delete. None leaves all else to the user."""
    if proposal.risk == "irreversible":
        return Verdict(False, "example", "The example extension lets nothing irreversible happen.")
    return None


HEARD: Counter[str] = Counter()


def hear(event: Event) -> None:
    HEARD[event.type] += 1


def show_count(event: Returned) -> str | None:
    words = event.meta.details.get("words")
    return None if words is None else f"COUNTED: {words} words"


# Hooks around the parts of a step ------------------------------------------------------------------------------------


def note_seconds(messages: Sequence[Message], ask: Callable[[], Completion]) -> Completion:
    began = time.monotonic()
    completion = ask()
    HEARD["thinking, in milliseconds"] += round((time.monotonic() - began) * 1000)
    return completion


def no_forbidden_words(proposal: Proposal, decide: Callable[[], Verdict]) -> Verdict:
    if "forbidden" in str(proposal.call):
        return Verdict(False, "example", "It holds a forbidden word.")
    return decide()


def say_when_it_failed(call: Call, run: Callable[[], Result]) -> Result:
    result = run()
    HEARD["failed"] += not result.ok
    return result


def forget_numbers(text: str, keep: Callable[[str], int | None]) -> int | None:
    return keep("".join("#" if letter.isdigit() else letter for letter in text))


def same_length(query: str, listed: Callable[[], Sequence[RetrievedMemory]]) -> dict[int, float]:
    return {memory.id: 0.5 for memory in listed() if len(memory.text) == len(query)}


def no_drafts(query: str, candidates: Sequence[RetrievedMemory]) -> dict[int, float]:
    return {memory.id: 0.0 for memory in candidates if "draft" in memory.text}


def shortest_first(query: str, fitting: Sequence[RetrievedMemory]) -> list[int]:
    return [memory.id for memory in sorted(fitting, key=lambda memory: len(memory.text))]


def count_forgotten(ids: Sequence[int]) -> None:
    HEARD["forgotten"] += len(ids)


def count_sleep(ids: Sequence[int], dream: str) -> None:
    HEARD["slept"] += 1


def register(host: Host) -> None:
    host.command(count_words)
    host.model(
        Provider(
            name="parrot",
            summary="counts the words of a text, and stops",
            open=open_parrot,
            forms=("parrot", "parrot:TEXT"),
            recorded=True,
            proposes=False,
        )
    )
    host.memory(Backend(name="shelf", summary="one SQLite memory for all folders", open=open_shelf))
    host.embedder(EmbedderKind(name="letters", summary="by their letters", open=open_letters, shared=True))
    host.sandbox(SandboxKind(name="bare", summary="limits alone", open=open_bare, confines=False))
    host.authorizer(keep_files)
    host.listener(hear)
    host.renderer(Returned, show_count)
    host.around_think(note_seconds)
    host.around_authorize(no_forbidden_words)
    host.around_execute(say_when_it_failed)
    host.around_store(forget_numbers)
    host.retriever(same_length)
    host.gate(no_drafts)
    host.reranker(shortest_first)
    host.after_forget(count_forgotten)
    host.after_sleep(count_sleep)
