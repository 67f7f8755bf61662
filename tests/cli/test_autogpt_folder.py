"""A folder of AutoGPT's, started as it lies: what each of its settings does, and what the user is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from driver import FINISH, Home
from server import ScriptedServer, command

TEMPLATES = Path(__file__).parent.parent / "autogpt"
VERSIONS = ("0.2.2", "0.4.7")
TASK = """ai_goals:
- Read what is there
ai_name: FriendlyGPT
ai_role: an AI that reads
api_budget: 0.0
"""
PROMPT = """constraints: ['Exclusively use the commands listed below.']
resources: ['Internet access for searches.']
performance_evaluations: ['Every command has a cost.']
"""


def template(version: str) -> str:
    return (TEMPLATES / f"{version}.env").read_text()


@pytest.fixture
def left(served: Home) -> Home:
    """What AutoGPT has left behind."""
    served.write("ai_settings.yaml", TASK)
    served.write("prompt_settings.yaml", PROMPT)
    served.write("auto_gpt_workspace/notes.txt", "The ferry leaves at 7:40.")
    return served


@pytest.mark.parametrize("version", VERSIONS)
def test_each_of_its_settings_does_what_the_table_says(
    home: Home, golden: Callable[[str, str], None], version: str
) -> None:
    everything = re.sub(r"^# (?=[A-Z_]+=)", "", template(version), flags=re.MULTILINE)
    home.write(".env", everything)
    rows = json.loads(home.run("doctor", "--json", "--state-dir", "state").out)
    lines = everything.splitlines()
    table = []
    for row in rows:
        if at := re.match(r"\.env:(\d+) ", row["check"]):
            table.append(f"{row['status']:4}  {lines[int(at[1]) - 1][:60]:60}  {row['found']}".rstrip())
    golden(f"autogpt-{version}", "\n".join(table) + "\n")


@pytest.mark.parametrize("version", VERSIONS)
def test_it_starts_as_it_lies(left: Home, server: ScriptedServer, version: str) -> None:
    left.write(".env", template(version))
    server.add(command("Read_File", file="notes.txt"), *FINISH)
    done = left.succeed("-c", "-y")
    prompt = server.requests[0].body["messages"][0]["content"]
    assert "You are FriendlyGPT, an AI that reads" in prompt
    assert "1. Exclusively use the commands listed below." in prompt
    assert "Every command has a cost." in prompt
    assert "The agent is told what prompt_settings.yaml says." in done.text
    assert "7:40" in server.requests[1].body["messages"][-1]["content"] or "7:40" in str(server.requests[1].body)
    offered = {tool["function"]["name"] for tool in server.requests[0].body["tools"]}
    assert {"read_file", "browse_website"} <= offered or version == "0.2.2", "0.2.2 names a small window"
    assert "execute_shell" not in offered
    assert not (left.folder / "autoagent_workspace").exists()
    assert ("Shell commands are off, as in AutoGPT" in done.text) == (version == "0.4.7")
    assert "Not used of .env" not in done.text, "nothing of the template is missed"


def test_what_is_missed_is_said_once_and_what_to_do(left: Home, server: ScriptedServer) -> None:
    left.write(".env", "RESTRICT_TO_WORKSPACE=False\nPINECONE_API_KEY=0123-abc\nPINECONE_ENV=us-east1\n")
    server.add(*FINISH)
    done = left.succeed("-c", "-C", "ai_settings.yaml")  # which is taken without asking
    assert done.text.count("RESTRICT_TO_WORKSPACE: the agent never leaves its workspace; -w names another") == 1
    assert "PINECONE_API_KEY, PINECONE_ENV: memories are kept in SQLite (local), redis or postgres" in done.text


@pytest.mark.parametrize("name", ["pinecone", "milvus", "weaviate"])
def test_a_memory_that_is_gone_is_named_with_the_way_out(left: Home, name: str) -> None:
    done = left.run("-c", "-y", "-m", name)
    assert done.code == 2
    assert f"--use-memory: {name} is not supported any more: use local" in done.text


AZURE = """azure_api_type: azure
azure_api_base: {base}
azure_api_version: 2023-03-15-preview
azure_model_map:
    fast_llm_deployment_id: small-one
    smart_llm_deployment_id: test-model
    embedding_model_deployment_id: test-embedder
