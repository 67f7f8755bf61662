"""Plug-ins written for AutoGPT, unmodified: every hook at its place, each in a process of its own, whatever it does."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from autoagent_autogpt_plugins.child import HOOKS
from autoagent_autogpt_plugins.config import PluginEntry
from autoagent_autogpt_plugins.discovery import FoundPlugin
from autoagent_autogpt_plugins.running import State, install
from driver import FINISH, GOAL, ROOT, TEAM_OF_TWO, Done, Home
from loopback_site import Site, answer
from mail_server import mail_server
from server import Reply, ScriptedServer, command
from warm import LOADED_WITH

from autoagent import __version__
from autoagent.core.errors import SetupError
from autoagent.session.session import Session

pytest.importorskip("auto_gpt_plugin_template", reason="it is not installed: pip install 'autoagent[plugins]'")

OURS = f"the extension autogpt-plugins of autoagent {__version__}"
WRITTEN = Path(__file__).parent / "autogpt_plugins"


def put(home: Home, *names: str, packed: bool = False, called: str = "") -> None:
    """Put plug-ins into the folder, as folders or as a zip as GitHub makes it."""
    place = home.folder / "plugins"
    place.mkdir(exist_ok=True)
    for name in names:
        if not packed:
            shutil.copytree(WRITTEN / name, place / (called or name), ignore=shutil.ignore_patterns("__pycache__"))
            continue
        with zipfile.ZipFile(place / f"{name}.zip", "w") as archive:
            archive.writestr("Plugins-main/README.md", "It holds a plug-in.")
            for path in (WRITTEN / name).glob("*.py"):
                archive.write(path, f"Plugins-main/src/autogpt_plugins/{name}/{path.name}")


def enable(home: Home, **entries: Any) -> None:
    """Enable plug-ins, and trust the folder with them."""
    written = {name: {"enabled": True, **more} for name, more in entries.items()}
    home.write("plugins_config.yaml", json.dumps(written))
    assert home.run("trust").code == 0


def with_its_data(home: Home) -> None:
    """Give the plug-in almanac the module that it needs."""
    source = home.read("plugins/almanac/almanac.py")
    home.write("plugins/almanac/almanac.py", source.replace("import almanac_data\n", "from . import almanac_data\n"))
    home.write("plugins/almanac/almanac_data.py", "WORD = 'data'\n")


def result(done: Done, name: str) -> str:
    """What came of a command."""
    ids = [event["call"]["id"] for event in done.events if event["type"] == "started" and event["call"]["name"] == name]
    texts = [event["text"] for event in done.events if event["type"] == "returned" and event["call_id"] in ids]
    assert texts, done.text
    return str(texts[0])


def test_what_a_plugin_adds_is_in_the_prompt_and_its_commands_run(served: Home, server: ScriptedServer) -> None:
    put(served, "announcer")
    enable(served, announcer={})
    say = command("Say Hello To Somebody", name="Ann", times=2)  # by its label, in any case
    server.add(say, say, *FINISH)
    done = served.succeed("-c", "--json", "--allow", "say_hello", *GOAL)
    prompt = server.requests[0].body["messages"][0]["content"]
    for words in (
        "Be kind to plug-ins.",
        "A plug-in that says hello.",
        "Greet often.",
        "2. Greet the user",
        " and greets\n",
    ):
        assert words in prompt
    (tool,) = [one["function"] for one in server.requests[0].body["tools"] if one["function"]["name"] == "say_hello"]
    asked = tool["parameters"]["properties"]
    assert tool["description"] == "Say hello to somebody"
    assert [asked[name]["description"] for name in ("name", "times")] == ["<who>", "<how often>"]
    assert result(done, "say_hello") == "hello Ann hello Ann"
    returned = next(e for e in done.events if e["type"] == "returned" and e["text"].startswith("hello"))
    assert returned["data"]["untrusted"] == "the plug-in announcer"
    assert returned["data"]["private"], "it declares nothing, which counts as the worst"
    assert "write_to_file of the plug-in announcer is left out" in done.err
    assert "announcer runs in a process of its own, outside of the sandbox" in done.err
    assert "this goes to the log" in served.read(".autoagent/plugins/announcer.log")


@pytest.mark.slow
def test_the_role_of_a_team_that_declares_it_has_a_plugins_command(served: Home, server: ScriptedServer) -> None:
    put(served, "announcer")
    served.write("team.yaml", TEAM_OF_TWO.format("say_hello"))
    served.write("plugins_config.yaml", json.dumps({"announcer": {"enabled": True}}))
    flags = ("-c", "--json", "-m", "none", "--allow", "say_hello")
    refused = served.run("team", "team.yaml", *flags)
    assert refused.code == 2 and "there is no command 'say_hello' here" in refused.err, "the folder is not trusted yet"
    enable(served, announcer={})
    server.add(command("say_hello", name="Ann"), *FINISH)
    done = served.run("team", "team.yaml", "--n-round", "1", *flags)
    assert done.code == 4, done.text
    assert result(done, "say_hello") == "hello Ann"
    server.add(*FINISH)
    assert served.run("resume", *flags).code == 0
    assert served.offered() == [["say_hello"], ["read_file"]]
    labels = [event["data"] for event in served.log() if event["type"] == "published" and event["sent_from"]]
    assert labels[0] == {"private": True, "untrusted": "the plug-in announcer"}


@pytest.mark.slow
def test_a_resumed_run_has_its_plugins(served: Home, server: ScriptedServer) -> None:
    put(served, "announcer", packed=True)
    enable(served, announcer={})
    say = command("say_hello", name="Ann")
    server.add(say, say, *FINISH)
    assert served.run("-c", "-l", "1", "--allow", "say_hello", *GOAL).code == 4
    served.succeed("resume", "-c", "--json", "--allow", "say_hello")
    prompt = server.requests[-1].body["messages"][0]["content"]
    assert prompt.count("Greet the user") == prompt.count("Be kind to plug-ins.") == 1
    assert served.run("replay", served.runs[-1], "--verify").code == 0


def test_a_command_that_declares_nothing_is_asked_about(served: Home, server: ScriptedServer) -> None:
    put(served, "announcer", packed=True)
    enable(served, Announcer={})  # by the name of its class
    server.add(command("say_hello", name="Ann"), *FINISH)
    done = served.run("-c", "--json", *GOAL)
    refused = next(event for event in done.events if event["type"] == "decided")
    assert not refused["allowed"]
    assert done.code == 0


def test_hooks_around_a_step(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/docs/a.txt", "a")
    put(served, "planner", "rewriter")
    put(served, "echo_plugin", packed=True)
    served.write("plugins_config.yaml", "planner: true\n")
    served.env["ALLOWLISTED_PLUGINS"] = "Rewriter, echo_plugin"
    assert served.run("trust").code == 0
    server.add(Reply('{"command": {"name": "raed_it", "args": {"filename": "a.txt"}}}'), *FINISH)
    server.rejects = ("tools", "response_format")
    done = served.succeed("-c", "--json", *GOAL)
    assert "The ferry is late today." in server.requests[0].prompt
    assert sum("The ferry is late" in event.get("text", "") for event in done.events) == 1, "nothing new was said"
    (told,) = (event for event in done.events if event["type"] == "told")
    assert told["sender"] == told["data"]["untrusted"] == f"{OURS}: the plug-in planner" and told["data"]["private"]
    decided = [event["call"] for event in done.events if event["type"] == "started"]
    assert (decided[0]["name"], decided[0]["args"]) == ("list_files", {"directory": "docs"})
    proposed = next(event for event in done.events if event["type"] == "proposed")
    assert proposed["call"]["name"] == "list_files", "what is authorized is what is run"
    assert result(done, "list_files").endswith("docs/a.txt\n[list_files was looked at]")
    assert served.run("replay", served.runs[-1], "--verify").code == 0


@pytest.mark.slow
def test_words_for_another_agent_pass_the_instruction_hooks(served: Home, server: ScriptedServer) -> None:
    put(served, "instructor")
    enable(served, instructor={})
    server.add(command("start_agent", name="helper", task="Help", prompt="Do it."), *FINISH * 4)
    done = served.run("-c", "--json", *GOAL)
    started = next(event for event in done.events if event["type"] == "started")
    assert started["call"]["args"]["prompt"] == "Do it.\n\nSpeak softly."
    assert "IT WAS TOLD 2 THINGS." in result(done, "start_agent")


def test_a_plugin_answers_in_the_place_of_the_model(home: Home) -> None:
    put(home, "oracle")
    enable(home, oracle={})
    done = home.succeed("-c", "--json", "-m", "none", "--accept-claims", *GOAL)  # there is no key and no endpoint
    assert "The oracle has spoken." in done.out


@pytest.mark.slow
def test_a_plugin_embeds(served: Home, server: ScriptedServer) -> None:
    put(served, "vectors")
    enable(served, vectors={})
    server.add(command("memory_add", text="The ferry leaves at 7:40."), *FINISH)
    assert served.run("-c", *GOAL).code == 0
    assert "embedded: The ferry leaves at 7:40." in served.read(".autoagent/plugins/vectors.log")
    source = served.read("plugins/vectors/__init__.py")
    served.write("plugins/vectors/__init__.py", source.replace("return [len(text)", "return [10**400"))
    assert served.run("trust").code == 0
    server.add(command("memory_add", text="It goes to the island."), *FINISH)
    assert served.run("-c", *GOAL).code == 0, "what is no vector costs no run"


@pytest.mark.slow
def test_a_plugin_answers_for_the_user_where_the_user_says_so(served: Home, server: ScriptedServer) -> None:
    put(served, "chatty")
    enable(served, chatty={})
    served.env["CHAT_MESSAGES_ENABLED"] = "True"
    server.add(command("read_file", filename="a.txt"), command("list_files"), *FINISH)
    done = served.succeed("--json", *GOAL)
    by = [(event["allowed"], event["by"]) for event in done.events if event["type"] == "decided"]
    assert by[:2] == [(False, OURS), (True, OURS)]
    assert "The command was not run: the plug-in chatty says: Use list_files." in server.requests[1].prompt
    log = served.read(".autoagent/plugins/chatty.log")
    assert "asked: NEXT ACTION: read_file" in log
    assert "reported: ENDED: It is done." in log
    served.env["CHAT_MESSAGES_ENABLED"] = "False"
    server.add(command("list_files"))
    assert served.run("--json", *GOAL).code == 5


def test_every_method_of_the_published_template_is_called_by_its_signature(home: Home) -> None:
    """It answers as the model, hears the reports, and its feedback, which never ends, ends the run."""
    put(home, "herald")
    enable(home, herald={})
    home.env["CHAT_MESSAGES_ENABLED"] = "true"
    (row,) = json.loads(home.run("plugins", "--json").out)
    assert (row["used"], row["hooks"]) == (True, ["chat_completion", "user_input", "report"]), row
    done = home.run("--json", "-m", "none", *GOAL)  # there is no key and no endpoint
    assert done.code == 8, done.text
    assert sum(event["type"] == "decided" for event in done.events) < 20
    log = home.read(".autoagent/plugins/herald.log")
    assert "reported: THOUGHTS: Do the thing\nreported:" not in log and "THOUGHTS: Do the thing" in log
    assert "reported: ENDED: " in log


def test_a_module_that_is_missing_is_named_with_what_brings_it(home: Home) -> None:
    """Whatever else a plug-in tries then, and wherever its import finds the plug-in itself."""
    put(home, "almanac", "lantern")
    home.write("plugins/almanac/requirements.txt", "python-almanac-data>=1\nblack\ntwine\nrequests\nopenai>=3\n")
    enable(home, almanac={}, lantern={"requirements": ["glow"]})
    rows = {row["name"]: row for row in json.loads(home.run("plugins", "--json").out)}
    almanac, lantern = rows["almanac"], rows["lantern"]
    assert almanac["missing"] == ["python-almanac-data>=1"], "build tools are no requirement, what is there is met"
    installs = "it needs the module almanac_data, which is not installed (--install-plugin-deps installs python-almanac"
    assert installs in almanac["reason"]
    assert "It reads ALMANAC_KEY" in almanac["reason"]
    assert "it needs the module lantern, which is not installed (--install-plugin-deps installs" in lantern["reason"]


def test_what_a_plugin_is_given_is_not_shown_and_is_trusted_with_it(home: Home) -> None:
    put(home, "herald")
    for secret in ("secret-of-the-folder-1", "secret-of-the-folder-2"):  # another value is another thing to trust
        home.write("plugins_config.yaml", json.dumps({"herald": {"enabled": True, "env": {"HERALD_KEY": secret}}}))
        shown = home.run("trust").out
        assert "given HERALD_KEY=[masked]" in shown and "secret-of" not in shown


@pytest.mark.slow
def test_what_a_plugin_reads_of_the_environment_is_named(home: Home) -> None:
    put(home, "almanac", "lantern")
    with_its_data(home)
    home.write("plugins/lantern/lamp.py", "class Bulb:\n    pass\n")
    enable(home, almanac={}, lantern={})
    rows = {row["name"]: row for row in json.loads(home.run("plugins", "--json").out)}
    (said,) = rows["almanac"]["problems"]
    assert said == (
        "The plug-in almanac adds no command. It reads ALMANAC_KEY, ALMANAC_URL: name what it needs of these under "
        "`env:` of its entry in plugins_config.yaml."
    )
    assert "KeyError: 'LANTERN_TOKEN'" in rows["lantern"]["problems"][0]
    assert rows["lantern"]["used"], "a hook that fails to say whether it is one costs nothing before it is asked"
    assert "It reads LANTERN_TOKEN" in rows["lantern"]["problems"][0]


@pytest.mark.slow
def test_the_commands_of_published_forms_run(served: Home, server: ScriptedServer) -> None:
    """Labels before or after names; openai 0.27, the folders and the libraries that AutoGPT's own process had."""
    served.env["PLUGINS_DIR"] = "more_plugins"
    put(served, "almanac")
    with_its_data(served)
    (served.folder / "plugins").rename(served.folder / "more_plugins")
    with Site() as site:
        site.pages["/look"] = answer(b"The ferry leaves at 7:40.")
        enable(served, almanac={"env": {"ALMANAC_KEY": "k", "ALMANAC_URL": site.url("/look")}})
        calls = [command("Look up", query="ferry"), command("add_task", task_id=3), command("improve_plan")]
        server.add(*calls, Reply("Sail earlier, "), *FINISH)
        allowed = [word for name in ("look_up", "add_task", "improve_plan") for word in ("--allow", name)]
        done = served.run("-c", "--json", "-w", "auto_gpt_workspace", *allowed, *GOAL)
    assert done.code == 0, done.text
    assert json.loads(result(done, "look_up")) == {"status": 200, "text": "The ferry leaves at 7:40.", "data": "data"}
    assert json.loads(result(done, "add_task")) == {"added": 3}
    assert "3" in served.read("auto_gpt_workspace/tasks.json")
    assert result(done, "improve_plan") == "Sail earlier, assistant"
    assert "failed in post_prompt: it raised NameError" in " ".join(done.err.split()), "what it added before stays"


