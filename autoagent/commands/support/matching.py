"""Search texts with a regular expression in a separate process.

Some expressions would take longer than the age of the universe on a line of forty characters, and only a process can be
stopped. The package `regex` has a time limit for searches, but compiling `(?:(?:(?:a{500}){500}){500}){500}` with it
takes all memory, before any time counts. The process is started by path, so that it imports nothing of the program. It
reads one JSON object from standard input and answers with one on standard output.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

_MAX_LINE_CHARACTERS = 200
_CPU_SECONDS = 15  # more than `seconds` of any search
_MEMORY_BYTES = 1_000_000_000


def search(pattern: str, texts: Mapping[str, str], *, limit: int, seconds: float) -> list[tuple[str, int, str]]:
    """Return the first `limit` matching lines: (name of the text, line number from 1, line).

    Raises:
        ValueError: the pattern is not a regular expression.
        TimeoutError: the search took longer than `seconds`.
    """
    question = json.dumps({"pattern": pattern, "texts": dict(texts), "limit": limit})
    try:
        process = subprocess.run(  # noqa: S603 - this interpreter on this file; what the model wrote is on standard input
            [sys.executable, "-I", "-W", "ignore", __file__],
            input=question.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            env={},
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    except subprocess.CalledProcessError as error:
        raise ValueError(f"the search ended with status {error.returncode}") from error
    answer = json.loads(process.stdout)
    if "problem" in answer:
        raise ValueError(answer["problem"])
    return [(name, number, line) for name, number, line in answer["matches"]]


def _matches(pattern: str, texts: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    compiled = re.compile(pattern)
    for name, text in texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            if match := compiled.search(line.removesuffix("\r")):
                yield name, number, _excerpt(line.removesuffix("\r"), match.start())


def _excerpt(line: str, position: int) -> str:
    if len(line) <= _MAX_LINE_CHARACTERS:
        return line
    start = max(0, position - _MAX_LINE_CHARACTERS // 4)
    end = start + _MAX_LINE_CHARACTERS
    return ("..." if start else "") + line[start:end] + ("..." if end < len(line) else "")


def _set_limit(resource_id: int, maximum: int) -> None:
    hard_limit = resource.getrlimit(resource_id)[1]  # may be lower, and cannot be raised
    limit = maximum if hard_limit == resource.RLIM_INFINITY else min(maximum, hard_limit)
    resource.setrlimit(resource_id, (limit, hard_limit))


def _main() -> None:
    _set_limit(resource.RLIMIT_CPU, _CPU_SECONDS)  # also holds after the death of the agent
    _set_limit(resource.RLIMIT_AS, _MEMORY_BYTES)
    question = json.load(sys.stdin.buffer)
    answer: dict[str, Any]
    try:
        answer = {"matches": list(islice(_matches(question["pattern"], question["texts"]), question["limit"]))}
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        answer = {"problem": str(error) or "it takes too much memory"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _main()
