"""What the rooms expect of one another: narrow protocols whose docstrings are contracts.

Whatever satisfies them will do: a scripted model in a test, a person at the keyboard, an endpoint across the world.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol

from autoagent.core.agents import SubAgent
from autoagent.core.commands import Call, CommandSpec, Proposal, ResultMeta, Verdict
from autoagent.core.events import Event, Returned
from autoagent.core.memory import Change, Dream, Origin, Recall, RetrievedMemory, Stats
from autoagent.core.model import Asking, Completion, Message, Price, Usage
from autoagent.core.programs import BackgroundProcess, ProcessExit
from autoagent.core.tool_servers import ServerAnswer, ServerEntry, ServerTool
from autoagent.core.web import SearchResults, WebPage


class Listener(Protocol):
    """Hears, as it happens, what cannot wait for the next event.

    It must not raise, but for StopRun where that is named.
    """

    def text(self, delta: str) -> None:
        """Receive a piece of the reply that is streaming in."""

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        """Hear that the model is asked again in so many seconds
        because of `reason`, and so on until a time (since the epoch).

        Raises StopRun if it must not be asked again.
        """

    def heed(self) -> float:
        """Return how many seconds the wait may last; asked several times a second, and with each piece of an answer.

        Raises StopRun for no longer.
        """

    def working(self, what: str, seconds: float) -> None:
        """Hear what goes on in a long silence, and about how many seconds it still lasts; told again as it goes on."""

    def proposed(self, proposal: Proposal) -> None:
        """Hear that a call is about to be decided on. What is shown here is what runs."""


class Model(Protocol):
    """A language model.

    `window` is its context length in tokens, prompt and reply together; `price` is None if it is not known.
    `reasoning_room` is how many tokens a reply may take beyond `max_tokens`, for thoughts that are not shown.
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
        """How the model is asked for commands. The first access
        may probe the endpoint, and raises what `complete` raises.
        """

    def complete(
        self,
        messages: Sequence[Message],
        *,
        commands: Sequence[CommandSpec] = (),
        max_tokens: int,
        at_most: int | None = None,
        listener: Listener | None = None,
    ) -> Completion:
        """Answer the prompt; with `commands`, by asking for one of them in the way `asking` names.

        The reply has at most `max_tokens`, thoughts that are not shown aside; and `at_most`, these with it.

        Retries what deserves it, saying so to the listener. The completion is whole, or marked `truncated`.

        Raises:
            SetupError: no key, a refused key, an unknown model.
            ContextOverflow: the endpoint says the prompt is too long.
            QuotaExceeded: the account is empty.
            ModelError: any other failure, after the retries.
        """

    def take_usage(self) -> Usage:
        """Return what was spent besides completions since the last call: a probe, replies that were cut short."""


class Embedder(Protocol):
    """Turns texts into vectors. Two embedders with one `name` give the same vectors.

    It may have a `scale` besides: the cosine of texts that have nothing to do with one another, and the one from which
    two texts belong together without doubt.
    """

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        """Return one unit vector (float32, little-endian, `dim` values) per text, and what it cost.

        A text without content gives the zero vector. Raises ModelError if the embedder is an endpoint that fails.
        """


class Memory(Protocol):
    """The memory across steps, runs and processes."""

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
        """Store a text; its id, or None for a text without content. A text already there keeps its id.

        One that is not `durable` outlives its process, but may be lost in a power cut before the next one that is.
        """

    @property
    def store_id(self) -> str:
        """What tells the place of the memories from every other, wherever it is moved; '' where none can be lost."""

    def has_lost(self, memory: int, run: str, text: str = "") -> bool:
        """Return whether the memory that this run stored with this id was lost in a power cut, not forgotten.

        Asked without its text, it may also be one that another run has stored since.
        """

    def recall(
        self,
        query: str,
        k: int = 10,
        *,
        room: int | None = None,
        skip: Collection[tuple[str, int]] = (),
        pushed: bool = False,
    ) -> Recall:
        """Return at most k memories that fit the query, of at most
        `room` tokens in all, none from a (run, step) in `skip`; none at all where none fits.

        `pushed`: nobody has asked, the program looks what a prompt should show: more must speak for a memory, and of a
        long one the text is the passage that fits. Being returned to who asks strengthens a memory, being a mere
        candidate weakens it.
        """

    def use(self, memories: Collection[int]) -> None:
        """Strengthen these memories, as the agent has acted on them; ids that do not exist any more are ignored."""

    def nap(self) -> None:
        """Let some random memories fade, as at the end of a run: a sleep without a dream."""

    def sleep(self, n: int | None, dream: Callable[[str], str]) -> Dream:
        """Let n random memories fade (None: the usual number); `dream` is asked, once, to make one of those forgotten.

        A failed dream undoes nothing. If nothing was forgotten, the model is not asked and the dream is empty.
        """

    def forget(self, memory: int) -> bool:
        """Delete one memory; False if there is none with this id."""

    def take_usage(self) -> Usage:
        """Return what embedding has cost since the last call."""

    def __len__(self) -> int: ...


