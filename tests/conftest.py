"""Fixtures that every room's tests may use."""

from __future__ import annotations

import signal
from pathlib import Path

import hypothesis
import pytest
from homes import server
from server import ScriptedServer

__all__ = ["place", "server"]

# A busy machine is no failure: neither a slow example nor slow generation of one is an error.
hypothesis.settings.register_profile(
    "shared machine", max_examples=50, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared machine")

# What a shell that puts the tests in the background, or nohup, has them ignore is ignored by what they start as well. A
# handler goes with exec, so that this begins as it would otherwise; the tests themselves still outlive a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


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