@pytest.mark.slow
def test_mail_is_sent_and_read(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/report.txt", "The ferry leaves at 7:40.")
    put(served, "mailer", called="email")  # as the best known one is: it still finds Python's own
    with mail_server() as (box, account):
        enable(served, Mailer={"env": list(account)})
        served.env |= account
        send = command("Send Email", to="ann@example.org", subject="Ferry", filename="report.txt")
        server.add(send, command("read_emails"), *FINISH)
        done = served.run("-c", "--json", "--allow", "send_email", "--allow", "read_emails", *GOAL)
    assert done.code == 0, done.text
    assert result(done, "send_email") == "Email was sent to ann@example.org!"
    assert b"To: ann@example.org" in box[0]
    assert "7:40" in result(done, "read_emails")
    assert "secret-of-the-mailbox" not in done.out + done.err


def test_what_autogpt_itself_has_is_served(served: Home, server: ScriptedServer) -> None:
    put(served, "borrower", packed=True)
    enable(served, borrower={"config": {"colour": "green"}, "env": {"COLOUR": "red"}})
    served.env["PRIVATE"] = "of the user"
    server.add(command("borrow"), Reply("It is Sunday."), command("shout", word="loud"), *FINISH)
    done = served.run("-c", "--json", "--allow", "borrow", "--allow", "shout", *GOAL)
    found = json.loads(result(done, "borrow"))
    assert found[:2] == ["one two", "It is Sunday."]
    assert "outside is refused, and so is '../secret.txt' is outside the workspace" in found[2]
    assert found[3:6] == ["green", str(served.folder / "autoagent_workspace"), "None"]
    assert set(found[7].split(",")) <= {"COLOUR", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TZ"}
    assert result(done, "shout") == "LOUD"


STEP_HOOKS = ("post_prompt", "on_planning", "post_planning", "pre_instruction", "on_instruction", "post_instruction",
              "pre_command", "post_command", "on_response")  # fmt: skip


WHY = {
    "raises": "it raised ValueError: as it likes",
    "hangs": "it gave no answer in time, and was ended",
    "exits": "it ended (status 3)",
    "leaks": "it raised MemoryError",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hooks", "turn"),
    [(("post_prompt", "on_planning", "pre_command", "post_command"), 0), *((STEP_HOOKS, turn) for turn in range(4))],
    ids=["each once", *(f"turn {turn}" for turn in range(4))],
)
def test_whatever_a_plugin_does_the_run_goes_on(
    served: Home, server: ScriptedServer, hooks: tuple[str, ...], turn: int
) -> None:
    """A plug-in for each hook, which raises, hangs, exits or leaks in it; in the next turn each does the next thing."""
    assert set(STEP_HOOKS) <= set(HOOKS)
    ways = {hook: list(WHY)[(number + turn) % len(WHY)] for number, hook in enumerate(hooks)}
    for hook in hooks:
        put(served, "bad", called=f"bad_{hook}")
    seconds = {"raises": 60, "hangs": 2, "exits": 60, "leaks": 60}
    enable(served, **{f"bad_{hook}": {"env": {"WAY": way}, "seconds": seconds[way]} for hook, way in ways.items()})
    served.env["AUTOAGENT_SANDBOX_MEMORY"] = "400"
    server.add(command("message_agent", key="7", message="Hello"), *FINISH)
    done = served.succeed("-c", "--json", *GOAL)
    said = " ".join(done.err.split())
    for hook, way in ways.items():
        assert f"The plug-in bad_{hook} failed in {hook}: {WHY[way]}" in said


def test_what_is_not_enabled_or_not_trusted_is_never_imported(served: Home, server: ScriptedServer) -> None:
    served.write("plugins/trap/__init__.py", "from auto_gpt_plugin_template import AutoGPTPluginTemplate\n"
                 "open('PWNED', 'w')\nclass Trap(AutoGPTPluginTemplate):\n    pass\n")  # fmt: skip
    server.add(*FINISH * 2)
    assert served.run("-c", *GOAL).code == 0
    (row,) = json.loads(served.run("plugins", "--json").out)
    assert (row["name"], row["used"], row["reason"]) == ("trap", False, "it is not enabled")
    served.write("plugins_config.yaml", "trap:\n  enabled: true\n")
    done = served.succeed("-c", *GOAL)
    assert "The plug-in trap is not used: this folder is not trusted with it" in " ".join(done.text.split())
    assert "not trusted" in json.loads(served.run("plugins", "--json").out)[0]["reason"]
    assert served.run("trust").code == 0
    served.write("plugins/trap/more.py", "")
    assert "not trusted" in json.loads(served.run("plugins", "--json").out)[0]["reason"], "its files have changed"
    served.write("plugins_config.yaml", "trap:\n  enabled: true\n  config: {send_to: somebody-else}\n")
    assert "send_to" in served.run("trust").out
    served.write("plugins_config.yaml", "trap:\n  enabled: true\n  config: {send_to: a-stranger}\n")
    assert "not trusted" in json.loads(served.run("plugins", "--json").out)[0]["reason"], "its config has changed"
    assert not list(served.folder.rglob("PWNED"))


def test_what_runs_of_a_plugin_is_what_was_trusted(served: Home) -> None:
    """Neither code that was compiled from something else, nor what lies beside the plug-in."""
    put(served, "announcer")
    evil = served.write("evil.py", "open('PWNED', 'w')\n")
    compiled = importlib.util.cache_from_source(str(served.folder / "plugins/announcer/__init__.py"))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(evil), compiled, invalidation_mode=unchecked)
    for name in ("neighbour.py", "neighbour_too/__init__.py", "auto_gpt_plugin_template.py"):
        served.write(f"plugins/{name}", "open('PWNED', 'w')\n")
    source = served.read("plugins/announcer/__init__.py")
    names = ("neighbour", "neighbour_too", "autogpt_plugins.neighbour", "autogpt_plugins.neighbour_too", "evil")
    tried = (f"try:\n    import {name}\nexcept ImportError:\n    pass\n" for name in names)
    served.write("plugins/announcer/__init__.py", source + "".join(tried) + "import announcer\n")
    enable(served, announcer={})
    (row,) = [one for one in json.loads(served.run("plugins", "--json").out) if one["name"] == "announcer"]
    assert (row["used"], row["version"]) == (True, "1.2.3"), row
    assert not list(served.folder.rglob("PWNED"))


@pytest.mark.slow
def test_the_list_says_what_each_does_and_lacks(served: Home) -> None:
    put(served, "announcer", "planner")
    served.write("plugins/announcer/requirements.txt", "auto_gpt_plugin_template\nno-such-package-anywhere>=2\n")
    served.write("plugins/broken.zip", "no zip")
    with zipfile.ZipFile(served.folder / "plugins/cut.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cut/__init__.py", "word = 1\n" * 1000)
    whole = (served.folder / "plugins/cut.zip").read_bytes()
    (served.folder / "plugins/cut.zip").write_bytes(whole.replace(whole[50:60], b"\xff" * 10))  # within the content
    served.write("plugins/deep/__init__.py", f"class Deep(AutoGPTPluginTemplate):\n    x = {'-' * 50_000}1\n")
    served.write("plugins/sums/__init__.py", f"class Sums({'1+' * 5_000}AutoGPTPluginTemplate):\n    pass\n")
    served.write("plugins/pipe/__init__.py", "")
    os.mkfifo(served.folder / "plugins/pipe/waits")
    enable(served, announcer={}, gone={})
    rows = {row["name"]: row for row in json.loads(served.run("plugins", "--json").out)}
    one = rows["announcer"]
    assert (one["version"], one["hooks"], one["missing"]) == ("1.2.3", ["post_prompt"], ["no-such-package-anywhere>=2"])
    assert one["commands"] == ["say_hello(name, times=None)"]
    assert rows["planner"]["reason"] == "it is not enabled"
    assert all("cannot be read" in rows[name]["reason"] for name in ("broken.zip", "cut.zip"))
    assert rows["pipe"]["reason"] == "it cannot be read: waits is no regular file"
    assert all("no class of it" in rows[name]["reason"] for name in ("deep", "sums"))
    text = served.run("plugins").text
    assert "announcer  1.2.3  Says hello.\n    used (folder)\n    hooks: post_prompt\n" in text
    done = served.run("-c", "-l", "1", *GOAL)
    assert "The plug-in gone is enabled, but there is none" in done.text
    assert "asks for no-such-package-anywhere>=2: --install-plugin-deps" in " ".join(done.text.split())


@pytest.mark.slow
def test_an_installed_plugin_runs_and_what_lies_in_the_folder_is_not_installed(served: Home) -> None:
    site = served.folder / "site"
    shutil.copytree(WRITTEN / "announcer", site / "acme_announcer")
    written = "Metadata-Version: 2.1\nName: acme-announcer\nVersion: 1.0\nRequires-Dist: auto-gpt-plugin-template\n"
    served.write("site/acme_announcer-1.0.dist-info/METADATA", written)
    served.write("site/acme_announcer-1.0.dist-info/RECORD", "acme_announcer/__init__.py,,\n")
    served.write("project/plugins_config.yaml", "acme_announcer: true\n")
    env = {"HOME": str(served.folder), "PYTHONPATH": os.pathsep.join((str(site), LOADED_WITH["PYTHONPATH"]))}
    project = Home(served.folder / "project", env=env)
    assert project.run("trust").code == 0
    (row,) = json.loads(project.run("plugins", "--json").out)
    assert (row["kind"], row["used"], row["version"]) == ("package", True, "1.2.3")
    here = Home(site, env={**env, "PYTHONPATH": os.pathsep.join(("", LOADED_WITH["PYTHONPATH"]))})
    assert json.loads(here.run("plugins", "--json").out) == []


@pytest.mark.slow
def test_what_a_plugin_asks_for_is_installed_in_an_environment_of_its_own(served: Home) -> None:
    with zipfile.ZipFile(served.folder / "tinydep-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tinydep.py", "WORD = 'from tinydep'\n")
        info = "tinydep-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinydep\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    put(served, "announcer")
    source = served.read("plugins/announcer/__init__.py")
    changed = source.replace('"Says hello."', "__import__('tinydep').WORD")
    served.write("plugins/announcer/__init__.py", changed)
    served.write("plugins/announcer/requirements.txt", "tinydep\n")
    for name in ("venv", "ensurepip", "pip", "sitecustomize"):  # what runs is not what lies here
        served.write(f"{name}.py", "open('PWNED', 'w')\n")
    enable(served, announcer={})
    (row,) = json.loads(served.run("plugins", "--json").out)
    assert row["missing"] == ["tinydep"]
    assert "it needs the module tinydep, which is not installed (--install-plugin-deps installs tiny" in row["reason"]
    served.env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(served.folder), "PIP_CONFIG_FILE": os.devnull}
    done = served.succeed("plugins", "--json", "--install-plugin-deps")
    assert "Installing tinydep in " in done.err and "  Successfully installed tinydep-1.0" in done.err
    (row,) = json.loads(done.out)
    assert (row["used"], row["missing"], row["description"]) == (True, [], "from tinydep")
    assert not list(served.folder.rglob("PWNED"))


