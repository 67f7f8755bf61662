"""Scenarios: some of the program's own behaviour written as such, and what is said of one that fails or is broken."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from driver import PATIENCE, ROOT, Home
from processes import processes_with, wait_for

from autoagent.core.errors import SettingsError
from autoagent.scenarios.loader import read_scenario

SCENARIOS = sorted((ROOT / "tests" / "scenarios").glob("*.yaml"))


@pytest.fixture
def home(home: Home) -> Home:
    """A home whose temporary files are in it, so that it can be seen what is left of them."""
    (home.folder / "tmp").mkdir()
    home.env["TMPDIR"] = str(home.folder / "tmp")
    return home


def left(home: Home) -> list[str]:
    return [path.name for path in (home.folder / "tmp").iterdir()]


# The program's own behaviour -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_the_program_does_what_the_scenario_says(home: Home, scenario: Path) -> None:
    done = home.succeed("test", str(scenario))
    assert done.out.startswith(f"passed  {scenario}: ")
    assert done.out.endswith("\n1 passed, 0 failed.\n")
    assert left(home) == []


def test_the_example_of_the_documentation_passes(home: Home) -> None:
    example = (ROOT / "docs" / "scenarios.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    home.write("list.yaml", example)
    done = home.succeed("test", "list.yaml")
    assert "passed  list.yaml: the list is written, and not deleted without being asked (" in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    ["command line", *(pytest.param(way, marks=pytest.mark.slow) for way in ("arguments", "environment", "settings"))],
)
def test_20f_the_state_folder_that_is_named_is_the_one_that_counts(home: Home, given: str) -> None:
    flag = " --state-dir elsewhere" if given == "arguments" else ""
    more = {
        "environment": "environment: {AUTOAGENT_STATE_DIR: elsewhere}\n",
        "settings": "settings: {state_dir: elsewhere}\n",
    }.get(given, "")
    expect = "    expect: {commands: 0, screen: FINISHED}\n"
    home.write(
        "a.yaml",
        f"arguments: --demo -c{flag}\nterminal: false\n{more}expect: {{commands: 4, events: {{ended: 1}}}}\n"
        f"then:\n  - arguments: show {{run}}{flag}\n{expect}",
    )
    arguments = ("--state-dir", "kept") if given == "command line" else ()
    for number in (1, 2):  # what is there already does not count
        home.succeed("test", *arguments, "a.yaml")
        kept = home.folder / "kept/runs"
        assert len(list(kept.iterdir()) if kept.exists() else []) == (number if arguments else 0)


# What is said of a scenario that fails ---------------------------------------------------------------------------

FAILING = """\
about: nothing of this holds
arguments: --demo
answers: [y, n]
expect:
  exit: 0
  screen:
    - Run it?
    - COMMAND = write_to_file
    - NAME: DemoGPT
  not_on_screen: [{regex: "^NAME: "}]
  prompt: [haiku]
  files:
    autoagent_workspace/haiku.txt: |
      Last leaf on the branch,
      the wind asks it once again.
      Morning.
    autoagent_workspace/other.txt: {regex: .}
    autoagent_workspace: {absent: true}
  commands: 2
  events: {ended: 0, started: 1}
