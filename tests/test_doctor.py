"""`autoagent doctor` and `autoagent config`, in real folders and against real servers on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from loopback_site import Site, Visit, answer

from autoagent.core.errors import SettingsError
from autoagent.memory.sqlite.database import connect
from autoagent.subcommands.setup import config, doctor
from autoagent.workspace.gate import Workspace
from autoagent.workspace.snapshots import Snapshots

KEY = "test-key-1234567890"


def knowing(visit: Visit) -> None:
    """Knows two models and one embedder, and takes one key."""
    asked = json.loads(visit.rfile.read(int(visit.headers.get("Content-Length", 0))) or "null")
    body, status = (b'{"data": [{"id": "big"}, {"id": "small"}]}', 200) if asked is None else (b"{}", 404)
    if asked == {"model": "vectors", "input": "doctor"}:
        body, status = b'{"data": [{"embedding": [1.0]}]}', 200
    known = visit.headers["Authorization"] == f"Bearer {KEY}"
    visit.wfile.write(answer(body, status) if known else answer(b"{}", 401))


@pytest.fixture
def endpoint() -> Iterator[str]:
    with Site() as site:
        site.pages["*"] = knowing
        yield site.url("/v1")


def examine(env: dict[str, str], flags: dict[str, Any] | None = None) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code and the findings by check; where a check has several, the last."""
    result = CliRunner().invoke(doctor, ["--json"], env=env, obj=flags)
    return result.exit_code, {finding["check"]: finding for finding in json.loads(result.stdout)}


def test_an_endpoint_with_all_that_is_needed_is_usable(folder: Path, endpoint: str) -> None:
    env = {"OPENAI_BASE_URL": endpoint, "OPENAI_API_KEY": KEY}
    code, found = examine({**env, "SMART_LLM": "big", "FAST_LLM": "small", "EMBEDDING_MODEL": "vectors"})
    assert code == 0
    assert found["model"] == {"check": "model", "status": "ok", "found": f"big at {endpoint}", "mend": ""}
    assert found["embedder"]["found"] == f"vectors at {endpoint}"
    assert {"python", "settings", "encodings", "sandbox", "workspace", "state", "terminal"} <= set(found)
    assert list(folder.iterdir()) == []  # looking changes nothing


def test_the_embedder_that_is_looked_at_is_the_one_that_is_used(folder: Path, endpoint: str) -> None:
    env = {"OPENAI_BASE_URL": endpoint, "OPENAI_API_KEY": KEY, "FAST_LLM": "small"}
    _, found = examine({**env, "EMBEDDING_MODEL": "vectors"}, {"model": "big"})
    assert found["embedder"]["found"] == f"vectors at {endpoint}"
    for model in ("openai", "human"):
        _, found = examine(env if model == "openai" else {**env, "EMBEDDING_MODEL": "vectors"}, {"model": model})
        assert "built-in word vectors" in found["embedder"]["found"]


def test_the_sandbox_is_tried_with_the_interpreter_that_is_to_run_in_it(folder: Path) -> None:
    _, found = examine({})
    assert found["sandbox"]["status"] in ("ok", "warn")
    assert found["sandbox"]["found"] in ("bubblewrap works", "landlock works", "none works")
    _, found = examine({"AUTOAGENT_PYTHON": "/bin/false"})
    assert found["sandbox"]["status"] == "fail"
    assert "/bin/false is not a working Python interpreter" in found["sandbox"]["found"]
    assert "AUTOAGENT_PYTHON" in found["sandbox"]["mend"]


@pytest.mark.parametrize(("given", "shown"), [("", None), ("/a:/b", None), (":/a", "''"), ("/a:lib", "'lib'")])
def test_an_entry_of_the_path_of_python_that_is_any_folder_is_a_warning(
    folder: Path, given: str, shown: str | None
) -> None:
    _, found = examine({"PYTHONPATH": given, "AUTOAGENT_MODEL": "human"})
    assert ("PYTHONPATH" in found) == (shown is not None)
    if shown is not None:
        assert found["PYTHONPATH"]["status"] == "warn" and f"contains {shown}: Python" in found["PYTHONPATH"]["found"]


def test_an_empty_file_is_no_task_but_the_place_of_one(folder: Path) -> None:
    (folder / "ai_settings.yaml").touch()
    _, found = examine({})
    assert found["task"]["found"] == "no ai_settings.yaml yet; the first start asks"


def test_without_a_boundary_all_that_is_not_held_is_listed(folder: Path) -> None:
    result = CliRunner().invoke(doctor, ["--json"], env={"AUTOAGENT_SANDBOX": "none"})
    gaps = [finding["found"] for finding in json.loads(result.stdout) if finding["check"] == "sandbox"]
    assert gaps[-1] == "none works"
    assert any("network" in gap for gap in gaps)