@pytest.mark.slow
def test_requirements_name_no_place_that_nobody_was_shown(served: Home) -> None:
    put(served, "announcer")
    served.write("vendor/setup.py", "open('PWNED', 'w')\n")
    places = f"./vendor\nvendor/.\nx @ file://{served.folder}/vendor\nx @ http://127.0.0.1:9/x.zip\ngit+https://x/y\n"
    cannot_be_compared = "requests; sys_platform ~= 'linux'\n"
    served.write("plugins/announcer/requirements.txt", f"{places}--index-url http://x/\n{cannot_be_compared}")
    enable(served, announcer={})
    done = served.run("plugins", "--install-plugin-deps")
    assert (done.code, "No requirement of the plug-ins is missing" in done.text) == (0, True), done.text


@pytest.mark.slow
def test_an_installation_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with Site() as site:
        site.pages["*"] = lambda visit: visit.drip(answer(b" " * 100_000), every=0.5)
        monkeypatch.setenv("PIP_INDEX_URL", site.url("/simple/"))
        state = State(FoundPlugin("slow", "folder", "slow"), PluginEntry("slow"), "", ("no-such-package-anywhere",))
        said: list[str] = []
        with pytest.raises(SetupError, match="cannot be installed: it took too long"):
            install(Session.open({}).place, [state], said.append, seconds=20)
    assert said[0].endswith("for at most 20 seconds.") and len(said) > 1


