"""Show a run's events as lines on the terminal, and ask its questions there.

With `json`, stdout carries one event per line and everything for a person goes to stderr. Once output cannot be written
(a full disk, a closed pipe), no more is attempted: `show` raises StateError and questions go unanswered. The log is not
affected.
"""

from __future__ import annotations

import hashlib
import json as json_format
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from autoagent.agent.stats import RunStats
from autoagent.core import events
from autoagent.core.codec import event_to_dict
from autoagent.core.commands import ANY_TEXT, Proposal, Question
from autoagent.core.errors import StateError, StopRun
from autoagent.core.frozen import dataclass
from autoagent.core.memory import memory_name
from autoagent.core.model import Thoughts
from autoagent.core.task import Outcome, Status, Task
from autoagent.safety.typed_answers import read_answer
from autoagent.terminal import markup, rendering, run_report
from autoagent.terminal.agents_text import SubAgentText, TeamText
from autoagent.terminal.answers import AnswerReader
from autoagent.terminal.line_editor import Watch, can_edit, edit_in_editor
from autoagent.terminal.live_area import Activity
from autoagent.terminal.output import turn_pages
from autoagent.terminal.rendering import Page
from autoagent.terminal.run_report import WORDS, RunWords
from autoagent.terminal.screen import DEFAULT_STYLE, Screen, StreamedThoughts, Style
from autoagent.terminal.shared_questions import SharedQuestions, UserAlert
from autoagent.text.sanitize import escape
from autoagent.text.wrapping import wrap


@dataclass(frozen=True, slots=True)
class EventHooks:
    """The hooks on events. `render` returns the text to show, or None for the default. `receive` gets each event."""

    render: Callable[[events.Event], str | None] = lambda event: None
    receive: Callable[[events.Event], None] = lambda event: None


_NO_HOOKS = EventHooks()


