"""Whether what one run has learnt reaches the next, with thousands of steps of other runs in between.

    python benchmarks/two_runs.py [--between 0,200,2000,20000] [--embedder embedded] [--window 32000]

Two runs of the program as a user starts it, on a scripted model. The first comes upon six facts: in the middle of a
file, in its own notes, in a log, in a list of servers. The second has goals that need them, and takes five steps. In
between the memory gets the steps of other runs, which read, write, test and deploy other things in much the same words.
Of each prompt of the second run it is shown how many of the six facts are in it, and how many tokens of recollections
that hold none of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoagent.core.errors import ForUser
from autoagent.memory.sqlite.store import LocalStore
from autoagent.registry.embedders import EMBEDDERS, EmbedderOpening
from autoagent.scenarios.scripted_endpoint import ScriptedEndpoint
from autoagent.settings import Settings
from autoagent.text.tokens import counter

STEPS = 5  # of the second run
BATCH = 500  # steps put into the memory together
RUN = 20  # steps of one run, put in one transaction
PATIENCE = 300.0  # seconds for one run
HEADING = "Memories that may matter"

FACTS = ("X-Meridian-Tenant: acme-7", "port 5433", "half up", "C.UTF-8", "out/weekly.md", "omega.example")
"""What of each fact has to be in a prompt."""

API = (
    "# The API of Meridian\n\nMeridian keeps what is sold through its shops. It answers in JSON, in UTF-8, with dates "
    "after ISO 8601 in UTC. All addresses begin with https://api.meridian.example/v3. Lists come in pages of 100; the "
    "next page is named in the field `next`. A page is never longer than 2 MB.\n\n"
    "## Limits\n\nSixty requests a minute are answered; above that comes 429 with the seconds to wait. Do not open "
    "more than four connections at once. Requests that take longer than thirty seconds are cut off. Large downloads "
    "are to be done at night, when there is room. Whoever needs more writes to the support, which answers within two "
    "days, at times sooner. There is a test system with the same data of last month, which is set back each Sunday.\n\n"
    "## Who asks\n\nEach request to the API names the tenant in a header, X-Meridian-Tenant: acme-7, beside the usual "
    "token.\nWithout it the answer is 404, as if there were no orders.\n\n"
    "## Changes\n\nVersion 2 ends in the spring. The field `sum` is called `total` now.\n"
)
LOG = (
    "02:00 export begins\n02:01 reading customers\n02:03 error E1187: the nightly export stops at names with accents\n"
    "02:03 remedy: run the nightly export with LC_ALL=C.UTF-8\n02:04 export ends\n"
)
SERVERS = "files.example holds the archive\nomega.example is the build server; alpha was switched off in May\n"

FIRST = (
    ("read_file", {"filename": "docs/meridian.md"}),
    ("memory_add", {"text": "The staging database of the orders service listens on port 5433, not on 5432."}),
    ("memory_add", {"text": "The accountant wants the totals of invoices rounded half up, to whole cents."}),
    ("read_file", {"filename": "logs/export.log"}),
    ("memory_add", {"text": "The weekly report of the orders goes to out/weekly.md, in British English."}),
    ("read_file", {"filename": "servers.txt"}),
)
GOALS = (
    "Write fetch_orders.py, which fetches the orders of last week from the API of Meridian",
    "Let it keep them in the staging database of the orders service",
    "Sum up the invoices, with totals rounded as the accountant wants them",
    "Make the nightly export run again",
    "Write the weekly report of the orders, and publish it on the build server",
)
SECOND = (
    ("list_files", {"directory": "."}),
    ("write_to_file", {"filename": "fetch_orders.py", "text": "import json\n\n\ndef pages(first):\n    yield first\n"}),
    ("read_file", {"filename": "fetch_orders.py"}),
    ("write_to_file", {"filename": "sums.py", "text": "def total(prices):\n    return sum(prices)\n"}),
    ("list_files", {"directory": "docs"}),
)

THINGS = (
    "billing", "inventory", "weather", "payments", "newsletter", "search", "login", "frontend", "cache", "parser",
    "mailer", "scheduler", "catalogue", "customers", "metrics", "shipping", "backup", "gallery", "forum", "texts",
)  # fmt: skip
PLANS = (
    "I look at the {} first.", "Next I write the report on {}.", "The tests of {} fail, so I read the log.",
    "I check how {} is configured.", "Let me list what belongs to {}.", "Now I deploy {} to the server.",
    "I need the tables of {} in the database.", "I read the page about {}.", "I export the {} once more.",
)  # fmt: skip
DEEDS = (
    "read_file(filename='{0}/{1}.md')", "write_to_file(filename='{0}/report{1}.md', text='{2}')",
    "execute_shell(command_line='pytest {0}/test_{1}.py')", "list_files(directory='{0}/{1}')",
    "browse_website(url='https://{0}.example/page/{1}')", "append_to_file(filename='{0}.log', text='{2}')",
)  # fmt: skip
SAYINGS = (
    "{0} {1} was written, {3} lines.", "The service {0} answers on port {4}.", "{3} passed, 1 failed: test_{0}_{1}.",
    "The table {0}_{1} has {3} rows and an index by day.", "Requests for {0} take {3} ms, a week ago {1} ms.",
    "Version {1}.{3} of {0} was deployed to server{1}.example.", "The total of {0} is {4}.{1} EUR.",
    "The export of {0} wrote {4} records at 0{1}:{3}.", "TODO: ask who looks after {0} since {3} May.",
    "{0} is to be done again in week {1}; the numbers of customer {4} were wrong.",
)  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """Of one prompt: the facts in its recollections, and the tokens of the others."""

    facts: int
    useless: int


def others(count: int, seed: int = 3) -> Iterator[str]:
    """Yield steps of other runs, each another text."""
    dice = random.Random(seed)
    for number in range(count):
        thing, some, lines, figure = dice.choice(THINGS), dice.randrange(1, 10), dice.randrange(10, 60), 1000 + number
        words = " ".join(
            dice.choice(SAYINGS).format(dice.choice(THINGS), some, "", lines, figure)
            for _ in range(dice.randrange(1, 5))
        )
        plan, deed = dice.choice(PLANS).format(thing), dice.choice(DEEDS).format(thing, some, words[:60])
        yield f"{plan} {deed}\n{deed.partition('(')[0]} returned: {words}"


def fill(state: Path, count: int, embedder: str) -> None:
    """Put the steps of other runs into the memory of a state folder, as of the time between the two runs."""
    kind = EMBEDDERS.find(embedder)
    with LocalStore(state / "memory", kind.open(EmbedderOpening(Settings().model_settings, "", None))) as store:
        put_at_once(store, list(others(count)))


def put_at_once(store: LocalStore, texts: Sequence[str]) -> None:
    """Put texts into a store as steps, in few transactions: one each would take most of the time."""
    for start in range(0, len(texts), BATCH):
        some = texts[start : start + BATCH]
        vectors = dict(store._embedding.of_new(list(dict.fromkeys(some))))
        for first in range(0, len(some), RUN):
            steps = list(dict.fromkeys(some[first : first + RUN]))
            known = {"kind": "step", "source": "", "trusted": True, "t": time.time(), "stored": time.time()}
            known |= {"run": f"between-{(start + first) // RUN}", "step": 1}
            store._put(steps, known, {text: vectors.pop(text) for text in steps if text in vectors}, durable=False)


def replies(steps: Sequence[tuple[str, dict[str, str]]]) -> list[str]:
    thoughts = {"text": "I go on.", "reasoning": "", "plan": "", "criticism": "", "speak": ""}
    done = ("task_complete", {"reason": "It is done."})
    commands = ({"name": name, "args": args} for name, args in (*steps, done, done))
    return [json.dumps({"thoughts": thoughts, "command": command}) for command in commands]


def play(home: Path, endpoint: ScriptedEndpoint, goals: Sequence[str], window: int, embedder: str) -> None:
    """Play a run of the program to its end. Raises RuntimeError where it ends otherwise than with its goals met."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(Path(__file__).parent.parent),
        "OPENAI_API_KEY": "none-is-needed", "OPENAI_BASE_URL": endpoint.base_url, "SMART_LLM": "scripted",
        "EMBEDDING_MODEL": embedder, "AUTOAGENT_WINDOW": str(window),
        "MEMORY_DISTIL": "off",
    }  # fmt: skip
    asked = itertools.chain.from_iterable(("--ai-goal", goal) for goal in goals)
    argv = [sys.executable, "-m", "autoagent", "-c", "--plain", "-w", "workspace", "--ai-name", "Clerk", *asked]
    done = subprocess.run(argv, cwd=home, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])