def test_what_the_snapshots_take_is_said_where_there_are_any(folder: Path) -> None:
    assert "snapshots" not in examine({})[1]
    (folder / "workspace").mkdir()
    (folder / "workspace/a").write_bytes(os.urandom(1 << 20))
    Snapshots(folder / ".autoagent/snapshots", Workspace(folder / "workspace", [])).take()
    found = examine({"AUTOAGENT_STATE_DIR": ".autoagent"})[1]["snapshots"]
    assert found["status"] == "ok"
    megabytes = re.search(r"snapshots takes (\d+\.\d) MB; ", found["found"])
    assert megabytes and 1.0 <= float(megabytes[1]) < 1.2


def test_a_memory_is_read_as_a_whole(folder: Path) -> None:
    memory = folder / ".autoagent/memory"
    assert "memory" not in examine({})[1]
    connect(memory).close()
    named = {"AUTOAGENT_STATE_DIR": ".autoagent"}
    assert examine(named)[1]["memory"]["found"] == f"{memory} can be read; memories: 0"
    whole = (memory / "memory.db").read_bytes()
    (memory / "memory.db").write_bytes(whole[:5000] + bytes(3000) + whole[8000:])
    code, found = examine(named)
    assert (code, found["memory"]["status"]) == (3, "fail")
    assert "Restore a copy of its memory.db" in found["memory"]["found"]


HERE = {"OPENAI_BASE_URL": "{endpoint}", "OPENAI_API_KEY": KEY}  # with the address of the endpoint
HUMAN = {"AUTOAGENT_MODEL": "human"}
PLACEHOLDER = {".env": "OPENAI_API_KEY=your-openai-api-key\n"}


@pytest.mark.parametrize(
    ("env", "files", "code", "check", "line"),
    [
        ({**HUMAN, "AUTOAGENT_THEME": "pink"}, {}, 2, "settings", "*pink* -> *"),
        ({**HUMAN, "AUTOAGENT_ALLOW_HOSTS": "here"}, {}, 2, "settings", "*here* -> *"),
        ({**HUMAN, "MEMORY_INDEX": "a b"}, {}, 1, "memory", "*a name* -> *"),
        ({**HUMAN, "MEMORY_BACKEND": "postgres"}, {}, 1, "memory", "* -> set MEMORY_URL"),
        ({}, {}, 3, "model", "* -> *autoagent setup*"),
        ({**HERE, "OPENAI_API_KEY": "wrong-key-123"}, {}, 3, "model", "{endpoint} refuses the key -> *"),
        ({**HERE, "SMART_LLM": "huge"}, {}, 3, "model", "* -> set SMART_LLM to one of: big, small"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, {}, 3, "model", "*cannot be reached* -> *start the server*"),
        ({}, PLACEHOLDER, 3, "model", "no key*"),
        ({"AUTOAGENT_MODEL": "local:./missing.gguf"}, {}, 3, "model", "*"),
        ({}, {".env": "TEMPERATURE=warm\n"}, 2, "settings", ".env:1: TEMPERATURE*"),
        (HUMAN, {"ai_settings.yaml": "ai_name: N\n"}, 1, "task", "*no goal is given* -> *"),
        (HUMAN, {"autoagent_workspace": "a file in its place"}, 1, "workspace", "*is a file -> *"),
    ],
)
def test_what_fails_is_named_with_its_cure_and_in_the_exit_code(
    folder: Path, endpoint: str, env: dict[str, str], files: dict[str, str], code: int, check: str, line: str
) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    exit_code, found = examine({name: value.format(endpoint=endpoint) for name, value in env.items()})
    assert (exit_code, found[check]["status"]) == (code, "fail")
    assert fnmatchcase(f"{found[check]['found']} -> {found[check]['mend']}", line.format(endpoint=endpoint))
    if files == PLACEHOLDER:
        assert found[".env:1 OPENAI_API_KEY"]["found"] == "the placeholder of the template: treated as not set"


def test_what_is_usable_with_a_warning(folder: Path, endpoint: str) -> None:
    assert examine(HUMAN)[0] == 0, "it needs no key"
    (folder / ".autoagent").mkdir(mode=0o755)
    env = {name: value.format(endpoint=endpoint) for name, value in HERE.items()}
    code, found = examine(env, {"model": "big"})
    assert code == 0
    assert found["model"]["status"] == "warn" and "FAST_LLM" in found["model"]["mend"]
    assert found["state"]["status"] == "warn" and "mode 755" in found["state"]["found"]


