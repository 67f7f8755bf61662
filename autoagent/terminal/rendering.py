"""Render records as lines that fit the terminal, with pure functions.

Everything written by a model, a file or a user is escaped, and follows an indent or a bar, so that it can neither
control the terminal nor pose as a line of the program. The program's own words are ASCII.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from colorama import Style

from autoagent.core import events
from autoagent.core.commands import Proposal
from autoagent.core.frozen import dataclass
from autoagent.core.model import Thoughts
from autoagent.core.task import Status
from autoagent.terminal import markup
from autoagent.terminal.palette import Ink, Palette
from autoagent.text.facts import PURPOSE, parse_facts
from autoagent.text.figures import counted, duration, money
from autoagent.text.redaction import MASK, holds_mask
from autoagent.text.sanitize import cut_to_lines, escape, fold_blanks, script_notes, shorten, shorten_lines, width
from autoagent.text.wrapping import cut, wrap

if TYPE_CHECKING:
    from autoagent.agent.stats import RunStats

MORE_THOUGHTS = "(t = all)"
MAX_NAMED_COMMANDS = 12  # if more are offered, their number is shown
CONTINUOUS_WARNING = (
    "Continuous mode: commands run without a question, until the goals are met or a limit is reached. The agent "
    "may do things that you would not have allowed. Ctrl-C stops it."
)

MAX_ARGUMENT_CHARACTERS, MAX_ARGUMENT_LINES = 900, 20  # of one argument, until d shows all
MAX_DIFF_CHARACTERS, MAX_DIFF_LINES = 400, 60  # characters per line of a diff, and its lines
MAX_RESULT_CHARACTERS, MAX_RESULT_LINES = 800, 8  # /full shows all; a program's result has its exit status at the end
MIN_LINES = 6  # of a text on the smallest screen
MAX_NOTICE_CHARACTERS = 150  # of a notice to the agent, as the user need not read all of it

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
DIGEST = re.compile(r" \([^()]*SHA-256 ([0-9a-f]{64})\):$", re.MULTILINE)
"""The end of a note with the digest of the text below it."""


@dataclass(frozen=True, slots=True)
class Page:
    """The terminal to render for: its columns, and its colours or None.

    With `whole`, nothing is cut. With `draws`, the agent's Markdown is drawn. `rows` is 0 if nobody scrolls. With
    `brief`, which is never `whole`, a person watches commands run without being asked.
    """

    columns: int
    color: Palette | None = None
    whole: bool = False
    draws: bool = False
    rows: int = 0
    brief: bool = False

    def at_most(self, lines: int) -> int:
        """Return how many lines of a text to show: at most half the screen, so that its heading stays visible."""
        if self.whole:
            return sys.maxsize
        if self.brief:
            return lines // 3
        return min(lines, max(MIN_LINES, self.rows // 2)) if self.rows else lines

    @property
    def code_theme(self) -> str:
        """Return rich's theme for code, '' for no colours."""
        return self.color.code_theme if self.color else ""

    def ink(self, ink: Ink, text: str) -> str:
        """Return the text in a colour, or unchanged without colours."""
        code = self.color.codes[ink] if self.color and text else ""
        return f"{code}{text}{Style.RESET_ALL}" if code else text

    def prose(self, label: str, text: str, ink: Ink = "system") -> str:
        """Render a coloured label, and prose wrapped after it."""
        label = label.replace("\n", " ")  # a name in it could pose as a line of the program
        return self.ink(ink, label) + wrap(f" {text}", self.columns, at=width(label))

    def markdown(self, label: str, text: str, ink: Ink = "system") -> Iterator[str]:
        """Render a coloured label and the agent's text to the user, on the next lines if it is Markdown."""
        if self.draws and markup.has_markup(text):
            first, *rest = markup.render_markdown(text, self.columns, self.code_theme)
            if not rest and width(label) + width(_COLOUR.sub("", first)) < self.columns:
                yield f"{self.ink(ink, label)} {first.lstrip()}"
                return
            yield self.ink(ink, label)
            yield from (first, *rest)
        else:
            yield self.prose(label, text, ink)

    def alert(self, text: str) -> str:
        """Render a prominent line."""
        return self.ink("alarm", wrap(text, self.columns))


