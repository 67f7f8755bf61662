"""Keep the history within its share of the prompt, as a fold over a run's events.

Each step becomes a pair of messages, the reply and its result, rendered and counted once. If the pairs outgrow their
share, or dropping some pays, all but a third of the share is replaced by a summary of one line per step. Rare trims in
blocks keep the beginning of the prompt constant for a provider's prefix cache: a trim costs reading the remaining
history again and saves the dropped part in each later step (`_trim_threshold`). The newest pair always stays.

The history is rendered again if its share shrinks, as with a smaller model or a prompt that the endpoint rejects. The
summary derives from the events alone, without a model call.

The summary and the `reminders` have no room for the marks of a text from outside, so they name its source instead.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from dataclasses import replace

from autoagent.agent import exchanges
from autoagent.agent.exchanges import Exchange, ResultText
from autoagent.core import events
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Message, Shares, reply_tokens, share_out, without_calls
from autoagent.text import code_block
from autoagent.text.paging import NOTE_TOKENS
from autoagent.text.quoting import Marks, defuse, name_source, unquoted
from autoagent.text.redaction import MASK_NOTE, holds_mask
from autoagent.text.sanitize import one_line
from autoagent.text.tokens import IMAGE_TOKENS, TOKENS_PER_MESSAGE, Count, fits

OPENING = "Use the first command."  # an instruction, as a small model would copy a statement into its output
FILE_OPENING = "Write the file."
_MAX_FAILURES = 3
_MAX_SUCCESSES = 10
_MAX_SOURCE_CHARACTERS = 60  # of a source that replaces its text
_SHRINK_FACTOR = 0.75  # factor applied to a rejected prompt's length to estimate the window
_FRAME_TOKENS = 100  # tokens around a page: command name, marks and source
_MAX_TOPIC_CHARACTERS = 400  # per text in a recall query


class History:
    """Fold events into messages. Read `messages` and `reminders` before each prompt.

    `read_on` names the command that shows the omitted parts of a result, or is ''. `shares` limits the parts of the
    prompt, computed from the window in the first event and the server's token counts. Adding an event takes constant
    time and memory.
    """

    NOT_IN_CHECKPOINT = ("_count", "_read_on")
    NOT_RESUMED = ("lasting", "lasting_at", "core", "core_at", "core_left")  # each process recalls them again

    def __init__(self, count: Count, read_on: str = "") -> None:
        self._count = count
        self._read_on = read_on
        self.run = ""
        self.shares = Shares(0, 0, 0)
        self._tokens = 0
        self._exchanges: deque[Exchange] = deque()
        self._newest: events.Thought | events.Rejected | None = None  # the newest reply, which may be rendered again
        self._results: list[ResultText] = []  # of that reply, uncut
        self._summary: deque[str] = deque()
        self._summary_tokens = 0
        self._faded_counts: Counter[str] = Counter()
        self._opening = OPENING
        self._opening_tokens = count(OPENING) + TOKENS_PER_MESSAGE
        self._attachments: dict[str, str] = {}  # the user's attachments, as rendered
        self._images: dict[str, tuple[str, str]] = {}  # images among them: the text that names the image, its data URL
        self.successes: deque[tuple[int, str]] = deque(maxlen=_MAX_SUCCESSES)  # step and call of the newest commands
        self._failures: deque[tuple[int, str]] = deque(maxlen=_MAX_FAILURES)
        self.feedback, self._feedback_step = "", 0  # the user's latest
        self._pending_calls = 0  # further calls of the newest reply
        self._tokens_after_trim = 0
        self._last_earlier_step = 0  # the last step of an earlier process
        self._estimated_tokens = 0
        self.scale = 1.0  # ratio of the server's token count to ours
        self.reply_tokens = 0  # reserved for the reply
        self._max_window = math.inf  # in our tokens, after a rejected prompt
        self.met: set[int] = set()  # goals, from 0, whose checks pass
        self.failing: dict[int, str] = {}  # goals whose checks fail, with the output unless it is from outside
        self._start: events.RunStarted | None = None
        self.lasting: tuple[RetrievedMemory, ...] = ()  # memories retrieved for the goals
        self.lasting_at = 0.0  # seconds since the epoch of that retrieval
        self.core: tuple[RetrievedMemory, ...] = ()  # memories in every prompt
        self.core_at, self.core_left = 0.0, 0  # when it was read, and how many did not fit
        self.dropped_ids: set[int] = set()  # of memories that the user removed from the run

    @property
    def tokens(self) -> int:
        """Return the tokens of `messages`."""
        return self._tokens + self._opening_tokens + len(self._images) * IMAGE_TOKENS

    # Reading -----------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """Return the messages: the user's first, then each reply and its result. Empty before the first reply.

        Without native tool calls, user and assistant alternate.
        """
        if not self._has_begun:
            return []
        opening = self._opening
        if self._run_start.style.writes_file:
            opening = opening.replace(OPENING, FILE_OPENING, 1)
        messages = [Message("user", opening)]
        for reply in exchanges.group_by_reply(self._exchanges):
            if reply[-1] is self._exchanges[-1]:
                messages += exchanges.messages_of(reply)
            else:  # complete: it will not change
                reply[0].rendered = reply[0].rendered or tuple(exchanges.messages_of(reply))
                messages += reply[0].rendered
        if not self._run_start.native and any(message.calls for message in messages):
            messages = without_calls(messages)
        for n, message in enumerate(messages if self._images else ()):
            if message.role == "user":
                images = tuple(image for text, image in self._images.values() if text in message.content)
                messages[n] = replace(message, images=images)
        return messages

    @property
    def outline(self) -> tuple[int, int, int, int, int]:
        """Return the tokens of opening, older steps and newest step, and how many steps are summarised and counted."""
        newest = self._exchanges[-1].tokens if self._exchanges else 0
        opening = self._opening_tokens if self._has_begun else 0
        return opening, self._tokens - newest, newest, len(self._summary), sum(self._faded_counts.values())

    @property
    def fixed_tokens(self) -> int:
        """Return the tokens of the prompt without its last part: the system message and `messages`."""
        return self._run_start.system_tokens + (self.tokens if self._has_begun else 0)

    @property
    def _run_start(self) -> events.RunStarted:
        assert self._start is not None, "a run's first event is RunStarted"
        return self._start

    @property
    def _has_begun(self) -> bool:
        return bool(self._exchanges) or self._opening != OPENING

    @property
    def steps(self) -> set[tuple[str, int]]:
        """Return the (run, step) of every step still shown in full."""
        return {(exchange.run, exchange.step) for exchange in self._exchanges}

    def shows(self, step: int) -> bool:
        """Return whether this step of this run is still shown in full."""
        return bool(self._exchanges) and self._exchanges[0].step <= step

    @property
    def thought(self) -> events.Thought | None:
        """Return the newest reply if it was usable."""
        return self._newest if isinstance(self._newest, events.Thought) else None

    @property
    def memorable(self) -> str:
        """Return the newest step as a text to remember, or ''.

        Refused replies and calls, results that memory already holds, the final review and the end are not remembered.
        Text from outside has no marks here, since the caller marks the whole text.
        """
        newest = self._exchanges[-1] if self._exchanges else None
        if newest is None or not newest.is_memorable:
            return ""
        assert self.thought is not None, "only a call has a result"
        thought, call = one_line(self.thought.thoughts.text, 300), one_line(str(self.thought.call), 600)
        lines = [f"Thought: {thought}"] if thought else []
        verb = "Done" if newest.is_outcome_known else "Not known to be done"
        return "\n".join([*lines, f"{verb}: {call}", *newest.unmarked_texts])

    @property
    def topic(self) -> str:
        """Return the distinctive words of the newest step, to query memory, or '' without a usable reply."""
        if self.thought is None:
            return ""
        words = [self.thought.thoughts.text, *(v for v in self.thought.call.args.values() if isinstance(v, str))]
        return "\n".join(text[:_MAX_TOPIC_CHARACTERS] for text in (*words, *(result.text for result in self._results)))

    def feedback_in(self, step: int) -> str:
        """Return the user's feedback in this step with the call it refers to, or ''."""
        if not self.feedback or self._feedback_step != step:
            return ""
        call = self._exchanges[-1].call if self._exchanges else None
        return self.feedback + (f"\nSaid of: {one_line(str(call), 48)}" if call else "")

    @property
    def mentions_paging(self) -> bool:
        """Return whether a message names the command that shows omitted parts of a result."""
        return any(f"{self._read_on}(step=" in message.content for message in self.messages)

    @property
    def reminders(self) -> str:
        """Return facts that outlive their steps: the latest feedback, recent failures and commands."""
        first_step = self._exchanges[0].step if self._exchanges else 0
        lines = []
        if self.feedback and self._feedback_step < first_step:
            lines.append(f"The user's last feedback was: {self.feedback}")
        lines += [f"Earlier failure (step {step}): {text}" for step, text in self._failures if step < first_step]
        if calls := [text for step, text in self.successes if step < first_step]:
            lines.append("Commands already done: " + "; ".join(calls) + ".")
        return "\n".join(lines)

    # Folding -----------------------------------------------------------------------------------------------------

    def add(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self._begin(event)
            case events.Recalled(core=True):
                self.core, self.core_at, self.core_left = event.memories, event.t, len(event.left_out)
            case events.Recalled(lasting=True):
                self.lasting, self.lasting_at = event.memories, event.t
            case events.Dropped():
                self._drop(event)
            case events.Prompted():
                self._estimated_tokens = event.tokens
            case events.Retried(shortened=True):
                self._max_window = _SHRINK_FACTOR * min(self._window, self._estimated_tokens + self.reply_tokens)
                self._compute_shares()
                self._trim(min(self.shares.history, self.tokens - 1))
            case events.Thought():
                self._calibrate(event.usage.prompt)
                self._open_exchange(event)
                self._pending_calls = len(event.more) or max(0, self._pending_calls - 1)
            case events.Rejected():
                self._calibrate(event.usage.prompt)
                self._open_exchange(event)
                self._pending_calls = max(0, self._pending_calls - 1)
                self._add_result(ResultText(f"That reply was not used: {event.problem}"))
            case events.Decided(allowed=False) if event.reason:
                self._add_result(ResultText(f"The command was not run: {event.reason}"))
                self._note_outcome("not run")
            case events.Decided(allowed=True, args=args) if args is not None:
                text = json.dumps(args, ensure_ascii=False)
                self._add_result(ResultText(f"Arguments as the user changed them: {text}"))
            case events.Feedback():
                self.feedback, self._feedback_step = event.text, event.step
                if self._exchanges and not isinstance(self._exchanges[-1].reply, str) and not self._exchanges[-1].parts:
                    self._add_result(ResultText("The command was not run."))
                self._add_result(ResultText(f"Human feedback: {event.text}", is_extra=True))
                if holds_mask(event.text):
                    self._add_result(ResultText(MASK_NOTE, is_extra=True))
                self._note_outcome(f"feedback: {event.text}")
                self._clear_pending()
            case events.Forked():
                self._pending_calls = 0
            case events.Rewound() | events.Undone():
                self._pending_calls = 0
                self.met.clear()  # unknown for the current files
                self.failing.clear()
            case events.Checked():
                (self.met.add if event.met else self.met.discard)(event.goal)
                self.failing.pop(event.goal, None)
                if not event.met:
                    self.failing[event.goal] = "" if event.meta.untrusted else event.output
            case events.SystemNotice():
                self._add_result(ResultText(event.text, is_extra=True))
            case events.AgentMessage():
                self._add_message(event)
            case events.Returned():
                self._add_returned(event)
                if event.needs_review:
                    self._clear_pending()

    def _begin(self, event: events.RunStarted) -> None:
        if self._start and self._start.task.goals != event.task.goals:
            self.met.clear()
            self.failing.clear()
        self.run, self._start = event.run, event
        if not isinstance(event, events.Changed):
            self._last_earlier_step = event.step
        self._max_window = math.inf
        self._compute_shares()
        self._trim(self.shares.history)

    def _compute_shares(self) -> None:
        start = self._run_start
        goals = sum(self._count(goal.text) + TOKENS_PER_MESSAGE for goal in start.task.goals)
        self._window = int(min(self._max_window, start.window / self.scale))
        self.reply_tokens = start.reply_tokens
        if self._max_window < math.inf:
            self.reply_tokens = min(self.reply_tokens, reply_tokens(self._window))
        self.shares = share_out(self._window, self.reply_tokens, start.system_tokens, goals)
        self._message_limit = max(64, min(self.shares.history // 5, 6000))
        self._page_limit = max(64, self._window // 4)
        self._limit = min(self.shares.history, start.context or self.shares.history)
        self._summary_limit = max(32, self._limit // 8)

    def _calibrate(self, server_tokens: int) -> None:
        """Scale our token counts up if the server reports more."""
        if self._estimated_tokens and server_tokens > self._estimated_tokens * self.scale:
            self.scale = min(2.0, server_tokens / self._estimated_tokens)
            self._compute_shares()
        self._estimated_tokens = 0

    def _open_exchange(self, reply: events.Thought | events.Rejected) -> None:
        self._newest, self._results = reply, []
        exchange = Exchange(reply.run, reply.step, "", continues_reply=self._pending_calls > 0)
        if isinstance(reply, events.Thought):
            exchange.call = reply.call
            exchange.summary = one_line(str(reply.call), 160)
        self._exchanges.append(exchange)
        self._render_newest()
        self._trim(self.shares.history)

    def _add_result(self, result: ResultText) -> None:
        """Add a result, cut to its limit. Before the first reply it belongs to the opening."""
        if self._exchanges:
            self._results.append(result)
            self._append_to_newest(result)
            self._trim(self.shares.history)
            return
        _, text = exchanges.fit_result(result, self._message_limit, self._count)
        self._set_opening(f"{self._opening}\n\n{text}")
        if result.attachment:
            self._attachments[result.attachment] = text

    def _set_opening(self, text: str) -> None:
        self._opening, self._opening_tokens = text, self._count(text) + TOKENS_PER_MESSAGE

    def _append_to_newest(self, result: ResultText) -> None:
        newest = self._exchanges[-1]
        limit = self._page_limit if result.is_paged else self._message_limit
        text, rendered = exchanges.fit_result(result, min(limit, self._half_of_remainder), self._count)
        tokens = self._count(rendered) + 1
        (newest.parts if isinstance(newest.reply, str) or not result.is_extra else newest.extras).append(rendered)
        if result.attachment:
            self._attachments[result.attachment] = rendered  # rendered again, it may be shorter
        newest.unmarked_texts.append(f"{result.heading} {text}" if result.marks else rendered)
        newest.tokens += tokens
        self._tokens += tokens

    @property
    def _half_of_remainder(self) -> int:
        """Return half of the tokens available to the newest result if all other steps were dropped."""
        newest_tokens = self._exchanges[-1].tokens if self._exchanges else 0
        return (self.shares.history - self._opening_tokens - newest_tokens) // 2

    def has_room(self, text: str) -> bool:
        """Return whether a page fits the limit of one result, a quarter of the window."""
        room = min(self._page_limit, self._half_of_remainder) - NOTE_TOKENS - _FRAME_TOKENS
        return fits(text, max(32, room), self._count)

    def _clear_pending(self) -> None:
        if self._pending_calls:
            self._add_result(ResultText(f"Not run: the further commands of that reply ({self._pending_calls})."))
        self._pending_calls = 0

    def _add_message(self, event: events.AgentMessage) -> None:
        attachment = event.sender if event.attached else ""
        text, marks = event.text, None
        heading = f"{event.heading}\n" if attachment else f"{event.heading} "
        if source := event.meta.untrusted:
            marks = Marks.of(text, source, run=event.run, step=event.step)
            text, heading = defuse(text), event.heading
        self._add_result(ResultText(text, marks, heading, is_extra=True, attachment=attachment))
        if event.image:
            self._images[event.sender] = event.text, event.image

    def _drop(self, event: events.Dropped) -> None:
        if event.attachment:
            self._detach(event.attachment)
            return
        self.dropped_ids.add(event.memory)
        self.lasting = tuple(memory for memory in self.lasting if memory.id != event.memory)
        self.core = tuple(memory for memory in self.core if memory.id != event.memory)
        if event.ends_reply:
            self._clear_pending()

    def _detach(self, name: str) -> None:
        """Replace an attachment with a note that the user has taken it back."""
        note = f"{name} was attached, and the user has taken it back."
        rendered = self._attachments.pop(name, "")
        self._images.pop(name, None)
        if rendered and rendered in self._opening:
            self._set_opening(self._opening.replace(rendered, note))
        for exchange in self._exchanges if rendered else ():
            exchange.rendered = ()
            for texts in (exchange.parts, exchange.extras, exchange.unmarked_texts):
                texts[:] = [note if text == rendered else text for text in texts]
        self._results = [result for result in self._results if result.attachment != name]

    def _add_returned(self, event: events.Returned) -> None:
        exchange = self._exchanges[-1] if self._exchanges else None
        name = exchange.call.name if exchange and exchange.call else "The command"
        meta, outcome = event.meta, event.outcome
        newest = self._newest if self._run_start.style.guided and meta.failed else None
        if isinstance(newest, events.Thought) and (parts := code_block.split(newest.text)):
            self._newest = exchanges.elide_code(newest, *parts)  # a small model would write it again unchanged
            self._render_newest()
        marks = None
        if source := meta.untrusted:
            text, heading = defuse(event.text), f"{name} {outcome}:"
            marks = Marks.of(event.text, source, run=event.run, step=event.step)
            summary = f"(text from {name_source(source, _MAX_SOURCE_CHARACTERS)})"
        else:
            is_named_by_call = self._run_start.native and outcome == "returned"
            heading = "" if is_named_by_call else f"{name} {outcome}: "
            text, summary = event.text, unquoted(event.text)
        read_on = f"{self._read_on}(step={event.step}, " if self._read_on else ""
        self._add_result(ResultText(text, marks, heading, is_paged=meta.page is not None, read_on=read_on))
        if exchange:
            is_end = meta.put_off or meta.finished is not None
            exchange.is_memorable = not (is_end or meta.repeat or meta.kept)
            exchange.is_outcome_known = event.known
        if meta.masked:
            self._add_result(ResultText(MASK_NOTE))
        self._note_outcome(f"{'ok' if event.ok else outcome}: {one_line(summary, 80)}")
        if exchange and exchange.call and not event.put_off:
            if event.ok:
                self.successes.append((exchange.step, one_line(str(exchange.call), 80)))
            else:
                failure = f"{one_line(str(exchange.call), 120)}: {one_line(summary, 240)}"
                self._failures.append((event.step, failure))

    def _note_outcome(self, outcome: str) -> None:
        if self._exchanges:
            self._exchanges[-1].summary += f" -> {outcome}"

    # Trimming ----------------------------------------------------------------------------------------------------

    def _trim(self, limit: int) -> None:
        """Drop the oldest steps, if they exceed the limit or it pays, until two thirds of the share are free.

        The newest step always stays.
        """
        target = min(limit, self._limit)
        if self.tokens <= target and (len(self._exchanges) < 2 or self.tokens <= self._trim_threshold):
            return
        while len(self._exchanges) > 1 and self.tokens > target // 3:
            oldest = self._exchanges.popleft()
            self._tokens -= oldest.tokens
            line = f"{oldest.step}. {one_line(oldest.summary, 240)}"
            self._summary.append(line)
            self._summary_tokens += self._count(line) + 1
        while self._summary_tokens > self._summary_limit and len(self._summary) > 1:  # surplus lines become counts
            line = self._summary.popleft()
            self._summary_tokens -= self._count(line) + 1
            self._faded_counts[line.partition(". ")[2].partition("(")[0]] += 1
        self._write_opening()
        self._tokens_after_trim = self.tokens
        if self.tokens > limit and self._exchanges:
            self._render_newest()

    @property
    def _trim_threshold(self) -> float:
        """Return the token count from which a trim saves more than it costs, or infinity without prices.

        A trim to `target` tokens reads these again at the full instead of the cached price, and saves the others in
        each later step. The total cost is lowest where both are equal, hence the square root. A trim also has to pay
        off in the rest of the run, assumed to be as long as the run so far unless a limit ends it sooner.
        """
        start, newest = self._start, self._exchanges[-1] if self._exchanges else None
        if start is None or newest is None or not start.cached_part:
            return math.inf
        target = max(self._tokens_after_trim, self._limit // 3)
        reread_cost = target * (1 / start.cached_part - 1)
        tokens_per_step = self._tokens / len(self._exchanges)
        limit = start.limits.get("commands") or math.inf
        steps_left = max(1.0, min(newest.step, limit - (newest.step - self._last_earlier_step)))
        return target + max(math.sqrt(2 * reread_cost * tokens_per_step), reread_cost / steps_left, target / 8)

    def _render_newest(self) -> None:
        """Render the newest step again within the space it has now."""
        assert self._newest is not None, "a reply opened this step"
        newest = self._exchanges[-1]
        self._tokens -= newest.tokens
        newest.reply = exchanges.render(self._newest, self._run_start, self._message_limit, self._count)
        newest.tokens = exchanges.tokens_of(newest.reply, self._count)
        newest.parts, newest.extras, newest.unmarked_texts = [], [], []
        self._tokens += newest.tokens
        for result in self._results:
            self._append_to_newest(result)

    def _write_opening(self) -> None:
        lines = ["Commands used before, in short:"] if self._summary else [OPENING]
        if self._faded_counts:
            counts = (f"{name} ({n} times)" for name, n in self._faded_counts.most_common(12))
            lines.append(f"Long ago: {', '.join(counts)}")
        text, room = "\n".join([*lines, *self._summary]), self._limit // 4
        for rendered in self._attachments.values():  # attachments stay while there is room
            room -= self._count(rendered)
            if room >= 0 and not any(rendered in (*exchange.parts, *exchange.extras) for exchange in self._exchanges):
                text = f"{text}\n\n{rendered}"
        self._set_opening(text)
