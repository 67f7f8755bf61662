"""Drafts: a small model does the whole work several times, each time in a copy of the workspace.

What a small model does once is a guess. Drafts that leave the same files, written without sight of each other, are more
often right (self-consistency, Wang et al. 2022; agreement of what programs do, as in CodeT, Chen et al. 2022). The
first of those that agree is proposed like any other reply, and the agreement of three is evidence when the run ends.
Where no two agree, or a limit of time is near, the run goes on step by step.

A draft knows the goals and the files alone. So there are none where the user has said more: instructions, settings of
the prompt, a core of memories, attachments, feedback; or where an extension takes part in the steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import replace

from autoagent.agent.authorize import Authorization, lines_lost
from autoagent.agent.goal_words import names_in
from autoagent.agent.side_call import Question, SideCall, is_signal
from autoagent.agent.state import Policy, State, Tools
from autoagent.agent.surroundings import texts_for_drafts
from autoagent.agent.trial_run import Trial, try_out
from autoagent.agent.work import ENOUGH_DRAFTS
from autoagent.core.commands import CODE, CommandSpec
from autoagent.core.errors import ModelError, ReplyError, StopRun
from autoagent.core.events import Drafted, Event, Retried
from autoagent.core.model import Completion, Message, Usage
from autoagent.prompt import is_usual
from autoagent.registry.parts import NO_PART
from autoagent.reply.parser import parse
from autoagent.text import code_block
from autoagent.text.file_forms import digest
from autoagent.workspace.gate import shown

PURPOSE = "draft"
_MOST = 6  # drafts
_EMPTY = ("", "{}", "[]")  # the texts of files without content
_REPLY = 600  # tokens
_SHARE = 3  # the files may take one part in three of the window, and the drafts of the time that is left
_WARM = 0.7  # the temperature of all drafts but the first
_SECONDS = 15.0  # that a draft may take, as announced
_SYSTEM = """Only the standard library of Python is installed.

