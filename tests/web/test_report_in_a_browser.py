"""The pages of a report as a browser shows them: of a run, of two side by side, of a team and of a fleet."""

from __future__ import annotations

import json
import re

import pytest
from chromium import browsing, needs_chromium
from driver import FINISH, Home
from server import Reply, Request, ScriptedServer, command

pytestmark = [pytest.mark.slow, needs_chromium]

CODE = 'def name(n):\n    """Say it."""\n    return f"{n} times"  # no more\n'
TEAM = """\
idea: Write a product function
roles:
  - {name: Alice, profile: Coder, actions: [{name: Code, instruction: Code it}]}
  - {name: Bob, profile: Tester, watch: [Code], actions: [{name: Test, instruction: "Test this: {news}"}]}
"""
PAGES = ["run", "compare", "team", "fleet"]


def report_of(home: Home, server: ScriptedServer, kind: str) -> str:
    """Return the address of the report of this kind, of runs with long names, code and failures."""
    home.point_at(server)
    flags = ("-c", "-y", "-m", "none", "--accept-claims", "--no-verify")
    if kind == "team":
        server._every = lambda request: Reply(f"{name_of(request)} says {'b' * 300}")
        home.write("team.yaml", TEAM)
        home.succeed("team", "team.yaml", "-m", "none")
        made = home.run("report", "--team", home.runs[0], "-o", "page.html")
    elif kind == "fleet":
        server.add(*[*FINISH] * 2)
        head = home.start("fleet", "-", "-c", "--out", "out", "--accept-claims", "--no-verify")
        head.communicate("\n".join(json.dumps({"id": id * 40, "goal": f"Say {id * 500}"}) for id in "ab"))
        made = home.run("report", "--fleet", "out", "-o", "page.html")
    else:
        write = command("write_to_file", filename="a.py", text=CODE)
        server.add(write, command("read_file", filename="b" * 150), command("list_files"), *FINISH)
        assert home.run(*flags, "--ai-name", "N" * 200, "--ai-goal", "Write a.py").code == 0
        made = home.run("report", home.runs[0], "-o", "page.html")
    if kind == "compare":
        server.add(command("list_files"), *FINISH)
        assert home.run("fork", home.runs[0], "--at", "1", "-c", "--accept-claims", "--no-verify").code == 0
        made = home.run("report", home.runs[1], "--compare", home.runs[0], "-o", "page.html")
    assert made.code == 0, made.text
    return (home.folder / "page.html").as_uri()


def name_of(request: Request) -> str:
    """Return the name of the role that asks."""
    found = re.search(r"named (\w+)", str(request.body["messages"][0]["content"]))
    assert found
    return found[1]


@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(home: Home, server: ScriptedServer, kind: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = report_of(home, server, kind)
    for width, scheme in [(360, "dark"), (1280, "light"), (2560, "dark")]:
        with browsing(page, width, scheme) as shown:
            shown.locator("h1").first.wait_for()
            found = Axe().run(shown).response["violations"]
            assert not found, [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, kind)


def test_code_is_coloured_and_the_timeline_is_zoomed_by_keys_and_buttons(home: Home, server: ScriptedServer) -> None:
    with browsing(report_of(home, server, "run"), scheme="light") as shown:
        added = shown.locator("td.add", has_text="def name(n):").first
        assert added.locator("span").count() >= 1, "the keyword has a colour"
        colour = "element => getComputedStyle(element).color"
        assert added.locator("span").first.evaluate(colour) != added.evaluate(colour)
        box = shown.locator(".lanes")
        width = "element => [element.scrollWidth, element.clientWidth]"
        assert len(set(box.evaluate(width))) == 1, "all of it is in sight at first"
        shown.get_by_role("button", name="Zoom in").click()
        whole, seen = box.evaluate(width)
        assert whole == pytest.approx(2 * seen, abs=2)
        box.press("+")
        assert box.evaluate(width)[0] == pytest.approx(4 * seen, abs=4)
        shown.get_by_role("button", name="Fit").click()
        assert box.evaluate(width)[0] == seen
        shown.locator("g[data-step]").last.click()
        assert re.fullmatch(r".*#step-\d+", shown.url), "a bar leads to its step"


def test_the_roles_of_a_team_stand_side_by_side_in_rounds(home: Home, server: ScriptedServer) -> None:
    with browsing(report_of(home, server, "team"), scheme="light") as shown:
        table = shown.locator("table.team")
        assert [head.split(" ")[0] for head in table.locator("thead th").all_inner_texts()] == ["Alice", "Bob"]
        assert table.locator("tbody th").all_inner_texts() == ["Idea", "Round 1", "Round 2"]
        first, second = (table.locator("tbody tr", has_text=f"Round {number}") for number in (1, 2))
        assert "Alice says" in first.locator("td").nth(0).inner_text()
        assert "waits for Code" in first.locator("td").nth(1).inner_text()
        assert "Bob says" in second.locator("td").nth(1).inner_text()
