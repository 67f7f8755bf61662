"""Real pages in a real headless Chromium, which reaches nothing but through the network guard."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from loopback_site import Page as Served
from loopback_site import Site, answer, redirect
from website import page, resource

from autoagent.core.errors import CommandError
from autoagent.core.services import WebPage
from autoagent.network.addresses import NetworkGuard, parse_allowed_hosts
from autoagent.network.client import HttpClient
from autoagent.services import browser

pytest.importorskip("playwright", reason="pip install 'autoagent[browser]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not any(map(shutil.which, browser.PROGRAMS)), reason="there is no Chromium on this machine"),
]


def show(site: Site, path: str, *, seconds: float = 40.0, limit: int = 1_000_000, name: str = "chromium") -> WebPage:
    """Render a page of the site, whose host and port are all that may be reached."""
    client = HttpClient(NetworkGuard(parse_allowed_hosts([site.allowed()])))
    return browser.render(site.url(path), limit=limit, fetch=client.fetch, name=name, seconds=seconds)


@contextmanager
def serving(pages: Mapping[str, Served]) -> Iterator[Site]:
    with Site() as site:
        site.pages.update(pages)
        yield site


def script(code: str) -> bytes:
    return page("Scripted", f"<p id=out>before</p><script>{code}</script>")


def test_a_page_is_as_its_scripts_leave_it() -> None:
    code = "fetch('/data.json').then(r => r.json()).then(d => { out.textContent = `the answer is ${d.n}` })"
    resources = {
        "/": page("T", "<p id=out>before</p><script src=/app.js></script>"),
        "/app.js": resource(code.encode(), "text/javascript"),
        "/data.json": resource(b'{"n": 42}', "application/json"),
    }
    with serving(resources) as site:
        shown = show(site, "/")
        assert (shown.url, shown.media_type, shown.charset) == (site.url("/"), "text/html", "utf-8")
    assert b"the answer is 42" in shown.body and b"before" not in shown.body


def test_where_scripts_and_redirects_lead_is_where_the_page_is_from() -> None:
    resources = {
        "/moved": redirect("/first"),
        "/first": script("location.href = '/second'"),
        "/second": page("Second", "<p>here</p>"),
    }
    with serving(resources) as site:
        shown = show(site, "/moved")
        assert shown.url == site.url("/second") and b"here" in shown.body


@pytest.mark.parametrize("where", ["http://127.0.0.1:1/", "/missing"])
def test_a_script_that_leads_to_where_nobody_may_go_is_named(where: str) -> None:
    with serving({"/": script(f"location.href = '{where}'")}) as site, pytest.raises(CommandError) as failed:
        show(site, "/")
    assert str(failed.value) == f"{site.url('/')} leads by script to a refused address."


def test_a_script_that_leads_to_a_file_of_ours_leads_nowhere() -> None:
    with serving({"/": script("location.href = 'file:///etc/passwd'")}) as site:
        assert b'<p id="out">before</p>' in show(site, "/").body


def test_what_style_sheets_hide_is_marked() -> None:
    sheet = resource(b"main > p.x { display: none } div p.y { visibility: hidden }", "text/css")
    body = "<main><p class=x>one</p><div><p class=y>two</p><p>three</p></div></main>"
    with serving({"/": page("T", body, "<link rel=stylesheet href=/s.css>"), "/s.css": sheet}) as site:
        shown = show(site, "/")
    assert b'<p class="x" hidden="">' in shown.body and b'<p class="y" hidden="">' in shown.body
    assert b"<p>three</p>" in shown.body


def test_what_is_no_page_is_given_as_it_came_and_a_missing_page_is_named() -> None:
    with serving({"/a.pdf": resource(b"%PDF-1.7 x", "application/pdf")}) as site:
        assert show(site, "/a.pdf") == WebPage(site.url("/a.pdf"), "application/pdf", b"%PDF-1.7 x")
        with pytest.raises(CommandError, match="404 Not Found"):
            show(site, "/")


def test_nothing_reaches_another_port_of_this_machine_in_any_way() -> None:
    """fetch, XHR, form, beacon, image, frame, WebSocket, EventSource, worker, window, WebRTC, and a redirect."""
    with serving({"/": page("Private", "<p>secret</p>")}) as private:
        there = private.allowed()
        code = f"""
          const add = text => {{ out.textContent += ' ' + text }};
          fetch('http://{there}/fetch', {{mode: 'no-cors'}}).then(() => add('fetched'), () => add('refused'));
          fetch('/elsewhere').then(() => add('redirected'), () => add('held'));
          fetch('file:///etc/passwd').then(() => add('file'), () => add('nofile'));
          const request = new XMLHttpRequest(); request.open('POST', 'http://{there}/xhr'); request.send('x');
          navigator.sendBeacon('http://{there}/beacon', 'x');
          new Image().src = 'http://{there}/image';
          const frame = document.createElement('iframe'); frame.src = 'http://{there}/frame';
          document.body.append(frame);
          const socket = new WebSocket('ws://{there}/socket'); socket.onopen = () => socket.send('x');
          new EventSource('http://{there}/events');
          try {{ new Worker(URL.createObjectURL(new Blob([`fetch('http://{there}/worker')`]))) }} catch (e) {{}}
          try {{ navigator.serviceWorker.register('/sw.js') }} catch (e) {{}}
          window.open('http://{there}/window');
          const peer = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{there}'}}]}});
          peer.createDataChannel('x'); peer.createOffer().then(o => peer.setLocalDescription(o));
          const form = document.createElement('form'); form.method = 'post'; form.target = '_blank';
          form.action = 'http://{there}/form'; document.body.append(form); form.submit();
        """
        resources = {
            "/": script(code),
            "/sw.js": resource(b"", "text/javascript"),
            "/elsewhere": redirect(f"http://{there}/redirect"),
        }
        with serving(resources) as site:
            text = show(site, "/").body.decode()
        assert private.seen == []
    for outcome in ("refused", "held", "nofile"):
        assert outcome in text
    assert sorted(path for path, _ in site.seen) == ["/", "/elsewhere"]


def test_a_page_that_never_rests_is_stopped() -> None:
    resources = {
        "/busy": script("while (true) {}"),
        "/later": script("setTimeout(() => { while (true) {} }, 300); fetch('/slow')"),
        "/slow": lambda visit: visit.drip(answer(b"x" * 1000)),
    }
    with serving(resources) as site:
        for path in ("/busy", "/later"):
            began = time.monotonic()
            with pytest.raises(CommandError) as stopped:
                show(site, path, seconds=6)
            assert str(stopped.value) == f"{site.url(path)} was not done in 6 s in chromium."
            assert time.monotonic() - began < 30


def test_a_page_that_polls_for_ever_is_taken_as_it_is() -> None:
    code = "let n = 0; setInterval(() => fetch('/data').then(() => { out.textContent = `polled ${++n}` }), 100)"
    with serving({"/": script(code), "/data": resource(b"x", "text/plain")}) as site:
        shown = show(site, "/")
        assert b"polled" in shown.body
        assert len(site.seen) < browser.REQUEST_LIMIT + 10


def test_a_page_that_grows_is_cut() -> None:
    with serving({"/": script("out.textContent = 'x'.repeat(3_000_000)")}) as site:
        shown = show(site, "/", limit=10_000)
    assert (len(shown.body), shown.cut) == (10_000, True)


LOOK_AROUND = """
from pathlib import Path
from autoagent.core.services import WebPage
from autoagent.services import browser

def fetch(url, *, limit):
    for process in Path("/proc").glob("[0-9]*") if "look" in url else ():
        try:
            started, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if b"--headless" in started and b"autoagent-browser-" in environment:
            print("the key" if b"sk-secret" in environment else "nothing")
    return WebPage(url, "text/html", b"<script>fetch('/look')</script>")

browser.render("http://h.example/", limit=10**6, fetch=fetch, name="chromium")
"""


def test_the_browser_knows_nothing_of_our_environment() -> None:
    """A key in the environment of the agent is in that of no process of Chromium; looked at while a page is shown."""
    env = {"OPENAI_API_KEY": "sk-secret", "PATH": "/usr/bin:/bin", "HOME": tempfile.gettempdir()}
    done = subprocess.run(
        [sys.executable, "-c", LOOK_AROUND], env=env, capture_output=True, text=True, timeout=90, check=False
    )
    assert set(done.stdout.split("\n")) == {"nothing", ""}, done.stderr


def test_a_browser_that_is_not_there_is_named() -> None:
    with serving({"/": page("T", "x")}) as site, pytest.raises(CommandError, match=r"^firefox cannot be started: "):
        show(site, "/", name="firefox")