Response Format:
One JSON object with `command`, the one to use."""
_PROGRAM = "Do all of this, and nothing else, with one Python program that reads what it needs from the files."
_TEXT = "Do all of this, and nothing else: change the one file that has to be changed, and give its whole new text."


Outcome = tuple[tuple[str, str], ...]
"""The digests of the files that a draft has changed, with their paths; '' for one that is gone."""


class Drafts:
    """Asks a small model for drafts at the beginning of the work, where they can be tried out."""

    def __init__(self, state: State, call: SideCall, tools: Tools, policy: Policy, user: Authorization) -> None:
        self._state = state
        self._call = call
        self._registry = tools.registry
        self._context = tools.context
        self._part = tools.part
        self._policy = policy
        self._user = user

    def reply(self) -> Generator[Event, None, Completion | None]:
        """Return the reply with the first draft of those that agree. None if no two do, or none are due."""
        state = self._state
        files = texts_for_drafts(self._context.workspace, state) if self._due() else {}
        specs = self._commands(files)
        if not files or not specs or sum(map(state.count, files.values())) > self._call.model.window // _SHARE:
            return None
        replies: dict[Outcome, list[str]] = defaultdict(list)
        tried, notes, began = 0, "", self._policy.clock()
        for number, spec in enumerate(specs):
            try:
                spent = self._policy.clock() - began
                if number and (spent + spent / number) * _SHARE > spent + self._policy.budget.check_time(began + spent):
                    break  # another draft would leave too little time for the work itself
                text = yield from self._ask(files, spec, notes, number)
                with self._policy.interruptible():
                    trial = self._tried(text, files)
            except KeyboardInterrupt:
                yield from self._user.interrupted()
                replies.clear()  # what the user says now, the drafts have not known
                break
            except (ModelError, StopRun) as error:
                if is_signal(error):
                    raise
                yield state.record(
                    Retried(reason=f"There is no further draft: {error}")
                )  # the next step meets it again
                break
            tried += 1
            if trial is None:
                continue
            notes += "".join(f" {name} is not installed: do without it." for name in trial.missing if name not in notes)
            outcome = self._outcome(trial, files)
            if outcome and not trial.fails and not _is_no_work(trial, files):
                replies[outcome].append(text)
            if len(replies.get(outcome, ())) == ENOUGH_DRAFTS:
                break
        outcome, alike = max(replies.items(), key=lambda found: len(found[1]), default=((), []))
        if len(alike) < 2:
            outcome, alike = (), []
        yield state.record(Drafted(drafts=tried, agree=len(alike), files=dict(outcome), shown=tuple(files)))
        return Completion(alike[0], Usage()) if alike else None

    def _due(self) -> bool:
        state, work, history = self._state, self._state.work, self._state.history
        untouched = work.tree == work.base if work.tree else not work.changed
        return (
            state.start.style.drafts
            and self._policy.runs_tests
            and self._call.model.asking == "schema"
            and self._context.sandbox.confines
            and self._part is NO_PART
            and is_usual(state.start.system)
            and work.drafted is None
            and untouched
            and not (history.core or history.messages)
        )

    def _commands(self, files: Mapping[str, str]) -> list[CommandSpec]:
        """Return the command that each draft has to use; none where no program may run.

        Programs do the work, but the first half of the drafts of code give the new text of one file.
        """
        specs = [(spec.brief(), spec.effects) for spec in self._registry.specs if spec.effects is not None]
        programs = [s for s, does in specs if does.runs_programs and any(p.code == CODE for p in s.parameters)]
        writers = [s for s, does in specs if does.writes_whole]
        code = tuple(path for path in files if code_block.is_code(path))
        if not programs or not writers or not code:
            return programs[:1] * _MOST
        bound = [replace(p, choices=code) if p.meaning == "path" else p for p in writers[0].parameters]
        return [replace(writers[0], parameters=tuple(bound))] * (_MOST // 2) + programs[:1] * (_MOST // 2)

    def _ask(self, files: Mapping[str, str], spec: CommandSpec, notes: str, number: int) -> Generator[Event, None, str]:
        """Return a draft, '' for one that was cut off. Raises as Model.complete."""
        note = f" {code_block.NOTE}" if self._call.model.style.blocks else ""
        goals = "\n".join(f"{n}. {goal.text}" for n, goal in enumerate(self._state.start.task.goals, 1))
        texts = "\n\n".join(f"The file {shown(path)}:\n```\n{text.rstrip()}\n```" for path, text in files.items())
        how = _TEXT if spec.effects is not None and spec.effects.writes_whole else _PROGRAM
        question = Question(
            [Message("system", f"{_SYSTEM}{note}"), Message("user", f"{texts}\n\nThe goals:\n{goals}\n\n{how}{notes}")],
            PURPOSE,
            f"trying the work in a copy ({number + 1})",
            _REPLY,
            seconds=_SECONDS,
            commands=(spec,),
            temperature=_WARM if number else 0.0,
        )
        answered = yield from self._call.insist(question)
        return "" if answered.truncated else answered.text

    def _tried(self, text: str, files: Mapping[str, str]) -> Trial | None:
        """Try a draft out. None if it cannot be read, or its trial cannot be run."""
        try:
            call = parse(Completion(text, Usage()), self._registry.check, f"{self._state.step}").call
        except ReplyError:
            return None
        spec = next(spec for spec in self._registry.specs if spec.name == call.name)
        path = next((str(call.args[p.name]) for p in spec.parameters if p.meaning == "path"), "")
        code = next((str(call.args[p.name]) for p in spec.parameters if p.code), "")
        if path and path not in files:  # it may be any place
            return None
        goals = "\n".join(goal.text for goal in self._state.start.task.goals)
        programs = [name for name in names_in(goals) if name.endswith(".py")]
        return try_out(self._context, path, code, programs)

    def _outcome(self, trial: Trial, files: Mapping[str, str]) -> Outcome:
        """Return what a draft has changed, except for layout."""
        masked = self._state.log.masked
        found = ((path, text, digest(path, masked(text))) for path, text in sorted(trial.changed.items()))
        return tuple((path, now) for path, text, now in found if text is None or now != digest(path, files.get(path)))


def _is_no_work(trial: Trial, files: Mapping[str, str]) -> bool:
    """Return whether a draft leaves a file without content, without most of the lines that its code had, or as a copy
    of another one: for the text that was asked for, a small model copies the file that it is about.
    """
    kept = [text.split() for path, text in files.items() if path not in trial.changed]
    for path, text in trial.changed.items():
        lost = lines_lost(files.get(path, ""), text or "") if code_block.is_code(path) else 0
        if text is not None and (lost or text.split() in kept or text.strip() in _EMPTY):
            return True
    return False