"""


def test_a_failure_says_what_was_expected_what_came_and_how_the_screen_ended(home: Home) -> None:
    home.write("a.yaml", FAILING)
    home.write("b.yaml", "arguments: runs --json\nexpect:\n  screen: '[]'\n")
    done = home.exits(1, "test", "--keep", "a.yaml", "b.yaml")
    head, count, rest = re.split(r"  The end of the screen, (\d+) lines:\n", done.text)
    assert re.sub(r"\d+\.\d s", "0.0 s", head) == (
        "\nFAILED  a.yaml: nothing of this holds (0.0 s)\n"
        "  a.yaml:5: exit: expected 0, but it ended with 6.\n"
        "  a.yaml:8: screen: 'COMMAND = write_to_file' did not appear after 'Run it?'. It appears only before that.\n"
        "  a.yaml:10: not_on_screen: '^NAME: ' is there.\n"
        "  a.yaml:11: prompt: 'haiku' is in none of the 0 prompts.\n"
        "  a.yaml:13: files: autoagent_workspace/haiku.txt is not as expected:\n"
        "    --- expected\n"
        "    +++ found\n"
        "    @@ -2,2 +2,2 @@\n"
        "     the wind asks it once again.\\n\n"
        "    -Morning.\\n\n"
        "    +Evening. It lets go.\\n\n"
        "  a.yaml:17: files: autoagent_workspace/other.txt is not there; beside it: haiku.txt.\n"
        "  a.yaml:18: files: autoagent_workspace is not a file.\n"
        "  a.yaml:5: commands: expected 2, but 1 ran.\n"
        "  a.yaml:5: events: ended: expected 0, but there were 1.\n"
    )
    screen, _, rest = rest.partition("  The folder is kept: ")
    lines = screen.splitlines()
    assert len(lines) == int(count) <= 40
    assert "  | > n" in lines
    assert "  | STOPPED: Ended by the user." in lines
    kept = Path(rest.splitlines()[0])
    assert (kept / "autoagent_workspace" / "haiku.txt").read_text().startswith("Last leaf")
    assert "passed  b.yaml (" in rest
    assert rest.endswith("\n1 passed, 1 failed.\n")
    assert len(left(home)) == 2


@pytest.mark.slow
def test_a_script_that_does_not_fit_fails_the_scenario(home: Home) -> None:
    home.write("a.yaml", "goals: [x]\nreplies: [{command: do_nothing}]\nanswers: [y, y]\nexpect:\n  exit: 1\n")
    home.write("b.yaml", "arguments: --demo\nreplies: [a, b]\nexpect:\n  exit: 5\n")
    done = home.exits(1, "test", "--json", "a.yaml", "b.yaml")
    a, b = json.loads(done.out)
    assert a["problems"] == [
        "a.yaml:5: replies: the model was asked again after the last of the 1 replies.",
        "a.yaml:5: answers: 1 of 2 were not used.",
    ]
    assert b["problems"] == [
        "b.yaml:4: exit: expected 5, but it ended with 6.",
        "b.yaml:4: replies: 2 of 2 were not used.",
        "b.yaml:4: answers: no answer was left for the last question, so the input ended.",
    ]
    assert (a["file"], a["passed"], a["folder"]) == ("a.yaml", False, None)
    assert any("the replies of the scenario have run out" in line for line in a["screen"])


@pytest.mark.slow
def test_what_a_scenario_puts_there_is_trusted(home: Home) -> None:
    task = "{ai_name: N, ai_role: r, ai_goals: [{text: t, check: test -d .}]}"
    home.write(
        "a.yaml",
        f"arguments: -y -c\nfiles:\n  .env: AUTHORISE_COMMAND_KEY=j\n  ai_settings.yaml: '{task}'\n"
        "replies:\n  - {command: task_complete, args: {reason: done}}\n"
        "expect: {exit: 0, screen: 'check: test -d .'}\n",
    )
    home.succeed("test", "a.yaml")


def test_a_scenario_stops_at_its_first_failing_session(home: Home) -> None:
    session = "  - arguments: {}\n    expect:\n      exit: {}\n"
    home.write("a.yaml", "arguments: runs\nexpect: {exit: 0}\nthen:\n" + session.format('"show {run}"', 1) * 2)
    done = home.exits(1, "test", "a.yaml")
    assert done.out.count("a.yaml:") == 1
    assert "  a.yaml:6: arguments: {run} names the run of an earlier session, and there is none.\n" in done.out


# Nothing gets in, nothing is left --------------------------------------------------------------------------------


def test_nothing_of_the_users_environment_gets_in(home: Home) -> None:
    key = "sk-of-the-user-0123456789"
    home.write(".env", f"OPENAI_API_KEY={key}\n")
    home.write("rules/constraints.yaml", "constraints: [Never hurry.]\n")
    home.write(
        "rules/a.yaml",
        "arguments: config --show-origin --all\nterminal: false\n"
        "files:\n  prompt.yaml: {from: constraints.yaml}\n"
        "settings: {prompt_settings_file: prompt.yaml, temperature: 0.5}\n"
        "environment: {PLAIN_OUTPUT: 'yes'}\n"
        "expect:\n"
        "  screen: [openai_api_key =   (default), plain_output = True  (environment]\n"
        f"  not_on_screen: [{key}, TEMPERATURE, masked]\n"
        "  files:\n    prompt.yaml: |\n      constraints: [Never hurry.]\n",
    )
    home.succeed("test", "rules/a.yaml", env={"OPENAI_API_KEY": key, "TEMPERATURE": "9", "PLAIN_OUTPUT": "no"})


def test_a_scenario_has_its_time(home: Home) -> None:
    home.write("a.yaml", "arguments: --demo\nseconds: 0.05\nexpect: {}\n")
    done = home.exits(1, "test", "a.yaml")
    assert "  a.yaml:3: it took longer than 0.05 s (`seconds`) and was ended.\n" in done.out
    assert left(home) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_a_process_has_started_ends_with_it_wherever_it_went() -> None:
    code = (
        "import os, subprocess, sys\nfrom pathlib import Path\n"
        "from autoagent.scenarios.process import running_process\n"
        "away = ['sh', '-c', 'setsid sleep 4711.5 & echo; wait']\n"
        "near, far = os.pipe()\n"
        "with running_process(away, Path('/'), {'PATH': os.environ['PATH']}, stdin=near, output=far):\n"
        "    os.read(near, 1)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=PATIENCE)
    assert processes_with("4711.5") == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_signal_while_a_process_starts_leaves_none_of_it() -> None:
    code = (
        "import os, signal, time\nfrom pathlib import Path\nfrom autoagent.scenarios.process import running_process\n"
        "class Ended(Exception): pass\n"
        "def end(*_): raise Ended\n"
        "signal.signal(signal.SIGALRM, end)\n"
        "near, far = os.pipe()\n"
        "for moment in range(1, 60):\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, moment / 20_000)\n"
        "        with running_process(['sleep', '4711.6'], Path('/'), dict(PATH='/bin'), stdin=near, output=far):\n"
        "            for _ in range(100):\n"
        "                time.sleep(0.01)\n"
        "    except Ended:\n"
        "        pass\n"
        "print('all moments')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=PATIENCE, capture_output=True)
    assert done.stdout == b"all moments\n"
    assert processes_with("4711.6") == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ending_the_test_ends_what_it_plays(home: Home) -> None:
    home.write("a.yaml", "arguments: --ai-goal scenario-4712\nanswers: []\nreplies: []\nexpect: {}\n")
    process = home.start("test", "a.yaml")
    wait_for(lambda: processes_with("scenario-4712"))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "autoagent: Ended by SIGTERM.\n")
    assert processes_with("scenario-4712") == []
    assert left(home) == []


# A scenario that somebody else has written -----------------------------------------------------------------------

REPLY = "replies: [{command: execute_shell, args: {command_line: 'touch ../../reached'}}]\n"
WEAKER = {
    "settings": "goals: [x]\nsettings: {sandbox: none}\n",
    "environment": "goals: [x]\nenvironment: {AUTOAGENT_SANDBOX: none}\n",
    "arguments": "goals: [x]\narguments: --sandbox none\n",
    "the network": "goals: [x]\nsettings: {sandbox_network: true}\n",
    "a limit": "goals: [x]\nsettings: {sandbox_seconds: 0}\n",
    "an address of the network": "goals: [x]\nsettings: {allow_hosts: ['127.0.0.1:80']}\n",
    "an interpreter": "goals: [x]\nsettings: {python: /proc/self/cwd/python}\nfiles: {python: {from: python}}\n",
    "an interpreter in .env": "goals: [x]\nfiles: {.env: AUTOAGENT_PYTHON=/proc/self/cwd/python}\n",
    "a workspace": "goals: [x]\nsettings: {workspace: /tmp}\n",
}
BY_DEFAULT = ("settings", "arguments", "an interpreter in .env", "a workspace")


@pytest.mark.parametrize(
    "way", [way if way in BY_DEFAULT else pytest.param(way, marks=pytest.mark.slow) for way in WEAKER]
)
def test_a_scenario_cannot_weaken_the_sandbox(home: Home, way: str) -> None:
    home.write("python", "#!/bin/sh\ntouch reached\n").chmod(0o755)
    home.write("a.yaml", f"{WEAKER[way]}{REPLY}answers: [y]\nexpect: {{commands: 1}}\n")
    done = home.exits(1, "test", "--keep", "a.yaml")
    assert "a.yaml:" in done.out and "exit: expected 0, but it ended with 2." in done.out
    assert "`autoagent test --trusted` allows it" in " ".join(re.sub(r"\n +\| ", " ", done.out).split())
    assert not list((home.folder / "tmp").rglob("reached"))


@pytest.mark.slow
def test_a_scenario_has_the_sandbox_that_the_user_has(home: Home) -> None:
    config = "sandbox_seconds: 7\nsandbox_memory: 0\nexecute_local_commands: false\n"
    home.write(".config/autoagent/config.yaml", config)
    held = "arguments: config --all\nterminal: false\n{}expect: {{screen: ['{}', '{}', '{}']}}\n"
    tighter = "settings: {sandbox_seconds: 5, sandbox_memory: 512, require_sandbox: true}\n"
    usual = ("execute_local_commands = False", "sandbox_seconds = 7", "sandbox_memory = 2048")
    home.write("a.yaml", held.format("", *usual))
    home.write("b.yaml", held.format(tighter, "require_sandbox = True", "sandbox_seconds = 5", "sandbox_memory = 512"))
    home.write("c.yaml", "arguments: config --all\nsettings: {sandbox_memory: 4096}\nexpect: {}\n")
    expect = "expect: {exit: 2, screen: sandbox_seconds = 8}\n"
    home.write("d.yaml", f"arguments: config\nsettings: {{sandbox_seconds: 8}}\n{expect}")
    home.succeed("test", "a.yaml", "b.yaml", "c.yaml", "d.yaml")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("--sandbox", "none", "test"), pytest.param(("test", "--trusted"), marks=pytest.mark.slow)]
)
def test_what_the_user_says_himself_lets_a_scenario_have_no_sandbox(home: Home, words: tuple[str, ...]) -> None:
    home.write("a.yaml", f"goals: [x]\nsettings: {{sandbox: none}}\n{REPLY}answers: [y, n]\nexpect: {{}}\n")
    done = home.run(*words, "--keep", "a.yaml")
    assert list((home.folder / "tmp").rglob("reached")), done.text


@pytest.mark.slow
@pytest.mark.parametrize("words", ["undo {} --force --state-dir .autoagent", "resume {} -c --state-dir .autoagent"])
def test_a_run_that_a_scenario_brings_has_no_workspace_elsewhere(home: Home, words: str) -> None:
    home.write("mine/a.txt", "mine")
    assert home.run("--demo", "-c", "-l", "3", "-w", "mine").code == 4
    (home.folder / "mine/haiku.txt").write_text("changed since")
    home.write(
        "a.yaml",
        f"arguments: {words.format(home.runs[0])}\nfiles: {{.autoagent: {{from: .autoagent}}}}\nterminal: false\n"
        "expect: {exit: 2, screen: leads out of the folder of the scenario}\n",
    )
    home.succeed("test", "a.yaml")
    assert home.read("mine/haiku.txt") == "changed since"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("files: {a: {from: ../x}}\n", ":1: from: "),
        ("files: {a: {from: /etc/passwd}}\n", ":1: from: "),
        ("files: {a: {from: folder}}\n", "folder/link leads out of the folder"),
        ("files: {a: {from: folder/link}}\n", "folder/link leads out of the folder"),
        ("arguments: memory export /tmp/x\n", ":1: arguments: /tmp/x leads out"),
        ("arguments: memory export a/../../x\n", ":1: arguments: a/../../x leads out"),
        ("arguments: --state-dir=/tmp/x runs\n", ":1: arguments: --state-dir=/tmp/x leads out"),
        ("arguments: report x -o/tmp/x\n", ":1: arguments: -o/tmp/x leads out"),
        ("arguments: -w/tmp\n", ":1: arguments: -w/tmp leads out"),
        ("arguments: report x -o../x\n", ":1: arguments: -o../x leads out"),
        *(
            (f"environment: {{{name}: '{{}}'}}\n", f":1: {name}: is not a variable that a scenario may set")
            for name in ("PATH", "HOME", "PYTHONPATH", "AUTOAGENT_HELD_TO")
        ),
    ],
)
def test_a_scenario_stays_in_its_folder(home: Home, text: str, says: str) -> None:
    home.write("x", "the user's")
    (home.folder / "there" / "folder").mkdir(parents=True)
    (home.folder / "there" / "folder" / "link").symlink_to(home.folder / "x")
    home.write("there/a.yaml", f"{text}expect: {{exit: 0}}\n")
    done = home.run("test", "there/a.yaml")
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.endswith("`autoagent test --trusted` allows it.\n")
    if "from: ../x" in text:
        assert home.run("test", "--trusted", "there/a.yaml").code != 2


def test_no_file_from_elsewhere_is_attached_by_a_scenario(home: Home) -> None:
    home.write("x", "the user's")
    arguments = f"""'"Read @{home.folder}/x now" -c -l 1 -m none'"""
    expected = "{exit: 4, screen: leads out of the folder of the scenario}"
    replies = "replies: [no task, {command: do_nothing}]"  # first about the agent's name and goals
    home.write("there/a.yaml", f"arguments: {arguments}\n{replies}\nexpect: {expected}\n")
    home.succeed("test", "there/a.yaml")


@pytest.mark.parametrize("words", ["memory export link/x", "report RUN -o link/x", "show RUN --export link/x.md"])
def test_no_file_elsewhere_is_written_by_a_scenario(home: Home, words: str) -> None:
    """As a scenario runs the program, where a session before has made a link."""
    (home.folder / "elsewhere").mkdir()
    home.write("there/a.txt", "")
    there = Home(home.folder / "there", env={"HOME": str(home.folder)}, warm=True)
    assert there.run("--demo", "-c", "-l", "1").code == 4
    (there.folder / "link").symlink_to(home.folder / "elsewhere")
    given = words.replace("RUN", there.runs[0]).split()
    elsewhere = "leads out of the folder of the scenario"
    assert elsewhere in there.exits(2, *given, env={"AUTOAGENT_HELD_TO": "{}"}).err
    assert there.run(*given).code == 0 and list((home.folder / "elsewhere").iterdir())


# Files that are no scenario --------------------------------------------------------------------------------------


def test_every_broken_file_is_named_and_nothing_is_played(home: Home) -> None:
    home.write("a.yaml", "arguments: --demo\nexpect: {}\n")
    home.write("b.yaml", "replys: []\nexpect: {}\n")
    done = home.run("test", "a.yaml", "b.yaml", "c.yaml")
    assert (done.code, done.out) == (2, "")
    problems = ("b.yaml:1: replys: no such key. Did you mean replies?", "c.yaml: no such file.")
    assert done.err == "".join(f"autoagent: {problem}\n" for problem in problems)


def test_files_that_cannot_be_there_are_named(home: Home) -> None:
    home.write("a.yaml", "files: {a: x, a/b: y}\nexpect: {}\n")
    done = home.run("test", "a.yaml")
    assert (done.code, done.out, done.err) == (2, "", "autoagent: a.yaml: files: a/b: File exists.\n")
    assert left(home) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ": expect: is missing; add what you expect of this session."),
        ("about: x\ngoals: [y]\n", ":2: expect: is missing"),
        ("expect: {}\nthen:\n  - answers: [y]\n", ":3: expect: is missing"),
        ("expect: {}\nthen: {}\n", ":2: then: must be a list"),
        ("expect: {exits: 0}\n", ":1: exits: no such key. Did you mean exit?"),
        ("expect: {exit: yes}\n", ":1: exit: must be a whole number of 0 or more."),
        ("expect: {exit: true}\n", ":1: exit: must be a whole number of 0 or more."),
        ("expect:\n  screen:\n    - [a]\n", ":3: screen: must be text, not a list."),
        ("expect:\n  screen:\n    - regex: '('\n", ":3: regex: is not a regular expression: missing )"),
        ("expect:\n  screen: [a, '']\n", ":2: screen: holds an empty item"),
        ("expect:\n  files:\n    ../a: x\n", ":3: ../a: must be a path in the folder of the scenario"),
        ("expect:\n  files:\n    a: {absent: false}\n", ":3: absent: can only be true"),
        ("expect:\n  files:\n    a: {}\n", ":3: a: holds one of a text, `regex: ...` and `absent: true`."),
        ("expect:\n  events: {thoughts: 1}\n", ":2: thoughts: no such type of event. Did you mean thought?"),
        ("files: {/etc/x: y}\nexpect: {}\n", ":1: /etc/x: must be a path in the folder"),
        ("files: {.config/autoagent/config.yaml: x}\nexpect: {}\n", "under `settings`."),
        ("files: {a: {from: nowhere}}\nexpect: {}\n", "nowhere; put it next to the scenario."),
        ("files: {a: {form: b}}\nexpect: {}\n", ":1: form: no such key. Did you mean from?"),
        ("settings: {memory_sleep: 3}\nexpect: {}\n", ":1: memory_sleep: is no longer a setting: `autoagent memory"),
        ("environment: {MEMORY_SLEEP: 3}\nexpect: {}\n", ":1: MEMORY_SLEEP: is no longer a setting: `autoagent memory"),
        ("settings: {memory: none}\nexpect: {}\n", ":1: memory: no such setting."),
        ("settings:\n  window: wide\nexpect: {}\n", ":2: window: must be a whole number of 0 or more, not 'wide'."),
        ("environment: {A B: x}\nexpect: {}\n", ":1: A B: is not the name of a variable."),
        ("seconds: -1\nexpect: {}\n", ":1: seconds: must be a number of seconds above 0."),
        ('arguments: "\'"\nexpect: {}\n', ":1: arguments: cannot be split into words: No closing quotation."),
        ("terminal: 1\nexpect: {}\n", ":1: terminal: must be true or false."),
        ("answers:\n  - y\n  -\nexpect: {}\n", ':3: answers: holds an empty item; write "" for Enter alone.'),
        ('answers: ["a\\nb"]\nexpect: {}\n', ":1: answers: an answer is one line"),
        ("replies:\n  - {thoughts: x}\nexpect: {}\n", ":2: replies: the reply has no `command`"),
        ("replies:\n  - {command: x, args: [a]}\nexpect: {}\n", ":2: args: must hold `key: value` lines."),
        ("expect: {}\nabout: &a x\ngoals: [*a]\n", ":3: aliases (*a) are not allowed"),
    ],
)
def test_what_cannot_be_meant_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        read_scenario(path)
    assert str(error.value).startswith(str(path))
    assert says in str(error.value)


def test_replies_are_what_a_model_would_write(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "replies:\n"
        "  - thoughts: I look.\n"
        "    command: web_search\n"
        "    args: {query: yes, num_results: 8, exact: true, words: [a, '5'], code: '12',\n"
        "           none: null, when: 2024-01-01}\n"
        "  - '  not JSON: {'\n"
        "answers: [y, y -2, n, '', no]\n"
        "expect: {}\n"
    )
    session = read_scenario(path).sessions[0]
    args = {"query": "yes", "num_results": 8, "exact": True, "words": ["a", "5"], "code": "12", "none": None}
    args["when"] = "2024-01-01"
    called = {"thoughts": {"text": "I look."}, "command": {"name": "web_search", "args": args}}
    assert json.loads(session.replies[0]) == called
    assert session.replies[1] == "  not JSON: {"
    assert session.answers == ("y", "y -2", "n", "", "no")