def test_an_address_from_dotenv_and_a_key_from_elsewhere_do_not_come_together(folder: Path, endpoint: str) -> None:
    (folder / ".env").write_text(f"OPENAI_BASE_URL={endpoint}\n")
    _, found = examine({"OPENAI_API_KEY": KEY, "AUTOAGENT_MODEL": "human"})
    assert (found["trust"]["status"], found["trust"]["mend"]) == ("warn", "autoagent trust")
    assert ".env:1 OPENAI_BASE_URL" in found["trust"]["found"]
    assert found[".env:1 OPENAI_BASE_URL"]["found"] == "not used: you have not trusted this folder with it"


def test_every_variable_of_an_autogpt_env_is_accounted_for(folder: Path) -> None:
    (folder / ".env").write_text(
        "OPENAI_API_KEY=\nTEMPERATURE=0\nSMART_LLM=gpt-4\nEXECUTE_LOCAL_COMMANDS=False\n"
        "PINECONE_API_KEY=0123\nTYPO_KEY=1\n"
    )
    _, found = examine({"SMART_LLM": "other", "AUTOAGENT_MODEL": "human"})
    lines = {name.partition(" ")[2]: finding for name, finding in found.items() if name.startswith(".env:")}
    assert list(lines) == [
        "OPENAI_API_KEY", "TEMPERATURE", "SMART_LLM", "EXECUTE_LOCAL_COMMANDS", "PINECONE_API_KEY", "TYPO_KEY",
    ]  # fmt: skip
    assert lines["OPENAI_API_KEY"]["found"].startswith("empty")
    assert lines["TEMPERATURE"]["found"] == "used: temperature"
    assert lines["SMART_LLM"]["found"] == "not used: smart_llm is set by environment: SMART_LLM"
    assert lines["EXECUTE_LOCAL_COMMANDS"]["found"] == "used: execute_local_commands"
    assert "(local), redis or postgres" in lines["PINECONE_API_KEY"]["found"]
    assert "unknown to this program" in lines["TYPO_KEY"]["found"]


def test_the_report_for_people_has_a_line_for_each_check_and_no_key(folder: Path, endpoint: str) -> None:
    env = {"OPENAI_BASE_URL": f"{endpoint}/{KEY}", "OPENAI_API_KEY": KEY, "SMART_LLM": "huge"}
    result = CliRunner().invoke(doctor, [], env=env)
    assert KEY not in result.output
    assert any(line.startswith("ok    python") for line in result.output.splitlines())
    assert any(line.startswith("fail  model") for line in result.output.splitlines())
    assert "-> set SMART_LLM to one of: big, small" in result.output


@pytest.mark.slow
def test_the_program_itself(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "autoagent", "doctor"], capture_output=True, text=True)
    assert (done.returncode, "fail  model" in done.stdout, done.stderr) == (3, True, "")


# `autoagent config` ----------------------------------------------------------------------------------------------


def test_config_shows_values_and_masks_secrets(folder: Path) -> None:
    result = CliRunner().invoke(config, [], env={"OPENAI_API_KEY": KEY, "AUTOAGENT_COMMANDS": "files,system"})
    assert result.exit_code == 0
    assert "commands = files,system\n" in result.stdout
    assert "openai_api_key = [masked]\n" in result.stdout
    assert KEY not in result.output


def test_what_a_terminal_would_obey_is_shown_as_an_escape(folder: Path) -> None:
    (folder / ".env").write_text("AUTOAGENT_MODEL=human\nUSER_AGENT=x\nAUTOAGENT_WORKSPACE=a\x1b[2Jb\n")
    assert r"a\x1b[2Jb" in CliRunner().invoke(config, []).stdout
    (folder / "ai_settings.yaml").write_text('ai_name: "N\\e[2J"\nai_role: r\nai_goals: [g]\n')
    assert r"N\x1b[2J in ai_settings.yaml" in CliRunner().invoke(doctor, []).stdout


def test_config_as_json_or_with_broken_settings(folder: Path) -> None:
    rows = json.loads(CliRunner().invoke(config, ["--json"], env={"OPENAI_API_KEY": KEY}).stdout)
    by_name = {row["name"]: row for row in rows}
    assert by_name["openai_api_key"]["value"] == "[masked]"
    assert by_name["workspace"]["value"] == "autoagent_workspace"
    assert by_name["openai_base_url"]["env"] == ["OPENAI_BASE_URL", "OPENAI_API_BASE_URL"]
    assert isinstance(CliRunner().invoke(config, [], env={"TEMPERATURE": "warm"}).exception, SettingsError)