class Console:
    """Show events and streamed text (Listener), ask questions and print messages (Terminal).

    `mask` removes secrets from a JSON value that is not from the log. With `replays`, proposals and decisions are
    shown from the events. `stats` is the fold over the events. `pass_over` receives events that an earlier process of
    the run has shown.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        stdin: TextIO,
        *,
        style: Style = DEFAULT_STYLE,
        json: bool = False,
        replays: bool = False,
        mask: Callable[[Any], Any] = lambda value: value,
        hooks: EventHooks = _NO_HOOKS,
    ) -> None:
        self.stats = RunStats()
        self.has_shown_run = False  # whether this screen has shown the run before
        self.agreed_task: Task | None = None  # the task that the person at this screen has just agreed to
        self._hooks = hooks
        self._words = RunWords(self.stats)
        self._mask = mask
        self._events = out if json else None
        screen = self._screen = Screen(
            err if json else out, style, moves=not (json or replays or style.plain) and can_edit(stdin, out)
        )
        self._answers = AnswerReader(stdin, screen, style, mask)
        self._thoughts = StreamedThoughts(screen, mask, lambda: f"{rendering.name_of(self.stats)} THOUGHTS:")
        self._style = style
        self._streams_thoughts = style.thoughts in ("auto", "full")
        self._has_pager = self._answers.are_edited and not json
        self._activity = Activity(screen.area, mask)
        self._has_highlighter = False
        self._alert = UserAlert(self._ring, "" if replays else style.notify)
        self._questions = SharedQuestions(style.questions, self.say, self._alert, mask)
        self._last_operation = ""  # the last long one that was announced
        self._replays = replays
        self._retry_reasons: set[str] = set()  # those shown as they occurred
        self._command = ""
        self._undecided_thought: events.Thought | None = None  # of a resumed run
        self._cost_unknown = False
        self._last_ruled_step = 0  # the step of the last rule on screen
        self._proposed_call_id = ""
        self._step_by_digest: dict[str, int] = {}  # the step that showed the text with this digest
        self._folded_thoughts: Thoughts | None = None  # of the step, until a question lets the person expand them
        self._last_answer = ""  # as shown on this screen
        self._sub_agents = SubAgentText(replays=replays)
        self._team = TeamText()
        self._delayed_events: list[events.Event] = []  # of sub-agents, while thoughts stream

    def show(self, event: events.Event) -> None:
        """Show an event of the run. Raises StateError if the output cannot be written, in a replay BrokenPipeError."""
        self._take(event)
        self._hooks.receive(event)
        if self._events is not None:
            self._screen.put(self._events, json_format.dumps(event_to_dict(event)) + "\n")
        elif event.agent and self._thoughts.is_open:
            self._delayed_events.append(event)
        else:
            self._show(event)
            delayed, self._delayed_events = self._delayed_events, []
            for other in delayed:
                self._show(other)
        if problem := self._screen.problem:
            if self._replays and self._screen.is_pipe_closed:
                raise BrokenPipeError(problem)
            raise StateError(f"The output cannot be written: {problem}. The run is saved.")

    @property
    def folds(self) -> Mapping[str, object]:
        """Return the folds fed by `pass_over`, by name. Other state concerns only the newest step."""
        return {"stats": self.stats, "words": self._words, "team": self._team}

    def pass_over(self, event: events.Event) -> None:
        """Receive an event shown before. Thoughts whose command was not started are shown again."""
        self._take(event)
        self._team.add(event)
        if event.agent:
            self._sub_agents.add(event)
            return
        match event:
            case events.Thought():
                self._undecided_thought = event
            case events.Decided(allowed=False):
                self._undecided_thought = None
            case events.Started():
                self._undecided_thought = None
                self._command = event.call.name

    def _take(self, event: events.Event) -> None:
        self.stats.add(event)
        if event.agent:
            return
        self._words.add(event)
        match event:
            case events.Proposed():
                texts = [text for text in event.call.args.values() if isinstance(text, str) and "\n" in text]
                digests = [hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() for text in texts]
                for digest in [*digests, *rendering.DIGEST.findall(event.preview)]:
                    self._step_by_digest.setdefault(digest, event.step)
            case events.Prompted():
                if self._screen.page.color and self._screen.area.moves and not self._has_highlighter:
                    self._has_highlighter = True  # while the model thinks
                    threading.Thread(target=markup.preload, daemon=True).start()
                self._last_operation = ""
                self._activity.show_request(self.stats.model, event.tokens)
            case events.Started() if event.call.name:
                self._activity.show_command(event.call)
            case events.RunStarted() | events.Returned():
                self._activity.show_task("remembering")
            case events.RoundBegan():
                self._activity.show_round()
            case events.Thought() | events.Rejected() | events.Decided() | events.RoundEnded() | events.Ended():
                self._activity.clear()

    def _show(self, event: events.Event) -> None:
        page = self._screen.page
        if (text := self._hooks.render(event)) is not None:
            self.say(text)
            return
        self._team.add(event)
        if self._team.includes(event):
            self._warn_of_cost(page)
            self._screen.lines(self._team.lines(event, page, self.stats))
            return
        if event.agent:
            self._screen.lines(self._sub_agents.lines(event, page))
            return
        if isinstance(event, (events.Prompted, events.Rejected, events.Ended)):
            self._thoughts.reset()
        if isinstance(event, (events.Prompted, events.Rejected)):
            self._begin_step(event.step, page)
        match event:
            case events.Dropped():
                name = event.attachment or f"memory {memory_name(event.memory)}"
                self._screen.lines([page.prose("DROPPED:", f"{name}, from all later prompts", "user")])
            case events.Changed():
                self._screen.lines([page.prose("CHANGED:", event.what, "user")])
            case events.RunStarted():
                self._screen.lines(
                    rendering.run_start(event, page, brief=self.has_shown_run, agreed=event.task == self.agreed_task)
                )
                if self._undecided_thought is not None:
                    self._thought(self._undecided_thought, page)
            case events.Retried() if event.reason in self._retry_reasons:
                return
            case events.Feedback() if event.text == self._last_answer and not self._replays:
                return
            case events.Thought():
                self._thought(event, page)
            case events.Proposed() if self._replays:
                self._proposed_call_id = event.call.id
                self._screen.lines(rendering.proposal(event, page))
            case events.Decided(allowed=True) if (
                "rule " in event.by
                or event.by.startswith("the extension ")
                or (self._replays and event.by.startswith("user"))
            ):
                self._screen.lines([page.prose("ALLOWED:", event.by + ", elsewhere" * event.elsewhere, "user")])
            case events.Started():
                self._command = event.call.name
                if self._replays and self._proposed_call_id != event.call.id:  # an older log has no proposals
                    self._screen.lines(rendering.proposal(events.Proposed(call=event.call), page))
            case events.Returned():
                self._screen.lines(rendering.result(event, self._command, page))
            case _:
                if lines := list(rendering.event_lines(event, page)):
                    self._screen.lines(lines)

    def _thought(self, event: events.Thought, page: Page) -> None:
        """Write the thoughts that did not stream, then the rest of them: at a terminal in one line that t expands."""
        if not self._thoughts.is_open:
            self._begin_step(event.step, page)
        if self._streams_thoughts:
            self._thoughts.finish(event.thoughts.text.strip())
        elif self._style.thoughts == "short":
            self._screen.lines(rendering.short_thoughts(event.thoughts, self.stats, page))
        self._warn_of_cost(page)
        self._folded_thoughts = event.thoughts if self._streams_thoughts else None
        if self._style.plain or self._replays or self._style.thoughts == "full":
            self._screen.lines(rendering.other_thoughts(event.thoughts, page))
            self._folded_thoughts = None

    def _warn_of_cost(self, page: Page) -> None:
        if self.stats.usage.cost is None and not self._cost_unknown:
            self._cost_unknown = True
            warning = f"THE COST OF THIS RUN IS UNKNOWN: no price is known for {self.stats.unpriced}. "
            self._screen.lines([page.alert(warning + "Limits on tokens and time still hold.")])

    def report(self, log: Path) -> None:
        """Write the final report. `log` is the folder or file that holds the run."""
        self._screen.area.close()
        page, stats = self._screen.page, self.stats
        if self._events is not None and stats.outcome is not None:  # with `json`, not yet shown on this screen
            self._screen.lines(rendering.run_end(stats.outcome, page))
        render = run_report.report if self._style.plain else run_report.table
        self._screen.lines(["", *render(stats, page), *run_report.next_steps(stats, str(log), page)])
        if stats.outcome is not None and not self._replays:
            notice = {"kind": "ended", "run": stats.run, "status": stats.outcome.status, "reason": stats.outcome.reason}
            figures = {"steps": stats.step, "cost": stats.usage.cost, "seconds": stats.seconds}
            self._alert.send({**notice, **figures, "changed": list(stats.changed)})

    def text(self, delta: str) -> None:
        """Stream the thoughts in a reply, never the JSON around them."""
        if self._style.plain or self._events is not None:
            return
        self._activity.feed_reply(delta)
        if self._streams_thoughts:
            self._thoughts.feed(delta)

    def role_text(self, name: str, delta: str) -> None:
        """Show the end of a team role's unfinished reply below the text. Any thread may call this."""
        self._activity.feed_role(name, delta)

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        self._thoughts.reset()
        when = f"asking again in {seconds:.0f} s, " if seconds >= 1 else "asking again "
        text = f"{when}until {time.strftime('%H:%M:%S', time.localtime(until))}"
        if reason not in self._retry_reasons:  # otherwise it was shown above
            text = f"{reason} {text.capitalize()}" if reason.endswith("?") else f"{reason}; {text}"
        self._retry_reasons.add(reason)
        self._screen.lines([self._screen.page.prose("WAITING:", self._mask(text))])

    def check_time_left(self) -> float:
        return float("inf")

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Show during the block that a task without events is in progress."""
        self._activity.show_task(what)
        try:
            yield
        finally:
            self._activity.clear()

    def working(self, what: str, seconds: float) -> None:
        if self._screen.area.moves:
            self._activity.show_operation(what)
        elif (operation := what.partition(": ")[0]) != self._last_operation:  # the rest is its progress
            self._last_operation = operation
            self._thoughts.reset()
            self._screen.lines([self._screen.page.prose("WORKING:", f"{what} (about {seconds:.0f} s)")])

    def printed(self, data: bytes) -> None:
        """Show output of a program that a command is waiting for. Any thread may call this."""
        self._activity.feed_output(data)

    def proposed(self, proposal: Proposal) -> None:
        effects = proposal.spec.effects
        if effects is None or not effects.asks_user or proposal.warning:  # otherwise the question follows at once
            digest = rendering.DIGEST.search(proposal.preview)
            shown_in = self._step_by_digest.get(digest[1], 0) if digest and not proposal.agent else 0
            step = shown_in if shown_in < self.stats.step else 0
            self._screen.lines(rendering.proposal(proposal, self._screen.page, mask=self._mask, step=step))

    def show_whole(self, proposal: Proposal) -> None:
        lines = list(rendering.proposal(proposal, replace(self._screen.page, whole=True, brief=False), mask=self._mask))
        if self._has_pager and len(lines) >= shutil.get_terminal_size().lines:
            self._activity.clear()
            turn_pages("".join(f"{line}\n" for line in lines))
        else:
            self._screen.lines(lines)

    @property
    def words(self) -> Mapping[str, str]:
        return WORDS

    def show_word(self, word: str) -> None:
        page = self._screen.page
        if word != "full":
            self._screen.lines(self._words.lines(word, page))
        elif self._has_pager:
            self._activity.clear()
            turn_pages(escape(self._words.result))
        else:
            self._screen.lines(rendering.block(self._words.result, page))

    def edit(self, text: str, suffix: str) -> str | None:
        return edit_in_editor(text, suffix) if self._answers.are_edited else None

    def rewrite(self, text: str) -> str | None:
        self._activity.clear()
        return self._answers.rewrite(text)

    def say(self, text: str) -> None:
        """Write a text, keeping its lines and wrapping long ones."""
        self._thoughts.reset()
        self._screen.lines(wrap(line, self._screen.page.columns) for line in self._mask(text).split("\n"))

    def warn(self, text: str) -> None:
        """Write a prominent paragraph."""
        self._screen.lines([self._screen.page.alert(self._mask(text))])

    def ask(
        self,
        prompt: str,
        timeout: float | None = None,
        *,
        label: str = "",
        question: Question = ANY_TEXT,
        is_unfinished: Callable[[str], bool] = lambda text: False,
    ) -> str:
        """Show a prompt of one or more lines, and read a line, and more while the text `is_unfinished`.

        The answer may come from another terminal instead (see shared_questions). The question is given up after
        `timeout` seconds. With a `label`, the prompt is the agent's, and may be Markdown.

        Raises EOFError at the end of input or if the prompt cannot be shown, KeyboardInterrupt for Ctrl-C, TimeoutError
        if the run is to go on without an answer, and StopRun if it is to end, as for Ctrl-D.
        """
        self._activity.clear()
        self._thoughts.reset()
        page = self._screen.page
        text, labelled_text = self._mask(prompt), self._mask(f"{label} {prompt}" if label else prompt)
        lines: list[str] = []
        if self._folded_thoughts is not None and question.proposal is not None:
            lines += rendering.folded_thoughts(self._folded_thoughts, page)
            self._folded_thoughts = None
        if label and page.draws and markup.has_markup(text):
            lines += page.markdown(label, text, "label")
        else:
            lines.append(page.ink("label", wrap(labelled_text, page.columns)))
        self._screen.lines(lines)
        if self._screen.problem:
            raise EOFError(self._screen.problem)

        def read(watch: Watch | None) -> str:
            text = self._read(watch, question.words)
            with suppress(EOFError):
                while is_unfinished(text):
                    text += f"\n{self._read(watch)}"
            return text

        run, is_attended = self.stats.run, self._answers.at_terminal
        try:
            answer = self._questions.ask(run, labelled_text, question, timeout, read, is_attended=is_attended)
        except EOFError:
            if is_attended and self._events is None:
                raise StopRun(Outcome(Status.STOPPED, "Saved, by Ctrl-D.")) from None
            raise
        self._last_answer = answer
        is_yes = question.proposal is not None and read_answer(answer, question.yes, question.no).count == 1
        if is_yes and page.rows and not self.elsewhere and page == self._screen.page:
            self._screen.erase_rows(1 + "\n".join([*lines, "> "]).count("\n"))
        return answer

    @property
    def has_person(self) -> bool:
        """Return whether a person reads this screen and can type here."""
        return self._answers.at_terminal and self._events is None

    def next_wish(self) -> str:
        """Ask for the run's next wish. Return '' if there is none or nobody is at the terminal."""
        if not self.has_person:
            return ""
        self._answers.discard_typeahead()
        self._screen.lines(["", self._screen.page.ink("label", "What next? (Enter = done)")])
        try:
            while (wish := self._read(None).strip()) and (answer := read_answer(wish)).kind != "feedback":
                if answer.kind == "stop":
                    return ""
                self._screen.lines(["No question is open: type what to do next, or press Enter to end."])
            return wish
        except (EOFError, KeyboardInterrupt):
            return ""

    def _read(self, watch: Watch | None, words: Sequence[str] = ()) -> str:
        try:
            return self._answers.read(watch, words)
        except UnicodeDecodeError:
            self.say("What was typed is not valid text in this terminal's encoding.")
            return ""

    @property
    def elsewhere(self) -> bool:
        return self._questions.elsewhere

    def take_late(self) -> list[tuple[Question, str]]:
        """Return the answers to questions that stayed open, from here or elsewhere, each with its question."""
        self._questions.collect_late(self._answers.poll_line)
        return self._questions.take_late()

    def close_questions(self) -> None:
        """Close all open questions, as the run ends."""
        self._questions.close()

    def discard_typeahead(self) -> None:
        self._questions.collect_late(self._answers.poll_line)  # whole lines are late answers
        self._answers.discard_typeahead()

    def _ring(self) -> None:
        if self._answers.are_edited and not self._replays:
            self._screen.put(self._screen.stream, "\a")

    def _begin_step(self, step: int, page: Page) -> None:
        if step != self._last_ruled_step:
            self._last_ruled_step = step
            self._screen.lines([rendering.step_rule(self.stats, step, page)])