def name_of(stats: RunStats) -> str:
    """Return the agent's name as shown before its thoughts."""
    name = stats.task.name if stats.task else ""
    return escape(shorten(name.upper(), 40).replace("\n", " ")) or "AGENT"


def run_start(event: events.RunStarted, page: Page, *, brief: bool = False, agreed: bool = False) -> Iterator[str]:
    """Render the agent, its goals and its means. `brief`: only the goals. `agreed`: only the means and the checks."""
    if isinstance(event, events.Resumed):
        yield page.prose("RESUMED:", f"run {event.run}, after step {event.step}")
    task = event.task
    if not (brief or agreed):
        yield page.prose("NAME:", task.name, "label")
        yield page.prose("ROLE:", task.role, "label")
    if not agreed or any(goal.check for goal in task.goals):
        yield page.ink("label", "GOALS:")
    for number, goal in enumerate(task.goals, 1):
        if agreed and not goal.check:
            continue
        yield "  " + wrap(f"{number}. {goal.text}", page.columns, at=2, indent=5)
        if goal.check:
            yield "     " + wrap(f"check: {goal.check}", page.columns, at=5, indent=7)
    if brief:
        return
    yield page.prose("MODEL:", at_host(f"{event.model}, window {event.window:,} tokens", event.host), "label")
    yield page.prose("WORKSPACE:", event.workspace, "label")
    names = ", ".join(event.commands)
    if len(event.commands) > MAX_NAMED_COMMANDS:
        names = f"{len(event.commands)}, which `autoagent commands` lists"
    yield page.prose("COMMANDS:", names, "label")


def at_host(model: str, host: str) -> str:
    """Name a model, and the host that receives its prompts."""
    return f"{model}, at {host}" if host else model


def other_thoughts(thoughts: Thoughts, page: Page) -> Iterator[str]:
    """Render the thoughts after the first, if any: reasoning, plan and criticism."""
    if thoughts.reasoning.strip():
        yield page.prose("REASONING:", thoughts.reasoning.strip(), "thought")
    if thoughts.plan.strip():
        yield page.ink("thought", "PLAN:")
        for line in thoughts.plan.strip().splitlines():
            if text := line.strip().removeprefix("- ").strip():
                yield page.prose("-", text, "thought")
    if thoughts.criticism.strip():
        yield page.prose("CRITICISM:", thoughts.criticism.strip(), "thought")


def all_thoughts(thoughts: Thoughts, page: Page) -> Iterator[str]:
    """Render all thoughts of a step."""
    if thoughts.text.strip():
        yield page.prose("THOUGHTS:", thoughts.text.strip(), "thought")
    yield from other_thoughts(thoughts, page)


def folded_thoughts(thoughts: Thoughts, page: Page) -> Iterator[str]:
    """Render the thoughts of a step on one line, cut to fit."""
    plan = "; ".join(line.strip().removeprefix("- ") for line in thoughts.plan.strip().splitlines())
    parts = {"why": thoughts.reasoning, "plan": plan, "but": thoughts.criticism}
    text = "; ".join(f"{label}: {' '.join(part.split()).rstrip('.')}" for label, part in parts.items() if part.strip())
    if text:
        yield page.ink("quiet", f"  {_first_line(text, page.columns - len(MORE_THOUGHTS) - 7)} {MORE_THOUGHTS}")


def short_thoughts(thoughts: Thoughts, stats: RunStats, page: Page) -> Iterator[str]:
    """Render the first thought on one line, cut to fit."""
    label = f"{name_of(stats)} THOUGHTS:"
    text = " ".join(thoughts.text.split())
    yield f"{page.ink('thought', label)} {_first_line(text, page.columns - width(label) - 5)}"


