"""The terminal: events become lines on it, questions are asked on it.

With `json`, stdout carries one event a line and everything for a person goes to stderr. Output that cannot be written
(a full disk, a closed pipe) is given up for good: `show` raises StateError, a question has nobody to answer it, and
what the agent does in between goes on; its log is elsewhere.
"""

from __future__ import annotations

import json as json_format
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click

from autoagent.core.commands import Proposal
from autoagent.core.errors import StateError
from autoagent.core.event_codec import to_json
from autoagent.core.events import (
    Decided,
    Ended,
    Event,
    Prompted,
    Proposed,
    Rejected,
    Retried,
    Returned,
    RoundBegan,
    RoundEnded,
    RunStarted,
    Started,
    Thought,
)
from autoagent.reply.thoughts_stream import ThoughtsStream
from autoagent.runs.stats import RunStats
from autoagent.terminal import highlighting, rendering
from autoagent.terminal.activity import Activity
from autoagent.terminal.attention import Attention
from autoagent.terminal.line_editor import LineEditor, can_edit, edit_in_editor
from autoagent.terminal.live_area import LiveArea
from autoagent.terminal.rendering import Canvas
from autoagent.terminal.report_table import table
from autoagent.terminal.run_words import WORDS, RunWords
from autoagent.terminal.subagent_text import SubAgentText
from autoagent.terminal.team_text import TeamText
from autoagent.text.sanitize import escape, width
from autoagent.text.wrapping import Flow, wrap


def decide_color(env: Mapping[str, str], isatty: bool) -> bool:
    """Return whether to write colour codes: NO_COLOR, CLICOLOR_FORCE, CLICOLOR=0, then what the terminal is."""
    if env.get("NO_COLOR"):
        return False
    if env.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    if not isatty or env.get("CLICOLOR") == "0":
        return False
    return env.get("TERM", "" if os.name == "posix" else "windows") not in ("", "dumb")


Mask = Callable[[Any], Any]
"""Takes secrets out of a JSON value."""


_GRAPHIC = "".join(map(chr, range(0x21, 0x7F)))  # what a word of ASCII consists of


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Style:
    """How the screen looks. `columns` None follows the terminal. `plain`: nothing streams, thoughts come whole.

    `whole`: nothing is cut. `history` is the file that keeps what is typed, for later runs; `notify` the command that
    is told of questions.
    """

    color: bool = False
    columns: int | None = None
    plain: bool = False
    whole: bool = False
    history: Path | None = None
    notify: str = ""


_AS_USUAL = Style()


@dataclass(frozen=True, slots=True)
class EventHooks:
    """What others do with an event: `render` gives the text to show it as, None for the usual; `hear` is told it."""

    render: Callable[[Event], str | None] = lambda event: None
    hear: Callable[[Event], None] = lambda event: None


_NO_HOOKS = EventHooks()


