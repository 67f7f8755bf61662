"""A whole research goal on the embedded model: search, read a page, write the report, finish; a real process each time.

The site is on loopback, and so is the search engine over it, which answers as a SearXNG server does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_site import Site
from website import page, search

from autoagent.models.local import weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not weights.installed(), reason="the embedded model is not here: autoagent model fetch"),
]

GOAL = (
    "Find out when the Corran lighthouse was built and how tall it is: use web_search, then browse_website on the page "
    "it finds. Write both facts into a file report.md :: grep -q 37 report.md && grep -q 1847 report.md"
)


@pytest.fixture
def site() -> Iterator[Site]:
    menu = "<nav><a href='/'>Home</a> <a href='/lighthouse.html'>Lighthouse</a> <a href='/ferry.html'>Ferry</a></nav>"
    with Site() as site:
        site.pages = {
            "/": page("The harbour society", f"{menu}<h1>Welcome</h1><p>We care for old harbours and their boats.</p>"),
            "/lighthouse.html": page(
                "The Corran lighthouse",
                f"{menu}<h1>The Corran lighthouse</h1><!-- built in 1666 --><p hidden>It is 99 metres tall.</p>"
                "<p>The Corran lighthouse was built in 1847 by the engineer Alan Stevens. It is 37 metres tall.</p>",
            ),
            "/ferry.html": page("The ferry", f"{menu}<h1>The ferry</h1><p>The ferry to the island costs 4 pounds.</p>"),
            "/search": search,
        }
        yield site


@pytest.mark.xfail(reason="this model finds the facts, and writes the report in some tries only", strict=False)
def test_a_report_is_written_from_what_the_web_says(site: Site, tmp_path: Path) -> None:
    """Three tries, none after five minutes: a model of 1.5B parameters does not reach every goal at once."""
    begin = time.monotonic()
    assert any(time.monotonic() < begin + 300 and _is_researched(site, tmp_path / str(n), n * 0.3) for n in range(3))


def _is_researched(site: Site, folder: Path, temperature: float) -> bool:
    folder.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI", "AUTOAGENT"))}
    env |= {
        "AUTOAGENT_SEARCH_URL": site.url(""),
        "AUTOAGENT_ALLOW_HOSTS": site.allowed(),
        "TEMPERATURE": str(temperature),
    }
    limits = ("-l", "12", "--max-seconds", "300")
    who = ("--ai-name", "Scout", "--ai-role", "a researcher who reads the web")
    done = subprocess.run(
        [sys.executable, "-m", "autoagent", "--model", "local", "-c", "--json", *limits, *who, "--ai-goal", GOAL],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    print(done.stdout, done.stderr)  # for whoever reads why none of the tries did
    events = [json.loads(line) for line in done.stdout.splitlines()]
    used = {event["call"]["name"] for event in events if event["type"] == "started"}
    outside = {
        event["data"]["untrusted"] for event in events if event["type"] == "returned" and event["data"].get("untrusted")
    }
    report = folder / "autoagent_workspace" / "report.md"
    written = report.read_text() if report.exists() else ""
    return (
        done.returncode in (0, 9)  # a small model cannot verify its own work
        and used >= {"web_search", "browse_website", "write_to_file", "task_complete"}
        and site.url("/lighthouse.html") in outside
        and "1847" in written
        and "37" in written
        and "1666" not in written
        and "99" not in written
    )