FILES = {  # of a clone of 0.4.7 that was in use, with the names that it gives them
    "ai_settings.yaml": "ai_goals: [Find what a ticket costs]\nai_name: FriendlyGPT\nai_role: AI\napi_budget: 1.5\n",
    "prompt_settings.yaml": "constraints: ['No user assistance']\nbest_practices: [Be smart.]\n",
    "plugins_config.yaml": "Announcer:\n  config: {}\n  enabled: true\nherald:\n  config: {}\n  enabled: false\n",
    "azure.yaml": "azure_api_type: azure\nazure_api_base: your-base-url-for-azure\nazure_model_map: {}\n",
    "auto_gpt_workspace/notes.txt": "The ferry leaves at 7:40.",
    "auto_gpt_workspace/file_logger.txt": "File Operation Logger write: notes.txt #d41d8cd9\n",
    "auto_gpt_workspace/auto-gpt.json": json.dumps(
        [{
            "raw_content": "A ticket costs 18 crowns.", "summary": "A price", "chunks": ["A ticket costs 18 crowns."],
            "chunk_summaries": ["A price"], "e_summary": [0.1], "e_chunks": [[0.1]], "metadata": {},
        }]
    ),
    "logs/activity.log": "2023-08-11 INFO NEXT ACTION\n",
    "logs/DEBUG/20230811_101010_FriendlyGPT/000_read/full_message_history.json": "[]",
    "plugins/__PUT_PLUGIN_ZIPS_HERE__": "",
    "data/.keep": "",
    "docker-compose.yml": "services:\n  auto-gpt:\n    env_file: [.env]\n",
    "autogpt/app/main.py": "import openai\n",
    "pyproject.toml": "[project]\nname = 'agpt'\n",
    "BULLETIN.md": "# News\n",
}  # fmt: skip


