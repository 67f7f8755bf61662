"""Draft the work: a small model does all of it several times, each time in a copy of the workspace.

A single attempt of a small model is a guess. Drafts written independently that leave the same files are more often
right (self-consistency, Wang et al. 2022; agreement of program outputs, as in CodeT, Chen et al. 2022). Some drafts are
programs, others the whole text of a file: where one way fails, the other often succeeds (of 24 tasks of new kinds, four
programs and two texts did 14, and four programs alone 9). The first of the drafts that agree is proposed like any other
reply. If tests fail before the work, so is the first draft that passes them, and the model is first asked why they
fail: of 14 functions with a wrong line, the embedded model fixed 11 this way, and 6 otherwise. If no draft is proposed,
or a time limit is near, the run continues step by step.

Agreement is no evidence: on tasks of unknown kinds, drafts that agree are wrong more often than right.

A draft knows only the goals and the files. Therefore none is made if the user has said more (instructions, settings of
the prompt, a core of memories, attachments, feedback), or if an extension takes part in the steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from autoagent.agent.authorize import Authorization, lines_lost
from autoagent.agent.goal_words import names_in
from autoagent.agent.side_call import SideCall, SideRequest, is_signal
from autoagent.agent.state import State
from autoagent.agent.surroundings import texts_for_drafts
from autoagent.agent.trial_run import Trial, TrialRun, entries_of, run_tests, try_out
from autoagent.core.commands import CODE, CommandSpec
from autoagent.core.errors import ModelError, ReplyError, StopRun
from autoagent.core.events import Drafted, Event, Retried
from autoagent.core.model import Completion, Message, Usage
from autoagent.prompt import is_usual
from autoagent.registry.parts import NO_PART
from autoagent.reply.parser import parse
from autoagent.text import code_block
from autoagent.text.file_formats import definitions_lost, digest, format_error
from autoagent.workspace.gate import shown

PURPOSE = "draft"
_MAX_DRAFTS = 6
_ENOUGH_DRAFTS = 3  # that agree
_MAX_REPAIRS = 2  # of a program, by a preamble
_MAX_TEST_SECONDS = 10.0  # slower tests do not run with each draft
_MAX_FAILURE_CHARACTERS = 600  # from the end of a failing test's output
_EMPTY_TEXTS = ("", "{}", "[]")  # of files without content
_REPLY_TOKENS = 600
_REASON_TOKENS = 120
_SHARE_DIVISOR = 3  # the files may take a third of the window, and the drafts a third of the remaining time
_TEMPERATURE = 0.7  # of all drafts but the first
_EXPECTED_SECONDS = 15.0  # of a draft, as announced
_SYSTEM = """Only the standard library of Python is installed.

