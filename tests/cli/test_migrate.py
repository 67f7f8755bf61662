"""`autoagent migrate DIR`: a table of what becomes of an AutoGPT folder; with --apply it is done."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from driver import FINISH, Home
from server import ScriptedServer

from autoagent.core.errors import SettingsError
from autoagent.session.autogpt import UNUSED
from autoagent.session.migration import apply_plan, plan_migration
from autoagent.workspace.snapshots import MAX_FILE_BYTES

DOTENV = """OPENAI_API_KEY=sk-of-the-old-folder-0123456789
SMART_LLM_MODEL=test-model
USER_AGENT="Mozilla/5.0 (X11)"
TEMPERATURE=warm
FAST_TOKEN_LIMIT=4000
OPENAI_FUNCTIONS=True
PINECONE_API_KEY=0123
MEMORY_INDEX=auto-gpt
AI_SETTINGS_FILE=tasks/mine.yaml
PLUGINS_CONFIG_FILE=gone.yaml
EMAIL_ADDRESS=agent@example.org
GOOGLE_API_KEY=your-google-api-key
"""
TASK = "ai_name: OldGPT\nai_role: an AI that reads\nai_goals: [Read what is there]\n"


def old(home: Home) -> None:
    """What AutoGPT has left behind, memories in both of its forms."""
    home.write("old/.env", DOTENV)
    home.write("old/tasks/mine.yaml", TASK)
    home.write("old/prompt_settings.yaml", "constraints: [Be kind.]\n")
    home.write("old/azure.yaml", "azure_api_base: https://example.org\n")
    home.write("old/plugins/one/__init__.py", "")
    home.write("old/auto_gpt_workspace/notes/a.txt", "The ferry leaves at 7:40.")
    (home.folder / "old/auto_gpt_workspace/link").symlink_to("/etc/passwd")
    home.write("old/auto-gpt.json", json.dumps({"texts": ["The ferry is late.", ""], "embeddings": [[0.1]]}))
    newer = [{"raw_content": "A ticket costs 18 crowns.", "summary": "s", "chunks": []}, {"summary": "Otters swim."}]
    home.write("old/auto_gpt_workspace/auto-gpt.json", json.dumps(newer))


def test_what_would_be_done_is_shown_and_nothing_is_written(home: Home) -> None:
    old(home)
    here = Home(home.folder / "new", env={"HOME": str(home.folder)}, warm=True)
    here.folder.mkdir()
    done = here.succeed("migrate", "../old", "--json")
    assert "sk-of" not in done.text
    rows = {row["item"]: (row["how"], row["to"] or row["why"]) for row in json.loads(done.out)}
    assert rows == {
        "tasks/mine.yaml": ("renamed", "ai_settings.yaml"),
        "prompt_settings.yaml": ("taken", "prompt_settings.yaml"),
        "plugins/": ("taken", "plugins/ (1 file)"),
        "azure.yaml": ("not taken", "USE_AZURE is not set"),
        "auto-gpt.json": ("taken", "the memory: 1 text"),
        "auto_gpt_workspace/auto-gpt.json": ("taken", "the memory: 2 texts"),
        "auto_gpt_workspace/": ("renamed", "autoagent_workspace/ (1 file)"),
        "auto_gpt_workspace/: 1 other file": ("not taken", "a link, or there already"),
        ".env: OPENAI_FUNCTIONS": ("renamed", ".env: AUTOAGENT_ASKING"),
        ".env: OPENAI_API_KEY": ("taken", ".env: OPENAI_API_KEY"),
        ".env: SMART_LLM_MODEL": ("renamed", ".env: SMART_LLM"),
        ".env: USER_AGENT": ("taken", ".env: USER_AGENT"),
        ".env: TEMPERATURE": ("not taken", "TEMPERATURE: must be a number of 0 or more, not 'warm'."),
        ".env: FAST_TOKEN_LIMIT": ("taken", ".env: FAST_TOKEN_LIMIT"),
        ".env: PINECONE_API_KEY": ("not taken", UNUSED["PINECONE_API_KEY"].reason),
        ".env: MEMORY_INDEX": ("taken", ".env: MEMORY_INDEX"),
        ".env: AI_SETTINGS_FILE": ("taken", "what it names is copied under its usual name"),
        ".env: PLUGINS_CONFIG_FILE": ("not taken", "nothing of gone.yaml is taken"),
        ".env: EMAIL_ADDRESS": ("taken", ".env: EMAIL_ADDRESS"),
        ".env: EXECUTE_LOCAL_COMMANDS, which is not set": ("taken", ".env: EXECUTE_LOCAL_COMMANDS"),
        ".env: 1 other variable": ("not taken", "empty, or the template's placeholder"),
    }  # fmt: skip
    assert not list(here.folder.iterdir())
    assert "Nothing was written" in here.run("migrate", "../old").err


def test_it_is_done_once(home: Home) -> None:
    old(home)
    here = Home(home.folder / "new", env={"HOME": str(home.folder)}, warm=True)
    here.folder.mkdir()
    here.write("prompt_settings.yaml", "constraints: [Mine.]\n")
    assert "3 new memories" in here.run("migrate", "../old", "--apply").text
    assert here.read(".env").count("USER_AGENT='Mozilla/5.0 (X11)'\n") == 1
    assert (here.folder / ".env").stat().st_mode & 0o777 == 0o600
    assert here.read("prompt_settings.yaml") == "constraints: [Mine.]\n", "nothing here is written over"
    assert here.read("autoagent_workspace/notes/a.txt") == "The ferry leaves at 7:40."
    memories = json.loads(here.run("memory", "list", "--json").out)
    assert {one["text"] for one in memories} == {"The ferry is late.", "A ticket costs 18 crowns.", "Otters swim."}
    assert not any(one["trusted"] for one in memories)
    again = here.run("migrate", "../old", "--apply")
    assert "0 new memories" in again.text
    assert "3 new memories" in here.run("--state-dir", "other", "migrate", "../old", "--apply").text
    assert "there is a ai_settings.yaml here already" in again.text


def test_memories_that_cannot_be_stored_are_no_success(home: Home) -> None:
    old(home)
    here = Home(home.folder / "new", env={"HOME": str(home.folder)}, warm=True)
    here.folder.mkdir()
    here.env |= {"MEMORY_BACKEND": "redis", "MEMORY_URL": "redis://127.0.0.1:1"}
    done = here.run("migrate", "../old", "--apply")
    assert done.code == 2 and "Not all memories were imported" in done.err and "Done" not in done.err
    here.env = {"HOME": str(home.folder)}
    assert "3 new memories" in here.run("migrate", "../old", "--apply").text


CLASSIC = """### AutoGPT - GENERAL SETTINGS
SMART_LLM=gpt-4-turbo
USE_AZURE=True
DISABLED_COMMANDS=execute_shell
FILE_STORAGE_BACKEND=s3
LOG_LEVEL=INFO
TELEMETRY_OPT_IN=true
GROQ_API_KEY=gsk_0123456789
"""
CLASSIC_AZURE = """azure_api_type: azure
azure_api_version: 2024-02-01
azure_endpoint: https://here.openai.azure.com/
azure_model_map:
    gpt-3.5-turbo-0125: small-one
    gpt-4-turbo: large-one
