"""The embedded model: a GGUF file that llama.cpp runs inside this process, through `xllamacpp`.

It is asked without a probe: this runtime takes a grammar (LLGuidance) and samples only tokens that fit it, so that even
a small model cannot write a malformed command, while the native tool calls of small models are not reliable.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import re
import secrets
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from autoagent.core import command_schema
from autoagent.core.commands import CommandSpec
from autoagent.core.errors import ContextOverflow, ModelError, SetupError
from autoagent.core.model import Asking, Completion, Message, Price, PromptStyle, Usage, style_for, without_calls
from autoagent.core.protocols import Asked, Listener
from autoagent.models.local import weights
from autoagent.models.local.gguf import control_tokens, damage, parameters
from autoagent.models.local.reply_grammar import reply_grammar, schema_grammar

if TYPE_CHECKING:
    from autoagent.registry.models import ModelOpening

DEFAULT_WINDOW = 8192  # tokens; the file and such a window take about 2.2 GB of memory

_INSTALL = 'pip install "autoagent[local]"'
_BATCH = 128  # prompt tokens between two chances to cancel; on a CPU nearly as fast as larger batches
_CACHE_MIB = 512  # prompts put aside while another one is worked on: the agent's own, during a summary
_LOOK = 0.2  # seconds, to see which cores are busy
_ROUNDS = 800  # characters at the end of a reply; where they repeat what is at most a quarter of that, it has no end
_SILENCE = 3.0  # seconds without a token before the user is told what is going on

# The chat template does not tell control tokens from text, so that a file or page which holds them could end its
# message and speak as the system. Beside those that a model file names as such there are some that it does not.
_MARKS = r"<\|\w+\|>"


class LocalModel:
    """A model file run on this machine's processor.

    `window` is shared by prompt and reply, in tokens. `threads` defaults to all cores for a prompt and the free cores
    for a reply. The first call loads the file.
    """

    asking: Asking = "schema"
    price = Price(0.0, 0.0, 0.0)
    reasoning_room = 0

    def __init__(
        self,
        path: Path,
        *,
        window: int = DEFAULT_WINDOW,
        temperature: float = 0.0,
        threads: int | None = None,
        style: str = "",
    ) -> None:
        self.name = path.stem
        self.window = window
        self._path = path
        self._temperature = temperature
        self._threads = threads
        self._worker = ThreadPoolExecutor(1, "embedded-model")  # one call at a time: a cancelled one ends first
        self._server: Future[Any] | None = None
        self._control = re.compile(_MARKS)
        self._speed = 30.0  # prompt tokens a second, as last seen
        self._wanted_style = style

    @cached_property
    def style(self) -> PromptStyle:
        """The style for the size that the file's header tells, unless one is set."""
        return style_for(parameters(self._path), self._wanted_style, blocks=True)

    def preload(self) -> None:
        """Load the file now (1 to 6 s, in which the runtime holds the interpreter, and Ctrl-C waits).

        Raises SetupError: the runtime or the file is missing, or it is not a model.
        """
        if self._server is None:
            if importlib.util.find_spec("xllamacpp") is None:
                raise SetupError(f"The runtime of the embedded model is not installed. Install it: {_INSTALL}")
            _require_gguf(self._path)
            self._server = self._worker.submit(self._load)
        try:
            self._server.result()
        except (RuntimeError, ValueError) as error:  # all that the runtime tells; the vocabulary cannot be read
            self._server = None
            raise SetupError(
                f"{self._path} cannot be loaded: it is damaged, its kind is unknown to the runtime, "
                f"or a window of {self.window} tokens does not fit into memory."
            ) from error

    def take_usage(self) -> Usage:
        """Return nothing, as nothing is spent besides the completions."""
        return Usage()

    def complete(self, messages: Sequence[Message], **asked: Unpack[Asked]) -> Completion:
        """As in the protocol. Ctrl-C is raised at once. The interrupted work ends within a batch."""
        listener, limit = asked.get("listener"), asked["max_tokens"]
        if listener is not None and self._server is None:
            listener.working(f"loading {self.name}", _SILENCE)
        self.preload()
        reading = _StreamedReply(listener, self._speed)
        request = self._request(messages, min(limit, asked.get("at_most") or limit))
        if commands := asked.get("commands"):
            request["grammar"] = self._grammar(commands)
        elif schema := asked.get("schema"):
            request["grammar"] = schema_grammar(schema)
        with contextlib.closing(self._stream(request)) as chunks:
            for chunk in chunks:
                if listener is not None:
                    listener.heed()
                reading.take(chunk)
                if reading.endless:
                    break
        self._speed = reading.speed
        return reading.completion()

    def _load(self) -> Any:
        import xllamacpp

        self._control = re.compile("|".join([*map(re.escape, control_tokens(self._path)), _MARKS]))
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx = self.window
        params.n_parallel = 1
        params.n_batch = params.n_ubatch = _BATCH
        params.cpuparams.n_threads = self._threads or _free_cores()
        params.cpuparams_batch.n_threads = self._threads or _usable_cores()
        params.cache_ram_mib = _CACHE_MIB
        params.warmup = False
        params.verbosity = -1  # nothing on our screen
        # The runtime also listens on a loopback port, with no way to switch that off: nobody gets the key to it.
        params.api_keys = [secrets.token_urlsafe(32)]
        return xllamacpp.Server(params)

    def _grammar(self, commands: Sequence[CommandSpec]) -> str:
        return reply_grammar(commands) if self.style.blocks else schema_grammar(command_schema.reply(commands))

    def _request(self, messages: Sequence[Message], max_tokens: int) -> dict[str, Any]:
        return {
            "messages": [{"role": told.role, "content": self._plain(told.content)} for told in without_calls(messages)],
            "max_tokens": max_tokens,
            "temperature": self._temperature,
            "cache_prompt": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
        }

    def _plain(self, text: str) -> str:
        """Return the text without lone surrogates, and with control tokens split."""
        whole = text.encode("utf-8", "replace").decode()
        return self._control.sub(lambda found: f"{found[0][0]} {found[0][1:]}", whole)

    def _stream(self, request: Mapping[str, Any]) -> Generator[Mapping[str, Any], None, None]:
        """Yield the chunks of one request, made by the worker. Leaving the iterator early cancels the request."""
        assert self._server is not None
        server = self._server.result()
        chunks: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        left = threading.Event()

        def take(chunk: Mapping[str, Any]) -> bool:
            chunks.put(chunk)
            return left.is_set()  # True makes the runtime stop

        def work() -> None:
            try:
                if not left.is_set():
                    server.handle_chat_completions(request, take)
            finally:
                chunks.put(None)

        done = self._worker.submit(work)
        try:
            while (chunk := chunks.get()) is not None:
                yield chunk
            done.result()  # raises what the runtime raised
        except RuntimeError as error:
            raise ModelError(f"The embedded model failed: {error}") from error
        finally:
            left.set()