def clone(folder: Home, server: ScriptedServer) -> dict[Path, bytes]:
    """Make such a clone, with a plug-in as GitHub packs it. Return all its files."""
    dotenv = (ROOT / "tests/autogpt/0.4.7.env").read_text().replace("your-openai-api-key", "sk-of-the-user-0123456789")
    dotenv = re.sub("^# (?=SMART_LLM=|MEMORY_INDEX=|OPENAI_API_BASE_URL=)", "", dotenv, flags=re.MULTILINE)
    dotenv = dotenv.replace("=gpt-4", "=test-model").replace("http://localhost:443/v1", server.base_url)
    for name, text in (FILES | {".env": dotenv}).items():
        folder.write(name, text)
    with zipfile.ZipFile(folder.folder / "plugins/Announcer.zip", "w") as archive:
        archive.write(WRITTEN / "announcer/__init__.py", "Auto-GPT-Announcer-master/src/announcer/__init__.py")
    return {path: path.read_bytes() for path in folder.folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("moved", [False, True], ids=["as it lies", "moved"])
def test_a_whole_folder_in_use(served: Home, server: ScriptedServer, moved: bool) -> None:
    for name in ("OPENAI_BASE_URL", "SMART_LLM"):
        del served.env[name]
    old = here = Home(served.folder / "Auto-GPT", served.env | {"HOME": str(served.folder)}, warm=True)
    before = clone(old, server)
    if moved:
        here = Home(served.folder / "new", old.env, warm=True)
        here.folder.mkdir()
        rows = json.loads(here.run("migrate", "../Auto-GPT", "--apply", "--json").out)
        same = ("OPENAI_API_KEY", "SMART_LLM", "MEMORY_INDEX")
        assert {row["item"]: row["to"] or row["why"] for row in rows} == {
            **{name: name for name in ("ai_settings.yaml", "plugins_config.yaml", "prompt_settings.yaml")},
            "auto_gpt_workspace/auto-gpt.json": "the memory: 1 text",
            "auto_gpt_workspace/": "autoagent_workspace/ (1 file)",
            "plugins/": "plugins/ (2 files)",
            **dict.fromkeys(("auto_gpt_workspace/file_logger.txt", "logs"), "AutoGPT's own log"),
            "azure.yaml": "USE_AZURE is not set",
            **{f".env: {name}": f".env: {name}" for name in same},
            ".env: OPENAI_API_BASE_URL": ".env: OPENAI_BASE_URL",
            ".env: EXECUTE_LOCAL_COMMANDS, which is not set": ".env: EXECUTE_LOCAL_COMMANDS",
        }
    refused = here.run("-c", "-y")
    assert refused.code == 3 and "BASE_URL, plugins_config.yaml Announcer.zip. Review" in refused.err
    assert here.run("trust").code == 0
    write = command("write_to_file", filename="summary.txt", text="It leaves at 7:40.")
    server.add(command("read_file", filename="notes.txt"), command("say_hello", name="Ann"), write, *FINISH)
    done = here.succeed("-c", "-y", "--allow", "say_hello", "--accept-claims", "--memory", "all")
    assert "Not used of .env" not in done.text and "of $1.5" in done.text
    assert ("memory is not read (auto_gpt_workspace/auto-gpt.json)" in done.text) == (not moved)
    prompt = server.requests[0].prompt
    for words in ("are FriendlyGPT", "No user assistance", "Be smart.", "Greet the user"):
        assert words in prompt
    assert ("ticket costs 18 crowns." in prompt) == moved
    assert "execute_shell" not in str(server.requests[0].body["tools"])
    assert "7:40" in server.requests[1].prompt and "hello Ann" in server.requests[2].prompt
    workspace = here.folder / ("autoagent_workspace" if moved else "auto_gpt_workspace")
    assert (workspace / "summary.txt").read_text() == "It leaves at 7:40."
    assert moved or "1 new memory" in here.run("migrate", ".", "--apply").err
    assert {path: path.read_bytes() for path in before} == before, "nothing that it had is changed"


def test_a_link_inside_a_plugin_is_refused_as_a_file_is(served: Home) -> None:
    put(served, "announcer")
    served.write("shared/words.py", "WORD = 'harmless'\n")
    (served.folder / "plugins/announcer/lib").symlink_to("../../shared")
    enable(served, announcer={})
    assert "lib is a symbolic link" in served.succeed("plugins").text


@pytest.mark.parametrize("name", ["announcer", "Announcer"])
def test_a_denied_plugin_is_not_used_under_any_of_its_names(served: Home, name: str) -> None:
    put(served, "announcer")
    enable(served, announcer={})
    assert "it is not enabled" in served.run("plugins", env={"DENYLISTED_PLUGINS": name}).text


def test_an_error_that_is_its_own_cause_is_told(served: Home, server: ScriptedServer) -> None:
    put(served, "announcer")
    path = served.folder / "plugins/announcer/__init__.py"
    path.write_text(
        path.read_text() + "\ntry:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise error from error\n"
    )
    enable(served, announcer={})
    assert "it raised ZeroDivisionError: division by zero" in " ".join(served.succeed("plugins").text.split())
