"""The live page: what a browser of this user gets and may do, and that nobody else does."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import nobody
import pytest
from chromium import browsing, in_a_browser
from driver import FINISH, GOAL, PATIENCE, PROGRAM, Hanging, Home
from server import ScriptedServer, Step, command

from autoagent.core.errors import SetupError
from autoagent.log.event_log import EventLog
from autoagent.safety.open_questions import OpenQuestion
from autoagent.safety.typed_answers import refusal
from autoagent.web.actions import Actions

HOSTILE = '</script><img src=x onerror="document.title=1"><b>\u202e\x1b[31m'
WRITE = command("write_to_file", filename="a.txt", text=f"one\n{HOSTILE}\n")
READ = command("read_file", filename="a.txt")


@dataclass
class Site:
    """A page that is served, for whoever has its link."""

    link: str
    cookie: str = ""
    pid: int = 0

    @property
    def host(self) -> str:
        return urlsplit(self.link).netloc

    def ask(
        self, path: str, fields: Mapping[str, Any] | None = None, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask as our own page does, unless the headers say otherwise. An empty header is left out."""
        body = json.dumps(fields).encode() if fields else body
        usual = {"Host": self.host, "Cookie": self.cookie, "Origin": f"http://{self.host}" if body else ""}
        sent = {name: value for name, value in {**usual, **headers}.items() if value}
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.putrequest("POST" if body else "GET", path, skip_host=True)
            for name, value in {**sent, **({"Content-Length": str(len(body))} if body else {})}.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def enter(self) -> None:
        parts = urlsplit(self.link)
        status, headers, _ = self.ask(f"{parts.path}?{parts.query}")
        assert (status, headers["location"]) == (303, parts.path)
        assert "HttpOnly" in headers["set-cookie"] and "SameSite=strict" in headers["set-cookie"]
        self.cookie = headers["set-cookie"].partition(";")[0]

    def act(self, **fields: Any) -> tuple[int, str]:
        status, _, body = self.ask("/act", fields)
        return status, json.loads(body)["text"]

    @contextlib.contextmanager
    def stream(self, path: str, last: str = "") -> Iterator[Iterator[tuple[str, str, Any]]]:
        """Follow a stream: (kind of the message, its id, its data)."""
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE)
        with contextlib.closing(connection):
            headers = {"Cookie": self.cookie, **({"Last-Event-ID": last} if last else {})}
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            assert answer.headers["content-type"].startswith("text/event-stream")

            def messages() -> Iterator[tuple[str, str, Any]]:
                kind = id = data = ""
                for raw in answer:
                    line = raw.decode().rstrip("\n")
                    name, _, value = line.partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "id":
                        id = value
                    elif name == "data":
                        data = value
                    elif not line and data:
                        yield kind, id, json.loads(data)
                        kind = id = data = ""

            yield messages()

    def question(self, run: str = "") -> dict[str, Any]:
        """The first question that is open."""
        with self.stream("/events") as messages:
            for _, _, data in messages:
                for question in data["questions"]:
                    if question["run"].startswith(run):
                        return dict(question)
        raise AssertionError("the stream has ended")