@dataclass(slots=True)
class _StreamedReply:
    """One streamed answer in progress. `speed`: prompt tokens a second."""

    listener: Listener | None
    speed: float
    said: list[str] = field(default_factory=list)
    finish: str = ""
    usage: Usage = field(default_factory=Usage)
    began: float | None = None  # when a prompt was begun that takes long to read
    tail: str = ""  # the end of what was said
    endless: bool = False  # small models come to say one thing over and over, up to the limit of tokens

    def take(self, chunk: Mapping[str, Any]) -> None:
        if error := chunk.get("error"):
            raise _mapped(error)
        for choice in chunk["choices"]:
            self.finish = choice["finish_reason"] or self.finish
            if delta := choice["delta"].get("content"):
                self._add(delta)
                if self.listener is not None:
                    self.listener.text(delta)
        if progress := chunk.get("prompt_progress"):
            self.usage = Usage(progress["total"], 0, progress["cache"])  # until all is told, at the end
            self._announce(progress)
        if usage := chunk.get("usage"):
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            self.usage = Usage(usage["prompt_tokens"], usage["completion_tokens"], cached)
            if chunk["timings"]["prompt_n"] >= _BATCH:  # a few tokens tell nothing
                self.speed = chunk["timings"]["prompt_per_second"]

    def completion(self) -> Completion:
        if self.endless:
            return Completion("".join(self.said), replace(self.usage, completion=len(self.said)), truncated=True)
        if not self.finish:
            raise ModelError("The embedded model broke off in the middle of its reply.")
        return Completion("".join(self.said), self.usage, truncated=self.finish == "length")

    def _add(self, delta: str) -> None:
        self.said.append(delta)
        self.tail = (self.tail + delta)[-_ROUNDS:]
        if len(self.tail) == _ROUNDS:
            self.endless = any(self.tail[:-unit] == self.tail[unit:] for unit in range(1, _ROUNDS // 4 + 1))

    def _announce(self, progress: Mapping[str, Any]) -> None:
        """Say how much of the prompt is read after each batch, and about how long the rest takes, if that is long."""
        whole, done = progress["total"] - progress["cache"], progress["processed"] - progress["cache"]
        if not done:
            self.began = time.monotonic() if whole / self.speed > _SILENCE else None
        if self.listener is not None and self.began is not None:
            left = (time.monotonic() - self.began) * (whole - done) / done if done else whole / self.speed
            self.listener.working(f"the embedded model reads: {done:,} of {whole:,} tokens", left)


def _mapped(error: Mapping[str, Any]) -> ModelError:
    if error.get("type") == "exceed_context_size_error":
        return ContextOverflow(f"The prompt has {error['n_prompt_tokens']} tokens, the window is {error['n_ctx']}.")
    return ModelError(f"The embedded model failed: {error.get('message', error)}")


def _require_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError as error:
        raise SetupError(f"There is no model file {path}. For the embedded model: autoagent model fetch") from error
    except OSError as error:
        raise SetupError(f"The model file {path} cannot be read: {error.strerror}.") from error
    if magic != b"GGUF":
        raise SetupError(f"{path} is not a model file (GGUF).")
    if wrong := damage(path):
        raise SetupError(
            f"{path} is damaged: {wrong}. Get the file again; the embedded model with `autoagent model remove`, then "
            "`autoagent model fetch`."
        )


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _free_cores() -> int:
    """Return the number of cores that are idle now, at least 1.

    The threads of a reply wait for one another at every token, so a thread on a shared core slows down all of them.
    """
    try:
        before = _idle_ticks()
        time.sleep(_LOOK)
        idle = (_idle_ticks() - before) / (os.sysconf("SC_CLK_TCK") * _LOOK)
    except (OSError, ValueError):  # not Linux
        idle = (os.cpu_count() or 1) - os.getloadavg()[0]
    return max(1, min(_usable_cores(), round(idle)))


def _idle_ticks() -> int:
    """Return the clock ticks that all cores have been idle for, as Linux counts them. Raises OSError elsewhere."""
    fields = Path("/proc/stat").read_text().split(maxsplit=6)
    return int(fields[4]) + int(fields[5])


def open_model(opening: ModelOpening) -> LocalModel:
    """Open the embedded model, or the model in the file given as the argument. Raises SetupError if it is missing."""
    settings = opening.settings
    path = weights.locate(opening.argument) if opening.argument else opening.weights()
    window = settings.window or DEFAULT_WINDOW
    return LocalModel(path, window=window, temperature=settings.temperature, style=settings.style)