class MemoryStore(Protocol):
    """A backend of the memory: keeps texts, finds candidates, carries out changes. It knows no rule of life or rank.

    It has an embedder of its own, and never compares vectors of two. All methods raise StateError where the store
    cannot be reached, read or written; those that embed raise ModelError where an endpoint fails.
    """

    def put(
        self,
        text: str,
        *,
        t: float,
        kind: str,
        source: str,
        trusted: bool,
        run: str,
        step: int,
        durable: bool = True,
    ) -> int | None:
        """Keep a text, with level 0; its id, or None for a text without content. `durable` as for `change`.

        A text already stored keeps its id and level and gets the given time, run and step; once untrusted it stays so.
        A text in the trash is restored as if new.
        """

    @property
    def id(self) -> str:
        """As `Memory.store_id`."""

    def has_assigned(self, id: int, run: str, text: str = "") -> bool:
        """Return whether this id was given to a memory of this run, or with this text, be it forgotten since.

        One that a power cut took was not; its id may belong to a memory of another run by now.
        """

    def find(self, text: str) -> RetrievedMemory | None:
        """Return the memory with exactly this text, or None."""

    def near(self, query: str, k: int, skip: Collection[tuple[str, int]] = ()) -> list[RetrievedMemory]:
        """Return at most k memories by the cosine of their vectors to the query's, best first, none of 0 or below.

        The cosine is their `score`.
        """

    def worded(self, query: str, k: int, skip: Collection[tuple[str, int]] = ()) -> list[RetrievedMemory]:
        """Return at most k memories by the words they share with
        the query (`score`: BM25 or similar, larger is better).
        """

    def meaning(self, query: str, vectors: Mapping[int, bytes]) -> dict[int, float]:
        """Return how near memories are to the query in meaning, given their vectors.

        0 is what texts have that have nothing to do with one another, 1 what belongs together without doubt.
        """

    def word_counts(self, words: Collection[str]) -> tuple[dict[str, int], int]:
        """Return for each of these words in how many memories it is, and how many there are, both about."""

    def vectors(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Return the unit vectors (float32, little-endian) of these memories, as far as they have one."""

    def change(self, changes: Sequence[Change], *, whole: bool = False, durable: bool = True) -> int:
        """Carry out the changes of memories that are still as they were seen, in one transaction; how many.

        With `whole` none is carried out unless all can be. One that is not `durable` may be lost in a power cut, whole,
        where that saves the store a wait for the disk.
        """

    def sample(self, n: int, below: int) -> list[RetrievedMemory]:
        """Return n random memories of a level below `below`, or all there are."""

    def forget(self, memory: int) -> bool:
        """Delete one memory for good; False if there is none with this id."""

    def of(self, ids: Collection[int]) -> list[RetrievedMemory]:
        """Return the existing memories with these ids, ordered by id."""

    def listed(self, limit: int = -1, offset: int = 0) -> list[RetrievedMemory]:
        """Return the memories, newest first; all of them if the limit is negative."""

    def stats(self) -> Stats: ...

    def trash(self) -> list[RetrievedMemory]:
        """Return the forgotten memories that can still be restored, newest first; `t` is when they were forgotten."""

    def restore(self, memory: int, t: float) -> bool:
        """Take a memory out of the trash, with level 0 and time `t`; False if it is not there."""

    def empty_trash(self, before: float) -> int:
        """Delete for good what was forgotten before this time; how many."""

    def take_usage(self) -> Usage:
        """Return what embedding has cost since the last call."""

    def close(self) -> None: ...

    def __len__(self) -> int: ...


class Authorizer(Protocol):
    """Decides whether a call may run."""

    def decide(self, proposal: Proposal) -> Verdict:
        """Return the verdict; one with `args`, or a `change`, allows nothing but asks for the call to be
        proposed again, with these or after it.

        Raises StopRun if the user ends the run, or if nobody can answer; KeyboardInterrupt if Ctrl-C comes
        when there is no question. Nothing else: whoever may fail is put into safety.approval.FailClosed.
        """

    def interrupted(self) -> str:
        """Forfeit what is still allowed in advance and ask the user, after Ctrl-C outside a question.

        Returns the user's feedback, or '' to go on. Raises StopRun to end the run.
        """

    def waits_on(self, reason: str) -> bool:
        """Return whether to try a model again that has not answered within the patience.

        False if nobody can say so. Raises StopRun if the user ends the run.
        """


class Sandbox(Protocol):
    """Runs programs for the agent: in the workspace alone, with an environment built from nothing, under limits.

    Standard input is closed and there is no terminal. `name` is its kind (`bubblewrap`, `landlock`, `none`), `gaps`
    says in a sentence each what it does not hold back on this machine; `confines` is false where it holds back nothing,
    so that programs read all that the user can.
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
    ) -> ProcessExit:
        """Run a program to its end, and end whatever it left behind.

        Args:
            argv: the program and its arguments; no shell reads them.
            folder: where it starts, relative to the workspace.
            seconds, network: None stand for what the sandbox was made with.
            env: more variables, none of them secret: other users of the machine may read them.
            data: what the program reads on standard input, which is empty without.

        Raises:
            CommandError: it could not be started: not there, not executable, arguments too long, a folder outside.
        """

    def tell(self, printed: Callable[[bytes], None]) -> None:
        """Hand what a program that `run` waits for prints to `printed` from now on, as it comes, in its thread."""

    def start(self, argv: Sequence[str], *, output: str, folder: str = ".") -> BackgroundProcess:
        """Start a program that runs on; both its streams go to the file `output`, a workspace path. Raises as `run`."""

    def programs(self) -> list[BackgroundProcess]:
        """Return the programs that `start` has started, in that order, including those that have ended since."""

    def stop(self, pid: int) -> BackgroundProcess:
        """End a started program and all it has started. Raises CommandError if there is none with this pid."""

    def close(self) -> None:
        """End everything that still runs. What is killed with the agent needs no call: the sandbox sees to it."""


