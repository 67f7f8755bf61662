"""Records docs/session/session.cast, a session with the real program, and draws session.svg from it.

    python docs/session/record.py

The program runs in a pseudo-terminal as a person would drive it; its model is a scripted server of the tests, so that
it says the same each time. What is shown on the way, and when, is as it happened, but for pauses that are cut to a
second and a half. `tests/cli/test_recorded_session.py` plays the same session again and compares the text.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import groupby
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]

import pyte  # noqa: E402
from driver import PROGRAM, Home, Session  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.style import Style  # noqa: E402
from rich.terminal_theme import TerminalTheme  # noqa: E402
from rich.text import Text  # noqa: E402
from server import Command, Reply, ScriptedServer  # noqa: E402

CAST, PICTURE = HERE / "session.cast", HERE / "session.svg"
COLUMNS, ROWS = 88, 32
THEME = TerminalTheme(  # a dark terminal
    (22, 27, 34), (201, 209, 217),
    [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255), (57, 197, 207),
     (177, 186, 196)],
    [(125, 133, 144), (255, 161, 152), (86, 211, 100), (227, 179, 65), (121, 192, 255), (210, 168, 255), (86, 212, 221),
     (240, 246, 252)],
)  # fmt: skip
SHOWN_AS = "/home/ada/slug-tool"  # the folder it runs in; its name on this machine is as long
PROJECT = "p"
SHOWN_HOST = "models.example"
DRAWN_TO = "> y -3"  # the last line of the picture; the cast goes on to the end
LONGEST_PAUSE = 1.5  # seconds

WISH = "the test in test_slug.py fails; fix slug.py"
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
FORM = f"""<svg viewBox="0 0 {{width}} {{height}}" xmlns="http://www.w3.org/2000/svg">
<style>
.{{unique_id}}-matrix {{{{ font-family: {FONTS}; font-size: {{char_height}}px; line-height: {{line_height}}px }}}}
.{{unique_id}}-title {{{{ font-family: {FONTS}; font-size: 18px; font-weight: bold }}}}
{{styles}}
</style>
<defs>
<clipPath id="{{unique_id}}-clip-terminal">
<rect x="0" y="0" width="{{terminal_width}}" height="{{terminal_height}}"/>
</clipPath>
{{lines}}
</defs>
{{chrome}}
<g transform="translate({{terminal_x}}, {{terminal_y}})" clip-path="url(#{{unique_id}}-clip-terminal)">
{{backgrounds}}
<g class="{{unique_id}}-matrix">
{{matrix}}
</g>
</g>
</svg>
"""
QUESTION = "help)\n> "

_WRONG = """import re


def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title)
"""
_TEST = """from slug import slug

for title, wanted in (("Hello, World!", "hello-world"), ("Café au lait", "cafe-au-lait")):
    assert slug(title) == wanted, f"{title!r} became {slug(title)!r}, not {wanted!r}"
"""
_LOWER = """    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
"""
_RIGHT = """import re
import unicodedata


