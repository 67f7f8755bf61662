"""The guard of three: a run that has read untrusted text, holds private data, and is about to act outward or
irreversibly, needs a fresh answer of a person for it. Any two of the three are harmless together.

It does not judge what a call says, only what the run has read before it: libraries of guards ask a model or look for
patterns, which an attacker can write around. docs/security.md says what counts as each of the three, and what is not
covered. What a command does is declared with it (see Effects); one that declares nothing counts as the worst. What is
shown of files the workspace tells the guard. Taint is never taken back within a run, but where a person takes a
recalled memory out of it, for what only that has brought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from autoagent.core.commands import OUTWARD, PLAIN, Call, CommandSpec, Effects, Proposal, Result, ResultMeta, Risk
from autoagent.core.events import (
    AgentMessage,
    Checked,
    Decided,
    Dropped,
    Event,
    Proposed,
    Returned,
    RunStarted,
    Started,
    Tainted,
    Thought,
    Undone,
)
from autoagent.core.memory import PRIVATE, Origin, RetrievedMemory, memory_name
from autoagent.core.tool_servers import PREFIX
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.text.quoting import marked, name_source

__all__ = ["AccessObserver", "ExfiltrationGuard", "TaintedFiles"]

NAMED = 3  # sources and pieces of private data that a warning names


class AccessObserver:
    """Notes what a call was shown of the workspace: `source`, the source of a tainted file
    ('' for none), and `private`, whether a file was the user's. Satisfies workspace.gate.Observer.

    `could`: a program of the call could have read a file of the user's, whatever it then did to it.
    """

    def __init__(self, tainted: TaintedFiles, made: set[str], *, could: bool = False) -> None:
        self._tainted = tainted
        self._made = made
        self.source = ""
        self.private = False
        self.could = could

    def content(self, where: str) -> None:
        """Note that the content of this file was handed out."""
        self.source = self.source or self._tainted.source_of(where)
        self.private = self.private or self._tainted.holds_own(where, self._made)

    def names(self, where: str) -> None:
        """Note that the names in this folder and below were handed out, which do not count as private data."""
        self.source = self.source or self._tainted.source_of(where)


class ExfiltrationGuard:
    """Add every event of the run in order. `examine` a proposal before it is decided on, let it `observe` the call, and
    `label` the result before it is recorded, so that all later readers of the log see what it carries.

    `specs` are those of all commands there are: one that is not among them declares nothing. `network`: programs reach
    the network, so that what they print is from outside. `confined` is set to false where programs are held back from
    nothing: they may read whatever is the user's, wherever it lies. `origin` is that of the task: of a sub-agent,
    that of the agent that gave it. `add` raises StateError where a tainted file cannot be recorded.
    """

    NOT_KEPT = ("_tainted", "_specs", "_network", "confined", "is_ruled")  # in a checkpoint

    def __init__(
        self,
        tainted: TaintedFiles,
        specs: Iterable[CommandSpec] = (),
        *,
        network: bool = False,
        origin: Origin | None = None,
    ) -> None:
        self._tainted = tainted
        self._specs = {spec.name: spec for spec in specs}
        self._network = network
        self.confined = True
        self.is_ruled: Callable[[Call], bool] = lambda call: False  # whether a rule of the user's lets a call run
        self._sources: dict[str, str] = {}  # what tainted the run, and in words when; the newest last
        self._ever = ""  # the newest of all that ever were, those too that came by a memory since dropped
        self._brought: dict[int, str] = {}  # the source of each recalled memory that is from outside
        self._read: set[str] = set()  # sources of what the run has read otherwise
        self._held: dict[str, None] = {}  # the private data it holds, in words
        self._made: set[str] = set()  # workspace paths of files whose whole content is this run's
        self._pending: Call | None = None
        self._proposed: list[str] = []  # the call of the newest reply, and what the user has changed it to
        self._again: set[str] = set()  # calls at whose question a memory was dropped, until one is allowed
        self._marked: dict[str, tuple[str, str, int, bool]] = {}  # the newest marks that it has made, by path
        self._agents_reach_out = True
        self._run, self._step = "", 0
        self._carried((origin or Origin()).labels, "the task it was given")

    @property
    def configuration(self) -> object:
        """Its settings, besides the events."""
        return sorted(self._specs.items()), self._network, self.confined

    @property
    def source(self) -> str:
        """The newest source of untrusted text that the run has read, such as a URL, or '' if there is none."""
        return next(reversed(self._sources), "")

    @property
    def private(self) -> bool:
        """Whether the run holds private data."""
        return bool(self._held)

    @property
    def origin(self) -> Origin:
        """The origin of a memory made now, or of a message to another agent. Dropping a memory does not undo it."""
        return Origin(", ".join(filter(None, (PRIVATE if self.private else "", self._ever))), not self._ever)

    def add(self, event: Event) -> None:
        """Take up one event."""
        self._run, self._step = event.run, event.step
        match event:
            case RunStarted():
                self._agents_reach_out = any(map(self._reaches_out, event.commands))
                foreign = [name for name in event.commands if name.startswith(PREFIX) and not self._effects_of(name)]
                for origin in dict.fromkeys(name.rpartition("__")[0] for name in foreign):  # of an MCP server
                    self._carried(ResultMeta(untrusted=origin), "the descriptions of its tools")
            case Tainted():
                self._carried(event.meta, _named(event.memory), event.memory)
            case Dropped():
                source = self._brought.pop(event.memory, "")
                if source and source not in self._read:  # this memory alone has brought it
                    del self._sources[source]
                    others = (id for id, known in self._brought.items() if known == source)
                    if (other := next(others, None)) is not None:
                        self._sources[source] = f"{name_source(source)}: {_named(other)}"
                self._again.update(self._proposed)
            case Thought():
                self._proposed = []
            case Proposed():
                self._proposed.append(event.call.name if event.masked else event.call.key)
            case Decided(allowed=True) if self._proposed:
                self._again.discard(self._proposed[-1])
            case Started():
                self._pending = event.call
            case Returned():
                call, self._pending = self._pending, None
                first = next(iter(call.args.values()), "") if call else ""
                short = (
                    " ".join(filter(None, (call.name, first and name_source(str(first), 40)))) if call else "a command"
                )
                self._carried(event.meta, f"{short}, step {event.step}")
                self._mark(event)
                effects = self._effects(call)
                if event.known and effects is not None and not (effects.amends or effects.tells_agents):
                    self._made.update(event.meta.changed)
            case Checked():
                self._carried(event.meta, f"the check of goal {event.goal + 1}, step {event.step}")
            case Undone():
                self._made.clear()  # files of the user's may be back at their places
            case AgentMessage():
                self._carried(event.meta, f"words of {event.sender}, step {event.step}")
                self._mark(event)

    def new_labels(self, memory: RetrievedMemory) -> ResultMeta:
        """Return the labels of a recalled memory that the run does not carry yet: it does once Tainted is recorded."""
        source = Origin(memory.source, memory.trusted).labels.untrusted
        known = memory.id in self._brought or source in self._read
        return ResultMeta(untrusted="" if known else source, private=memory.private and not self._held)

    def observe(self, call: Call) -> AccessObserver:
        """Return the observer of all that the workspace hands out to the call, which is just about to run."""
        effects = self._effects(call)
        runs_programs = effects is not None and effects.runs_programs
        return AccessObserver(self._tainted, self._made, could=runs_programs and self._within_reach)

    def label(self, call: Call, result: Result, seen: AccessObserver) -> Result:
        """Return the result marked as `untrusted` and `private` if it carries either.

        If its text already has marks around its quotes (a check, a verdict), the source is `quoted`.
        """
        if result.meta.repeat:  # it shows nothing, but names the step that did
            return result
        effects = self._effects(call)
        source, private = seen.source, seen.private or seen.could
        if effects is None:
            source, private = source or self._printed_by or _undeclared(call), True
        else:
            if effects.runs_programs:
                source = self._printed_by or source
            if effects.from_outside:
                source = source or self._fetched_from(call)
            private = private or (effects.asks_user and result.ok)
        meta = replace(result.meta, private=private or result.meta.private)
        if meta.put_off:
            meta = replace(meta, quoted=meta.quoted or source)
        else:
            meta = replace(meta, untrusted=meta.untrusted or source)
        return replace(result, meta=meta)

    @property
    def printed(self) -> ResultMeta:
        """`untrusted` and `private`, as far as what a program has just printed in the workspace carries either."""
        return ResultMeta(untrusted=self._printed_by, private=self._within_reach)

    def cut_off(self, call: Call, changed: Sequence[str]) -> ResultMeta:
        """Label a result hidden by a crash: what has changed since the call began. The run has read none of it yet."""
        effects = self._effects(call)
        if effects is None:
            source = self._printed_by or _undeclared(call)
        elif effects.runs_programs:
            source = self._printed_by
        else:
            source = self.source or (self._fetched_from(call) if effects.from_outside else "")
        return ResultMeta(changed=tuple(changed), tainted_by=source) if changed else PLAIN

    def source_of(self, path: str) -> str:
        """Return what tainted a file or folder of the workspace, or '' if nothing did."""
        return self._tainted.source_of(path)

    def may_show(self, path: str) -> bool:
        """Return whether the run would carry nothing new if it were shown this file of the workspace."""
        return not self.source_of(path) and (self.private or not self._tainted.holds_own(path, self._made))

    def quote(self, text: str, path: str = "") -> str:
        """Quote the text of a file, or without `path` a program's output, between marks if it may be from outside."""
        source = self._tainted.source_of(path) if path else self._printed_by
        return marked(text, source, run=self._run, step=self._step) if source else text

    def examine(self, proposal: Proposal) -> Proposal:
        """Return the proposal, with a warning if only a fresh answer of a person may allow it."""
        name, effects = proposal.call.name, self._effects(proposal.call)
        if effects is None and self.is_ruled(proposal.call):
            return proposal
        if effects is None:
            does = f"{name} does not declare what it does: it may read anything, and send it anywhere."
            return replace(proposal, warning=does)
        tells = effects.tells_agents and self._agents_reach_out
        again = not self._again.isdisjoint((name, proposal.call.key))
        if not (self._sources or again) or not self._held or not (tells or proposal.risk in OUTWARD):
            return proposal
        does = "tells an agent that can act outward" if tells else _DOES[proposal.risk]
        if not self._sources:
            asks = "a memory from outside was dropped at the question of this very call, and may be why it comes again."
            return replace(proposal, warning=f"{name} {does}: {asks}")
        warning = (
            f"This run has read text from outside ({_listed(self._sources.values())}) and holds private data "
            f"({_listed(self._held)}). {name} {does}: what was read may have asked for it."
        )
        recalled = (memory for memory, source in self._brought.items() if source not in self._read)
        return replace(proposal, warning=warning, recalled=tuple(recalled))

    def _effects(self, call: Call | None) -> Effects | None:
        """Return what the command declares, or None if it declares nothing or is unknown."""
        return self._effects_of(call.name) if call else None

    def _effects_of(self, command: str) -> Effects | None:
        spec = self._specs.get(command)
        return spec.effects if spec else None

    def _reaches_out(self, command: str) -> bool:
        """Return whether this command lets its user act outward. One that declares nothing is assumed to."""
        spec = self._specs.get(command)
        return spec is None or spec.outward

    def _fetched_from(self, call: Call) -> str:
        """Name the source of an outside command's result: the address the call was given, else the command."""
        addresses = (p.name for p in self._specs[call.name].parameters if p.meaning == "url")
        return next((str(call.args[name]) for name in addresses if call.args.get(name)), call.name)

    @property
    def _within_reach(self) -> bool:
        """Whether a program could read a file of the user's: in the workspace, or because nothing confines it."""
        return not self.confined or self._tainted.holds_own(".", self._made)

    @property
    def _printed_by(self) -> str:
        """The outside source of what a program prints, or '' if there is none."""
        return self.source or self._tainted.source_of(".") or ("the network" if self._network else "")

    def _carried(self, meta: ResultMeta, by: str, memory: int | None = None) -> None:
        """Record that the run has read what carries these labels. `by` names it, `memory` is it if it was recalled."""
        for source in filter(None, (meta.untrusted, meta.quoted)):
            if memory is None:
                self._read.add(source)
            else:
                self._brought[memory] = source
            self._sources.pop(source, None)  # it is the newest now
            self._sources[source] = f"{name_source(source)}: {by}"
            self._ever = source
        if meta.private:
            self._held[by] = None

    def _mark(self, event: Returned | AgentMessage) -> None:
        """Taint what a run changes that has read untrusted text; it may be the user's too if it holds such data."""
        meta = event.meta
        if source := self.source or meta.tainted_by:
            shared = self.private or (isinstance(event, Returned) and not event.known)
            self._tainted.mark(list(meta.changed), source, run=event.run, seq=event.seq, shared=shared)
            self._marked.update(dict.fromkeys(meta.changed, (source, event.run, event.seq, shared)))

    def mark_again(self) -> None:
        """Taint what the record of tainted files has lost: all is there if that is whole."""
        for path, (source, run, seq, shared) in self._marked.items():
            self._tainted.mark([path], source, run=run, seq=seq, shared=shared)


_DOES: dict[Risk, str] = {
    "network": "reaches out to the network",
    "run": "runs a program",
    "irreversible": "cannot be undone",
}


def _named(memory: int) -> str:
    """Name a recalled memory, and the line that deletes it."""
    forget = f"autoagent memory {'--user ' if memory < 0 else ''}forget {abs(memory)}"
    return f"memory {memory_name(memory)}, which `{forget}` drops"


def _undeclared(call: Call) -> str:
    return f"{call.name}, which does not declare what it shows"


def _listed(names: Iterable[str]) -> str:
    """List the newest few, the newest first."""
    newest = list(names)[::-1]
    more = f" and {len(newest) - NAMED} more" if len(newest) > NAMED else ""
    return "; ".join(newest[:NAMED]) + more
