"""Run the embedded model: a GGUF file loaded by llama.cpp inside this process, through `xllamacpp`.

It needs no probe: this runtime takes a grammar (LLGuidance) and samples only tokens that fit it. So even a small model
cannot write a malformed command, while the native tool calls of small models are unreliable.
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
from autoagent.core.errors import ContextOverflow, ModelError, SetupError
from autoagent.core.model import Asking, Completion, Message, Price, PromptStyle, Usage, style_for, without_calls
from autoagent.core.protocols import Listener, RequestOptions
from autoagent.models.local import weights
from autoagent.models.local.gguf import control_tokens, damage, parameters
from autoagent.models.local.reply_grammar import reply_grammar, schema_grammar

if TYPE_CHECKING:
    from autoagent.registry.models import ModelOpening

DEFAULT_WINDOW = 8192  # tokens; file and window take about 2.2 GB of memory

_BATCH = 128  # prompt tokens between two chances to cancel; on a CPU almost as fast as larger batches
_CACHE_MIB = 512  # to keep a prompt during another one, such as the agent's during a summary
_MEASURE_SECONDS = 0.2  # to measure which cores are busy
_TAIL_CHARACTERS = 800  # at the end of a reply: it is endless if they repeat every quarter or less
_SILENCE_SECONDS = 3.0  # without a token before the user is notified

# The chat template cannot tell control tokens from text, so a file or page that contains them could end its
# message and speak as the system. The model file's own list lacks some of them.
_CONTROL_PATTERN = r"<\|\w+\|>"


class LocalModel:
    """Run a model file on this machine's processor.

    `window` is shared by prompt and reply, in tokens. All cores read a prompt, the free cores write a reply. The first
    call loads the file.
    """

    asking: Asking = "schema"
    price = Price(0.0, 0.0, 0.0)
    reasoning_room = 0

    def __init__(self, path: Path, *, window: int = DEFAULT_WINDOW, temperature: float = 0.0, style: str = "") -> None:
        self.name = path.stem
        self.window = window
        self._path = path
        self._temperature = temperature
        self._worker = ThreadPoolExecutor(1, "embedded-model")  # one call at a time: a cancelled one ends first
        self._server: Future[Any] | None = None
        self._control = re.compile(_CONTROL_PATTERN)
        self._speed = 30.0  # prompt tokens per second; a guess until the first is measured
        self._style_setting = style

    @cached_property
    def style(self) -> PromptStyle:
        """Return the configured style, or that for the size in the file's header."""
        return style_for(parameters(self._path), self._style_setting, blocks=True)

    def preload(self) -> None:
        """Load the file now. This takes 1 to 6 s, in which the runtime blocks the interpreter, and Ctrl-C waits.

        Raises SetupError if the runtime or the file is missing, or if it is not a model.
        """
        if self._server is None:
            if importlib.util.find_spec("xllamacpp") is None:
                install = 'pip install "autoagent[local]"'
                raise SetupError(f"The runtime of the embedded model is not installed. Install it: {install}")
            _require_gguf(self._path)
            self._server = self._worker.submit(self._load)
        try:
            self._server.result()
        except ImportError as error:
            self._server = None
            raise SetupError(f"The runtime of the embedded model cannot be loaded: {error}") from error
        except (RuntimeError, ValueError) as error:  # the runtime gives no details; the vocabulary cannot be read
            self._server = None
            raise SetupError(
                f"{self._path} cannot be loaded: it is damaged, its kind is unknown to the runtime, "
                f"or a window of {self.window} tokens does not fit into memory."
            ) from error

    def take_usage(self) -> Usage:
        return Usage()  # none other than the completions'

    def complete(self, messages: Sequence[Message], **options: Unpack[RequestOptions]) -> Completion:
        """See protocols.Model. Ctrl-C is raised at once, and the interrupted work ends within a batch."""
        listener, limit = options.get("listener"), options["max_tokens"]
        if listener is not None and self._server is None:
            listener.working(f"loading {self.name}", _SILENCE_SECONDS)
        self.preload()
        reply = _StreamedReply(listener, self._speed)
        request: dict[str, Any] = {
            "messages": [
                {"role": message.role, "content": self._safe_text(message.content)}
                for message in without_calls(messages)
            ],
            "max_tokens": min(limit, options.get("at_most") or limit),
            "temperature": options.get("temperature", self._temperature),
            "cache_prompt": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
        }
        if commands := options.get("commands"):
            blocks = self.style.blocks
            request["grammar"] = reply_grammar(commands) if blocks else schema_grammar(command_schema.reply(commands))
        elif schema := options.get("schema"):
            request["grammar"] = schema_grammar(schema)
        with contextlib.closing(self._stream(request)) as chunks:
            for chunk in chunks:
                if listener is not None:
                    listener.check_time_left()
                reply.add(chunk)
                if reply.is_endless:
                    break
        self._speed = reply.speed
        return reply.completion()

    def _load(self) -> Any:
        import xllamacpp

        self._control = re.compile("|".join([*map(re.escape, control_tokens(self._path)), _CONTROL_PATTERN]))
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx = self.window
        params.n_parallel = 1
        params.n_batch = params.n_ubatch = _BATCH
        params.cpuparams.n_threads = _free_cores()
        params.cpuparams_batch.n_threads = _usable_cores()
        params.cache_ram_mib = _CACHE_MIB
        params.warmup = False
        params.verbosity = -1  # keep our screen clean
        # The runtime also listens on a loopback port, which cannot be disabled, so nobody gets its key.
        params.api_keys = [secrets.token_urlsafe(32)]
        return xllamacpp.Server(params)

    def _safe_text(self, text: str) -> str:
        """Return the text without lone surrogates, and with control tokens split."""
        valid = text.encode("utf-8", "replace").decode()
        return self._control.sub(lambda match: f"{match[0][0]} {match[0][1:]}", valid)

    def _stream(self, request: Mapping[str, Any]) -> Generator[Mapping[str, Any], None, None]:
        """Yield the worker's chunks for one request. Leaving the iterator early cancels the request."""
        assert self._server is not None
        server = self._server.result()
        chunks: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        is_cancelled = threading.Event()

        def take(chunk: Mapping[str, Any]) -> bool:
            chunks.put(chunk)
            return is_cancelled.is_set()  # True makes the runtime stop

        def work() -> None:
            try:
                if not is_cancelled.is_set():
                    server.handle_chat_completions(request, take)
            finally:
                chunks.put(None)

        future = self._worker.submit(work)
        try:
            while (chunk := chunks.get()) is not None:
                yield chunk
            future.result()  # raises the runtime's error
        except RuntimeError as error:
            raise ModelError(f"The embedded model failed: {error}") from error
        finally:
            is_cancelled.set()


