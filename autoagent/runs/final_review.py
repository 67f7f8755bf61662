"""The look back before the end: what the agent claims to have made is shown to it once before it may finish.

Models, small ones above all, announce files they never wrote and facts they never read. So the first
`task_complete` after a change is answered with the files as they are; the second ends the run.
"""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterator

from autoagent.core.commands import Call
from autoagent.core.errors import CommandError
from autoagent.core.events import AgentMessage, Changed, Decided, Event, Feedback, Resumed, Returned, Started, Undone
from autoagent.core.task import Goal
from autoagent.text.named_files import named_files

_FILES_SHOWN = 6
_CHARACTERS_SHOWN = 1200
_CALLS_KEPT = 8  # that the next one is compared with


def _as_it_is(text: str, path: str) -> str:
    return text


class FinalReview:
    """Add every event in order; `text` is what has to be looked at before the run may end, '' once it was."""

    def __init__(self) -> None:
        self.changed: dict[str, None] = {}  # an ordered set of workspace paths
        self.failed: set[str] = set()  # those of them that a program changed, or was kept in, that failed
        self.idle = 0  # commands since the newest change
        self.again = False  # whether one of these was given twice
        self._since: deque[str] = deque(maxlen=_CALLS_KEPT)  # the newest of them
        self._due = True
        self._begun = ("", "")  # the newest command that was begun, and who had allowed it
        self._by = ""
        self._put_off = ("", "")  # the same, if that was an end that was put off, and nothing has happened since

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case Decided(allowed=True):
                self._by = event.by
            case Started():
                self._begun = (event.call.name, self._by)
                self.again = self.again or event.call.key in self._since
                self._since.append(event.call.key)
            case Feedback() | Resumed() | Changed():
                self._begun = self._put_off = ("", "")
            case Undone():
                self._due = True
            case Returned() | AgentMessage():
                if isinstance(event, Returned):
                    self._put_off = self._begun if event.put_off else ("", "")
                self._look_at(event)

    def allowed_by(self, call: Call) -> str:
        """Return who allowed this end of the run before it was
        put off; '' if it is another, or something came between.
        """
        name, by = self._put_off
        return by if call.name == name else ""

    def _look_at(self, event: Returned | AgentMessage) -> None:
        paths = event.meta.changed
        self.changed.update(dict.fromkeys(paths))
        (self.failed.update if event.meta.failed else self.failed.difference_update)(paths)
        self.idle = 0 if paths else self.idle + 1
        if paths:
            self.again = False
            self._since.clear()
            self._due, self._put_off = True, ("", "")
        elif event.meta.review:
            self._due = False

    def text(
        self,
        goals: tuple[Goal, ...],
        read: Callable[[str], str],
        size: Callable[[str], int | None],
        quote: Callable[[str, str], str] = _as_it_is,
    ) -> str:
        """Set the goals beside the files as they are now.

        `read` gives a file's text or raises CommandError; `size` its bytes, None if there is no such file, without
        showing it; `quote` puts marks around a text that comes from outside.
        """
        if not self._due:
            return ""
        lines = ["Not ended yet. Compare the files with your goals:"]
        lines += [f"Goal {number}: {goal.text}" for number, goal in enumerate(goals, 1)]
        if not self.changed:
            lines.append("Files made or changed in this run: none")
        for path in self.missing(goals, size):
            lines.append(f"File that is {'not there' if size(path) is None else 'empty'}: {path}{self._instead(path)}")
        for path in list(self.changed)[-_FILES_SHOWN:]:
            lines.append(_shown(path, read, quote))
        done = "If they are right and every goal is met, use task_complete again. If not, do what is missing."
        lines.append("Do what is missing, then finish." if self.lacks(goals, size) else done)
        return "\n".join(lines)

    def lacks(self, goals: tuple[Goal, ...], size: Callable[[str], int | None]) -> bool:
        """Return whether the goals name files, and one of them is missing, or nothing was made or changed at all."""
        named = any(named_files(goal.text) for goal in goals)
        return named and (not self.changed or any(self.missing(goals, size)))

    def missing(self, goals: tuple[Goal, ...], size: Callable[[str], int | None]) -> Iterator[str]:
        """Yield each file that a goal names but that is not there, unless the run has
        deleted it, or that the run has left empty, unless a goal speaks of that.
        """
        asked = " ".join(goal.text for goal in goals)
        for path in named_files(asked):
            if size(path) is None:
                if path not in self.changed and not self._is_in_a_named_folder(path, asked):
                    yield path
            elif size(path) == 0 and path in self.changed and "empty" not in asked:
                yield path

    def _is_in_a_named_folder(self, name: str, asked: str) -> bool:
        """Return whether the run has made it in a folder that the goals name ("a folder site with an index.html")."""
        words = set(re.findall(r"[\w.-]+", asked))
        return any(folders and words >= set(folders) for *folders, last in self._split_paths() if last == name)

    def _split_paths(self) -> Iterator[list[str]]:
        return (path.split("/") for path in self.changed)

    def _instead(self, missing: str) -> str:
        others = [path for path in self.changed if posixpath.basename(path) == posixpath.basename(missing)]
        return f" (what you made is {others[0]}, another file)" if others else ""


def _shown(path: str, read: Callable[[str], str], quote: Callable[[str, str], str]) -> str:
    try:
        text = read(path)
    except CommandError as error:
        return f"{path}: {error}"
    head = text[:_CHARACTERS_SHOWN]
    cut = "\n[…]" if len(text) > len(head) else ""
    size = "1 character" if len(text) == 1 else f"{len(text)} characters"
    return f"{path} ({size}):\n{quote(head + cut, path)}"