@contextlib.contextmanager
def serving(home: Home, *arguments: str) -> Iterator[Site]:
    """Serve until the test is done, as Ctrl-C ends it."""
    process = subprocess.Popen(
        [*PROGRAM, "view", *arguments],
        cwd=home.folder,
        env=home._environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        link = process.stdout.readline().strip()
        assert link, process.stderr.read()
        yield Site(link, pid=process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in errors, errors


@pytest.fixture
def site(served: Home) -> Iterator[Site]:
    with serving(served) as site:
        site.enter()
        yield site


@pytest.fixture
def waiting(served: Home, server: ScriptedServer, site: Site) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start a run that waits for an answer, without a terminal."""
    processes: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        processes.append(served.start("-y", "-m", "none", *GOAL, "--answer-timeout", "600"))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=PATIENCE)
    return process.returncode


def finished(home: Home, server: ScriptedServer, *replies: Step, flags: Sequence[str] = ()) -> str:
    """Do a task with these replies before the last, and return the id of its run."""
    server.add(*replies, *FINISH)
    home.run("-c", "-y", "-m", "none", *flags, *GOAL)
    return home.runs[-1]


def read_in(home: Home, server: ScriptedServer, run: str) -> None:
    """Resume a run that has ended, to read a file."""
    server.add(READ, *FINISH)
    home.run("resume", run, "read it", "-c", "--accept-claims")


# Who gets in --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_this_users_browser_gets_an_answer(served: Home, server: ScriptedServer) -> None:
    run = finished(served, server, WRITE)
    with serving(served) as site:
        for path in ("/", "/events", f"/runs/{run}", f"/runs/{run}/events", "/pages.js"):
            assert site.ask(path)[0] == 403
        token = parse_qs(urlsplit(site.link).query)["token"][0]
        assert site.ask(f"/?token={token[:-1]}x")[0] == 403
        site.enter()
        status, headers, _ = site.ask("/")
        assert status == 200 and headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff" and "access-control-allow-origin" not in headers
        for wrong in ("evil.example", f"evil.example:{site.host.partition(':')[2]}", f"{site.host}.evil.example"):
            assert site.ask("/", Host=wrong)[0] == 421, "a name that leads here by DNS is not ours"
        for header in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            assert site.ask("/", **header)[0] == 403
        port = int(site.host.rpartition(":")[2])
        other = f"http://127.0.0.1:{port - 1 if port > 2000 else port + 1}"
        undo = {"action": "undo", "run": run}
        for origin in ("http://evil.example", "null", other):
            assert site.ask("/act", undo, Origin=origin)[0] == 403
        assert site.ask("/act", undo, Origin="", Referer=f"http://{site.host}/")[0] == 403
        cookie = site.cookie
    with serving(served) as later:
        later.cookie = cookie.replace(site.host.rpartition(":")[2], later.host.rpartition(":")[2])
        assert later.ask("/")[0] == 403, "the token is new at each start"
    assert (served.folder / "autoagent_workspace/a.txt").exists()


NO_IPV6 = pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="there is no IPv6 on this machine")


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=NO_IPV6)])
def test_no_other_user_of_the_machine_gets_an_answer_though_he_has_read_the_link(served: Home, host: str) -> None:
    """`--open` gives the link to a browser, whose arguments everybody can read."""
    nobody.require()
    code = (
        "import sys, urllib.request as web; print(web.build_opener(web.HTTPCookieProcessor()).open(sys.argv[1]).status)"
    )
    with serving(served, "--host", host) as site:
        asked = [nobody.interpreter(), "-c", code, site.link]
        other, own = (subprocess.run([*who, *asked], capture_output=True, text=True) for who in (nobody.BECOME, ()))
        assert ("403" in other.stderr, own.stdout) == (True, "200\n"), (other, own)
        assert site.ask("//evil.example/?" + urlsplit(site.link).query)[1]["location"] == "/evil.example/"
        site.enter()
        status, _, body = site.ask("/act", body=b"[" * 100_000)
        assert (status, body) == (400, b'{"text":"The request is not JSON."}')


@pytest.mark.parametrize("path", ["/runs/..%2f..%2fetc/events", "/pages.py", "/../etc/passwd", "/runs/nothing/steps"])
def test_no_file_is_served_by_its_path(site: Site, path: str) -> None:
    assert site.ask(path)[0] == 404


def test_another_address_needs_tls_and_a_token_of_the_users(home: Home) -> None:
    refused = home.run("view", "--host", "0.0.0.0")
    assert (refused.code, "no address that a browser can name" in refused.err) == (2, True)
    refused = home.run("view", "--host", "10.0.0.1")
    assert (refused.code, "other machines" in refused.err) == (2, True)
    home.write("token", "short")
    assert "at least 20" in home.run("view", "--token-file", "token").err
    assert "not an IP address" in home.run("view", "--host", "localhost").err
    assert "token and token are not a certificate" in home.run("view", "--certificate", "token", "--key", "token").err
    assert home.run("view", "nothing").code == 1


# What it shows ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_stream_gives_each_change_once_also_after_a_new_start(served: Home, server: ScriptedServer) -> None:
    run = finished(served, server, WRITE, flags=["--accept-claims"])
    served.write("token", "a+token&of/my=own-32#characters")
    with serving(served, "--token-file", "token") as site:
        site.enter()
        with site.stream(f"/runs/{run}/events") as messages:
            _, last, change = next(messages)
        calls = [step["call"]["name"] for _, step in change["steps"] if "call" in step]
        assert calls == ["write_to_file", "task_complete"]
        assert change["head"]["status"] == "finished" and int(last) == len(served.log(run))
        _, _, body = site.ask(f"/runs/{run}/steps?first=0&last=1")
        assert json.loads(body) == [change["steps"][0][1]]
        assert "\u202e" not in json.dumps(change, ensure_ascii=False)
    with serving(served, "--token-file", "token") as site:
        site.enter()
        with site.stream(f"/runs/{run}/events", last) as messages:
            kind, _, state = next(messages)
            assert (kind, state) == ("state", {"questions": [], "held": False}), "nothing comes twice"
            read_in(served, server, run)
            kind, id, _ = next(messages)
        assert kind or int(id) > int(last)


def test_a_damaged_log_is_named_and_the_others_are_listed(served: Home, server: ScriptedServer, site: Site) -> None:
    oldest, newest = finished(served, server), finished(served, server)
    log = served.state / "runs" / newest / "events.jsonl"
    log.write_bytes(b"{]\n" + log.read_bytes())
    with site.stream("/events") as messages:
        rows = {row["id"]: row for row in next(messages)[2]["runs"]}
    assert rows[newest]["status"] == "damaged" and "events.jsonl:1" in rows[newest]["problem"]
    assert rows[oldest]["status"] == "finished"


# What it can do -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_who_answers_first_wins_and_the_other_is_told(
    served: Home, server: ScriptedServer, site: Site, waiting: Callable[[], subprocess.Popen[str]]
) -> None:
    server.add(WRITE, *FINISH)
    process = waiting()
    question = site.question()
    assert question["command"]["name"] == "write_to_file" and question["here"]
    assert site.act(action="answer", question=question["id"], text="y 5x")[0] == 409, "no authorization, so no answer"
    assert site.act(action="answer", question=question["id"], text="y") == (200, "Answered.")
    status, text = site.act(action="answer", question=question["id"], text="n")
    assert (status, "no longer open" in text) == (409, True)
    second = _until(site.question, lambda found: found["id"] != question["id"])
    assert served.run("inbox", second["id"], "y").code == 0
    assert site.act(action="answer", question=second["id"], text="y")[0] == 409
    assert ended(process) == 0
    assert served.read("autoagent_workspace/a.txt").startswith("one\n")


def test_arguments_are_edited_and_the_budget_is_changed_from_the_page(
    served: Home, server: ScriptedServer, site: Site, waiting: Callable[[], subprocess.Popen[str]]
) -> None:
    server.add(WRITE, *FINISH)
    process = waiting()
    question = site.question()
    assert site.act(action="answer", question=question["id"], text="e {]")[0] == 409, "no JSON, so no answer"
    edited = json.dumps({"filename": "b.txt", "text": "two\n"})
    assert site.act(action="answer", question=question["id"], text=f"e {edited}")[0] == 200
    again = _until(lambda: site.question(), lambda found: found["command"]["arguments"]["filename"] == "b.txt")
    assert again["command"]["arguments"] == {"filename": "b.txt", "text": "two\n"}
    assert site.act(action="answer", question=again["id"], text="/budget 3")[0] == 200
    _until(lambda: served.log(), lambda log: any("3" in str(event.get("what")) for event in log))
    assert site.act(action="answer", question=site.question()["id"], text="n")[0] == 200
    assert ended(process) == 6
    assert not (served.folder / "autoagent_workspace/a.txt").exists()


def test_nothing_is_hidden_of_what_is_to_be_approved(
    served: Home, server: ScriptedServer, site: Site, waiting: Callable[[], subprocess.Popen[str]]
) -> None:
    line = f"ls \u202e{' ' * 5_000}; r\u0443n\x1b[31m"
    server.add(command("execute_shell", command_line=line))
    waiting()
    asked = site.question()["command"]
    assert asked["arguments"] == {"command_line": "ls \\u202e ... 5,000 spaces ... ; r\u0443n\\x1b[31m"}
    assert asked["notes"] == ["'r\u0443n' (Cyrillic: r\\u0443n)"], "letters that look alike"
    assert "\u202e" not in asked["edit"] and json.loads(asked["edit"]) == {"command_line": line}


def _until(look: Callable[[], Any], found: Callable[[Any], bool]) -> Any:
    """Look until it is there."""
    end = time.monotonic() + PATIENCE
    while not found(value := look()):
        assert time.monotonic() < end, value
        time.sleep(0.05)
    return value


def test_a_run_is_paused_and_stopped(served: Home, server: ScriptedServer, site: Site) -> None:
    hanging = Hanging()
    server.add(hanging)
    process = served.start("-c", "-y", "-m", "none", *GOAL, "--answer-timeout", "600")
    hanging.is_asked()
    run = served.runs[0]
    assert site.act(action="pause", run=run)[0] == 200
    question = site.question(run)
    assert question["question"].startswith("Interrupted")
    assert site.act(action="stop", run=run) == (200, "The run is saved and stops.")
    hanging.leave()
    assert ended(process) in (130, 143)
    status, text = site.act(action="stop", run=run)
    assert (status, text) == (409, f"No process works on the run {run}.")


def test_a_run_that_others_made_is_not_continued_from_the_page(tmp_path: Path) -> None:
    log = EventLog.create(tmp_path)
    log.close()

    def refuse(run: str) -> None:
        raise SetupError(f"The run {run} was not made here.")

    actions = Actions(tmp_path, tmp_path / "questions", refuse)
    for asked in ({"action": "undo"}, {"action": "resume"}, {"action": "fork", "at": 1}):
        with pytest.raises(SetupError, match="was not made here"):
            actions.act({**asked, "run": log.run})


@pytest.mark.slow
def test_undo_redo_fork_and_the_next_wish(served: Home, server: ScriptedServer, site: Site) -> None:
    run, file = finished(served, server, WRITE), served.folder / "autoagent_workspace/a.txt"
    status, text = site.act(action="undo", run=run)
    assert (status, file.exists()) == (200, False) and "Undone: step 1" in text
    assert site.act(action="undo", run=run, redo=True)[0] == 200 and file.exists()
    assert site.act(action="undo", run=run, to=-1) == (409, "to must be a whole number from 0.")
    assert site.act(action="undo", run="../x")[0] == 409
    server.add(READ, *FINISH)
    begun, said = site.act(action="resume", run=run, text="--help")  # a wish, never a flag
    assert begun == 200, said
    question = site.question(run)
    assert question["command"]["name"] == "read_file"
    site.act(action="answer", question=question["id"], text="y")
    question = _until(site.question, lambda found: found["command"]["name"] == "task_complete")
    site.act(action="answer", question=question["id"], text="n")
    assert any("--help" in str(event) for event in served.log(run))
    server.add(WRITE)
    begun, said = site.act(action="fork", run=run, at=1, text="Write it anew")
    assert begun == 200, said
    question = _until(site.question, lambda found: found["run"] != run)
    assert question["command"]["name"] == "write_to_file"
    site.act(action="answer", question=question["id"], text="n")
    _until(lambda: served.ended(question["run"]), bool)


@pytest.mark.slow
def test_a_memory_is_pinned_and_forgotten(served: Home, site: Site) -> None:
    assert served.run("memory", "add", "The port is 8080.").code == 0
    [memory] = json.loads(served.run("memory", "list", "--json").out)
    assert site.act(action="pin", memory=memory["id"])[0] == 200
    assert site.act(action="forget", memory=memory["id"])[0] == 200
    assert json.loads(served.run("memory", "list", "--json").out) == []
    assert site.act(action="forget", memory="1; rm")[0] == 409


@pytest.mark.parametrize(
    ("text", "refused"),
    [("/undo", False), ("/budget 2", False), ("/budget", True), ("/goals", True), ("/write x", True), ("e", True),
     ("e {}", False), ("e filename", True), ("y -3", False)],
)  # fmt: skip
def test_what_needs_the_terminal_of_the_run_is_no_answer_from_elsewhere(text: str, refused: bool) -> None:
    assert bool(refusal(text, OpenQuestion(id="a", run="a", question="?", kind="decision").form)) is refused


# In a browser -------------------------------------------------------------------------------------------------------


@in_a_browser
def test_in_a_browser_a_run_is_watched_and_answered_from_two_tabs(
    served: Home, server: ScriptedServer, site: Site, waiting: Callable[[], subprocess.Popen[str]]
) -> None:
    server.add(WRITE, *FINISH)
    process = waiting()
    site.question()
    with browsing(site.link, expected="409") as page:
        other = page.context.new_page()
        other.goto(f"http://{site.host}/")
        page.goto(f"http://{site.host}/runs/{served.runs[0]}")
        other.locator("article.question").wait_for()
        page.get_by_role("button", name="y · yes").click()
        page.locator("article.step .good", has_text="returned").first.wait_for()
        other.get_by_text("task_complete").wait_for()
        other.get_by_label("Feedback or answer").fill("Say more")
        other.get_by_role("button", name="Send").click()
        server.add(*FINISH)
        page.get_by_text("Say more").first.wait_for()
        page.get_by_role("button", name="n · stop").wait_for()
        page.get_by_role("button", name="n · stop").click()
        page.get_by_role("button", name="Go on …").wait_for()
        assert page.locator("img").count() == 0 and page.title().startswith(served.runs[0])
    assert ended(process) == 6


@in_a_browser
def test_in_a_browser_a_stream_that_died_while_the_machine_slept_is_taken_up(
    served: Home, server: ScriptedServer, site: Site
) -> None:
    """The server stops, so that the connection is open and silent; the run goes on, and the clock of the page."""
    run, asked = finished(served, server, WRITE, flags=["--accept-claims"]), []
    with browsing("about:blank", expected="409") as page:
        page.on("request", lambda request: asked.append(request.url))
        page.clock.install()
        page.goto(site.link)
        page.goto(f"http://{site.host}/runs/{run}")
        page.locator("#step-2").wait_for()
        os.kill(site.pid, signal.SIGSTOP)
        try:
            seen = len(served.log(run))
            read_in(served, server, run)
            page.clock.fast_forward(60_000)
        finally:
            os.kill(site.pid, signal.SIGCONT)
        page.locator("#step-4").wait_for()
        ids = [step.get_attribute("id") for step in page.locator("article.step").all()]
    assert ids == [f"step-{number}" for number in range(1, 5)], "nothing is lost, and nothing is there twice"
    assert asked[-1].endswith(f"/events?after={seen}")


@in_a_browser
def test_in_a_browser_no_line_of_a_difference_is_left_out(
    served: Home, server: ScriptedServer, site: Site, waiting: Callable[[], subprocess.Popen[str]]
) -> None:
    served.write("autoagent_workspace/a.sh", "-- one\ntwo\n")
    server.add(command("write_to_file", filename="a.sh", text="++ $(rm -r x)\ntwo\n"))
    waiting()
    site.question()
    with browsing(site.link, expected="409") as page:
        page.locator("article.question").wait_for()
        assert page.locator("td.add").all_inner_texts() == ["++ $(rm -r x)"]
        assert page.locator("td.cut").all_inner_texts() == ["-- one"]


@in_a_browser
@pytest.mark.parametrize("width", [360, 1280, 2560])
def test_in_a_browser_nothing_is_wider_than_the_window(
    served: Home, server: ScriptedServer, site: Site, width: int
) -> None:
    long = command("write_to_file", filename="a" * 150, text="b" * 5_000)
    run = finished(served, server, long, WRITE, flags=["--ai-name", "N" * 300])
    with browsing(site.link, width, expected="409") as page:
        for path in ("/", f"/runs/{run}"):
            page.goto(f"http://{site.host}{path}")
            page.locator("table.list td, article.step").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@in_a_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_axe_finds_nothing(
    served: Home, server: ScriptedServer, site: Site, waiting: Callable[[], subprocess.Popen[str]], scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    server.add(WRITE, READ, *FINISH)
    waiting()
    site.act(action="answer", question=site.question()["id"], text="y")
    _until(site.question, lambda found: found["command"]["name"] == "read_file")
    with browsing(site.link, scheme=scheme, expected="409") as page:
        for path in ("/", f"/runs/{served.runs[0]}"):
            page.goto(f"http://{site.host}{path}")
            page.locator("table.list td, article.step").first.wait_for()
            page.locator("article.question").wait_for()
            found = Axe().run(page).response["violations"]
            assert not found, [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


@in_a_browser
def test_in_a_browser_the_keyboard_is_enough(served: Home, server: ScriptedServer, site: Site) -> None:
    run = finished(served, server, WRITE)
    with browsing(site.link, expected="409") as page:
        page.goto(f"http://{site.host}/runs/{run}")
        page.get_by_role("button", name="Undo the last change").wait_for()
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Undo the last change":
                break
        page.keyboard.press("Enter")
        page.get_by_text("Undone: step 1").first.wait_for()
        assert not (served.folder / "autoagent_workspace/a.txt").exists()


@in_a_browser
def test_in_a_browser_ten_thousand_steps_are_drawn_as_they_are_reached(
    served: Home, server: ScriptedServer, site: Site
) -> None:
    run = finished(served, server, WRITE, READ)
    log = served.state / "runs" / run / "events.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    made = [line for line in lines if line["step"] < 2]
    for number in range(2, 10_000):
        made += [{**line, "step": number, "t": line["t"] + number} for line in lines if line["step"] == 2]
    log.write_text("".join(json.dumps({**line, "seq": seq}) + "\n" for seq, line in enumerate(made)))
    with browsing(site.link, expected="409") as page:
        page.goto(f"http://{site.host}/runs/{run}")
        page.locator("article.step").first.wait_for()
        page.get_by_text(re.compile(r"^(9,999|10,0\d\d) steps")).wait_for(timeout=120_000)
        page.get_by_role("button", name="Newest").click()
        page.locator("#step-9999").wait_for()
        page.goto(f"http://{site.host}/runs/{run}#step-5000")
        page.locator("#step-5000").wait_for()
        assert page.locator("article.step").count() < 2_000, "only what came near is drawn"