def _first_line(text: str, columns: int) -> str:
    """Cut a text to one line, with dots for the missing part beyond the columns."""
    first = next(cut(text, columns, hanging=0, at_spaces=True))
    return f"{first}{'' if first == escape(text) else ' ...'}"


def cost_text(stats: RunStats) -> str:
    """Render the cost of a run so far, and its budget if it has one."""
    limit = f" of ${stats.budget:g}" if stats.budget and stats.usage.cost is not None else ""
    return f"{money(stats.usage.cost)}{limit}"


def step_rule(stats: RunStats, step: int, page: Page) -> str:
    """Render a line across the screen where a step begins, with its number and the run's figures so far."""
    parts = (
        f"step {step}{f' of {stats.max_commands}' if stats.max_commands else ''}",
        cost_text(stats),
        f"window {stats.share:.0%}",
        duration(stats.seconds),
    )
    line = wrap(f"-- {' | '.join(parts)}", page.columns)
    return page.ink("quiet", line if "\n" in line else f"{line} ".ljust(page.columns, "-"))


def figures_line(what: str, stats: RunStats, page: Page) -> str:
    """Render the figures of a run on a line: its last activity, tokens, money, time."""
    parts = (what, f"{stats.tokens:,} tokens", cost_text(stats), duration(stats.seconds))
    return page.ink("quiet", wrap(f"[{' | '.join(parts)}]", page.columns))


def proposal(
    proposed: Proposal | events.Proposed, page: Page, *, mask: Callable[[Any], Any] = lambda value: value, step: int = 0
) -> Iterator[str]:
    """Render a proposal, or a logged call: command, arguments, warnings, diff.

    `mask` removes secrets. Long runs of blanks are folded. Other long text is cut unless the page is `whole`. `step` is
    an earlier step that showed the text at the end of a note, or 0.
    """
    page = replace(page, brief=False) if proposed.warning or proposed.risk == "irreversible" else page
    call, preview = replace(proposed.call, args=mask(proposed.call.args)), mask(proposed.preview)
    whose = f" OF {escape(proposed.agent)}" if proposed.agent else ""
    risk = f" ({proposed.risk})" if proposed.risk else ""  # an older log has none
    label, text = f"NEXT ACTION{whose}{risk}:", f"COMMAND = {call.name}"
    lines = list(_arguments(call.args, preview if proposed.is_diff and not page.whole else "", page))
    is_short = all("\n" not in line and line.count(" = ") == 1 and "  " not in line.strip() for line in lines)
    if is_short and width(f"{label} {text}{''.join(lines)}") <= page.columns:
        text, lines = text + "".join(lines), []
    yield page.prose(label, text, proposed.risk or "action")
    yield from lines
    for note in script_notes("\n".join([*map(str, call.args.values()), preview])):
        yield page.alert(f"Letters that look alike: {note}")
    if proposed.is_diff:
        yield from _diff(preview, page, call.args.values())
    elif preview:
        yield from _note(preview, page, "alarm" if proposed.risk == "irreversible" else "quiet", step)
    is_masked = isinstance(proposed, events.Proposed) and proposed.masked
    if is_masked or call.args != proposed.call.args:
        yield page.alert(f"An argument holds what looks like a secret. {MASK} stands for it here; it is used as it is.")
    if holds_mask(proposed.call.args) and not is_masked:
        yield page.alert(f"The agent wrote {MASK} itself, without knowing what it stands for; it is used as it is.")
    if proposed.warning:
        yield page.prose("WARNING:", mask(proposed.warning), "alarm")


def _arguments(args: Mapping[str, Any], diff: str, page: Page) -> Iterator[str]:
    """Render the arguments, except texts fully visible in the diff."""
    *names, changed = diff.split("\n", 2) if diff else [""]  # the names of the file, and all below them
    max_lines = page.at_most(MAX_ARGUMENT_LINES)
    for name, value in args.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        is_name = any(line.endswith(text) for line in names)
        if changed and text.strip() and not is_name and all(line in changed for line in text.split("\n")):
            continue
        short = fold_blanks(text) if page.whole else shorten(text, MAX_ARGUMENT_CHARACTERS)
        if "\n" in short:
            yield f"  {escape(name)} ="
            yield from block(short, page, max_lines)
        else:
            is_exact = text == text.strip() and text  # blanks at the ends are visible only between quotes
            value_text = short if is_exact else json.dumps(short, ensure_ascii=False)
            yield wrap(f"  {name} = {value_text}", page.columns, indent=6)
        if (short != text or short.count("\n") >= max_lines) and not (page.whole or page.brief):
            yield page.ink("quiet", "    (d shows all)")


