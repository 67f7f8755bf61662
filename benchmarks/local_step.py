"""A step of the embedded model: autoagent's way of asking beside the raw runtime on the very same prompts.

    python benchmarks/local_step.py [--steps 6] [--json FILE]

The prompts are those of a short run that reads notes, each longer than the one before it, as a run's are. The raw
runtime has the file, the window and the grammar alike, all cores and its own batches; autoagent chooses threads and
batches itself (models/local/llama.py). Both keep their prompts from call to call, answer at temperature 0, and take
turns, a step each. Run it alone: what else works on the machine is measured, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoagent.commands.selection import all_commands
from autoagent.core.model import Completion, Message
from autoagent.models.local import weights
from autoagent.models.local.llama import LocalModel

WINDOW = 8192
OFFERED = ("read_file", "write_to_file", "list_files", "task_complete")


def prompts(steps: int) -> list[list[Message]]:
    """The messages of so many steps of a run."""
    system = "You are Reader, a reader. Use one command a step.\n" + "\n".join(
        f"{command.spec.signature()}: {command.spec.label}" for command in all_commands()
    )
    messages = [Message("system", system[:6000]), Message("user", "Goal: read the notes, one after the other.")]
    found = []
    for step in range(1, steps + 1):
        found.append([*messages])
        call = json.dumps({"command": {"name": "read_file", "args": {"filename": f"notes/{step}.txt"}}})
        told = f"read_file returned: Note {step} says that the ferry number {step} leaves at {step}:00. Go on."
        messages += [Message("assistant", call), Message("user", told)]
    return found


class Raw(LocalModel):
    """The runtime as it is by itself: all cores for everything, and the batches it comes with."""

    def _load(self) -> Any:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx, params.n_parallel, params.warmup, params.verbosity = self.window, 1, False, -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = os.cpu_count() or 1
        return xllamacpp.Server(params)


def ask(model: LocalModel, messages: Sequence[Message]) -> tuple[float, Completion]:
    specs = [command.spec.brief() for command in all_commands() if command.spec.name in OFFERED]
    begin = time.perf_counter()
    answer = model.complete(messages, commands=specs, max_tokens=120)
    return time.perf_counter() - begin, answer


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=6, metavar="N", help="default 6; the first reads all anew")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there, for report.py")
    options = parser.parse_args()
    path = weights.path()
    models = {"autoagent": LocalModel(path, window=WINDOW), "the runtime alone": Raw(path, window=WINDOW)}
    for model in models.values():
        model.preload()
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for number, messages in enumerate(prompts(options.steps)):
        for name in models if number % 2 else reversed(models):
            took, answer = ask(models[name], messages)
            seconds[name].append(took)
            usage = answer.usage
            print(f"{name:18} step {number + 1}: {took:6.2f} s, {usage.prompt} tokens, {usage.cached} kept", flush=True)
    rows = {
        name: {"first": taken[0], "later": statistics.median(taken[1:] or taken)} for name, taken in seconds.items()
    }
    for name, row in rows.items():
        print(f"{name:18} first step {row['first']:6.2f} s, a later one {row['later']:6.2f} s")
    if options.json:
        options.json.write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