@dataclass(slots=True)
class _StreamedReply:
    """Collect one streamed answer. `speed` is in prompt tokens per second."""

    listener: Listener | None
    speed: float
    pieces: list[str] = field(default_factory=list)
    finish: str = ""
    usage: Usage = field(default_factory=Usage)
    reading_since: float | None = None  # a slow prompt, as a monotonic time
    tail: str = ""  # the end of the reply

    def add(self, chunk: Mapping[str, Any]) -> None:
        if error := chunk.get("error"):
            if error.get("type") == "exceed_context_size_error":
                size, window = error["n_prompt_tokens"], error["n_ctx"]
                raise ContextOverflow(f"The prompt has {size} tokens, the window is {window}.")
            raise ModelError(f"The embedded model failed: {error.get('message', error)}")
        for choice in chunk["choices"]:
            self.finish = choice["finish_reason"] or self.finish
            if delta := choice["delta"].get("content"):
                self.pieces.append(delta)
                self.tail = (self.tail + delta)[-_TAIL_CHARACTERS:]
                if self.listener is not None:
                    self.listener.text(delta)
        if progress := chunk.get("prompt_progress"):
            self.usage = Usage(progress["total"], 0, progress["cache"])  # until the final figures arrive
            self._announce(progress)
        if usage := chunk.get("usage"):
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            self.usage = Usage(usage["prompt_tokens"], usage["completion_tokens"], cached)
            if chunk["timings"]["prompt_n"] >= _BATCH:  # too few tokens to measure the speed
                self.speed = chunk["timings"]["prompt_per_second"]

    def completion(self) -> Completion:
        text = "".join(self.pieces)
        if self.is_endless:
            return Completion(text, replace(self.usage, completion=len(self.pieces)), truncated=True)
        if not self.finish:
            raise ModelError("The embedded model stopped in the middle of its reply.")
        return Completion(text, self.usage, truncated=self.finish == "length")

    @property
    def is_endless(self) -> bool:
        """Return whether its end repeats itself, as small models may do up to the token limit."""
        units = range(1, _TAIL_CHARACTERS // 4 + 1)
        return len(self.tail) == _TAIL_CHARACTERS and any(self.tail[:-unit] == self.tail[unit:] for unit in units)

    def _announce(self, progress: Mapping[str, Any]) -> None:
        """After each batch of a slow prompt, report how much is read and how long the rest will take."""
        total = progress["total"] - progress["cache"]
        done = progress["processed"] - progress["cache"]
        if not done:
            self.reading_since = time.monotonic() if total / self.speed > _SILENCE_SECONDS else None
        if self.listener is not None and self.reading_since is not None:
            remaining = (time.monotonic() - self.reading_since) * (total - done) / done if done else total / self.speed
            self.listener.working(f"the embedded model reads: {done:,} of {total:,} tokens", remaining)


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
    if problem := damage(path):
        raise SetupError(
            f"{path} is damaged: {problem}. Download it again; for the embedded model: `autoagent model remove`, "
            "then `autoagent model fetch`."
        )


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_cores() -> int:
    """Return the number of idle cores, at least 1.

    The threads of a reply synchronize at every token, so a thread on a shared core slows down all of them.
    """
    try:
        ticks = _idle_ticks()
        time.sleep(_MEASURE_SECONDS)
        idle = (_idle_ticks() - ticks) / (os.sysconf("SC_CLK_TCK") * _MEASURE_SECONDS)
    except (OSError, ValueError):  # not Linux
        idle = (os.cpu_count() or 1) - os.getloadavg()[0]
    return max(1, min(_usable_cores(), round(idle)))


def _idle_ticks() -> int:
    """Return for how many clock ticks all cores together have been idle. Raises OSError unless on Linux."""
    fields = Path("/proc/stat").read_text().split(maxsplit=6)
    return int(fields[4]) + int(fields[5])


def open_model(opening: ModelOpening) -> LocalModel:
    """Open the embedded model, or the file in the argument. Raises SetupError if it is missing."""
    settings = opening.settings
    path = weights.locate(opening.argument) if opening.argument else opening.weights()
    window = settings.window or DEFAULT_WINDOW
    return LocalModel(path, window=window, temperature=settings.temperature, style=settings.style)