def _note(preview: str, page: Page, ink: Ink, step: int) -> Iterator[str]:
    """Render the effect of a call, in red if it cannot be undone."""
    head, _, rest = preview.rstrip("\n").partition("\n")
    if not page.whole and (digest := DIGEST.search(head)):
        suffix = f" (as shown in step {step})." if step else digest[0].replace(f", SHA-256 {digest[1]}", "")
        head, rest = head[: digest.start()] + suffix, "" if step else rest
    head = head if page.whole else shorten(head, MAX_ARGUMENT_CHARACTERS)
    quiet_note = page.ink("quiet", wrap(f"NOTE: {head}", page.columns))
    yield quiet_note if ink == "quiet" else page.prose("NOTE:", head, ink)
    if rest:
        text = fold_blanks(rest) if page.whole else shorten(rest, MAX_ARGUMENT_CHARACTERS)
        max_lines = page.at_most(MAX_ARGUMENT_LINES)
        yield from block(text, page, max_lines)
        if not (page.whole or page.brief) and (text != rest or rest.count("\n") >= max_lines):
            yield page.ink("quiet", "  (d shows all)")


def _diff(preview: str, page: Page, arguments: Collection[Any]) -> Iterator[str]:
    """Render a diff. Show the file names above it only if they are not among the arguments."""
    folded = fold_blanks(preview)
    lines = folded.split("\n")[: -1 if folded.endswith("\n") else None]
    path = lines[1].removeprefix("+++ ").removeprefix("b/") if len(lines) > 1 else ""
    code = markup.highlighter(path, page.code_theme) if page.color and path else str
    first = 0 if page.whole or path not in arguments else 3 if lines[0] == "--- /dev/null" and len(lines) > 3 else 2
    pieces: list[str] = []
    for number, line in enumerate(lines[first:], first):
        if page.brief and line.startswith(" "):  # the same before and after
            continue
        short = line if page.whole else shorten(line, MAX_DIFF_CHARACTERS)
        pieces += (
            _inked(piece, line[:1], code if number > 1 else None, page) for piece in cut(short, page.columns, "  ")
        )
    max_lines = page.at_most(MAX_DIFF_LINES)
    if page.whole or (len(pieces) <= max_lines and all(len(line) <= MAX_DIFF_CHARACTERS for line in lines)):
        yield from pieces
        return
    yield from shorten_lines(pieces, max_lines, "  ")
    if not page.brief:
        yield page.ink("quiet", "  (d shows the whole diff)")


def _inked(piece: str, mark: str, code: Callable[[str], str] | None, page: Page) -> str:
    """Colour a piece of a line that begins with `mark`, using `code`, or None for the names above the lines."""
    inks: Mapping[str, Ink] = {"+": "added", "-": "removed", "@": "hunk"}
    if code is None or mark in ("-", "@"):
        return page.ink(inks[mark], piece) if mark in inks else piece
    sign = piece[:3] if piece[2:3] == mark else piece[:2]
    return page.ink("added", sign) + code(piece[len(sign) :]) if mark == "+" else sign + code(piece[len(sign) :])


def block(text: str, page: Page, max_lines: int | None = None) -> Iterator[str]:
    """Render the lines of a text behind a bar each. With `max_lines`, leave out the middle."""
    lines = text.split("\n")
    for line in lines if max_lines is None else shorten_lines(lines, max_lines):
        yield from cut(line, page.columns, "  | ", at_spaces=True)