class Console:
    """Shows events, hears what streams (Listener), asks and says (Terminal).

    `mask` takes secrets out of what is not from the log. `replays`: the events alone say what was proposed and decided.
    `tally` is the fold over the events; those that an earlier process of the run showed are taken up by `pass_over`.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        stdin: TextIO,
        *,
        style: Style = _AS_USUAL,
        json: bool = False,
        replays: bool = False,
        mask: Mask = _as_it_is,
        hooks: EventHooks = _NO_HOOKS,
    ) -> None:
        self.tally = RunStats()
        self._hooks = hooks
        self._words = RunWords(self.tally)
        self._mask = mask
        self._events = out if json else None
        self._screen = err if json else out
        self._stdin = stdin
        self._color = style.color
        self._columns = style.columns
        self._plain = style.plain
        self._whole = style.whole
        edits = not style.plain and can_edit(stdin, self._screen)
        self._editor = LineEditor(stdin, self._screen, style.history, mask) if edits else None
        moves = edits and not json and not replays
        self._area = LiveArea(self._put_on_screen, self._free_column) if moves else None
        self._activity = Activity(self._area, mask)
        self._prepared = False  # whether the code of a diff can be coloured at once
        self._attention = Attention(self._ring, "" if replays else style.notify)
        self._told = ""  # the last of what takes long
        self._replays = replays
        self._broken = ""  # why the output cannot be written any more
        self._reader_left = False  # that it is a closed pipe
        self._open_line = False  # the cursor stands behind text
        self._stream = ThoughtsStream()
        self._flow: Flow | None = None  # of the thoughts on screen
        self._streamed = ""  # of what was heard, as far as it is on screen
        self._heard_text = ""
        self._heard: set[str] = set()  # reasons for asking the model again that were told as they came
        self._command = ""
        self._undecided: Thought | None = None  # of a run that is resumed
        self._cost_unknown = False
        self._ruled = 0  # the step that the last rule on screen begins
        self._proposed = ""  # the id of the call
        self._sub_agents = SubAgentText(replays=replays)
        self._team = TeamText()
        self._held_back: list[Event] = []  # of sub-agents, while thoughts stream in

    # Events ------------------------------------------------------------------------------------------------------

    def show(self, event: Event) -> None:
        """Show one event of the run. Raises StateError if the output cannot be written; in a replay BrokenPipeError,
        where whoever reads it has enough.
        """
        self._take(event)
        self._hooks.hear(event)
        if self._events is not None:
            self._write(self._events, json_format.dumps(to_json(event)) + "\n")
        elif event.agent and self._flow is not None:
            self._held_back.append(event)
        else:
            self._show(event)
            held_back, self._held_back = self._held_back, []
            for other in held_back:
                self._show(other)
        if self._broken and self._replays and self._reader_left:
            raise BrokenPipeError(self._broken)
        if self._broken:
            raise StateError(f"The output cannot be written: {self._broken}. The run is saved.")

    def pass_over(self, event: Event) -> None:
        """Take up an event that was shown before; thoughts whose command was not started are shown once more."""
        self._take(event)
        self._team.add(event)
        if event.agent:
            self._sub_agents.add(event)
            return
        match event:
            case Thought():
                self._undecided = event
            case Decided(allowed=False):
                self._undecided = None
            case Started():
                self._undecided = None
                self._command = event.call.name

    def _take(self, event: Event) -> None:
        self.tally.add(event)
        if event.agent:
            return
        self._words.add(event)
        match event:
            case Prompted():
                if self._color and self._area is not None and not self._prepared:
                    self._prepared = True  # while the model thinks
                    threading.Thread(target=highlighting.preload, daemon=True).start()
                self._told = ""
                self._activity.thinks(self.tally.model, event.tokens)
            case Started() if event.call.name:
                self._activity.runs(event.call)
            case RunStarted() | Returned():
                self._activity.says("remembering")
            case RoundBegan():
                self._activity.says("the roles of the round act")
            case Thought() | Rejected() | Decided() | RoundEnded() | Ended():
                self._activity.rests()

    def _show(self, event: Event) -> None:
        page = self._page()
        if (text := self._hooks.render(event)) is not None:
            self.say(text)
            return
        if self._team.knows(event):
            self._warn_of_cost(page)
            self._lines(self._team.lines(event, page, self.tally))
            return
        self._team.add(event)
        if event.agent:
            self._lines(self._sub_agents.lines(event, page))
            return
        match event:
            case RunStarted():
                self._lines(rendering.started(event, page))
                if self._undecided is not None:
                    self._thought(self._undecided, page)
            case Prompted():
                self._forget_stream()
                self._begin_step(event.step, page)
            case Retried() if event.reason in self._heard:
                return
            case Thought():
                self._thought(event, page)
            case Rejected():
                if self._flow is not None:
                    self._write(self._screen, self._flow.end())  # the thoughts came whole, with their last word
                self._forget_stream()
                self._begin_step(event.step, page)
                self._lines(rendering.event_lines(event, page))
            case Proposed() if self._replays:
                self._proposed = event.call.id
                self._lines(rendering.proposal(event, page))
            case Decided(allowed=True) if "rule " in event.by or (self._replays and event.by.startswith("user")):
                self._lines([page.said("ALLOWED:", event.by, "user")])
            case Started():
                self._command = event.call.name
                if self._replays and self._proposed != event.call.id:  # an older log does not say what was proposed
                    self._lines(rendering.proposal(Proposed(call=event.call), page))
            case Returned():
                self._lines(rendering.returned(event, self._command, page))
            case _:
                if isinstance(event, Ended):
                    self._forget_stream()
                if lines := list(rendering.event_lines(event, page)):
                    self._lines(lines)

    def _thought(self, event: Thought, page: Canvas) -> None:
        """Write the thoughts that did not stream in, and the further ones: at a terminal in a line, which t opens."""
        text = event.thoughts.text.strip()
        if self._flow is None:
            self._begin_step(event.step, page)
        if self._flow is None or not text.startswith(self._streamed.strip()):
            self._forget_stream()
            self._begin_thoughts(page)
        assert self._flow is not None
        unseen = text[len(self._streamed.lstrip()) :]
        self._write(self._screen, self._flow.feed(unseen) + self._flow.end())
        self._forget_stream()
        self._warn_of_cost(page)
        self._lines((rendering.rest_of if self._plain or self._replays else rendering.folded)(event.thoughts, page))

    def _warn_of_cost(self, page: Canvas) -> None:
        """Say once that nobody knows what the run costs, where that is so."""
        if self.tally.usage.cost is None and not self._cost_unknown:
            self._cost_unknown = True
            warning = f"THE COST OF THIS RUN IS UNKNOWN: there is no price for {self.tally.unpriced}. "
            self._lines([page.alarm(warning + "Limits on tokens and time still hold.")])

    def report(self, log: Path) -> None:
        """Write the end report; `log` is the folder or file that holds the run."""
        if self._area is not None:
            self._area.close()
        page, tally = self._page(), self.tally
        if self._events is not None and self.tally.ended is not None:  # with `json`, not yet seen on this screen
            self._lines([rendering.ended(self.tally.ended, page)])
        drawn = rendering.report if self._plain else table
        self._lines(["", *drawn(self.tally, page), *rendering.way_on(self.tally, str(log), page)])
        if tally.ended is not None and not self._replays:
            ended = {"kind": "ended", "run": tally.run, "status": tally.ended.status, "reason": tally.ended.reason}
            figures = {"steps": tally.step, "cost": tally.usage.cost, "seconds": tally.seconds}
            self._attention.ended({**ended, **figures, "changed": list(tally.changed)})

    # Listener ----------------------------------------------------------------------------------------------------

    def text(self, delta: str) -> None:
        """Write the thoughts as they come, never the JSON around them."""
        if self._plain or self._events is not None:
            return
        self._activity.hears(delta)
        self._heard_text += self._stream.feed(delta)
        whole = self._heard_text.rstrip(_GRAPHIC).lstrip()  # the last word may be half a secret
        masked = self._mask(whole)
        if not masked.startswith(self._streamed):
            return  # it held the beginning of a secret: the thoughts are shown once they are whole
        piece = masked[len(self._streamed) :]
        if not piece:
            return
        if self._flow is None:
            self._begin_thoughts(self._page())
        assert self._flow is not None
        self._streamed += piece
        self._write(self._screen, self._flow.feed(piece))

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        self._forget_stream()
        self._heard.add(reason)
        when = f"asking again in {seconds:.0f} s, " if seconds >= 1 else "asking again "
        end = time.strftime("%H:%M:%S", time.localtime(until))
        self._lines([self._page().said("WAITING:", self._mask(f"{reason}; {when}until {end}"))])

    def heed(self) -> float:
        return float("inf")

    def begins(self, what: str) -> None:
        """Show that something goes on that no event tells of, until `rests`."""
        self._activity.says(what)

    def rests(self) -> None:
        """Show that nothing goes on any more."""
        self._activity.rests()

    def working(self, what: str, seconds: float) -> None:
        if self._activity.is_live:
            self._activity.works(what, seconds)
        elif what != self._told:
            self._told = what
            self._forget_stream()
            self._lines([self._page().said("WORKING:", f"{what} (about {seconds:.0f} s)")])

    def printed(self, data: bytes) -> None:
        """Hear what a program prints that a command waits for; from any thread."""
        self._activity.prints(data)

    def proposed(self, proposal: Proposal) -> None:
        effects = proposal.spec.effects
        if effects is None or not effects.asks_user or proposal.warning:  # else the question itself comes now
            self._lines(rendering.proposal(proposal, self._page(), mask=self._mask))

    # Terminal ----------------------------------------------------------------------------------------------------

    def show_whole(self, proposal: Proposal) -> None:
        self._lines(rendering.proposal(proposal, self._page(), mask=self._mask, whole=True))

    @property
    def words(self) -> Mapping[str, str]:
        return WORDS

    def show_word(self, word: str) -> None:
        page = self._page()
        if word != "full":
            self._lines(self._words.lines(word, page))
        elif self._editor is None or self._events is not None:
            self._lines(rendering.block(self._words.result, page))
        else:
            self._activity.rests()
            click.echo_via_pager(escape(self._words.result))

    def edit(self, text: str, suffix: str) -> str | None:
        return edit_in_editor(text, suffix) if self._editor is not None else None

    def say(self, text: str) -> None:
        """Write a text whose lines stay lines, wrapped if they are too long."""
        self._forget_stream()
        self._lines(wrap(line, self._page().columns) for line in self._mask(text).split("\n"))

    def warn(self, text: str) -> None:
        """Write a paragraph that is not to be missed."""
        self._lines([self._page().alarm(self._mask(text))])

    def ask(self, prompt: str, timeout: float | None = None) -> str:
        """Show the prompt, one or more lines, and read one line; after `timeout` seconds (not on Windows) give up.

        Raises EOFError at the end of input and where the prompt cannot be shown, KeyboardInterrupt for Ctrl-C,
        TimeoutError.
        """
        self._activity.rests()
        self._forget_stream()
        page = self._page()
        self._lines([page.ink("label", wrap(self._mask(prompt), page.columns))])
        if self._broken:
            raise EOFError(self._broken)
        asked = {"kind": "question", "run": self.tally.run, "question": self._mask(prompt)}
        with self._attention.asking(asked):
            return self._answer(timeout)

    def _answer(self, timeout: float | None) -> str:
        if self._editor is not None:
            return _whole(self._editor.read("> ", timeout=timeout))
        self._open_line = True  # after Ctrl-C or the end of input, the cursor stands behind the prompt
        try:
            with nullcontext() if timeout is None else _deadline(timeout):
                line = self._read_line("> ")
        except UnicodeDecodeError:
            self.say("What was typed is not valid text in this terminal's encoding.")
            return ""
        self._open_line = False
        return _whole(line)

    def read_typed(self) -> str:
        """Return a line that was typed while nothing was asked; '' at the end of the input."""
        return self._stdin.readline()

    def discard_typeahead(self) -> None:
        if self._stdin.isatty():
            _flush_input(self._stdin)
        if self._editor is not None:
            self._editor.discard_typeahead()

    def _read_line(self, prompt: str) -> str:
        if self._stdin is sys.stdin and self._screen is sys.stdout and self._stdin.isatty() and self._screen.isatty():
            import readline  # noqa: F401 (line editing for input(); loaded only where a person types)

            return input(prompt)
        self._write(self._screen, prompt)
        line = self._stdin.readline()
        if not line:
            raise EOFError
        line = line.rstrip("\n")
        if not self._stdin.isatty():
            self._write(self._screen, f"{escape(line)}\n")  # a terminal has echoed it
        return line

    # Writing -----------------------------------------------------------------------------------------------------

    def _ring(self) -> None:
        if self._editor is not None and not self._replays:
            self._put(self._screen, "\a")

    def _page(self) -> Canvas:
        columns = self._columns or shutil.get_terminal_size().columns
        return Canvas(columns, self._color, self._whole)

    def _begin_step(self, step: int, page: Canvas) -> None:
        if step != self._ruled:
            self._ruled = step
            self._lines([rendering.rule(self.tally, step, page)])

    def _begin_thoughts(self, page: Canvas) -> None:
        label = f"{rendering.name_of(self.tally)} THOUGHTS:"
        self._close_line()
        self._write(self._screen, page.ink("thought", label))
        self._flow = Flow(page.columns, at=width(label))
        self._flow.feed(" ")
        self._open_line = True

    def _forget_stream(self) -> None:
        """Reset the stream, which is complete or was abandoned."""
        self._stream, self._flow, self._streamed, self._heard_text = ThoughtsStream(), None, "", ""
        self._close_line()

    def _close_line(self) -> None:
        if self._open_line:
            self._open_line = False
            self._write(self._screen, "\n")

    def _lines(self, lines: Iterable[str]) -> None:
        self._close_line()
        self._write(self._screen, "".join(f"{line}\n" for line in lines))

    def _write(self, stream: TextIO, text: str) -> None:
        """Write to the screen; all writing passes here. Characters that the encoding lacks are escaped."""
        if self._broken or not text:
            return
        if self._area is None or stream is not self._screen:
            self._put(stream, text)
        else:
            with self._area.hidden():
                self._put(stream, text)

    def _put_on_screen(self, text: str) -> None:
        self._put(self._screen, text)

    def _free_column(self) -> int | None:
        """Return the column of the cursor, None where it is not known or nothing can be written any more."""
        if self._broken:
            return None
        if self._flow is not None:
            return self._flow.column
        return None if self._open_line else 0

    def _put(self, stream: TextIO, text: str) -> None:
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError as error:
                stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
            stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self._broken = getattr(error, "strerror", None) or str(error)
            self._reader_left = isinstance(error, BrokenPipeError)
            _abandon(stream)


def _whole(line: str) -> str:
    """Return the line without lone surrogates, which no log can hold."""
    return line.encode("utf-8", "replace").decode("utf-8")


def _abandon(stream: TextIO) -> None:
    """Let what the stream still holds go nowhere, so that Python's flush at exit does not fail once more."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):  # a stream without a descriptor holds nothing back
        return


_LONGEST_TIMEOUT = 1e8  # seconds, three years: the system's timer refuses much longer ones


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread once the time is over."""
    if sys.platform == "win32":
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, min(max(seconds, 0.001), _LONGEST_TIMEOUT))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _flush_input(stdin: TextIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        termios.tcflush(stdin.fileno(), termios.TCIFLUSH)