def recollections(prompt: str) -> list[str]:
    """Return the lines of recollections in a prompt."""
    found, within = [], False
    for line in prompt.splitlines():
        within = line.startswith(HEADING) or (within and line.startswith("- "))
        if within and line.startswith("- "):
            found.append(line)
    return found


def measure(between: int, window: int = 32_000, embedder: str = "embedded") -> list[Shown]:
    """Play both runs, with so many steps of others in between; return what each prompt of the second one showed."""
    count = counter("scripted")
    endpoint = ScriptedEndpoint()
    try:
        with tempfile.TemporaryDirectory(prefix="autoagent-two-runs-") as name:
            home = Path(name)
            for path, text in (("docs/meridian.md", API), ("logs/export.log", LOG), ("servers.txt", SERVERS)):
                file = home / "workspace" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            endpoint.load(replies(FIRST))
            play(home, endpoint, ["Learn what there is to know of the orders, and remember it"], window, embedder)
            fill(home / ".autoagent", between, embedder)
            endpoint.load(replies(SECOND))
            play(home, endpoint, GOALS, window, embedder)
            prompts = endpoint.prompts[:STEPS]
    finally:
        endpoint.close()
    return [shown(prompt, count) for prompt in prompts]


def shown(prompt: str, count: object) -> Shown:
    lines = recollections(prompt)
    if os.environ.get("TWO_RUNS_SHOW"):
        print(*lines, "", sep="\n")
    facts = sum(any(fact in line for line in lines) for fact in FACTS)
    assert callable(count)
    return Shown(facts, sum(count(line) for line in lines if not any(fact in line for fact in FACTS)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--between", default="0,200,2000,20000", help="steps of other runs; default %(default)s")
    parser.add_argument("--embedder", default="embedded", help="default %(default)s")
    parser.add_argument("--window", type=int, default=32_000, help="tokens; default %(default)s")
    options = parser.parse_args()
    if not re.fullmatch(r"\d+(,\d+)*", options.between):
        parser.error("--between is a list of numbers, such as 0,2000")
    print("between   facts in the prompts of the second run   tokens of recollections without one")
    for between in map(int, options.between.split(",")):
        try:
            prompts = measure(between, options.window, options.embedder)
        except (ForUser, RuntimeError) as error:
            sys.exit(str(error))
        facts, useless = [str(prompt.facts) for prompt in prompts], [str(prompt.useless) for prompt in prompts]
        print(f"{between:7}   {' '.join(facts):>20} of {len(FACTS)}   {' '.join(useless):>30}", flush=True)


if __name__ == "__main__":
    main()
