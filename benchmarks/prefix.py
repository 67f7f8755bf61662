"""How much of each prompt a provider's prefix cache can reuse: autoagent beside AutoGPT's order of messages.

    python benchmarks/prefix.py [--steps 200]

For every step of a scripted run, the share of the prompt's tokens that are a byte-identical prefix of the prompt
before. AutoGPT puts the clock in the second message, so almost nothing after its system prompt can be reused; the
second figure is the same run with its order (system, clock, recollections, history).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence

from autoagent.agent.history import History
from autoagent.commands.selection import all_commands
from autoagent.core.commands import Call
from autoagent.core.events import Event, Feedback, Returned, RunStarted, Thought
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import FULL, Message, Thoughts, Usage, reply_tokens
from autoagent.core.task import Goal, Task
from autoagent.prompt import StepFacts, build, serialize, system_prompt
from autoagent.text.tokens import Count, counter

SENTENCE = (
    "the report of every garden in our city shows that older trees need water in June while young ones grow well "
    "when paths stay dry and nobody parks on their roots; see table four for figures by district and year"
)
TASK = Task(
    "Archivist",
    "an assistant that reads reports and writes summaries",
    tuple(Goal(f"Summarise part {n} of the report into part-{n}.md.") for n in range(1, 6)),
)


def text(rng: random.Random, tokens: int) -> str:
    return " ".join(rng.choice(SENTENCE.split()) for _ in range(int(tokens * 0.9)))


def events(steps: int, rng: random.Random) -> Iterator[Event]:
    """Steps as runs have them: about 140 tokens of reply and 20 to 600 of result."""
    for step in range(1, steps + 1):
        call = Call(str(step), "read_file", {"filename": f"report/{step}.txt"})
        thoughts = Thoughts(text(rng, 40), text(rng, 30), "- read on\n- write", text(rng, 12), text(rng, 10))
        yield Thought(run="r", step=step, thoughts=thoughts, call=call, text="", usage=Usage())
        if step % 50 == 0:
            yield Feedback(run="r", step=step, text=text(rng, 20))
        yield Returned(run="r", step=step, call_id=str(step), ok=step % 9 != 0, text=text(rng, rng.randrange(20, 600)))


def shared(before: str, now: str) -> str:
    """The longest common beginning of two prompts."""
    differs = (n for n, (a, b) in enumerate(zip(before, now, strict=False)) if a != b)
    return now[: next(differs, min(len(before), len(now)))]


def autogpt_order(prompt: Sequence[Message], clock: str, tail: str) -> list[Message]:
    """The same content as AutoGPT sends it: system, clock, recollections, then the history."""
    system, *history = prompt
    last = history[-1].content.removesuffix(tail).rstrip()
    rest = [*history[:-1], Message("user", last)] if last else history[:-1]
    return [system, Message("system", clock), Message("system", tail), *rest]


def measure(window: int, steps: int, count: Count) -> tuple[float, float, int]:
    """Share of reusable tokens (ours, AutoGPT's order) and the largest prompt, over a run of so many steps."""
    rng = random.Random(1)
    specs = [command.spec for command in all_commands()]
    system = system_prompt(TASK, specs, "text", FULL)
    history = History(count)
    history.add(
        RunStarted(
            run="r", version="", task=TASK, model="m", window=window, reply_tokens=reply_tokens(window),
            system=system, system_tokens=count(system) + 4, asking="text",
            commands=tuple(spec.name for spec in specs), workspace="w",
        )
    )  # fmt: skip
    sent = reused = reused_autogpt = largest = 0
    before = before_autogpt = ""
    for event in events(steps, rng):
        history.add(event)
        if not isinstance(event, Returned):
            continue
        now = 1_700_000_000.0 + 7 * event.step
        memories = [RetrievedMemory(n, text(rng, 90), 0.5) for n in range(10)]
        prompt = build(
            system,
            history.messages,
            memories,
            StepFacts(goals=TASK.goals, reminders=history.reminders, now=now),
            shares=history.shares,
            count=count,
            fixed_tokens=history.fixed_tokens,
        )
        whole = serialize(prompt.messages)
        last = prompt.messages[-1].content
        tail = last[last.index("Memories that may matter now:") :]
        other = serialize(autogpt_order(prompt.messages, f"The current time is {now}.", tail))
        if before:
            sent += count(whole)
            reused += count(shared(before, whole))
            reused_autogpt += count(shared(before_autogpt, other))
        before, before_autogpt = whole, other
        largest = max(largest, prompt.tokens)
    return reused / sent, reused_autogpt / sent, largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    count = counter("gpt-4")
    print(f"{'window':>8} {'reusable':>9} {'AutoGPT order':>14} {'largest prompt':>15}")
    for window, wanted in ((32_768, 0.90), (8_192, 0.75)):
        ours, theirs, largest = measure(window, steps, count)
        print(f"{window:8} {ours:9.1%} {theirs:14.1%} {largest:15}   (wanted: {wanted:.0%})")


if __name__ == "__main__":
    main()