class Web(Protocol):
    """The internet behind the network guard. All methods raise CommandError, which names the address and the reason."""

    def fetch(self, url: str, *, limit: int, headers: Mapping[str, str] | None = None) -> WebPage:
        """GET a page, of which at most `limit` bytes are read; redirects are followed, each one checked.

        An error status raises. Headers that carry credentials are dropped where a redirect leads to another host.
        """

    def render(self, url: str, *, limit: int) -> WebPage:
        """Return the page as HTML, as a browser has it once its
        scripts have run; like `fetch` if no browser is chosen.
        """

    def download(
        self,
        url: str,
        part: Callable[[str], AbstractContextManager[BinaryIO]],
        *,
        progress: Callable[[int, int | None], None],
    ) -> int:
        """Fetch a file, going on after what an earlier try left of it; its size in bytes. The size limit is the user's.

        `part` opens what is left of one version of the file, or a new file, to read and write; the version is named by
        16 hexadecimal digits. `progress` hears bytes so far and in all (None: not known). If it raises and a later try
        could not continue from the part, the part is empty.
        """

    def pin(self, url: str) -> tuple[str, int, str]:
        """Check an address for a program that connects by itself: host, port, and the IP address to connect to."""

    def search(self, query: str, count: int) -> SearchResults:
        """Ask a search engine; the hits, at most `count`."""

    def google(self, query: str, count: int) -> SearchResults:
        """Ask Google's Custom Search."""


