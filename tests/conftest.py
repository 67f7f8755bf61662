"""Fixtures that every room's tests may use."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import os
import signal
import sys
import tomllib
import zlib
from importlib.metadata import distribution
from pathlib import Path

import hypothesis
import pytest
from homes import server
from server import ScriptedServer

from autoagent.settings import all_settings

__all__ = ["place", "server"]

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
DECLARED = {(group, *point) for group, points in PROJECT["entry-points"].items() for point in points.items()}
if DECLARED - {(point.group, point.name, point.value) for point in distribution("autoagent").entry_points}:
    raise pytest.UsageError("pyproject.toml has new entry points; install them: uv pip install --no-deps -e .")

# A busy machine is no failure: neither a slow example nor slow generation of one is an error.
hypothesis.settings.register_profile(
    "shared machine", max_examples=50, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared machine")

# Hundreds of processes start the program, and each worker rewrites the asserts of all tests: kept bytecode spares both.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What a shell that puts the tests in the background, or nohup, has them ignore is ignored by what they start as well. A
# handler goes with exec, so that this begins as it would otherwise; the tests themselves still outlive a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="K/N", default="0/1", help="run one test in N: part K; by name")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    try:
        part, parts = map(int, config.getoption("shard").split("/"))
        chosen = [zlib.crc32(item.nodeid.encode()) % parts == part % parts for item in items]
    except (ValueError, ZeroDivisionError):
        raise pytest.UsageError("--shard is K/N, two numbers, such as 3/8") from None
    config.hook.pytest_deselected(items=list(itertools.compress(items, map(operator.not_, chosen))))
    items[:] = itertools.compress(items, chosen)


def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are cores: tests often wait, for a person, a server or a limit of time."""
    return (os.cpu_count() or 1) * 3 // 2


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ScriptedServer) -> Path:
    """A folder for a Python program to start in, whose model is the scripted server."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "HOME": str(tmp_path),
        "OPENAI_BASE_URL": server.base_url,
        "SMART_LLM": "test-model",
        "EMBEDDING_MODEL": "test-embedder",
        "AUTOAGENT_WINDOW": "32000",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to start in, and nothing set from outside."""
    start = tmp_path / "start"
    start.mkdir()
    monkeypatch.chdir(start)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for setting in dataclasses.fields(all_settings()):
        for name in setting.metadata["env"]:
            monkeypatch.delenv(name, raising=False)
    return start
