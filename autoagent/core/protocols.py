"""Define the narrow protocols between the layers. Their docstrings are the contracts.

Any object that satisfies them works: a scripted model in a test, a person at the keyboard, a remote endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Required, TypedDict, Unpack

from autoagent.core.commands import CommandSpec, Proposal, ResultMeta, Verdict
from autoagent.core.frozen import dataclass
from autoagent.core.memory import Change, Dream, Filter, Found, MemoryFields, Origin, Recall, RetrievedMemory, Stats
from autoagent.core.model import Asking, Completion, Message, Price, PromptStyle, Usage
from autoagent.core.services import BackgroundProcess, ProcessExit, SearchResults, WebPage

if TYPE_CHECKING:
    from autoagent.core.events import Event, Returned


class Listener(Protocol):
    """Receive progress between events. Must not raise, except for StopRun where documented."""

    def text(self, delta: str) -> None:
        """Receive a piece of the streaming reply."""

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        """Receive notice of a retry in `seconds` because of `reason`, at most until `until` (epoch seconds).

        Raises StopRun if it must not be asked again.
        """

    def check_time_left(self) -> float:
        """Return for how many more seconds to wait. Called several times a second and with each piece of an answer.

        Raises StopRun to stop waiting.
        """

    def working(self, what: str, seconds: float) -> None:
        """Receive the reason for a long silence and its expected length in seconds. Repeated while it lasts."""

    def proposed(self, proposal: Proposal) -> None:
        """Receive a call before the decision. The call shown here is the call that runs."""


class RequestOptions(TypedDict, total=False):
    """The options of a request besides the messages; see Model.complete."""

    commands: Sequence[CommandSpec]
    max_tokens: Required[int]
    at_most: int | None
    listener: Listener | None
    schema: Mapping[str, Any] | None
    temperature: float


class Model(Protocol):
    """Complete prompts with a language model.

    `window` is its context length in tokens, prompt and reply together. `price` is None if unknown. `reasoning_room` is
    the number of tokens a reply may take beyond `max_tokens` for hidden thoughts.
    """

    @property
    def name(self) -> str: ...

    @property
    def window(self) -> int: ...

    @property
    def price(self) -> Price | None: ...

    @property
    def reasoning_room(self) -> int: ...

    @property
    def asking(self) -> Asking:
        """Return the way of asking for commands. The first access may probe the endpoint, and raises as `complete`."""

    @property
    def style(self) -> PromptStyle: ...

    def complete(self, messages: Sequence[Message], **asked: Unpack[RequestOptions]) -> Completion:
        """Answer the prompt. With `commands`, request one of them in the way given by `asking`.

        Without commands, the answer follows the JSON `schema` if the model supports one.

        The reply has at most `max_tokens` without hidden reasoning, and at most `at_most` with it. Transient failures
        are retried, with a notice to the listener. The completion is whole, or marked `truncated`.

        Raises:
            SetupError: no key, a refused key, an unknown model.
            ContextOverflow: the endpoint rejects the prompt as too long.
            QuotaExceeded: the account is empty.
            ModelError: any other failure, after the retries.
        """

    def take_usage(self) -> Usage:
        """Return the usage since the last call that no completion reports: probes and interrupted replies."""


class Embedder(Protocol):
    """Turn texts into vectors. Embedders with the same `name` give the same vectors.

    It may have a `scale`: the cosine of unrelated texts, and the cosine from which two texts certainly belong together.
    """

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        """Return one unit vector (float32, little-endian, `dim` values) per text, and the cost.

        A text without content gives the zero vector. Raises ModelError if an endpoint fails.
        """


class Memory(Protocol):
    """Store texts across steps, runs and processes."""

    def add(
        self,
        text: str,
        *,
        kind: str = "note",
        source: str = "",
        trusted: bool = True,
        run: str = "",
        step: int = 0,
        durable: bool = True,
    ) -> int | None:
        """Store a text and return its id, or None if it has no content. A known text keeps its id.

        Without `durable` it survives the process, but a power cut may lose it before the next durable write.
        """

    @property
    def store_id(self) -> str:
        """Return the identity of the storage, which moving it keeps, or '' if no memory can be lost."""

    def has_lost(self, memory: int, run: str, text: str = "") -> bool:
        """Return whether a power cut lost the memory that this run stored under this id, as opposed to forgetting it.

        Without the text, another run may have stored a memory under this id since.
        """

    def recall(
        self,
        query: str,
        k: int = 10,
        *,
        skip: Collection[tuple[str, int]] = (),
        pushed: bool = False,
        wanted: Filter | None = None,
    ) -> Recall:
        """Return at most k memories that fit the query, none from a (run, step) in `skip`.

        `pushed`: the program itself fills a prompt; the bar is higher, and long memories are cut to the fitting
        passage. Being returned strengthens a memory, being a mere candidate weakens it. Only `wanted` memories are
        considered. With an empty query the newest are returned without being strengthened.
        """

    def core(self) -> list[RetrievedMemory]:
        """Return the memories for every prompt (see RetrievedMemory.core_rank), the most important and newest first."""

    def keep_in_core(self, memory: int, *, kept: bool, public: bool = False) -> bool:
        """Put a memory into the core by pinning it, or take it out. Return False for an unknown id.

        `public`: it may be treated like a goal, which is no private data. Raises StateError for a memory from outside.
        """

    @property
    def core_changes(self) -> int:
        """Return a number that changes when this process changes the core's candidates."""

    def supersede(self, old: int, new: int) -> bool:
        """Link a memory to the newer one that replaces it, keeping both.

        Return False, and change nothing, if the old one is missing, a step's, the user's or pinned, or if only the new
        one is from outside.
        """

    def use(self, memories: Collection[int]) -> None:
        """Strengthen the memories that the agent acted on. Unknown ids are ignored."""

    def nap(self) -> None:
        """Let some random memories fade, as at the end of a run: a sleep without a dream."""

    def sleep(self, n: int | None, dream: Callable[[str], str]) -> Dream:
        """Let n random memories fade (None: the default), and have `dream` make one text of the forgotten ones.

        A failed dream undoes nothing. If nothing was forgotten, the model is not asked and the dream is empty.
        """

    def forget(self, memory: int) -> bool:
        """Delete a memory. Return False if the id is unknown."""

    def take_usage(self) -> Usage:
        """Return the cost of embedding since the last call."""

    def __len__(self) -> int: ...


