"""The checks of goals: which of them are met, as their own checks say.

A check is the user's: a shell command that exits 0 once its goal is met. It is run after every step that changed
something, and once more before the run may end, in the workspace and under the sandbox as everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from autoagent.core.commands import ResultMeta
from autoagent.core.errors import CommandError
from autoagent.core.events import Checked, Event, Returned, Rewound, RunStarted, Undone
from autoagent.core.services import ProcessExit
from autoagent.core.task import Goal

SHOWN = 1200  # characters of what a check printed, its end


class GoalChecks:
    """Add every event in order. `met` says of each goal (counted from 0) whether it was when last checked.

    Where the user has taken the workspace back since, nobody knows.
    """

    def __init__(self) -> None:
        self.met: dict[int, bool] = {}
        self._changed = False
        self._goals: tuple[Goal, ...] = ()
        self._outputs: dict[int, str] = {}

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case RunStarted():
                if event.task.goals != self._goals:
                    self._goals, self.met = event.task.goals, {}
            case Returned() if event.meta.changed:
                self._changed = True
            case Rewound() | Undone():
                self.met, self._changed = {}, True
            case Checked():
                self.met[event.goal], self._outputs[event.goal] = event.met, event.output
                self._changed = False

    @property
    def stale(self) -> bool:
        """Whether there are checks, and something has changed since they were run."""
        return self._changed and any(goal.check for goal in self._goals)

    def check(
        self, run: Callable[[str], ProcessExit], labels: Callable[[], ResultMeta] = ResultMeta
    ) -> Iterator[Checked]:
        """Run the checks and yield the outcome of each. `run`
        runs one, and raises CommandError if that cannot be done.

        `labels` returns the labels of the output of a program that has just run.
        """
        for number, goal in enumerate(self._goals):
            if goal.check is None:
                continue
            try:
                end = run(goal.check)
            except CommandError as error:
                yield Checked(goal=number, met=False, output=str(error))
            else:
                told = end.status != 0 and end.output.strip()
                yield Checked(
                    goal=number, met=end.status == 0, output=_output(end), data=labels().to_json() if told else {}
                )

    def change_notice(self, event: Checked, quote: Callable[[str], str] = str) -> str:
        """Describe the news in an outcome not yet added: a goal whose state changed, or whose check printed other text.

        `quote` puts marks around the output of programs, which may come from outside.
        """
        before = self.met.get(event.goal)
        if event.met == before and (event.met or event.output == self._outputs[event.goal]):
            return ""
        named = f"Goal {event.goal + 1} ({self._goals[event.goal].text})"
        if event.met:
            return f"{named} is met now, as its check says."
        how = "was met and is not any more since this step" if before else "is not met yet"
        return f"{named} {how}. Its check says: {quote(event.output)}"

    def failing(self, quote: Callable[[str], str] = str) -> str:
        """Name in one line the goals whose checks fail, with their output if it needs no marks."""
        numbers = [number for number, met in self.met.items() if not met]
        said = [f": {told}" if quote(told := self._outputs[number]) == told else "." for number in numbers]
        return " ".join(
            f"The check of goal {number + 1} fails{' '.join(what.split())}"
            for number, what in zip(numbers, said, strict=True)
        )

    def unmet(self, quote: Callable[[str], str] = str, given_up: Collection[int] = ()) -> str:
        """Explain why the run may not end yet, with the output of the checks, quoted as in `change_notice`.

        '' if all passed, not counting the goals `given_up`, by numbers from 0.
        """
        lines = [
            f"Goal {number + 1} ({goal.text}) is not met: its check `{goal.check}` says: {quote(self._outputs[number])}"
            for number, goal in enumerate(self._goals)
            if self.met.get(number) is False and number not in given_up
        ]
        return "\n".join(["Not ended yet.", *lines, "Do what is missing, then finish."]) if lines else ""


def _output(end: ProcessExit) -> str:
    """Describe how a check ended, with the end of its output."""
    how = (end.limit and f"stopped at the limit of {end.limit}") or end.signal or f"exit status {end.status}"
    printed = end.output.decode("utf-8", "replace").strip()
    cut = printed if len(printed) <= SHOWN else f"…{printed[-SHOWN:]}"
    return f"{how}. {cut}".strip()
