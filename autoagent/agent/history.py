"""The history: a fold over the events of a run that always fits its share of the prompt.

Each step becomes a pair of messages, the reply and its result, rendered and counted once. When the pairs outgrow their
share, or dropping some pays, all but a third of the share is replaced by a summary of one line a step. Trimming seldom
and in blocks keeps the beginning of the prompt the same from step to step, as a provider's prefix cache requires: each
trim costs that the remaining history is read again, and saves in each later step what was dropped (`_pays_from`). The
newest pair always stays.
If its share has shrunk (a smaller model took over, an endpoint found the prompt too long), it is rendered again.
The summary is made from the events alone, so it costs no model call and can be derived again from the log.

A result from outside is shown between marks that it cannot forge. The summary and the standing lines, which have no
room for marks, name its source in place of its text.

With native tool calls, a step is a call and its tool message. The steps of one reply are several calls of one message.
Feedback and notices are user messages even then.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from autoagent.core.command_schema import THOUGHTS
from autoagent.core.commands import Call
from autoagent.core.events import (
    AgentMessage,
    Changed,
    Checked,
    Decided,
    Dropped,
    Event,
    Feedback,
    Forked,
    Prompted,
    Recalled,
    Rejected,
    Resumed,
    Retried,
    Returned,
    Rewound,
    RunStarted,
    SystemNotice,
    Thought,
    Undone,
)
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import (
    Message,
    Shares,
    ToolCall,
    made_call,
    reply_tokens,
    share_out,
    without_calls,
    written_call,
)
from autoagent.prompt import Prompt, StepFacts, build
from autoagent.text import code_block
from autoagent.text.code_block import CodeBlock
from autoagent.text.paging import NOTE, ends
from autoagent.text.quoting import Marks, defuse, name_source, split
from autoagent.text.redaction import TOLD, holds_mask
from autoagent.text.tokens import PER_CALL, PER_MESSAGE, Count, fits, shorten

OPENING = "Use the first command."  # a small model would take a statement here for the text it should write
FILE_OPENING = "Write the file."
_NOTHING = "(no result)"
_KEPT_FAILURES = 3
_DONE_SHOWN = 10
_SOURCE_SHOWN = 60  # characters of a source that stands in place of its text
_SHORTENED = 0.75  # of a prompt and its reply that were too long, is what the window is taken to be
_FRAME = 100  # tokens around a page: the command's name, marks and the source in them
_TOPIC = 400  # characters of each text of a step that memories are recalled by
_PER_IMAGE = 1000  # tokens; endpoints count 85 to 1,600 for one of usual size
_QUOTED_LEAST = 24  # tokens of a quoted text; with less it is left out


@dataclass(slots=True)
class Exchange:
    """One step as two messages. `tokens` counts both. `texts` are their texts without marks.

    `run` is the run of its events: the first steps of a fork belong to another run. If `reply` is a native tool call,
    `user` is the tool's message and `beside` the other texts. `goes_on`: the previous step is of the same reply.
    """

    run: str
    step: int
    reply: str | ToolCall
    user: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    goes_on: bool = False
    tokens: int = 0
    call: Call | None = None
    summary: str = "an unusable reply"
    worth: bool = False  # whether it is to be remembered
    outcome_known: bool = True
    shown: tuple[Message, ...] = field(default=(), repr=False)  # of all steps of the reply, once they are over


@dataclass(frozen=True, slots=True)
class _Result:
    """A result of the newest reply, or a text `beside` it.

    Its limit is larger if its command has `paged` it. The `marks` around it and the `heading` before them stay whole.
    `read_on` is the beginning of the command that shows the omitted part.
    """

    text: str
    marks: Marks | None = None
    heading: str = ""
    _: KW_ONLY
    beside: bool = False
    paged: bool = False
    read_on: str = ""


class History:
    """Add every event in order. Read `messages` and `standing` before each prompt.

    `read_on` is the command that shows the omitted parts of a result, '' if there is none.

    `shares` are the limits of the parts of the prompt, computed from the window in the first event and the token counts
    of the server. Time and memory for an added event do not depend on the number of earlier ones.
    """

    NOT_KEPT = ("_count", "_read_on", "lasting", "lasting_at", "core", "core_at", "core_left")  # in a checkpoint

    def __init__(self, count: Count, read_on: str = "") -> None:
        self._count = count
        self._read_on = read_on
        self.run = ""
        self.shares = Shares(0, 0, 0)
        self._tokens = 0
        self._exchanges: deque[Exchange] = deque()
        self._newest: Thought | Rejected | None = None  # the last of them, to be rendered once more
        self._results: list[_Result] = []  # what came of it, uncut
        self._summary: deque[str] = deque()
        self._summary_tokens = 0
        self._faded: Counter[str] = Counter()
        self._opening = OPENING
        self._opening_tokens = count(OPENING) + PER_MESSAGE
        self._attached: dict[str, str] = {}  # what the user has attached, as it is shown
        self._images: dict[str, tuple[str, str]] = {}  # of those, the images: the text that names one, its data URL
        self._done: deque[tuple[int, str]] = deque(maxlen=_DONE_SHOWN)
        self._failures: deque[tuple[int, str]] = deque(maxlen=_KEPT_FAILURES)
        self._feedback: tuple[int, str] | None = None
        self._waiting = 0  # further commands of a reply
        self._trimmed_to = 0  # tokens, by the newest trim
        self._begun_after = 0  # the step before the first of this process
        self._estimated = 0
        self.scale = 1.0  # tokens as the server counts them, for each of ours
        self.reply_tokens = 0  # what is kept free for the reply
        self._too_long = math.inf  # upper bound of the window, in our tokens, once a prompt was found too long
        self.met: set[int] = set()  # the goals, counted from 0, that their checks found met
        self.failing: dict[int, str] = {}  # the others that have a check, and what that said, if not from outside
        self._started: RunStarted | None = None
        self.lasting: tuple[RetrievedMemory, ...] = ()  # those that were found by the goals
        self.lasting_at = 0.0  # seconds since the epoch, when they were found
        self.core: tuple[RetrievedMemory, ...] = ()  # what the user keeps in every prompt
        self.core_at, self.core_left = 0.0, 0  # when it was read, and how many found no room
        self.dropped: set[int] = set()  # memories that the user has taken out of the run

    @property
    def tokens(self) -> int:
        """The tokens of `messages`."""
        return self._tokens + self._opening_tokens + len(self._images) * _PER_IMAGE

    # Reading -----------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """The messages, the user's first, then each reply and its result, or empty before the first reply.

        Without native tool calls, which only a model that makes them is shown, user and assistant take turns.
        """
        if not self._begun:
            return []
        assert self._started is not None, "a run's first event is RunStarted"
        opening = self._opening
        if self._started.style.writes_file:
            opening = opening.replace(OPENING, FILE_OPENING, 1)
        found = [Message("user", opening)]
        for reply in _replies(self._exchanges):
            if reply[-1] is self._exchanges[-1]:
                found += _messages_of(reply)
            else:  # it changes no more
                reply[0].shown = reply[0].shown or tuple(_messages_of(reply))
                found += reply[0].shown
        if not self._started.native and any(message.calls for message in found):
            found = without_calls(found)
        return [self._with_images(message) for message in found] if self._images else found

    def _with_images(self, message: Message) -> Message:
        shown = message.content if message.role == "user" else ""
        return replace(message, images=tuple(image for name, image in self._images.values() if name in shown))

    @property
    def outline(self) -> tuple[int, int, int, int, int]:
        """The tokens of the opening, of the steps before the newest, and of that, and how many steps have a line in the
        opening, or are only counted there.
        """
        newest = self._exchanges[-1].tokens if self._exchanges else 0
        opening = self._opening_tokens if self._begun else 0
        return opening, self._tokens - newest, newest, len(self._summary), sum(self._faded.values())

    @property
    def fixed_tokens(self) -> int:
        """The tokens of the prompt without its last part: the system message and `messages`."""
        assert self._started is not None, "a run's first event is RunStarted"
        return self._started.system_tokens + (self.tokens if self._begun else 0)

    @property
    def _begun(self) -> bool:
        return bool(self._exchanges) or self._opening != OPENING

    @property
    def steps(self) -> set[tuple[str, int]]:
        """The (run, step) of every step still shown in full."""
        return {(exchange.run, exchange.step) for exchange in self._exchanges}

    def shows(self, step: int) -> bool:
        """Return whether this step of this run is still shown in full."""
        return bool(self._exchanges) and self._exchanges[0].step <= step

    @property
    def thought(self) -> Thought | None:
        """The newest reply, if it was used."""
        return self._newest if isinstance(self._newest, Thought) else None

    @property
    def memorable(self) -> str:
        """The newest step as a text to remember, with thought and command apart, or '' if it is not worth it: a refused
        reply or call, a result that the memory already holds, the review before the end, and the end.

        Text from outside in it has no marks: the caller puts them around the whole.
        """
        newest = self._exchanges[-1] if self._exchanges else None
        if newest is None or not newest.worth:
            return ""
        assert isinstance(self._newest, Thought), "only what was called has a result"
        thought, call = _one_line(self._newest.thoughts.text, 300), _one_line(str(self._newest.call), 600)
        said = [f"Thought: {thought}"] if thought else []
        done = "Done" if newest.outcome_known else "Not known to be done"
        return "\n".join([*said, f"{done}: {call}", *newest.texts])

    @property
    def topic(self) -> str:
        """The topic of the newest step, to recall by: its words without the form that all steps share.

        '' before the first reply and after an unused one.
        """
        if not isinstance(self._newest, Thought):
            return ""
        said = [self._newest.thoughts.text, *(v for v in self._newest.call.args.values() if isinstance(v, str))]
        return "\n".join(text[:_TOPIC] for text in (*said, *(result.text for result in self._results)))

    def feedback_in(self, step: int) -> str:
        """Return the user's feedback in this step, with the call that it refers to, or '' for none."""
        if not self._feedback or self._feedback[0] != step:
            return ""
        call = self._exchanges[-1].call if self._exchanges else None
        return self._feedback[1] + (f"\nSaid of: {_one_line(str(call), 200)}" if call else "")

    @property
    def feedback(self) -> str:
        """The last feedback of the user, or '' before the first."""
        return self._feedback[1] if self._feedback else ""

    @property
    def reads_on(self) -> bool:
        """Whether a message names the command that shows the omitted parts of a result."""
        return any(f"{self._read_on}(step=" in message.content for message in self.messages)

    @property
    def done(self) -> list[tuple[int, str]]:
        """The step and the call, in a line, of the newest commands that succeeded."""
        return list(self._done)

    @property
    def standing(self) -> str:
        """Facts to keep after they scroll away: the last feedback, the last failures, the commands done."""
        shown = self._exchanges[0].step if self._exchanges else 0
        lines = []
        if self._feedback and self._feedback[0] < shown:
            lines.append(f"The user's last feedback was: {self._feedback[1]}")
        lines += [f"Earlier failure (step {step}): {text}" for step, text in self._failures if step < shown]
        if done := [text for step, text in self._done if step < shown]:
            lines.append("Commands already done: " + "; ".join(done) + ".")
        return "\n".join(lines)

    # Folding -----------------------------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case RunStarted() | Resumed():
                self._begin(event)
            case Recalled(core=True):
                self.core, self.core_at, self.core_left = event.memories, event.t, len(event.left_out)
            case Recalled(lasting=True):
                self.lasting, self.lasting_at = event.memories, event.t
            case Dropped(attachment=name) if name:
                self._detach(name)
            case Dropped():
                self.dropped.add(event.memory)
                self.lasting = tuple(memory for memory in self.lasting if memory.id != event.memory)
                self.core = tuple(memory for memory in self.core if memory.id != event.memory)
                if event.ends_reply:
                    self._drop_waiting()
            case Prompted():
                self._estimated = event.tokens
            case Retried(shortened=True):
                self._too_long = _SHORTENED * min(self._window, self._estimated + self.reply_tokens)
                self._share_out()
                self._trim(min(self.shares.history, self.tokens - 1))
            case Thought():
                self._calibrate(event.usage.prompt)
                self._open(event)
                self._waiting = len(event.more) or max(0, self._waiting - 1)
            case Rejected():
                self._calibrate(event.usage.prompt)
                self._open(event)
                self._waiting = max(0, self._waiting - 1)
                self._add(_Result(f"That reply was not used: {event.problem}"))
            case Decided(allowed=False) if event.reason:
                self._add(_Result(f"The command was not run: {event.reason}"))
                self._note_outcome("not run")
            case Decided(allowed=True, args=args) if args is not None:
                self._add(_Result(f"Arguments as the user changed them: {json.dumps(args, ensure_ascii=False)}"))
            case Feedback():
                self._feedback = (event.step, event.text)
                self._add(_Result(f"Human feedback: {event.text}", beside=True))
                if holds_mask(event.text):
                    self._add(_Result(TOLD, beside=True))
                self._note_outcome(f"feedback: {event.text}")
                self._drop_waiting()
            case Forked():
                self._waiting = 0
            case Rewound() | Undone():
                self._waiting = 0
                self.met.clear()  # unknown for the files as they are now
                self.failing.clear()
            case Checked():
                (self.met.add if event.met else self.met.discard)(event.goal)
                self.failing.pop(event.goal, None)
                if not event.met:
                    self.failing[event.goal] = "" if event.meta.untrusted else event.output
            case SystemNotice():
                self._add(_Result(event.text, beside=True))
            case AgentMessage():
                self._add_message(event)
            case Returned():
                self._returned(event)
                if event.wants_a_look:
                    self._drop_waiting()

    def _begin(self, event: RunStarted) -> None:
        if self._started and self._started.task.goals != event.task.goals:
            self.met.clear()
            self.failing.clear()
        self.run, self._started = event.run, event
        if not isinstance(event, Changed):
            self._begun_after = event.step
        self._too_long = math.inf
        self._share_out()
        self._trim(self.shares.history)

    def _share_out(self) -> None:
        started = self._started
        assert started is not None, "a run's first event is RunStarted"
        goals = sum(self._count(goal.text) + PER_MESSAGE for goal in started.task.goals)
        self._window = int(min(self._too_long, started.window / self.scale))
        self.reply_tokens = started.reply_tokens
        if self._too_long < math.inf:
            self.reply_tokens = min(self.reply_tokens, reply_tokens(self._window))
        self.shares = share_out(self._window, self.reply_tokens, started.system_tokens, goals)
        self._message_limit = max(64, min(self.shares.history // 5, 6000))
        self._page_limit = max(64, self._window // 4)
        self._kept = min(self.shares.history, started.context or self.shares.history)
        self._summary_limit = max(32, self._kept // 8)

    def _calibrate(self, reported: int) -> None:
        """Scale our token counts up from now on if the server counts more than we do."""
        if self._estimated and reported > self._estimated * self.scale:
            self.scale = min(2.0, reported / self._estimated)
            self._share_out()
        self._estimated = 0

    def _open(self, reply: Thought | Rejected) -> None:
        self._newest, self._results = reply, []
        rendered = self._rendered(reply)
        tokens = self._tokens_of(rendered)
        exchange = Exchange(reply.run, reply.step, rendered, tokens=tokens, goes_on=self._waiting > 0)
        if isinstance(reply, Thought):
            exchange.call = reply.call
            exchange.summary = _one_line(str(reply.call), 160)
        self._exchanges.append(exchange)
        self._tokens += tokens
        self._trim(self.shares.history)

    def _tokens_of(self, rendered: str | ToolCall) -> int:
        """Count the tokens of a reply as it is shown, and of the frame of its result."""
        if isinstance(rendered, str):
            return self._count(rendered) + 2 * PER_MESSAGE
        return self._count(rendered.name) + self._count(rendered.arguments) + PER_CALL + 2 * PER_MESSAGE

    def _rendered(self, event: Thought | Rejected) -> str | ToolCall:
        """Return the reply as the prompt shows it. An unusable one by its beginning and end."""
        assert self._started is not None, "a run's first event is RunStarted"
        if isinstance(event, Thought):
            if self._started.native:
                call, first = event.call, {THOUGHTS[0]: event.thoughts.text}
                return self._rendered_call(event.step, call.name, first, call.args, self._message_limit)
            if self._started.style.writes_file:
                return shorten(event.text, self._message_limit, self._count)
            return self._rendered_thought(event)
        limit = self._message_limit // 4
        if self._started.native and (wanted := written_call(event.text)):
            return self._rendered_call(event.step, *wanted, limit)
        return shorten(event.text, limit, self._count) or "(no text)"

    def _rendered_call(
        self, step: int, name: str, thoughts: Mapping[str, Any], args: Mapping[str, Any], limit: int
    ) -> ToolCall:
        """Render a native tool call as valid JSON within `limit` tokens. Long arguments keep head and tail."""

        def whole(thoughts: Mapping[str, Any], args: Mapping[str, Any]) -> ToolCall | None:
            call = made_call(step, name, thoughts, args)
            return call if fits(call.arguments, limit, self._count) else None

        if call := whole(thoughts, args):
            return call
        for part in (1, 2, 4, 8):  # JSON escapes take more tokens than the text had
            room = max(16, limit // (len(args) + len(thoughts) + 1) // part)
            shorter = [
                {key: shorten(v, room, self._count) if isinstance(v, str) else v for key, v in values.items()}
                for values in (thoughts, args)
            ]
            if call := whole(*shorter):
                return call
        return whole(shorter[0], {}) or made_call(step, name, {}, {})

    def _rendered_thought(self, event: Thought) -> str:
        """Render the reply in the response format, as it should
        have been written. Long arguments keep head and tail.

        If a schema enforces the format, the history need not show it: the first thought is enough; and a small model,
        which would say it again and then do the same again, is shown none.
        """
        assert self._started is not None, "a run's first event is RunStarted"
        names = () if not self._started.style.thinks else THOUGHTS if self._started.asking == "text" else THOUGHTS[:1]
        thoughts = {"thoughts": {name: getattr(event.thoughts, name) for name in names}} if names else {}

        def render(args: Mapping[str, Any]) -> str:
            return _as_generated(event, args, thoughts)

        limit, count = self._message_limit, self._count
        whole = render(event.call.args)
        if fits(whole, limit, count):
            return whole
        room = max(16, (limit - count(render({}))) // max(1, len(event.call.args)))
        args = {key: shorten(v, room, count) if isinstance(v, str) else v for key, v in event.call.args.items()}
        return shorten(render(args), limit, count)

    def _add(self, result: _Result) -> str:
        """Add a result. Before the first reply it opens the run. Return it as shown: cut to its limit."""
        if self._exchanges:
            self._results.append(result)
            shown = self._add_result(result)
            self._trim(self.shares.history)
            return shown
        _, shown = self._fitted(result, self._message_limit)
        self._set_opening(f"{self._opening}\n\n{shown}")
        return shown

    def _set_opening(self, text: str) -> None:
        self._opening, self._opening_tokens = text, self._count(text) + PER_MESSAGE

    def _add_result(self, result: _Result) -> str:
        newest = self._exchanges[-1]
        limit = self._page_limit if result.paged else self._message_limit
        text, shown = self._fitted(result, min(limit, self._half_of_the_rest))
        tokens = self._count(shown) + 1
        (newest.user if isinstance(newest.reply, str) or not result.beside else newest.beside).append(shown)
        newest.texts.append(f"{result.heading} {text}" if result.marks else shown)
        newest.tokens += tokens
        self._tokens += tokens
        return shown

    @property
    def _half_of_the_rest(self) -> int:
        """Half of the tokens left for the newest result if all other steps were dropped."""
        taken = self._exchanges[-1].tokens if self._exchanges else 0
        return (self.shares.history - self._opening_tokens - taken) // 2

    def has_room(self, text: str) -> bool:
        """Return whether a page fits into the limit of one result: a quarter of the window."""
        room = min(self._page_limit, self._half_of_the_rest) - NOTE - _FRAME
        return fits(text, max(32, room), self._count)

    def _fitted(self, result: _Result, limit: int) -> tuple[str, str]:
        """Return the text cut to its room, and the same as it is shown."""
        frame = self._count(result.heading + result.marks.around("") if result.marks else result.heading)
        text = self._cut(result.text, max(32, limit - frame), result.read_on)
        return text, f"{result.heading}\n{result.marks.around(text)}" if result.marks else result.heading + text

    def _cut(self, text: str, limit: int, read_on: str) -> str:
        """Cut the text to `limit` tokens. Quotes from others in it are cut within their marks, or left out."""
        parts = split(text)
        frames = [self._count(marks.around("")) for _, marks in parts if marks]
        if not frames or fits(text, limit, self._count):
            return ends(text, limit, self._count, read_on)
        own = _own_words(text)
        room = (limit - self._count(own) - sum(frames)) // len(frames)
        if room < _QUOTED_LEAST:
            return shorten(own, limit, self._count)
        cut = (marks.around(shorten(part, room, self._count)) if marks else part for part, marks in parts)
        return "".join(cut)

    def _drop_waiting(self) -> None:
        if self._waiting:
            self._add(_Result(f"Not run: the further commands of that reply ({self._waiting})."))
        self._waiting = 0

    def _add_message(self, event: AgentMessage) -> None:
        if source := event.meta.untrusted:
            marks = Marks.of(event.text, source, run=event.run, step=event.step)
            shown = self._add(_Result(defuse(event.text), marks, event.heading, beside=True))
        else:
            gap = "\n" if event.attached else " "
            shown = self._add(_Result(event.text, None, f"{event.heading}{gap}", beside=True))
        if event.attached:
            self._attached[event.sender] = shown
        if event.image:
            self._images[event.sender] = event.text, event.image

    def _detach(self, name: str) -> None:
        """Show no more of an attachment than that there was one."""
        shown, gone = self._attached.pop(name, ""), f"{name} was attached, and the user has taken it back."
        self._images.pop(name, None)
        if shown and shown in self._opening:
            self._set_opening(self._opening.replace(shown, gone))
        for exchange in self._exchanges if shown else ():
            exchange.shown = ()
            for texts in (exchange.user, exchange.beside, exchange.texts):
                texts[:] = [gone if text == shown else text for text in texts]
        self._results = [result for result in self._results if not result.heading.startswith(f"{name}, attached by")]

    def _returned(self, event: Returned) -> None:
        exchange = self._exchanges[-1] if self._exchanges else None
        name = exchange.call.name if exchange and exchange.call else "The command"
        meta, paged = event.meta, event.meta.page is not None
        read_on = f"{self._read_on}(step={event.step}, " if self._read_on else ""
        outcome = event.outcome
        if meta.failed:
            self._hide_code()
        brief = _own_words(event.text)
        if source := meta.untrusted:
            marks = Marks.of(event.text, source, run=event.run, step=event.step)
            self._add(_Result(defuse(event.text), marks, f"{name} {outcome}:", paged=paged, read_on=read_on))
            brief = f"(text from {name_source(source, _SOURCE_SHOWN)})"
        else:
            self._add(_Result(event.text, None, f"{name} {outcome}: ", paged=paged, read_on=read_on))
        if exchange:
            ends = meta.put_off or meta.finished is not None
            exchange.worth = not (ends or meta.repeat or meta.kept)
            exchange.outcome_known = event.known
        if meta.masked:
            self._add(_Result(TOLD))
        self._note_outcome(f"{'ok' if event.ok else outcome}: {_one_line(brief, 80)}")
        if exchange and exchange.call and not event.put_off:
            if event.ok:
                self._done.append((exchange.step, _one_line(str(exchange.call), 80)))
            else:
                failure = f"{_one_line(str(exchange.call), 120)}: {_one_line(brief, 240)}"
                self._failures.append((event.step, failure))

    def _hide_code(self) -> None:
        """Show a small model of a program that failed only its error: the code it would write again as it is."""
        assert self._started is not None, "a run's first event is RunStarted"
        shown = self._newest
        if self._started.style.guided and isinstance(shown, Thought) and (found := code_block.split(shown.text)):
            self._newest = _without_code(shown, *found)
            self._render_newest()

    def _note_outcome(self, outcome: str) -> None:
        if self._exchanges:
            self._exchanges[-1].summary += f" -> {outcome}"

    # Trimming ----------------------------------------------------------------------------------------------------

    def _trim(self, limit: int) -> None:
        """Drop the oldest steps, once over the limit or as soon as it pays, until two thirds of the share are free.

        The newest always stays, in the room that the limit leaves.
        """
        kept = min(limit, self._kept)
        if self.tokens <= kept and (len(self._exchanges) < 2 or self.tokens <= self._pays_from):
            return
        while len(self._exchanges) > 1 and self.tokens > kept // 3:
            oldest = self._exchanges.popleft()
            self._tokens -= oldest.tokens
            self._summarise(oldest)
        self._fade_summary()
        self._write_opening()
        self._trimmed_to = self.tokens
        if self.tokens > limit and self._exchanges:
            self._render_newest()

    @property
    def _pays_from(self) -> float:
        """The tokens from which a trim saves more than it costs, or infinity where no price says so.

        A trim to `least` tokens costs as many once more, at the price of fresh ones beyond cached ones, and saves the
        others in each later step. Over a long run, to which a step adds `each` tokens, trims cost least where both
        costs are equal (the square root). Before that, a trim has to pay in the rest of the run: as many steps as
        there were, if no limit ends it sooner.
        """
        started, newest = self._started, self._exchanges[-1] if self._exchanges else None
        if started is None or newest is None or not started.cached_part:
            return math.inf
        least = max(self._trimmed_to, self._kept // 3)
        again = least * (1 / started.cached_part - 1)
        each = self._tokens / len(self._exchanges)
        limit = started.limits.get("commands") or math.inf
        rest = max(1.0, min(newest.step, limit - (newest.step - self._begun_after)))
        return least + max(math.sqrt(2 * again * each), again / rest, least / 8)

    def _render_newest(self) -> None:
        """Render the newest step again, in the room it has now."""
        assert self._newest is not None, "it was opened by a reply"
        newest = self._exchanges[-1]
        self._tokens -= newest.tokens
        newest.reply = self._rendered(self._newest)
        newest.tokens = self._tokens_of(newest.reply)
        newest.user, newest.beside, newest.texts = [], [], []
        self._tokens += newest.tokens
        for result in self._results:
            self._add_result(result)

    def _summarise(self, exchange: Exchange) -> None:
        line = f"{exchange.step}. {_one_line(exchange.summary, 240)}"
        self._summary.append(line)
        self._summary_tokens += self._count(line) + 1

    def _fade_summary(self) -> None:
        """Keep of the surplus lines only how often each command was used."""
        while self._summary_tokens > self._summary_limit and len(self._summary) > 1:
            faded = self._summary.popleft()
            self._summary_tokens -= self._count(faded) + 1
            self._faded[faded.partition(". ")[2].partition("(")[0]] += 1

    def _write_opening(self) -> None:
        lines = ["Commands used before, in short:"] if self._summary else [OPENING]
        if self._faded:
            lines.append("Long ago: " + ", ".join(f"{name} ({n} times)" for name, n in self._faded.most_common(12)))
        text, room = "\n".join([*lines, *self._summary]), self._kept // 4
        for shown in self._attached.values():  # they scroll away with no step, while there is room
            room -= self._count(shown)
            if room >= 0 and not any(shown in (*exchange.user, *exchange.beside) for exchange in self._exchanges):
                text = f"{text}\n\n{shown}"
        self._set_opening(text)


def _replies(exchanges: Iterable[Exchange]) -> Iterator[list[Exchange]]:
    """Group the steps by reply: native tool calls of one reply stay together."""
    reply: list[Exchange] = []
    for exchange in exchanges:
        calls = reply and not isinstance(reply[0].reply, str) and not isinstance(exchange.reply, str)
        if calls and exchange.goes_on:
            reply.append(exchange)
            continue
        if reply:
            yield reply
        reply = [exchange]
    if reply:
        yield reply


def _messages_of(reply: Sequence[Exchange]) -> Iterator[Message]:
    """Yield a reply and its result; or its calls, the message of each tool, and the other texts."""
    if isinstance(reply[0].reply, str):
        yield Message("assistant", reply[0].reply)
        yield Message("user", "\n\n".join(reply[0].user) or _NOTHING)
        return
    calls = [exchange.reply for exchange in reply if isinstance(exchange.reply, ToolCall)]
    yield Message("assistant", "", tuple(calls))
    for call, exchange in zip(calls, reply, strict=True):
        yield Message("tool", "\n\n".join(exchange.user) or _NOTHING, answers=call.id)
    if beside := [result for exchange in reply for result in exchange.beside]:
        yield Message("user", "\n\n".join(beside))


def _as_generated(event: Thought, args: Mapping[str, Any], thoughts: Mapping[str, Any]) -> str:
    """Render a reply with these arguments, and with its code after the object if it came so."""

    def reply(shown: Mapping[str, Any]) -> str:
        return json.dumps({**thoughts, "command": {"name": event.call.name, "args": shown}}, ensure_ascii=False)

    if found := code_block.split(event.text):
        block = found[1]
        for name, value in event.call.args.items():
            if value == block.code and name in args:
                placed = reply({**args, name: code_block.PLACE})
                return code_block.join(placed, CodeBlock(block.language, args[name]))
    return reply(args)


def _without_code(event: Thought, text: str, block: CodeBlock) -> Thought:
    """Return the reply with an ellipsis for the code after its object."""
    hidden = CodeBlock(block.language, f"{code_block.HIDDEN}\n")
    args = {name: hidden.code if value == block.code else value for name, value in event.call.args.items()}
    return replace(event, text=code_block.join(text, hidden), call=replace(event.call, args=args))


def _own_words(text: str) -> str:
    """Return the text without the quotes from others."""
    return "".join("(text from outside)" if marks else part for part, marks in split(text))


def _one_line(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of a prompt, as in Prompted: `left` is the line on the remaining limits, `files` the workspace's."""

    now: float
    zone: int | None
    left: str = ""
    files: str = ""


def build_step_prompt(
    start: RunStarted,
    history: History,
    memories: Sequence[RetrievedMemory],
    moment: Moment,
    *,
    count: Count,
    without: Collection[int] = (),
) -> Prompt:
    """Build the prompt of a step, without the memories whose ids are in `without`.

    All of its parts are in the log, so it can be rebuilt (see prompt_replay).
    """
    facts = StepFacts(
        goals=start.task.goals,
        standing="\n".join(line for line in (history.standing, moment.left) if line),
        files=moment.files,
        met=history.met,
        failing=history.failing,
        core=[memory for memory in history.core if memory.id not in without],
        core_left=history.core_left,
        core_at=history.core_at,
        lasting=[memory for memory in history.lasting if memory.id not in without],
        lasting_at=history.lasting_at,
        now=moment.now,
        zone=moment.zone,
        file=start.task.file,
    )
    return build(
        start.system,
        history.messages,
        [memory for memory in memories if memory.id not in without],
        facts,
        shares=history.shares,
        count=count,
        fixed_tokens=history.fixed_tokens,
    )