"""


def test_azure_is_reached_at_its_compatible_address(left: Home, server: ScriptedServer) -> None:
    base = server.base_url.removesuffix("/v1")
    for name in ("OPENAI_BASE_URL", "SMART_LLM", "EMBEDDING_MODEL"):
        del left.env[name]
    left.write("azure.yaml", AZURE.format(base=base))
    left.write(".env", "USE_AZURE=True\n")
    left.env["OPENAI_API_KEY"] = "sk-of-the-user-0123456789"
    shown = left.run("trust").text
    assert f".env:1 azure_api_base = {base}/openai/v1" in shown  # and it is trusted now
    rows = {row["name"]: row["value"] for row in json.loads(left.run("config", "--json").out)}
    names = ("openai_base_url", "smart_llm", "fast_llm", "embedding_model")
    assert [rows[name] for name in names] == [f"{base}/openai/v1", "test-model", "small-one", "test-embedder"]
    assert "OPENAI_API_KEY (environment: OPENAI_API_KEY) is not sent to" in left.run("config", "--json").err
    left.write("azure.yaml", AZURE.format(base=base + "/other"))
    assert left.run("-c", "-y").code == 3, "another address is another matter"


def test_what_of_redis_is_set_says_where_the_memory_is(left: Home, server: ScriptedServer) -> None:
    left.write(".env", "REDIS_HOST=example.org\nREDIS_PORT=6380\nREDIS_PASSWORD=p@ss\n")
    rows = {row["name"]: row["value"] for row in json.loads(left.run("config", "--json").out)}
    assert rows["memory_url"] == "", "the memory is elsewhere"
    done = left.run("-c", "-y", "-m", "redis")
    assert (done.code, "p@ss" in done.text) == (3, False)
    assert ".env:1 REDIS_HOST" in done.text and "with `autoagent -m redis trust`" in done.text
    left.write(".env", "REDIS_HOST=localhost\nREDIS_PORT=6379\n")  # the template's, which needs no trust
    server.add(*FINISH)
    assert left.run("-c", "-y", "-m", "redis").code == 0


def test_other_words_for_a_setting(left: Home) -> None:
    left.write(".env", "OPENAI_FUNCTIONS=True\nSMART_TOKEN_LIMIT=9000\nFAST_TOKEN_LIMIT=5000\nUSE_WEB_BROWSER=safari\n")
    del left.env["AUTOAGENT_WINDOW"]
    rows = {row["name"]: row["value"] for row in json.loads(left.run("config", "--json").out)}
    assert (rows["asking"], rows["window"], rows["fast_window"]) == ("tools", 9000, 5000)
    assert rows["browser_name"] == "chromium"


def test_a_key_beside_azure_yaml_does_not_go_where_that_says_unasked(left: Home, server: ScriptedServer) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        left.env.pop(name, None)
    left.write("azure.yaml", AZURE.format(base=server.base_url.removesuffix("/v1")))
    left.write(".env", "USE_AZURE=True\nOPENAI_API_KEY=sk-of-the-user-123456789012345\n")
    done = left.run("-c", "-y")
    assert done.code == 3
    assert "azure_api_base" in done.err
    assert not server.requests


def test_a_memory_that_is_gone_is_named_and_keeps_nobody_from_starting(served: Home, server: ScriptedServer) -> None:
    served.write(".env", "RESTRICT_TO_WORKSPACE=True\nMEMORY_BACKEND=pinecone\n")
    served.write("ai_settings.yaml", "ai_name: A\nai_role: B\nai_goals:\n- Do nothing\n")
    server.add(*FINISH)
    done = served.run("-c", "-y")
    assert done.code == 0 and "MEMORY_BACKEND=pinecone, which is gone" in " ".join(done.text.split()), done.text