def result(event: events.Returned, command: str, page: Page) -> Iterator[str]:
    """Render a command's result, cut so that the thoughts stay visible."""
    if event.meta.finished is not None:  # the lines of the end show this text
        return
    text = fold_blanks(event.text.rstrip("\n"))
    if event.put_off and not page.whole:
        heading, *goals = text.split("\n")
        yield page.prose("CHECKING:", shorten(goals[0] if goals else heading, MAX_NOTICE_CHARACTERS))
        return
    outcome = f"{command} {event.outcome}:"
    ink: Ink = "system" if event.ok or event.put_off else "alarm"
    if page.brief:  # three lines at most, or the first, which has a program's exit status, and the last
        first, *rest = [line for line in text.split("\n") if line.strip()] or ["nothing"]
        if len(rest) > 2:
            count = text.count("\n") + 1
            outcome, rest = f"{outcome[:-1]} ({count:,} lines):", rest[-1:]
        yield page.prose("SYSTEM:", f"{outcome} {shorten(first, MAX_NOTICE_CHARACTERS)}", ink)
        for line in rest:
            yield from block(shorten(line, MAX_NOTICE_CHARACTERS), page)
        return
    lines = text.split("\n") if page.whole else cut_to_lines(text, MAX_RESULT_CHARACTERS, MAX_RESULT_LINES, tail=5)
    if len(lines) == 1:
        yield page.prose("SYSTEM:", f"{outcome} {lines[0] or 'nothing'}", ink)
        return
    yield page.prose("SYSTEM:", outcome, ink)
    yield from block("\n".join(lines), page)


def event_lines(event: events.Event, page: Page) -> Iterator[str]:
    """Render an event that looks the same for every agent, else nothing."""
    match event:
        case events.Rejected():
            yield page.prose("UNUSABLE REPLY:", event.problem, "alarm")
        case events.Retried():
            yield page.prose("SYSTEM:", event.reason)
        case events.Decided(allowed=False) if event.reason:
            yield page.prose(f"NOT RUN ({escape(event.by)}):", event.reason, "alarm")
        case events.Feedback():
            yield page.prose("USER:", event.text, "user")
        case events.SystemNotice() if page.brief:
            first, *further = event.text.splitlines() or [""]
            yield page.prose("SYSTEM:", first)
            for last in further[-1:]:
                yield from block(last, page)
        case events.SystemNotice():
            yield page.prose("SYSTEM:", event.text)
        case events.AgentMessage(attached=True):
            size = event.text if event.image else counted(len(event.text.splitlines()), "line")
            yield page.prose("ATTACHED:", f"{event.sender}, {size.strip('()')}", "user")
        case events.AgentMessage():
            yield page.prose(f"{escape(event.sender)}:", event.text)
        case events.Answered(purpose=purpose) if purpose == PURPOSE:
            if facts := parse_facts(event.text, truncated=event.truncated):
                yield page.prose("FACTS:", " | ".join(facts))
        case events.Drafted():
            text = f"{event.agree or 'no two'} leave the same files" if event.agree != 1 else "one passes what failed"
            yield page.prose("DRAFTS:", f"the work was tried {event.drafts} times in copies; {text}")
        case events.Verified():
            goals_by_finding: dict[str, list[str]] = {}
            for verdict in event.verdicts:
                quote = f' "{verdict.evidence}"' if verdict.evidence else ""
                why = f": {verdict.why}" if verdict.why else ""
                goals_by_finding.setdefault(f"{verdict.finding}{quote}{why}", []).append(str(verdict.goal + 1))
            for finding, numbers in goals_by_finding.items():
                yield page.prose("VERIFIER:", f"goal{'s' * (len(numbers) > 1)} {', '.join(numbers)} {finding}")
        case events.Ended():
            yield from run_end(event, page)


def run_end(event: events.Ended, page: Page) -> Iterator[str]:
    """Render why the run ends, in the agent's words if it finished."""
    if event.status == Status.FINISHED:
        yield from page.markdown(f"{event.status.words}:", event.reason)
    else:
        yield page.prose(f"{event.status.words}:", event.reason, "alarm")
