"""Sub-agents as a user meets them: real processes, one scripted endpoint for all agents of a run."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from driver import FINISH, PATIENCE, Home, Session
from processes import processes_with, wait_for
from server import Command, Request, ScriptedServer, command
from test_session import QUESTION, opened

BOSS = ("--ai-name", "Boss", "--ai-role", "who has others do the work", "--ai-goal", "Get it done")
ANNA = command("start_agent", name="Anna", task="writing", prompt="Write a.txt")
WAIT = command("list_agents", wait=PATIENCE)
WIDE = {"COLUMNS": "300"}

Script = Iterable[Command] | Callable[[Request], Command]


def by_agent(**scripts: Script) -> Callable[[Request], Command]:
    """Answers each agent of a run, by its name, with a script of its own."""
    lines = {name: script if callable(script) else iter(script) for name, script in scripts.items()}

    def answer(request: Request) -> Command:
        name = next(name for name in lines if request.asked_by(name))
        script = lines[name]
        return script(request) if callable(script) else next(script)

    return answer


def endless(asked: threading.Event) -> Callable[[Request], Command]:
    """Never comes to an end; `asked` once it was asked."""

    def answer(request: Request) -> Command:
        asked.set()
        time.sleep(0.02)
        return command("write_to_file", filename=f"{time.monotonic_ns()}.txt", text="x")

    return answer


def after(event: threading.Event, *commands: Command) -> Iterator[Command]:
    """These commands, the first one but after the event."""
    assert event.wait(PATIENCE)
    yield from commands


def wait_is_on(home: Home) -> None:
    """Return once the log says that the wait has begun."""
    log = home.state / "runs" / home.runs[0] / "events.jsonl"
    wait_for(lambda: any('"started"' in line and '"list_agents"' in line for line in log.read_text().splitlines()))


@pytest.fixture
def crew(home: Home) -> Iterator[Callable[..., Home]]:
    """A home whose model answers for all agents of a run."""
    servers: list[ScriptedServer] = []

    def made(**scripts: Script) -> Home:
        servers.append(ScriptedServer(by_agent(**scripts)))
        home.point_at(servers[-1])
        return home

    yield made
    for server in servers:
        server.close()


def own(home: Home, agent: str = "") -> list[dict[str, object]]:
    return [event for event in home.log() if event["agent"] == agent]


def paid(home: Home) -> int:
    """The prompt tokens of all calls in the log."""
    return sum(event["usage"]["prompt"] for event in home.log() if "usage" in event)


def test_a_sub_agent_works_is_shown_by_its_name_and_counts_in_the_report(crew: Callable[..., Home]) -> None:
    write = command("write_to_file", filename="a.txt", text="hi\n")
    home = crew(Boss=[ANNA, WAIT, *FINISH], Anna=[write, *FINISH])
    done = home.succeed("-c", "-m", "none", *BOSS, env=WIDE)
    assert home.read("autoagent_workspace/a.txt") == "hi\n"
    assert "[Anna 1] COMMAND: write_to_file(filename='a.txt', text='hi\\n')" in done.text
    assert "[Anna 1] FINISHED: It is done." in done.text
    assert "Anna (1): I have ended (finished) after 2 steps: It is done. Files changed: a.txt." in done.text
    [told] = [event for event in own(home) if event["type"] == "told"]
    assert (told["sender"], told["data"]["changed"]) == ("Anna (1)", ["a.txt"])  # type: ignore[index]
    assert f"({paid(home):,} in" in done.text, "each call counts, once"
    [listed] = json.loads(home.run("runs", "--json").out)
    assert (listed["status"], listed["steps"], listed["goals"]) == ("finished", 3, ["Get it done"])


def test_json_has_the_events_of_all_agents_in_the_order_of_the_log(crew: Callable[..., Home]) -> None:
    home = crew(Boss=[ANNA, command("do_nothing"), WAIT, *FINISH], Anna=[command("do_nothing"), *FINISH])
    done = home.succeed("-c", "--json", "-m", "none", *BOSS)
    assert done.events == home.log()
    assert [event["seq"] for event in done.events] == list(range(len(done.events)))
    assert (own(home, "1")[0]["type"], own(home, "1")[-1]["type"]) == ("run_started", "ended")
    assert [event["step"] for event in own(home, "1") if event["type"] == "started"] == [1, 2]
    assert {event["agent"] for event in done.events} == {"", "1"}


def test_to_finish_while_they_run_ends_and_reports_them(crew: Callable[..., Home]) -> None:
    """D39: also those that they have started."""
    asked = threading.Event()
    bea = command("start_agent", name="Bea", task="more", prompt="Write on")

    def boss() -> Iterator[Command]:
        yield ANNA
        yield from after(asked, *FINISH)

    home = crew(Boss=boss(), Anna=[bea, *[WAIT] * 9], Bea=endless(asked))
    done = home.succeed("-c", "-m", "none", *BOSS, env=WIDE)
    ended = r"Anna \(1\): I have ended \(stopped\) after \d steps?: The agent that started it has ended\."
    assert re.search(ended, done.text)
    assert own(home)[-1] == home.log()[-1], "the end of the run is the last event"
    assert [own(home, key)[-1]["status"] for key in ("1", "1.1")] == ["stopped", "stopped"]


def test_no_program_of_theirs_outlives_the_run(crew: Callable[..., Home]) -> None:
    napping = f"sleep {os.getpid()}.25"

    def boss() -> Iterator[Command]:
        yield ANNA
        wait_for(lambda: processes_with(napping))
        yield from FINISH

    home = crew(Boss=boss(), Anna=[command("execute_shell", command_line=napping)])
    home.succeed("-c", "-m", "none", *BOSS, env=WIDE)
    assert not processes_with(napping)
    assert own(home, "1")[-1]["reason"] == "The agent that started it has ended.", "it was not waited for"
    assert "SIG" in next(str(event["text"]) for event in own(home, "1") if event["type"] == "returned")


def test_they_may_be_so_many_and_so_deep_and_no_more(crew: Callable[..., Home]) -> None:
    """D39: a sub-agent of a sub-agent of ..."""
    asked = threading.Event()
    bea = command("start_agent", name="Bea", task="more", prompt="Write on")

    def boss() -> Iterator[Command]:
        yield ANNA
        yield from after(asked, bea, *FINISH)

    home = crew(Boss=boss(), Anna=[bea, bea, WAIT, *FINISH], Bea=endless(asked))
    home.succeed("-c", "-m", "none", *BOSS, env={"AUTOAGENT_AGENTS": "2"})
    refused = [
        event for event in own(home) if event["type"] == "returned" and "agents are running" in str(event["text"])
    ]
    assert len(refused) == 1 and "AUTOAGENT_AGENTS" in str(refused[0]["text"])
    [started] = [event for event in own(home, "1.1") if event["type"] == "run_started"]
    assert "start_agent" not in str(started["commands"]), "the deepest start no others"


def test_the_question_names_the_sub_agent_and_its_feedback_goes_to_it(crew: Callable[..., Home]) -> None:
    write = command("write_to_file", filename="a.txt", text="hi\n")
    home = crew(Boss=[ANNA, WAIT, *FINISH], Anna=[write, *FINISH])
    with opened(home.terminal("-m", "none", *BOSS)) as session:
        session.answers(QUESTION, "y -2")  # start it, and wait for it: that is asked in advance, and for Boss alone
        session.sees("NEXT ACTION OF Anna (1) (")
        session.answers(QUESTION, "Rather not.")
        session.sees("[Anna 1] \nUSER:\n Rather not.")
        session.sees("NEXT ACTION OF Anna (1) (")
        session.answers(QUESTION, "y")  # its end, about which nobody is asked twice
        session.answers(QUESTION, "y -2")
        assert session.ends() == 0
    assert not (home.folder / "autoagent_workspace/a.txt").exists()
    assert [event["text"] for event in home.log() if event["type"] == "feedback"] == ["Rather not."]


def test_to_stop_at_its_question_saves_and_stops_the_run(crew: Callable[..., Home]) -> None:
    home = crew(Boss=[ANNA, WAIT], Anna=[command("do_nothing")])
    done = home.run("-m", "none", *BOSS, stdin="y -2\nn\n")
    assert done.code == 6, done.text
    assert [own(home, key)[-1]["reason"] for key in ("", "1")] == ["Ended by the user."] * 2


@pytest.mark.slow
def test_ctrl_c_twice_ends_all_of_them_at_once(crew: Callable[..., Home]) -> None:
    asked, left = threading.Event(), threading.Event()

    def hanging(request: Request) -> Command:
        asked.set()
        left.wait(PATIENCE)
        return command("do_nothing")

    home = crew(Boss=[ANNA, WAIT], Anna=hanging)
    session: Session = home.terminal("-c", "-m", "none", *BOSS)
    try:
        assert asked.wait(PATIENCE)
        session.presses_ctrl_c()
        session.sees("stops.\n> ")
        session.presses_ctrl_c()
        assert session.ends() == 130
    finally:
        left.set()
        session.close()
    assert [own(home, key)[-1]["status"] for key in ("", "1")] == ["interrupted", "stopped"]
    assert own(home)[-1] == home.log()[-1]


def test_a_resumed_run_says_who_ended_with_the_program_and_counts_what_they_cost(crew: Callable[..., Home]) -> None:
    asked, left = threading.Event(), threading.Event()

    working = endless(threading.Event())

    def anna(request: Request) -> Command:
        if "haiku" not in request.prompt:
            return working(request)
        asked.set()
        left.wait(PATIENCE)
        return FINISH[0]

    talk = command("message_agent", key="1", message="Make it a haiku.")
    home = crew(Boss=[ANNA, talk, WAIT, command("list_agents"), *FINISH], Anna=anna)
    process = home.start("-c", "-m", "none", *BOSS)
    assert asked.wait(PATIENCE)
    wait_is_on(home)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    left.set()
    before = paid(home)
    done = home.succeed("resume", "-c", env=WIDE)
    assert "Anna (1): I was cut off: I ended when the program did." in done.text
    listed = [event["text"] for event in own(home) if event["type"] == "returned" and "1. Anna: ended" in event["text"]]
    assert len(listed) == 2  # the wait that was cut off has looked again
    assert all("ended (interrupted)" in text for text in listed)
    assert paid(home) > before
    assert f"({paid(home):,} in" in done.text, "what was spent before the crash counts, once"


def test_a_run_with_sub_agents_can_be_replayed(crew: Callable[..., Home]) -> None:
    write = command("write_to_file", filename="a.txt", text="hi\n")
    home = crew(Boss=[ANNA, WAIT, *FINISH], Anna=[write, *FINISH])
    assert home.run("-c", "-m", "none", *BOSS).code == 0
    (home.folder / "autoagent_workspace/a.txt").unlink()
    home.succeed("-c", "-m", "none", *BOSS, "--model", f"replay:{home.runs[-1]}", env={"AUTOAGENT_WINDOW": "32000"})
    assert home.read("autoagent_workspace/a.txt") == "hi\n"


@pytest.mark.slow
def test_every_prompt_follows_from_the_log_also_with_limits_after_a_resume_and_in_a_fork(
    crew: Callable[..., Home],
) -> None:
    """What sub-agents have spent at the moment of a prompt changes what it says is left."""

    def boss() -> Iterator[Command]:
        for number in itertools.count():
            yield ANNA if number % 3 == 0 else command("write_to_file", filename=f"{number}.txt", text="x")

    home = crew(Boss=boss(), Anna=endless(threading.Event()))
    limits = ("--max-tokens", "900000", "--max-seconds", "900", "--budget", "5")
    assert home.run("-c", "-l", "12", "-m", "none", *BOSS, *limits).code == 4
    run = home.runs[-1]
    left = {event["left"] for event in own(home) if event["type"] == "prompted"}
    assert len(left) > 3 and all(line.startswith("You have left: ") for line in left)
    assert home.run("resume", "-c", "-l", "8").code == 4
    assert home.run("fork", run, "--at", "3", "-c", "-l", "8", "--max-tokens", "800000").code == 4
    for done in (run, home.runs[-1]):
        assert {event["agent"] for event in home.log(done)} >= {"", "1"}
        home.succeed("replay", done, "--verify")


def test_they_are_not_offered_where_they_are_switched_off(crew: Callable[..., Home]) -> None:
    home = crew(Boss=FINISH)
    home.succeed("-c", "-m", "none", *BOSS, env={"AUTOAGENT_AGENTS": "0"})
    assert "start_agent" not in str(home.log()[0]["commands"])
    assert "AUTOAGENT_AGENTS=0" in home.run("commands", env={"AUTOAGENT_AGENTS": "0"}).text