"""
ALLOWED = "a folder cannot allow calls here, but you can: --allow '{}'"
DENIED = "the user is asked, or the guard refuses; DISABLED_COMMANDS switches a command off"


@pytest.mark.parametrize("agents", ["data/agents", ".autogpt/agents"])
def test_the_agents_of_its_later_versions_leave_their_files_and_their_tasks(home: Home, agents: str) -> None:
    home.write("old/.env", CLASSIC)
    home.write("old/azure.yaml", CLASSIC_AZURE)
    state = {"agent_id": "Clerk-1a2b3c4d", "task": "Sort\nthe invoices", "ai_profile": {"ai_name": "Clerk"}}
    home.write(f"old/{agents}/Clerk-1a2b3c4d/state.json", json.dumps(state))
    home.write(f"old/{agents}/Clerk-1a2b3c4d/workspace/may/total.txt", "1,204 crowns")
    home.write(f"old/{agents}/Poet-5e6f7a8b/state.json", "{")
    home.write("old/.autogpt/autogpt.yaml", "allow:\n  - write_to_file({workspace}/**)\ndeny:\n  - read_file(**.env)\n")
    home.write(f"old/{agents}/Clerk-1a2b3c4d/permissions.yaml", "allow: [execute_shell(git:**)]\n")
    home.write("old/elsewhere/state.json", json.dumps(state))
    allowed = home.write("elsewhere/permissions.yaml", "allow: [finish(**)]\n")
    (home.folder / f"old/{agents}/link").symlink_to(home.folder / "old/elsewhere")
    (home.folder / f"old/{agents}/Poet-5e6f7a8b/permissions.yaml").symlink_to(allowed)
    done = home.succeed("migrate", "old", "--apply", "--json")
    rows = {row["item"]: (row["how"], row["to"] or row["why"]) for row in json.loads(done.out)}
    broken = rows.pop(f"{agents}/Poet-5e6f7a8b/state.json")
    assert broken[0] == "not taken" and broken[1].startswith("it cannot be read: ")
    workspace = "autoagent_workspace/Clerk-1a2b3c4d/"
    assert {item: rows.pop(item)[1] for item in [*rows] if item.endswith(")")} == {
        ".autogpt/autogpt.yaml: allow write_to_file({workspace}/**)": ALLOWED.format("write_to_file:**"),
        ".autogpt/autogpt.yaml: deny read_file(**.env)": DENIED,
        f"{agents}/Clerk-1a2b3c4d/permissions.yaml: allow execute_shell(git:**)": ALLOWED.format("execute_shell:git *"),
    }
    assert rows == {
        f"{agents}/Clerk-1a2b3c4d/workspace/": ("renamed", f"{workspace} (1 file)"),
        f"{agents}/Clerk-1a2b3c4d/state.json": (
            "not taken",
            "its steps cannot be continued: start again with the task 'Sort the invoices'",
        ),
        "azure.yaml: azure_endpoint": ("renamed", ".env: OPENAI_BASE_URL"),
        "azure.yaml: gpt-4-turbo": ("renamed", ".env: SMART_LLM"),
        ".env: SMART_LLM": ("not taken", "gpt-4-turbo sets that"),
        ".env: USE_AZURE": ("not taken", "it belongs to another variable, or is empty"),
        ".env: DISABLED_COMMANDS": ("renamed", ".env: DISABLED_COMMAND_CATEGORIES"),
        ".env: EXECUTE_LOCAL_COMMANDS, which is not set": ("taken", ".env: EXECUTE_LOCAL_COMMANDS"),
        **{
            f".env: {name}": ("not taken", UNUSED[name].reason)
            for name in ("FILE_STORAGE_BACKEND", "LOG_LEVEL", "TELEMETRY_OPT_IN", "GROQ_API_KEY")
        },
    }
    assert home.read(f"{workspace}may/total.txt") == "1,204 crowns"
    written = "OPENAI_BASE_URL=https://here.openai.azure.com/openai/v1\nSMART_LLM=large-one\n"
    assert home.read(".env").startswith(written)


def test_a_folder_of_its_later_versions_starts_as_it_lies(served: Home, server: ScriptedServer) -> None:
    served.write(".env", "### AutoGPT - GENERAL SETTINGS\nDISABLED_COMMANDS=read_file\nSTORAGE_BUCKET=mine\n")
    served.write("data/agents/Clerk-1a2b3c4d/state.json", "{}")
    served.write("data/agents/Clerk-1a2b3c4d/workspace/may/total.txt", "1,204 crowns")
    server.add(*FINISH)
    done = served.succeed("-c", "-y", "--ai-goal", "Sort the invoices")
    assert "-w names the workspace of one: data/agents/Clerk-1a2b3c4d/workspace." in done.text
    assert "Not used of .env: STORAGE_BUCKET: files stay in the workspace" in done.text
    offered = {tool["function"]["name"] for tool in server.requests[0].body["tools"]}
    assert "write_to_file" in offered and "read_file" not in offered


def test_files_too_large_to_keep_are_named_and_left(home: Home) -> None:
    old(home)
    with (home.folder / "old/auto_gpt_workspace/sparse").open("wb") as sparse:
        sparse.truncate(40 << 30)
    done = home.run("migrate", "old", "--apply")
    assert done.code == 0 and "auto_gpt_workspace/: 1 other file" in done.text and "more than 32 MB" in done.text
    assert home.read("autoagent_workspace/notes/a.txt") and not (home.folder / "autoagent_workspace/sparse").exists()


def test_nothing_is_taken_that_a_link_brings_or_that_would_run_later(home: Home) -> None:
    home.write("elsewhere/.env", "EMAIL_PASSWORD=of-another-folder\n")
    home.write("elsewhere/auto_gpt_workspace/private.txt", "mine")
    home.write("old/plugins/one/__init__.py", "")
    (home.folder / "old/.env").symlink_to("../elsewhere/.env")
    (home.folder / "old/autogpt").symlink_to("../elsewhere")
    for agent, file in ((".git", "config"), (".vscode", "tasks.json"), ("a\nDone.", "bare/config"), ("b", ".git")):
        home.write(f"old/data/agents/{agent}/state.json", "{}")
        home.write(f"old/data/agents/{agent}/workspace/{file}", "[core]\n\tfsmonitor = touch PWNED\n")
    for name in ("HEAD", "objects/x", "refs/x"):
        home.write(f"old/data/agents/a\nDone./workspace/bare/{name}", "")
    here = Home(home.folder / "new", env={"HOME": str(home.folder)}, warm=True)
    here.folder.mkdir()
    done = here.run("migrate", "../old", "--apply")
    assert [path.name for path in here.folder.rglob("*") if path.is_file()] == ["__init__.py"], done.text
    assert "act on it" in done.out
    assert "\nDone." not in done.out


def test_no_state_or_memory_takes_all_of_the_memory(home: Home) -> None:
    """Read whole, an array of empty arrays takes twenty times its size."""
    old(home)
    large = "[" + "[]," * 12_000_000 + "[]]"
    (home.folder / "old/data/agents/x").mkdir(parents=True)
    for name in ("data/agents/x/state.json", "AutoGpt.json"):
        (home.folder / "old" / name).write_text(large)
    done = home.run("migrate", "old")
    assert (done.code, done.text.count("larger than 32 MB")) == (0, 2), done.text


def test_a_folder_that_is_none(home: Home) -> None:
    (home.folder / "empty").mkdir()
    done = home.exits(2, "migrate", "empty")
    assert "not an AutoGPT folder" in done.text
    assert "needs no migration" in home.run("migrate", ".").text


def test_a_file_that_grows_meanwhile_leaves_no_part_of_itself(home: Home) -> None:
    old(home)
    here, note = home.folder / "new", home.folder / "old/auto_gpt_workspace/notes/a.txt"
    here.mkdir()
    planned = plan_migration(home.folder / "old", here)
    os.truncate(note, MAX_FILE_BYTES + 1)
    with pytest.raises(SettingsError, match=r"a\.txt: has grown over 32 MB"):
        apply_plan(planned, here, {}, print)
    assert [path.name for path in here.rglob("*.txt")] == []
    assert (here / ".env").exists(), "the rest is taken"


@pytest.mark.slow
def test_a_kill_leaves_no_part_of_a_file_and_the_next_try_completes_it(home: Home) -> None:
    old(home)
    source, target = home.folder / "old/auto_gpt_workspace", home.folder / "autoagent_workspace"
    for number in range(8):
        (source / f"{number}.bin").write_bytes(bytes([number]) * (30 << 20))
    killed = 0
    for _ in range(3):
        with home.start("migrate", "old", "--apply") as process:
            while process.poll() is None and not [*target.glob(".*.new")]:
                time.sleep(0.001)
            process.kill()
            killed += process.wait() == -signal.SIGKILL
        for path in target.glob("*.bin"):
            assert path.stat().st_size == 30 << 20
    assert killed
    assert home.run("migrate", "old", "--apply").code == 0
    for number in range(8):
        assert (target / f"{number}.bin").read_bytes() == (source / f"{number}.bin").read_bytes()