class MemoryStore(Protocol):
    """Store texts, find candidates and apply changes, without rules of fading or ranking.

    It has its own embedder and never compares vectors of two embedders. All methods raise StateError if the store
    cannot be reached, read or written.
    """

    def put(self, text: str, *, durable: bool = True, **fields: Unpack[MemoryFields]) -> int | None:
        """Store a text with level 0. Return its id, or None if it has no content. `durable` is as for `change`.

        A known text keeps its id and level and takes the new times, run and step; a step or a fact takes the new kind,
        and a memory without a source the new one. Once untrusted, it stays so. A text in the trash is restored as new.
        """

    def change(
        self, changes: Sequence[Change], *, whole: bool = False, durable: bool = True, expired: float | None = None
    ) -> int:
        """Apply the changes to memories that are still as they were seen, in one transaction. Return how many applied.

        With `whole`, apply all or none. Without `durable`, a power cut may lose the transaction as a whole. Also delete
        from the trash everything that was forgotten before `expired`, in this transaction or before it.
        """

    def find(self, text: str) -> RetrievedMemory | None:
        """Return the memory with exactly this text, or None."""

    def of(self, ids: Collection[int], *, trash: bool = False) -> list[RetrievedMemory]:
        """Return the existing memories with these ids, ordered by id. `trash` is as for `listed`."""

    def listed(
        self, limit: int = -1, offset: int = 0, *, of_user: bool = False, trash: bool = False
    ) -> list[RetrievedMemory]:
        """Return the memories, newest first. A negative limit returns all.

        With `of_user`, only those that are pinned, of the kinds `feedback` and `user`, or from the source `user`.
        With `trash`, the forgotten ones that can be restored; their `t` is when they were forgotten.
        """

    def sample(self, n: int, below: int) -> list[RetrievedMemory]:
        """Return n random memories of a level below `below`, or all there are."""

    def search(self, query: str, k: int, skip: Collection[tuple[str, int]] = (), wanted: Filter | None = None) -> Found:
        """Return at most k memories by meaning and k by words, none from a (run, step) in `skip`, and only `wanted`."""

    def vectors(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Return the unit vectors (float32, little-endian) of the memories that have a vector.

        Raises ModelError if the embedder cannot be asked for its name.
        """

    def stats(self) -> Stats: ...

    def close(self) -> None: ...


class Authorizer(Protocol):
    """Decide whether a call may run."""

    def decide(self, proposal: Proposal) -> Verdict:
        """Return the verdict. One with `args` or a `change` allows nothing. The call is proposed again.

        Raises StopRun if the user ends the run or nobody can answer, KeyboardInterrupt for Ctrl-C outside a question,
        and nothing else: wrap an authorizer that may fail in safety.approval.FailClosedAuthorizer.
        """

    def interrupted(self) -> str:
        """Drop all advance permissions and ask the user, after Ctrl-C outside a question.

        Return the user's feedback, or '' to go on. Raises StopRun to end the run.
        """

    def waits_on(self, reason: str) -> bool:
        """Return whether to retry a model that has not answered within the patience.

        False if nobody can say so. Raises StopRun if the user ends the run.
        """

    def accepts(self, claims: str) -> Verdict:
        """Ask whether unverified goals count as met. `claims` lists them with the evidence.

        If allowed, they do. A reason is feedback to the agent, which continues. Without either, they do not, or nobody
        answered.
        """


class Sandbox(Protocol):
    """Run programs for the agent: in the workspace, with a clean environment and under limits.

    Standard input is closed and there is no terminal. `name` is the kind of sandbox (`bubblewrap`, `landlock`, `none`).
    `gaps` has a sentence for each thing not blocked on this machine. With `confines` False, nothing is blocked.
    """

    @property
    def name(self) -> str: ...

    @property
    def gaps(self) -> tuple[str, ...]: ...

    @property
    def confines(self) -> bool: ...

    def run(
        self,
        argv: Sequence[str],
        *,
        folder: str = ".",
        seconds: float | None = None,
        network: bool | None = None,
        env: Mapping[str, str] | None = None,
        data: bytes | None = None,
        read_only: bool = False,
    ) -> ProcessExit:
        """Run a program to its end, and stop everything it left behind.

        Args:
            argv: the program and its arguments. No shell reads them.
            folder: the working directory, relative to the workspace.
            seconds, network: None for the sandbox's own setting.
            env: additional variables. No secrets, as other users of the machine may read them.
            data: the program's standard input.
            read_only: it may not change the workspace, where the sandbox confines it.

        Raises:
            CommandError: it could not be started: missing, not executable, arguments too long, or a folder outside.
        """

    def tell(self, on_output: Callable[[bytes], None]) -> None:
        """Pass the output of the program that `run` waits for to `on_output` as it arrives, in its thread."""

    def start(self, argv: Sequence[str], *, output: str) -> BackgroundProcess:
        """Start a program in the background, both output streams in the workspace file `output`. Raises as `run`."""

    def programs(self) -> list[BackgroundProcess]:
        """Return the programs started by `start`, in order, including those that have ended."""

    def stop(self, pid: int) -> BackgroundProcess:
        """Stop a background program and all its children. Raises CommandError for an unknown pid."""

    def close(self) -> None:
        """Stop all running programs. Programs killed together with the agent need no call."""


class Web(Protocol):
    """Access the internet through the network guard.

    All methods raise CommandError, which names the address and the reason.
    """

    def fetch(self, url: str, *, limit: int, headers: Mapping[str, str] | None = None) -> WebPage:
        """GET a page, reading at most `limit` bytes. Redirects are followed and checked.

        An error status raises. Credential headers are dropped when a redirect leaves the host.
        """

    def render(self, url: str, *, limit: int) -> WebPage:
        """Return the page as HTML after a browser has run its scripts. Same as `fetch` without a browser."""

    def download(
        self,
        url: str,
        part: Callable[[str], AbstractContextManager[BinaryIO]],
        *,
        progress: Callable[[int, int | None], None],
    ) -> int:
        """Download a file, continuing an earlier attempt. Return its size in bytes. The user sets the size limit.

        `part` opens the partial file of a version, named by 16 hexadecimal digits, or a new file, for reading and
        writing. `progress` receives the bytes so far and in total (None: unknown). If it raises and the part cannot be
        continued later, the part is emptied.
        """

    def pin(self, url: str) -> tuple[str, int, str]:
        """Check an address for a program that connects by itself: host, port, and the IP address to connect to."""

    def search(self, query: str, count: int) -> SearchResults:
        """Ask a search engine for at most `count` hits."""

    def google(self, query: str, count: int) -> SearchResults:
        """Ask Google's Custom Search."""


@dataclass(frozen=True, slots=True)
class SubAgent:
    """A sub-agent, as the agent that started it sees it."""

    key: str
    name: str
    task: str
    commands: tuple[str, ...] = ()  # that it may use
    status: str = "running"  # or `asking` (it waits for the user's answer), or the status of its Outcome
    reason: str = ""  # of its Outcome
    steps: int = 0
    seconds: float = 0.0
    said: str = ""  # its last message
    origin: Origin = field(default_factory=Origin)  # the sources of everything it has read


class SubAgents(Protocol):
    """Manage the agents started by this agent.

    All methods raise CommandError for an unknown key or a reached limit. `origin` records the sources of this agent's
    words.
    """

    def start(
        self, name: str, task: str, prompt: str, *, commands: Sequence[str] = (), origin: Origin | None = None
    ) -> SubAgent:
        """Start an agent in the background with its purpose, its task and its allowed commands.

        Without `commands` it gets all commands of this agent except those that involve the user.
        """

    def delegate(self, task: str, context: str, *, call: str, origin: Origin | None = None) -> tuple[str, ResultMeta]:
        """Have the next level of a hierarchical run do a task, and wait for its result, labels and changed files.

        `call` is the id of the requesting call. An interrupted task continues under it. Raises CommandError if the task
        was not done, StopRun if the run is to end.
        """

    def message(self, key: str, text: str, *, origin: Origin | None = None) -> SubAgent:
        """Send an agent a message, which it reads before its next step."""

    def listed(self, wait: float = 0.0) -> Sequence[SubAgent]:
        """Return all of them in starting order, after `wait` seconds or as soon as an agent ends."""

    def end(self, key: str) -> SubAgent:
        """End an agent in any state."""


@dataclass(frozen=True, slots=True)
class Inbox:
    """The messages that other agents send to this one."""

    take: Callable[[], Sequence[Event]]  # those since the last call; raises StopRun if this agent is to end
    close: Callable[[], Sequence[Event]]  # ends all sub-agents of this agent and returns their last events


class Recorder(Protocol):
    """Record the events of a run."""

    @property
    def run(self) -> str: ...

    @property
    def lost(self) -> int:
        """Return the number of events missing at the end of the log. The program may have acted on them."""

    def masked(self, value: Any) -> Any:
        """Return a JSON value with secrets masked, as logged."""

    def append(self, event: Event, *, passing: bool = False) -> Event:
        """Stamp the event with run, seq and time, write it and sync it. Return it as logged. Raises StateError.

        A `passing` event survives the end of the process, and a power cut once another event follows.
        """

    def events(self, *, sub_agents: bool = False) -> Iterator[Event]:
        """Yield all events on disk, or only those of `sub_agents`."""

    def returned(self, step: int, agent: str = "") -> Returned | None:
        """Return the result of a step's command by this agent ('' for the run's own), or None if it ran none."""

    def effective(self) -> Iterator[Event]:
        """Yield the events that a resumed run continues from: all but those that the user took back."""
