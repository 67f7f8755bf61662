"""What a reader sees of a page: its text with its links, and nothing of what is hidden in it."""

from __future__ import annotations

import re

import pytest

from autoagent import documents
from autoagent.documents import DocumentText
from autoagent.documents.document_text import Link
from autoagent.documents.html import MAX_LINKS_FOR_MAIN

URL = "http://h.example/a/page.html"


def read(body: str, head: str = "") -> DocumentText:
    html = f"<html><head><title>T</title>{head}</head><body>{body}</body></html>"
    return documents.read(URL, html.encode(), "html", url=URL)


@pytest.mark.slow
def test_a_short_page_is_given_whole_in_light_markdown() -> None:
    reading = read(
        "<nav><a href='/'>Home</a></nav><h1>Tides  of\nIslay</h1>"
        "<p>High at <a href='noon.html?a=1 2'>noon</a>.</p><p>Low at<br>6."
        "<ul><li>one<li>two <b>bold</b></ul><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
        "<pre>x = 1\n  y</pre>"
    )
    assert reading.title == "T"
    assert reading.text.split("\n\n") == [
        "[Home](http://h.example/)", "# Tides of Islay", "High at [noon](http://h.example/a/noon.html?a=1%202).",
        "Low at", "6.", "- one\n- two bold", "a | b |\n1 | 2 |", "x = 1\ny",
    ]  # fmt: skip


@pytest.mark.slow
def test_links_are_absolute_once_each_and_of_the_web_alone() -> None:
    reading = read(
        "<a href='q'>q</a> <a href='#top'>top</a> <a href='//x.example/y'></a> <a href='//x.example/y'>y</a>"
        "<a href='javascript:alert(1)'>js</a> <a href='data:text/html,x'>d</a> <a href='file:///etc/passwd'>f</a>"
        "<a href='http://[bad'>bad</a> <a>none</a>",
        head="<base href='/base/'>",
    )
    assert reading.links == (
        Link("q", "http://h.example/base/q"),
        Link("top", "http://h.example/base/#top"),
        Link("y", "http://x.example/y"),
    )
    assert reading.link_count == 3
    assert "[js]" not in reading.text and "file:" not in reading.text


HIDDEN = (
    "<!-- {} -->", "<p style='display: none'>{}</p>", "<p style='color:red;visibility:hidden'>{}</p>",
    "<p style='font-size:0px'>{}</p>", "<p style='opacity: 0;'>{}</p>", "<p hidden>{}</p>",
    "<div hidden><p>{0} <b>{0}</b></p></div>", "<p class='a note b'>{}</p>", "<p id=gone>{}</p>", "<aside>{}</aside>",
    "<script>{}</script>", "<style>{}</style>", "<template><p>{}</p></template>", "<svg><text>{}</text></svg>",
    "<iframe>{}</iframe>", "<input type=hidden value={}>", "<img alt='' title={} src=x>",
    "<p title={0} data-x={0}></p>", "<?php {} ?>", "<![CDATA[{}]]>", "<a hidden href='/{0}'>{0}</a>",
    "<p>\U000e0053\U000e0045</p>",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 20], ids=["all of a short page", "the main text of a long one"])
def test_what_is_hidden_is_no_text_of_the_page(times: int) -> None:
    sheet = "<style>.note, #gone { color: red; display : none } aside{visibility:hidden}</style>"
    hidden = "".join(way.format(f"SECRET{number}.") for number, way in enumerate(HIDDEN))
    shown = "<p>What everybody sees of it, in a sentence that goes on for a while.</p>" * times
    reading = read(f"<main>{shown}{hidden}{shown}</main>", head=sheet)
    told = f"{reading.text} {reading.title} {reading.links}"
    assert re.findall(r"SECRET\d+", told) == []
    assert told.count("What everybody sees") == 2 * times
    assert "\U000e0053" not in told


def test_rules_for_other_media_and_states_hide_nothing() -> None:
    rules = "@media print { .a { display: none } } .b:hover{display:none} .c{opacity:0.5} /* .d{display:none} */"
    body = "<p class=a>one</p><p class=b>two</p><p class=c>three</p><p class=d>four</p>"
    reading = read(body, head=f"<style>{rules}</style>")
    assert reading.text.split() == ["one", "two", "three", "four"]


@pytest.mark.slow
def test_a_page_that_never_closes_its_head_is_read() -> None:
    reading = documents.read(URL, b"<html><head><title>T</title><p>The text.", "html", url=URL)
    assert (reading.title, reading.text) == ("T", "The text.")


def test_the_main_text_of_a_long_page_is_without_its_navigation() -> None:
    pytest.importorskip("trafilatura", reason="pip install 'autoagent[readable]'")
    menu = "".join(f"<li><a href='/m{n}'>menu entry {n}</a></li>" for n in range(40))
    story = "".join(
        f"<p>In the year {1800 + n} the harbour master wrote down the height of the tide, and of the moon, "
        f"in a book that is kept <a href='book{n}.html'>here</a> to this day.</p>"
        for n in range(12)
    )
    reading = read(f"<nav><ul>{menu}</ul></nav><main><h1>The book</h1>{story}</main><footer>All rights</footer>")
    assert "menu entry" not in reading.text
    assert "In the year 1811" in reading.text
    assert "[here](http://h.example/a/book3.html)" in reading.text
    assert reading.link_count == 52  # those of the menu too


@pytest.mark.slow
def test_of_a_page_that_is_mostly_links_all_is_given() -> None:
    menu = "".join(f"<a href='/m{n}'>menu entry {n}</a> " for n in range(MAX_LINKS_FOR_MAIN + 1))
    reading = read(f"<nav>{menu}</nav><main>{'<p>The main text goes on and on.</p>' * 40}</main>")
    assert f"[menu entry {MAX_LINKS_FOR_MAIN}](http://h.example/m{MAX_LINKS_FOR_MAIN})" in reading.text
    assert "The main text goes on and on." in reading.text
