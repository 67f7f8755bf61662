"""The guard of three: a run that has read untrusted text, holds private data, and is about to act outward or
irreversibly, needs a fresh answer of a person for it. Any two of the three are harmless together.

A text from outside may tell the model to send away what it knows. Whether the model obeys cannot be seen; that all
three have come together can. So the guard does not judge what a call says, only what the run has read before it.

- Untrusted: a result marked so by its command, what is read of a tainted file, what a program prints in a tainted run
  or in a workspace with tainted files, a memory that is not trusted.
- Private: a result marked so by its command, a file of the user's that is read (or may have been, by a program), an
  answer of the user's, a memory of the user's or of a run that held private data. Ordinary memories are not, nor are
  the goals, feedback, and files that this run has made or that are tainted: else no research could go on by itself.
- Outward or irreversible: risk `network`, `run` or `irreversible`, and words to a sub-agent that can do any such thing.

What an untrusted run writes and remembers is untrusted in turn. Taint is never taken back within a run.

Not covered: what a call within the workspace does (wrong files written, texts falsified); names of files, which are
not taken for private data; data that leaves in the prompts to the model's own endpoint; files that the user makes
while a run goes on at a path that this run had made, or after a crash, in the look before the end; what a sub-agent's
command wrote just before a crash; a person who answers without reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoagent.messages import (
    PRIVATE,
    Call,
    Event,
    Origin,
    Proposal,
    Recollection,
    Result,
    Returned,
    Risk,
    RunStarted,
    Started,
    Tainted,
    Told,
)
from autoagent.taint import TaintedFiles
from autoagent.untrusted import marked, name_source

__all__ = ["Guard", "TaintedFiles"]

OUTWARD: frozenset[Risk] = frozenset({"network", "run", "irreversible"})
NAMED = 3  # sources and pieces of private data that a warning names

PROGRAMS = frozenset({"execute_python_code", "execute_python_file", "execute_shell", "execute_shell_popen"})
_READERS = {  # the argument that names what is read
    "read_file": "filename",
    "read_audio_from_file": "filename",
    "search_in_files": "directory",
    "list_files": "directory",
}
_NAMES_ONLY = frozenset({"list_files"})
_AMENDING = frozenset({"append_to_file", "edit_file", "delete_file"})  # they do not make the file they change
_TELLING = frozenset({"start_agent", "message_agent"})  # what is said to an agent may be done by it
# Whoever has these alone cannot act outward.
_INWARD = frozenset(
    {
        *("read_file", "write_to_file", "append_to_file", "list_files", "edit_file", "search_in_files"),
        *("analyze_code", "improve_code", "write_tests", "read_audio_from_file"),
        *("memory_add", "recall", "sleep", "ask_user", "do_nothing", "task_complete"),
        *("start_agent", "message_agent", "list_agents", "delete_agent"),
    }
)


class Guard:
    """Add every event of the run in order; `examine` a proposal before it is decided on, and `label` a result before it
    is recorded, so that all later readers of the log see what it carries.

    `network`: programs reach the network, so that what they print is from outside. `origin` is that of the task: of a
    sub-agent, that of the agent that gave it. `add` raises StateError where a tainted file cannot be recorded.
    """

    def __init__(self, tainted: TaintedFiles, *, network: bool = False, origin: Origin | None = None) -> None:
        self._tainted = tainted
        self._network = network
        self._sources: dict[str, str] = {}  # what tainted the run, and in words when; the newest last
        self._held: dict[str, None] = {}  # the private data it holds, in words
        self._made: set[str] = set()  # workspace paths of files whose whole content is this run's
        self._pending: Call | None = None
        self._own_before = True  # the program examined last had files of the user's before it
        self._agents_reach_out = True
        self._run, self._step = "", 0
        self._carried((origin or Origin()).labels, "the task it was given")

    @property
    def source(self) -> str:
        """The newest source of untrusted text that the run has read, such as a URL; '' while there is none."""
        return next(reversed(self._sources), "")

    @property
    def private(self) -> bool:
        """Whether the run holds private data."""
        return bool(self._held)

    @property
    def origin(self) -> Origin:
        """What a memory made now comes from."""
        return Origin(", ".join(filter(None, (PRIVATE if self.private else "", self.source))), not self.source)

    def add(self, event: Event) -> None:
        """Take up one event."""
        self._run, self._step = event.run, event.step
        match event:
            case RunStarted():
                self._agents_reach_out = not _INWARD.issuperset(event.commands)
            case Tainted():
                self._carried(event.data, f"memory {event.memory}")
            case Started():
                self._pending = event.call
            case Returned():
                self._returned(event)
            case Told():
                self._carried(event.data, f"words of {event.sender}, step {event.step}")
                self._mark(event)

    def news(self, memory: Recollection) -> dict[str, Any]:
        """`untrusted` and `private`, as far as a memory that was recalled has either and the run does not carry it yet:
        it does once that is recorded as Tainted."""
        labels: dict[str, Any] = {}
        untrusted = Origin(memory.source, memory.trusted).labels.get("untrusted")
        if untrusted and untrusted not in self._sources:
            labels["untrusted"] = untrusted
        if memory.private and not self._held:
            labels["private"] = True
        return labels

    def label(self, call: Call, result: Result) -> Result:
        """The result with `untrusted` and `private` among its data where it carries either."""
        if result.data.get("repeat"):  # it shows nothing, but names the step that did
            return result
        data = dict(result.data)
        if call.name in PROGRAMS:  # they may have read any file
            source = self._printed_by
            data["private"] = self._own_before
        elif result.ok and call.name in _READERS:
            where = str(call.args.get(_READERS[call.name]) or ".")
            source = self._tainted.source_of(where)
            if call.name not in _NAMES_ONLY and self._tainted.holds_own(where, self._made):
                data["private"] = True
        else:
            source = ""
            if result.ok and call.name == "ask_user":
                data["private"] = True
        if source and not data.get("untrusted"):
            data["untrusted"] = source
        return replace(result, data=data)

    def cut_off(self, call: Call, changed: Sequence[str]) -> dict[str, Any]:
        """The data of a result that a crash has hidden: what has changed since the call began, and where that may come
        from. The run carries nothing new: it has read none of it yet.
        """
        source = self._printed_by if call.name in PROGRAMS else self.source or str(call.args.get("url") or "")
        data = {"changed": list(changed), "tainted_by": source}
        return {name: value for name, value in data.items() if changed and value}

    def quote(self, text: str, path: str = "") -> str:
        """A text for the model that shows a file, or with no `path` what a program printed: between marks where it may
        come from outside."""
        source = self._tainted.source_of(path) if path else self._printed_by
        return marked(text, source, run=self._run, step=self._step) if source else text

    def examine(self, proposal: Proposal) -> Proposal:
        """The proposal, with a warning where only a fresh answer of a person may allow it.

        Of a program it is noted what files it will find: afterwards, it could have made the user's its own.
        """
        if proposal.call.name in PROGRAMS:
            self._own_before = self._tainted.holds_own(".", self._made)
        tells = proposal.call.name in _TELLING and self._agents_reach_out
        if not self._sources or not self._held or not (tells or proposal.risk in OUTWARD):
            return proposal
        does = "tells an agent that can act outward" if tells else _DOES[proposal.risk]
        warning = (
            f"This run has read text from outside ({_listed(self._sources.values())}) and holds private data "
            f"({_listed(self._held)}). {proposal.call.name} {does}: what was read may have asked for it."
        )
        return replace(proposal, warning=warning)

    @property
    def _printed_by(self) -> str:
        """What the words of a program come from, if from outside."""
        return self.source or self._tainted.source_of(".") or ("the network" if self._network else "")

    def _returned(self, event: Returned) -> None:
        call, self._pending = self._pending, None
        self._carried(event.data, f"{_short(call)}, step {event.step}")
        self._mark(event)
        if event.known and (call is None or call.name not in _AMENDING):
            self._made.update(map(str, event.data.get("changed", ())))

    def _carried(self, labels: Mapping[str, Any], by: str) -> None:
        """The run has read what carries these labels; `by` names it."""
        if source := str(labels.get("untrusted") or ""):
            self._sources.pop(source, None)  # it is the newest now
            self._sources[source] = f"{name_source(source)}: {by}"
        if labels.get("private"):
            self._held[by] = None

    def _mark(self, event: Returned | Told) -> None:
        """What a run that has read untrusted text changes is tainted; after a crash it may be the user's as well."""
        if source := self.source or str(event.data.get("tainted_by") or ""):
            changed = [str(path) for path in event.data.get("changed", ())]
            shared = isinstance(event, Returned) and not event.known
            self._tainted.mark(changed, source, run=event.run, seq=event.seq, shared=shared)


_DOES: dict[Risk, str] = {
    "network": "reaches out to the network",
    "run": "runs a program",
    "irreversible": "cannot be undone",
}


def _short(call: Call | None) -> str:
    """`read_file secret.txt`"""
    if call is None:
        return "a command"
    first = next(iter(call.args.values()), "")
    return f"{call.name} {name_source(str(first), 40)}" if first else call.name


def _listed(names: Iterable[str]) -> str:
    """The newest few, the newest first."""
    newest = list(names)[::-1]
    more = f" and {len(newest) - NAMED} more" if len(newest) > NAMED else ""
    return "; ".join(newest[:NAMED]) + more
