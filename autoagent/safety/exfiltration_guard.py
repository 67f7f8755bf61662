"""Guard against exfiltration with the rule of three: untrusted text, private data, and an outward action.

A run that has read untrusted text, holds private data, and is about to act outward or irreversibly needs a fresh answer
from a person. Any two of the three are harmless together.

The guard does not judge a call's words, only the texts that the run has read before: model-based and pattern-based
guards can be tricked. docs/security.md defines the three, and the limits. A command's effects are declared with it (see
Effects). Undeclared effects count as the worst. The workspace reports each file that a call reads. Taint is permanent
within a run, unless a person removes the recalled memory that alone brought it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from autoagent.core import events
from autoagent.core.commands import OUTWARD, PLAIN, Call, CommandSpec, Effects, Proposal, Result, ResultMeta, source_in
from autoagent.core.events import AgentMessage, Event, Returned
from autoagent.core.memory import PRIVATE, Origin, RetrievedMemory, memory_name
from autoagent.safety.rules import Rule
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.text.quoting import mark_untrusted, name_source

MAX_NAMED_SOURCES = 3  # in a warning, and as many private data


class AccessObserver:
    """Record the workspace files that a call reads.

    `source` is the source of a tainted file, or ''. `has_private` is whether a file was the user's, and `may_have_read`
    whether a program of the call could have read such files. Satisfies workspace.gate.Observer.
    """

    def __init__(self, tainted: TaintedFiles, own_files: set[str], *, may_have_read: bool = False) -> None:
        self._tainted = tainted
        self.own_files = own_files
        self.source = ""
        self.has_private = False
        self.may_have_read = may_have_read

    def __call__(self, path: str, content: bool) -> None:
        """Note an access. The names in a folder are not private data."""
        self.source = self.source or self._tainted.source_of(path)
        self.has_private = self.has_private or (content and self._tainted.has_user_data(path, self.own_files))


class ExfiltrationGuard:
    """Fold events into the run's taint, examine proposals, and label results.

    Call `examine` before the decision, `observe` for the call, and `label` before the result is recorded, so that all
    later readers of the log see its labels. `specs` are those of all commands. A missing spec declares nothing. With
    `network`, programs reach the network, so that their output is from outside. `confined` is False if programs may
    read all the user's files. `origin` is that of the task. A sub-agent has the origin of its starter. `add` raises
    StateError if a tainted file cannot be recorded.
    """

    NOT_IN_CHECKPOINT = ("tainted", "_specs", "_network", "confined", "find_rule")

    def __init__(
        self,
        tainted: TaintedFiles,
        specs: Iterable[CommandSpec] = (),
        *,
        network: bool = False,
        origin: Origin | None = None,
    ) -> None:
        self.tainted = tainted
        self._specs = {spec.name: spec for spec in specs}
        self._network = network
        self.confined = True
        self.find_rule: Callable[[Call], Rule | None] = lambda call: None  # of the user that allows a call
        self._sources: dict[str, str] = {}  # sources of taint with a description, the newest last
        self._newest_source = ""  # including those of dropped memories
        self._memory_sources: dict[int, str] = {}  # the source of each recalled memory from outside
        self._read_sources: set[str] = set()  # sources of everything else that the run has read
        self._private_data: dict[str, None] = {}  # descriptions of its private data
        self.own_files: set[str] = set()  # workspace files written entirely by this run
        self._pending: Call | None = None
        self._proposed_keys: list[int | str] = []  # of the newest reply: its call, and the edited call
        self._dropping_keys: set[int | str] = set()  # calls whose question dropped a memory, until one is allowed
        self._marks: dict[str, tuple[str, str, int, bool]] = {}  # the newest ones that this run has set, by path
        self._has_outward_agents = True
        self._run, self._step = "", 0
        self._add_labels((origin or Origin()).labels, "the task it was given")

    @property
    def configuration(self) -> object:
        """Return everything besides the events that shapes its state."""
        return sorted(self._specs.items()), self._network, self.confined

    @property
    def source(self) -> str:
        """Return the newest source of untrusted text that the run has read, such as a URL, or ''."""
        return next(reversed(self._sources), "")

    @property
    def private(self) -> bool:
        return bool(self._private_data)

    @property
    def origin(self) -> Origin:
        """Return the origin of a new memory or message to another agent, including dropped memories."""
        source = self._newest_source
        return Origin(", ".join(filter(None, (PRIVATE if self.private else "", source))), not source)

    def add(self, event: Event) -> None:
        self._run, self._step = event.run, event.step
        match event:
            case events.RunStarted():
                self.own_files.difference_update(getattr(event, "edited", ()))
                specs = {name: self._specs.get(name) for name in event.commands}
                self._has_outward_agents = any(spec is None or spec.outward for spec in specs.values())
                undeclared = [name for name, spec in specs.items() if spec is None or spec.effects is None]
                for origin in filter(None, dict.fromkeys(map(source_in, undeclared))):
                    self._add_labels(ResultMeta(untrusted=origin), "the descriptions of its tools")
            case events.Tainted():
                self._add_labels(event.meta, _describe_memory(event.memory), event.memory)
            case events.Dropped():
                source = self._memory_sources.pop(event.memory, "")
                if source and source not in self._read_sources:  # brought by this memory alone
                    del self._sources[source]
                    memories = (memory for memory, other in self._memory_sources.items() if other == source)
                    if (memory := next(memories, None)) is not None:
                        self._sources[source] = f"{name_source(source)}: {_describe_memory(memory)}"
                self._dropping_keys.update(self._proposed_keys)
            case events.Thought():
                self._proposed_keys = []
            case events.Proposed():
                self._proposed_keys.append(event.call.name if event.masked else event.call.key)
            case events.Decided(allowed=True) if self._proposed_keys:
                self._dropping_keys.discard(self._proposed_keys[-1])
            case events.Started():
                self._pending = event.call
            case Returned():
                call, self._pending = self._pending, None
                argument = next(iter(call.args.values()), "") if call else ""
                description = call.name if call else "a command"
                description += f" {name_source(str(argument), 40)}" if argument else ""
                self._add_labels(event.meta, f"{description}, step {event.step}")
                self._taint_files(event)
                effects = self._effects(call)
                if event.known and effects is not None and not (effects.amends or effects.tells_agents):
                    self.own_files.update(event.meta.changed)
            case events.Checked():
                self._add_labels(event.meta, f"the check of goal {event.goal + 1}, step {event.step}")
            case events.Drafted() if event.shown:
                self._add_labels(ResultMeta(private=True), f"the drafts, step {event.step}")
            case events.Undone():
                self.own_files.clear()  # the user's files may be back
            case AgentMessage():
                self._add_labels(event.meta, f"words of {event.sender}, step {event.step}")
                self._taint_files(event)

    def new_labels(self, memory: RetrievedMemory) -> ResultMeta:
        """Return a recalled memory's labels that are new to the run."""
        source = Origin(memory.source, memory.trusted).labels.untrusted
        is_known = memory.id in self._memory_sources or source in self._read_sources
        return ResultMeta(untrusted="" if is_known else source, private=memory.private and not self._private_data)

    def observe(self, call: Call) -> AccessObserver:
        """Return the observer of everything the workspace returns to the call, which is about to run."""
        effects = self._effects(call)
        runs_programs = effects is not None and effects.runs_programs
        return AccessObserver(self.tainted, self.own_files, may_have_read=runs_programs and self._is_private_in_reach)

    def label(self, call: Call, result: Result, observer: AccessObserver) -> Result:
        """Return the result marked as `untrusted` and `private` if it carries either.

        If marks already surround the quotes in its text (a check, a verdict), the source is `quoted`.
        """
        if result.meta.repeat:  # the result only refers to an earlier step
            return result
        meta, effects = result.meta, self._effects(call)
        source = self._outside_source(call, observer.source)
        private = effects is None or (effects.asks_user and result.ok) or observer.has_private
        meta = replace(meta, private=private or observer.may_have_read or meta.private)
        if meta.put_off:
            return replace(result, meta=replace(meta, quoted=meta.quoted or source))
        return replace(result, meta=replace(meta, untrusted=meta.untrusted or source))

    @property
    def output_labels(self) -> ResultMeta:
        """Return the labels of a program's present output in the workspace."""
        return ResultMeta(untrusted=self._output_source, private=self._is_private_in_reach)

    def label_crash(self, call: Call, changed: Sequence[str]) -> ResultMeta:
        """Label the result of a crashed call by its file changes, which the run has not read yet."""
        source = self._outside_source(call, self.source)
        return ResultMeta(changed=tuple(changed), tainted_by=source) if changed else PLAIN

    def may_show(self, path: str) -> bool:
        """Return whether showing this workspace file would add no labels to the run."""
        return not self.tainted.source_of(path) and (
            self.private or not self.tainted.has_user_data(path, self.own_files)
        )

    def quote(self, text: str, path: str = "") -> str:
        """Quote a file's text, or without `path` a program's output, between marks if it may be from outside."""
        source = self.tainted.source_of(path) if path else self._output_source
        return mark_untrusted(text, source, run=self._run, step=self._step) if source else text

    def examine(self, proposal: Proposal) -> Proposal:
        """Return the proposal, with a warning if only a fresh answer from a person may allow it."""
        name, effects = proposal.call.name, self._effects(proposal.call)
        if effects is None:
            if self.find_rule(proposal.call) is not None:
                return proposal
            warning = f"{name} does not declare what it does: it may read anything, and send it anywhere."
            return replace(proposal, warning=warning)
        tells_agents = effects.tells_agents and self._has_outward_agents
        is_repeated = not self._dropping_keys.isdisjoint((name, proposal.call.key))
        acts_outward = tells_agents or proposal.risk in OUTWARD
        if not (acts_outward and self._private_data and (self._sources or is_repeated)):
            return proposal
        effect = "tells an agent that can act outward" if tells_agents else _EFFECT_OF_RISK[proposal.risk]
        if not self._sources:
            why = "a memory from outside was dropped at the question of this very call, and may be why it comes again."
            return replace(proposal, warning=f"{name} {effect}: {why}")
        warning = (
            f"This run has read text from outside ({_list_newest(self._sources.values())}) and holds private data "
            f"({_list_newest(self._private_data)}). {name} {effect}: what was read may have asked for it."
        )
        memories = (memory for memory, source in self._memory_sources.items() if source not in self._read_sources)
        return replace(proposal, warning=warning, recalled=tuple(memories))

    def _effects(self, call: Call | None) -> Effects | None:
        """Return the command's declared effects, or None if undeclared or unknown."""
        spec = self._specs.get(call.name) if call else None
        return spec.effects if spec else None

    def _outside_source(self, call: Call, read_source: str) -> str:
        """Return the outside source of the text that a call shows or writes, or ''.

        That is the source of the text that it has read, or else its address, or the command.
        """
        effects = self._effects(call)
        if effects is None:
            return read_source or self._output_source or f"{call.name}, which does not declare what it shows"
        if effects.runs_programs:
            read_source = self._output_source or read_source
        if read_source or not effects.from_outside:
            return read_source
        addresses = (p.name for p in self._specs[call.name].parameters if p.meaning == "url")
        return next((str(call.args[name]) for name in addresses if call.args.get(name)), call.name)

    @property
    def _is_private_in_reach(self) -> bool:
        """Return whether a program could read a file of the user: in the workspace, or because it is not confined."""
        return not self.confined or self.tainted.has_user_data(".", self.own_files)

    @property
    def _output_source(self) -> str:
        """Return the outside source of a program's output, or ''."""
        return self.source or self.tainted.source_of(".") or ("the network" if self._network else "")

    def _add_labels(self, meta: ResultMeta, name: str, memory: int | None = None) -> None:
        """Record that the run has read a text with these labels, described by `name`, or recalled as `memory`."""
        for source in filter(None, (meta.untrusted, meta.quoted)):
            if memory is None:
                self._read_sources.add(source)
            else:
                self._memory_sources[memory] = source
            self._sources.pop(source, None)  # so that it becomes the newest
            self._sources[source] = f"{name_source(source)}: {name}"
            self._newest_source = source
        if meta.private:
            self._private_data[name] = None

    def _taint_files(self, event: Returned | AgentMessage) -> None:
        """Taint the files changed by a run that has read untrusted text, as shared if it holds private data."""
        meta = event.meta
        if source := self.source or meta.tainted_by:
            is_shared = self.private or (isinstance(event, Returned) and not event.known)
            self.tainted.mark(list(meta.changed), source, run=event.run, seq=event.seq, shared=is_shared)
            self._marks.update(dict.fromkeys(meta.changed, (source, event.run, event.seq, is_shared)))

    def restore_marks(self) -> None:
        """Restore marks that the record of tainted files has lost."""
        for path, (source, run, seq, shared) in self._marks.items():
            self.tainted.mark([path], source, run=run, seq=seq, shared=shared)


_EFFECT_OF_RISK = {"network": "reaches out to the network", "run": "runs a program", "irreversible": "cannot be undone"}


def _describe_memory(memory: int) -> str:
    """Name a recalled memory, and the command that deletes it."""
    forget = f"autoagent memory {'--user ' if memory < 0 else ''}forget {abs(memory)}"
    return f"memory {memory_name(memory)}, which `{forget}` drops"


def _list_newest(names: Iterable[str]) -> str:
    newest = list(names)[::-1]
    suffix = f" and {len(newest) - MAX_NAMED_SOURCES} more" if len(newest) > MAX_NAMED_SOURCES else ""
    return "; ".join(newest[:MAX_NAMED_SOURCES]) + suffix