Response Format:
One JSON object with `command`, the one to use."""
_PROGRAM_REQUEST = "Do all of this, and nothing else, with one Python program that reads what it needs from the files."
_FILE_REQUEST = (
    "Do all of this, and nothing else, by writing the one file that has to be changed or made. Give its whole text."
)
_REASON_REQUEST = "Say in two short sentences why it fails, and what has to be changed in which function."


Outcome = tuple[tuple[str, str], ...]
"""The paths of the files that a draft has changed, with their digests; '' for a deleted file."""


@dataclass(slots=True)
class _Attempts:
    """The files that the drafts see, the tests and programs that try them out, and the results.

    `replies` holds the usable drafts by whether they pass the tests and by their outcome, and marks those that are
    programs.
    """

    files: Mapping[str, str]
    runs: Sequence[TrialRun]
    started_at: float
    count: int = 0
    replies: dict[tuple[bool, Outcome], list[tuple[bool, str]]] = field(default_factory=lambda: defaultdict(list))

    def best(self) -> tuple[bool, list[str]]:
        """Return whether any draft passes the tests, and the best group of drafts with the same outcome.

        Only drafts that pass count, if there are any. Groups with programs and texts are best, then groups of
        programs: texts alone agree more often on wrong files.
        """
        passes = any(passes for passes, _ in self.replies)

        def rank(group: list[tuple[bool, str]]) -> tuple[bool, bool, int]:
            return len(group) > 1, _is_mixed(group), sum(is_program for is_program, _ in group)

        groups = [group for (passing, _), group in self.replies.items() if passing == passes]
        return passes, [text for _, text in max(groups, key=rank, default=[])]


class Drafts:
    """Ask a small model for drafts at the beginning of the work, if they can be tried out."""

    def __init__(self, state: State, call: SideCall, user: Authorization) -> None:
        self._state = state
        self._call = call
        self._registry = state.tools.registry
        self._context = state.tools.context
        self._policy = state.policy
        self._user = user

    def reply(self) -> Generator[Event, None, Completion | None]:
        """Return the first draft that agrees with others or passes failed tests as a reply, or None."""
        if not self._is_due():
            return None
        state, entries = self._state, entries_of(self._context.workspace)
        files = texts_for_drafts(entries, state)
        is_long = sum(map(state.count, files.values())) > self._call.model.window // _SHARE_DIVISOR
        if not files or is_long or not self._commands(files, ()):
            return None
        started_at = self._policy.clock()
        runs = run_tests(state, entries)
        failed_runs = [run for run in runs if run.fails]
        failed_paths = tuple(path for run in failed_runs for path in run.paths)
        outputs = [state.guard.quote(state.log.masked(run.output)[-_MAX_FAILURE_CHARACTERS:]) for run in failed_runs]
        failures = [f"\n\n{run.title}:\n```\n{output}\n```" for run, output in zip(failed_runs, outputs, strict=True)]
        if self._policy.clock() - started_at > _MAX_TEST_SECONDS:
            runs = [run for run in runs if not run.is_of_tests]
        attempts, is_interrupted = _Attempts(files, runs, started_at), False
        try:
            yield from self._draft(attempts, self._commands(files, failed_paths), "".join(failures))
        except KeyboardInterrupt:
            is_interrupted = True
        except (ModelError, StopRun) as error:  # the next step meets it again
            if is_signal(error):
                raise
            yield state.record(Retried(reason=f"There is no further draft: {error}"))
        passes, best = (False, []) if is_interrupted else attempts.best()
        is_fix = passes and any(run.fails for run in runs)
        agree = len(best) if is_fix or len(best) > 1 else 0
        yield state.record(Drafted(drafts=attempts.count, agree=agree, shown=tuple(files), failed=failed_paths))
        if is_interrupted:  # after the drafts, which did not know what the user says now
            yield from self._user.interrupted()
        return Completion(best[0], Usage()) if agree else None

    def _draft(self, attempts: _Attempts, specs: Sequence[CommandSpec], failures: str) -> Generator[Event, None, None]:
        """Ask for drafts and try them out, until enough agree or the time is short. Raises as Model.complete."""
        files, runs = attempts.files, attempts.runs
        may_fail, notes = any(run.fails for run in runs if run.is_of_tests), ""
        for number, spec in enumerate(specs):
            seconds = self._policy.clock() - attempts.started_at
            seconds_left = self._policy.budget.check_time(attempts.started_at + seconds)
            if number and (seconds + seconds / number) * _SHARE_DIVISOR > seconds + seconds_left:
                break  # another draft would leave too little time for the work itself
            text = yield from self._ask(files, spec, failures, notes, number)
            with self._policy.interruptible():
                is_program, trial = self._try_out(text, spec, runs)
                for _ in range(_MAX_REPAIRS):
                    if not (trial and trial.preamble and is_program and (parts := code_block.split(text))):
                        break
                    text = code_block.join(parts[0], replace(parts[1], code=trial.preamble + parts[1].code))
                    _, trial = self._try_out(text, spec, runs)
            attempts.count += 1
            if trial is None:
                continue
            lost = [n for p, text in trial.changed.items() for n in definitions_lost(p, files.get(p, ""), text or "")]
            notes += "".join(f" Keep {name} in the file." for name in lost if name not in notes)
            notes += "".join(f" {name} is not installed: do without it." for name in trial.missing if name not in notes)
            outcome = self._outcome(trial, files)
            passes = trial.passes or (may_fail and not any(map(code_block.is_code, trial.changed)))
            if not outcome or lost or trial.fails or not passes or _is_worthless(trial, files):
                continue
            group = attempts.replies[trial.passes, outcome]
            group.append((is_program, text))
            if trial.passes and (len(group) == _ENOUGH_DRAFTS or _is_mixed(group)):
                break

    def _is_due(self) -> bool:
        state, work, history = self._state, self._state.work, self._state.history
        is_untouched = work.tree == work.base if work.tree else not work.changed
        return (
            state.start.style.drafts
            and self._policy.runs_tests
            and self._call.model.asking == "schema"
            and self._context.sandbox.confines
            and state.tools.part is NO_PART
            and is_usual(state.start.system)
            and work.draft_result is None
            and is_untouched
            and not (history.core or history.messages)
        )

    def _commands(self, files: Mapping[str, str], failed_paths: Collection[str]) -> list[CommandSpec]:
        """Return the command that each draft has to use, or none if no program may run.

        Some drafts are programs. The others are the text of one file that the goals name, or of an existing file that
        is not among `failed_paths`. If there is code, its texts come first.
        """
        specs = [(spec.brief(), spec.effects) for spec in self._registry.specs if spec.effects is not None]
        programs = [s for s, effects in specs if effects.runs_programs and any(p.code == CODE for p in s.parameters)]
        writers = [s for s, effects in specs if effects.writes_whole]
        goal_names = names_in(" ".join(goal.text for goal in self._state.start.task.goals))
        goal_names = [name for name in goal_names if not {"", ".."} & {*name.split("/")}]
        paths = tuple(path for path in dict.fromkeys([*files, *goal_names]) if path not in failed_paths)
        code = tuple(path for path in paths if code_block.is_code(path) and path in files)
        if not programs or not writers or not paths:
            return programs[:1] * _MAX_DRAFTS
        parameters = [replace(p, choices=code or paths) if p.meaning == "path" else p for p in writers[0].parameters]
        program, text = programs[0], replace(writers[0], parameters=tuple(parameters))
        if code:
            return [text, text, text, program, program, program]
        return [program, text, program, text, program, program]

    def _ask(
        self, files: Mapping[str, str], spec: CommandSpec, failures: str, notes: str, number: int
    ) -> Generator[Event, None, str]:
        """Return a draft, or '' if it was cut off. Raises as Model.complete."""
        note = f" {code_block.NOTE}" if self._call.model.style.blocks else ""
        goals = "\n".join(f"{n}. {goal.text}" for n, goal in enumerate(self._state.start.task.goals, 1))
        texts = "\n\n".join(f"The file {shown(path)}:\n```\n{text.rstrip()}\n```" for path, text in files.items())
        task = f"{texts}{failures}\n\nThe goals:\n{goals}"
        ask = partial(
            SideRequest,
            purpose=PURPOSE,
            activity=f"trying the work in a copy ({number + 1})",
            seconds=_EXPECTED_SECONDS,
            temperature=_TEMPERATURE if number else 0.0,
        )
        is_text = spec.effects is not None and spec.effects.writes_whole
        if failures and is_text:
            reason = yield from self._call.ask_or_raise(
                ask([Message("user", f"{task}\n\n{_REASON_REQUEST}")], reply_tokens=_REASON_TOKENS)
            )
            task += f"\n\nWhat is wrong:\n{reason.text.strip()}"
        request = f"{task}\n\n{_FILE_REQUEST if is_text else _PROGRAM_REQUEST}{notes}"
        messages = [Message("system", f"{_SYSTEM}{note}"), Message("user", request)]
        answer = yield from self._call.ask_or_raise(ask(messages, reply_tokens=_REPLY_TOKENS, commands=(spec,)))
        return "" if answer.truncated else answer.text

    def _try_out(self, text: str, required_spec: CommandSpec, runs: Sequence[TrialRun]) -> tuple[bool, Trial | None]:
        """Try a draft out. Return whether it is a program, and its trial, or None if it cannot be used."""
        try:
            call = parse(Completion(text, Usage()), self._registry.check, f"{self._state.step}").call
        except ReplyError:
            return False, None
        spec = next(spec for spec in self._registry.specs if spec.name == call.name)
        path = next((str(call.args[p.name]) for p in spec.parameters if p.meaning == "path"), "")
        code = next((str(call.args[p.name]) for p in spec.parameters if p.code), "")
        if path and not any(path in p.choices for p in required_spec.parameters):  # a model may name any place
            return False, None
        tests = [path for run in runs if run.is_of_tests for path in run.paths]
        programs = [run.paths[0] for run in runs if not run.is_of_tests]
        return not path, try_out(self._context, path, code, tests, programs)

    def _outcome(self, trial: Trial, files: Mapping[str, str]) -> Outcome:
        """Return the changes of a draft, except for layout."""
        masked = self._state.log.masked
        changes = ((path, text, digest(path, masked(text))) for path, text in sorted(trial.changed.items()))
        return tuple((path, new) for path, text, new in changes if text is None or new != digest(path, files.get(path)))


def _is_mixed(group: Sequence[tuple[bool, str]]) -> bool:
    """Return whether both programs and texts are among these drafts."""
    return len({is_program for is_program, _ in group}) > 1


def _is_worthless(trial: Trial, files: Mapping[str, str]) -> bool:
    """Return whether a draft leaves a file malformed, empty, without most lines of its code, or as a copy of another.

    Asked for a text about a file, a small model may copy that file.
    """
    unchanged = [text.split() for path, text in files.items() if path not in trial.changed]
    for path, text in trial.changed.items():
        lost_count = lines_lost(files.get(path, ""), text or "") if code_block.is_code(path) else 0
        if text is None:
            continue
        malformed = format_error(path, text) and not format_error(path, files.get(path, ""))
        if malformed or lost_count or text.split() in unchanged or text.strip() in _EMPTY_TEXTS:
            return True
    return False