def slug(title):
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
"""


def _says(text: str, why: str, plan: str, name: str, /, **args: object) -> Command:
    thoughts = {"text": text, "reasoning": why, "plan": plan, "criticism": "", "speak": ""}
    return Command(name, args, thoughts, {"prompt_tokens": 1800, "completion_tokens": 90, "total_tokens": 1890})


PROPOSAL = {
    "name": "SlugGPT",
    "role": "an AI that mends small Python programs",
    "goals": ["Fix slug.py so that test_slug.py passes"],
}
SCRIPT = (
    Reply(json.dumps(PROPOSAL)),
    _says("First I read what the test is about.", "Nothing is to be guessed", "- read both\n- mend slug.py",
          "read_file", filename="slug.py"),
    _says("Capitals and the dash at the end are wrong: **lower** the title, **strip** the dashes.",
          "hello-world is wanted", "- mend slug.py\n- run the test",
          "edit_file", filename="slug.py", old=_WRONG.splitlines(keepends=True)[-1], new=_LOWER),
    _says("Then the accent is parted from its letter first, and left out.", "The user is right: cafe-au-lait",
          "- mend slug.py\n- run the test",
          "edit_file", filename="slug.py", old=_WRONG, new=_RIGHT),
    _says("Now I run the test.", "Only that shows it", "- run the test",
          "execute_python_file", filename="test_slug.py"),
    _says("The test passes.", "Nothing was printed, and the status is 0", "- finish",
          "task_complete", reason="`slug` lowers titles, drops accents and strips dashes; **test_slug.py passes**."),
)  # fmt: skip


class Screen(pyte.Screen):
    """A screen that shows faint letters in grey, which pyte has no other way to say."""

    def select_graphic_rendition(self, *attributes: int, **more: bool) -> None:
        if 38 not in attributes and 48 not in attributes:  # behind these a 2 says something else
            attributes = tuple(90 if attribute == 2 else attribute for attribute in attributes)
        super().select_graphic_rendition(*attributes, **more)


class Recording(Session):
    """A session in a terminal of usual height that keeps what is shown, and when; `person`: one types and reads."""

    ROWS = ROWS
    person = False

    def __init__(self, *arguments: object, **more: object) -> None:
        self.shown: list[tuple[float, str]] = []
        super().__init__(*arguments, **more)  # type: ignore[arg-type]

    def write(self, text: str) -> None:
        self.shown.append((time.monotonic(), text))
        super().write(text)

    def types(self, line: str) -> None:
        if self.person:
            time.sleep(1.2)
            for letter in line:
                self._process.send(letter)
                time.sleep(0.06)
            time.sleep(0.3)
            line = ""
        super().types(line)


def play(folder: Path, *, person: bool) -> Recording:
    """Play the session from the first key to the end of the program, in an empty folder."""
    with ScriptedServer() as server:
        home = Home(folder / PROJECT)
        home.write("slug.py", _WRONG)
        home.write("test_slug.py", _TEST)
        home.env["HOME"] = str(folder)  # which is no project
        home.point_at(server, "scripted")
        server.models = ({"id": "scripted", "object": "model"},)
        home.env["AUTOAGENT_COMMANDS"] = "read_file,write_to_file,edit_file,execute_python_file,task_complete"
        server.add(*((lambda request, reply=reply: time.sleep(0.9) or reply) if person else reply for reply in SCRIPT))
        environment = home._environment({"TERM": "xterm-256color"})
        program = [*PROGRAM, "-m", "none", WISH]
        session = Recording.of(program, home.folder, environment, COLUMNS, edits=True)
        session.person = person
        try:
            session.answers("Start with this? (y = yes, e = edit, n = no) [y]:", "y")
            session.answers(QUESTION, "y")
            session.answers(QUESTION, "And é becomes e: the test wants cafe-au-lait")
            session.answers(QUESTION, "y -3")
            session.ends()
        finally:
            session.close()
    return session


def cast_of(session: Recording, folder: Path) -> Iterator[str]:
    """Yield the lines of the cast: a header, then what was shown, and when."""
    title = f'autoagent "{WISH}"'
    yield json.dumps(
        {"version": 2, "width": COLUMNS, "height": ROWS, "title": title, "env": {"TERM": "xterm-256color"}}
    )
    at, before = 0.5, session.shown[0][0]
    for letter in f"$ {title}\r\n":
        yield json.dumps([round(at, 3), "o", letter])
        at += 0.05
    for when, text in together(session.shown):
        at, before = at + min(when - before, LONGEST_PAUSE), when
        text = re.sub(r"127\.0\.0\.1:\d+", SHOWN_HOST, text.replace(str(folder / PROJECT), SHOWN_AS))
        yield json.dumps([round(at, 3), "o", text], ensure_ascii=False)


def together(shown: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Yield what was shown, with pieces that came within a fiftieth of a second in one."""
    began, text = shown[0][0], ""
    for when, piece in shown:
        if when - began > 0.02 and text:
            yield began, text
            began, text = when, ""
        text += piece
    yield began, text


def screen_of(cast: str) -> Screen:
    """Return the screen that a cast leaves, so high that nothing has scrolled out of it."""
    screen = Screen(COLUMNS, 400)
    stream = pyte.Stream(screen)
    for line in cast.splitlines()[1:]:
        stream.feed(json.loads(line)[2])
    return screen


def text_of(cast: str) -> str:
    """Return what stands on that screen, without what is of its own at each time."""
    text = "\n".join(line.rstrip() for line in screen_of(cast).display).rstrip() + "\n"
    text = re.sub(r"(?m) -+$", "", text)  # rules, which end where the seconds leave them room
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "20260101-120000-abcd", text)
    return re.sub(r"\b(\d+ min )?\d+ s\b *", "0 s ", re.sub(r"window \d+%", "window 0%", text))


def picture_of(cast: str) -> str:
    """Draw the beginning of that screen as SVG, which loads nothing: in whatever font of fixed width there is."""
    screen = screen_of(cast)
    console = Console(width=COLUMNS, record=True, file=StringIO(), force_terminal=True, color_system="truecolor")
    last = max(row for row, line in enumerate(screen.display) if line.startswith(DRAWN_TO))
    for row in range(last + 1):
        letters = (screen.buffer[row][column] for column in range(COLUMNS))
        line = Text()
        for (color, bold), run in groupby(letters, lambda letter: (letter.fg, letter.bold)):
            line.append("".join(letter.data for letter in run), Style(color=_color(color), bold=bold))
        line.rstrip()
        console.print(line, soft_wrap=True)
    return console.export_svg(title="autoagent", theme=THEME, code_format=FORM, unique_id="session")


def _color(name: str) -> str | None:
    """Return the name that rich has for a colour of pyte's."""
    if name == "default":
        return None
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    bright = name.startswith("bright")
    plain = name.removeprefix("bright").replace("brown", "yellow")
    return f"bright_{plain}" if bright else plain


def main() -> None:
    """Record the session anew, and draw it."""
    with tempfile.TemporaryDirectory(prefix="user", dir="/tmp") as name:
        folder = Path(name).resolve()
        session = play(folder, person=True)
        cast = "\n".join([*cast_of(session, folder), ""])
    assert str(folder) not in cast and len(str(folder / PROJECT)) == len(SHOWN_AS)
    CAST.write_text(cast, encoding="utf-8")
    PICTURE.write_text(picture_of(cast), encoding="utf-8")
    print(text_of(cast))


if __name__ == "__main__":
    main()