class Media(Protocol):
    """Pictures, recordings and tweets. All methods raise CommandError, which names the provider and the reason.

    `draws_at`, `listens_at` and `tweets_at` are the hosts that each sends to; '' if nothing leaves this machine:
    nothing was chosen, recordings are read here, tweets are only tried out.
    """

    @property
    def draws_at(self) -> str: ...

    @property
    def listens_at(self) -> str: ...

    @property
    def tweets_at(self) -> str: ...

    def draw(self, prompt: str) -> tuple[bytes, str]:
        """Draw a picture; return it as the provider makes it, and its file suffix (`.png`)."""

    def transcribe(self, name: str, recording: bytes) -> str:
        """Return the words spoken in a recording; `name` is its file name."""

    def tweet(self, text: str) -> str:
        """Publish a tweet; return where it can be seen, or that it was only tried out."""

    def take_usage(self) -> Usage:
        """Return what pictures and transcripts have cost since the last call; the cost of tweets is unknown."""


class ToolServer(Protocol):
    """An MCP server, connected."""

    @property
    def entry(self) -> ServerEntry: ...

    def call(self, tool: ServerTool, args: Mapping[str, Any]) -> ServerAnswer:
        """Call what the server offers, within the time limit; a server that has ended is started again before.

        Raises CommandError if it cannot be reached, does not answer in time, or no longer offers the tool as it was.
        """


class SubAgents(Protocol):
    """The agents that this one has started. All methods raise CommandError for an unknown key or a limit reached.

    `origin` is what the words of this agent come from, after all it has read.
    """

    def start(
        self, name: str, task: str, prompt: str, *, commands: Sequence[str] = (), origin: Origin | None = None
    ) -> SubAgent:
        """Start an agent in the background: what it is for, what it is to do, and the only commands it may use.

        Without `commands` it may use all of this agent's, except those that involve the user.
        """

    def delegate(self, task: str, context: str, *, call: str, origin: Origin | None = None) -> tuple[str, ResultMeta]:
        """Have the next level of a hierarchical run do a task; its result, once it is there, with its labels and what
        files have changed.

        `call` is the id of the call that asks for it: one that was cut off goes on where it was. Raises CommandError if
        it was not done, StopRun if the run is to end.
        """

    def message(self, key: str, text: str, *, origin: Origin | None = None) -> SubAgent:
        """Tell an agent something, which it reads before its next step."""

    def listed(self, wait: float = 0.0) -> Sequence[SubAgent]:
        """Return all of them in the order of their start, after `wait` seconds or as soon as one ends."""

    def end(self, key: str) -> SubAgent:
        """End an agent, wherever it stands."""


class Inbox(Protocol):
    """The messages to an agent from those it works with."""

    def take(self) -> Sequence[Event]:
        """Return what came in since the last call, to be recorded. Raises StopRun if this agent is to end."""

    def close(self) -> Sequence[Event]:
        """End the sub-agents that this agent has started, as it ends; return what came of them, to be recorded."""


class Snapshots(Protocol):
    """Keeps the workspace as it was at different times."""

    def take(self) -> str:
        """Keep the workspace as it is now; the id of its tree, the same for the same content. Raises StateError."""

    def changed(self, before: str, after: str) -> list[str]:
        """Return the workspace paths of the files that differ between two trees, sorted."""


class Recorder(Protocol):
    """The log of one run."""

    @property
    def run(self) -> str: ...

    def masked(self, value: Any) -> Any:
        """Return a JSON value as the log would hold it: without secrets."""

    def append(self, event: Event, *, passing: bool = False) -> Event:
        """Stamp the event with run, seq and time; return it once it is written, and synced unless that may wait.

        Raises StateError if it cannot be.

        A `passing` one survives the end of the process, and a power cut as soon as another one has followed.
        """

    def events(self, *, others: bool = False) -> Iterator[Event]:
        """Yield all events from the first on, as they are on disk; with `others` only those of sub-agents."""

    def returned(self, step: int, agent: str = "") -> Returned | None:
        """Return what came of a step's command, of this agent ('' for the run's own), or None if it ran none."""

    def results(self, agent: str = "") -> Iterator[tuple[Call, Returned]]:
        """Yield the commands that this agent has run, with what came of them, without those that were taken back."""

    def effective(self) -> Iterator[Event]:
        """Yield the events that a resumed run continues from: all but those the user has taken back."""
