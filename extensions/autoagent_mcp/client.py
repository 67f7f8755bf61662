"""Connect to an MCP server by the `mcp` package, whose event loop runs in its own thread.

Only the server's tools, resources and prompts are used. It gets no model answers, no questions to the user and no list
of folders, even if it asks. Redirects to another origin are not followed, and the environment's proxies are not used.

A server's program is started and restarted only in the form that the user has trusted.

Not covered: programs run outside the sandbox, with the user's rights. An endless line that a program prints is kept in
memory. Some processes may survive when its input is closed and its group is killed.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager, suppress
from io import FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from autoagent.core.errors import CommandError, SettingsError, SetupError
from autoagent.extension import __version__
from autoagent_mcp import answers
from autoagent_mcp.tool_servers import ServerAnswer, ServerEntry, ServerTool, digest_of

if TYPE_CHECKING:  # the package is an extra, and takes a second to import
    import anyio
    import httpx2
    from anyio.from_thread import BlockingPortal
    from mcp import Client

OPEN_SECONDS = 60.0  # until a server has listed its tools; some are fetched from a registry first
MAX_RESTARTS = 3  # of one server in a run
MAX_PAGES, MAX_TOOLS = 20, 200  # of what a server offers
MAX_BODY = 16 * 1024 * 1024  # bytes of one response
MAX_LOG_BYTES = 1_000_000  # bytes of what servers print, before their file starts over
_BROKEN = {-32000, -32001, -32600, -32700}  # codes of a lost connection or session, not of a refused call
_STATUS = "Server returned an error response"  # the package's words for a status without an error in the body
_POLL_SECONDS = 0.2  # between two checks for an interruption by the user

Value = TypeVar("Value")


def connected(entry: ServerEntry, log: Path, seconds: float) -> ConnectedServer:
    """Connect to a server, to be closed by the caller. `log` is the file for its program's standard error.

    A call may take this many `seconds`, or any number for 0. Raises SetupError or SettingsError if it cannot be used.
    """
    server = ConnectedServer(entry, log, seconds)
    server.open()
    return server


class ConnectedServer:
    """Hold a connected server and its `tools`. Any thread may call it."""

    def __init__(self, entry: ServerEntry, log: Path, seconds: float) -> None:
        self.entry = entry
        self._log = log
        self._seconds = seconds or math.inf
        self._restarts = 0
        self._link: _Link | None = None
        self._lock = threading.Lock()

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        return self._link.tools if self._link else ()

    def open(self) -> None:
        """Connect. Raises SetupError, SettingsError."""
        if digest_of(self.entry) != self.entry.code:
            raise SetupError(
                f"The MCP server {self.entry.name} is not started: its program has changed since you trusted it."
            )
        self._link = _Link(self.entry, self._log)
        try:
            self._link.open()
        except BaseException as error:  # the package raises whatever its transports do
            self.close()
            if not isinstance(error, Exception):  # Ctrl-C, a signal
                raise
            printed = "" if self.entry.url else f" What it has printed is in {self._log}."
            raise SetupError(f"The MCP server {self.entry.name} cannot be used: {_reason(error)}.{printed}") from error

    def close(self) -> None:
        """End the connection, and the program of the server."""
        if self._link is not None:
            self._link.close()

    def call(self, tool: ServerTool, args: Mapping[str, Any]) -> ServerAnswer:
        """Call a tool of the server within the time limit. Restart the server first if it has ended.

        Raises CommandError if it cannot be reached, does not answer in time, or no longer offers the tool unchanged.
        """
        from mcp import MCPError

        with self._lock:
            link = self._alive()
        if tool not in link.tools:
            raise CommandError(
                f"The MCP server {self.entry.name} no longer offers {tool.name} as the user has allowed it; the user "
                "can allow it again for another run."
            )
        name, seconds = self.entry.name, self._seconds
        try:
            return link.wait(lambda: link.ask(tool, dict(args)), seconds)
        except TimeoutError:
            raise CommandError(
                f"The MCP server {name} did not answer within {seconds:g} s (AUTOAGENT_MCP_SECONDS); it may do it all "
                "the same."
            ) from None
        except CommandError:
            raise
        except MCPError as error:
            if link.gone or (self.entry.url and (error.code in _BROKEN or error.message == _STATUS)):
                link.gone = True
                raise CommandError(
                    f"The MCP server {name} broke off ({_reason(error)}); it may have done it."
                ) from error
            raise CommandError(f"The MCP server {name} refuses: {_reason(error)}.") from error
        except Exception as error:  # the package raises whatever its transports do, and what does not fit its types
            link.gone = True
            raise CommandError(f"The MCP server {name} failed ({_reason(error)}); it may have done it.") from error

    def _alive(self) -> _Link:
        """Return the connection, reopened if the server has ended. Raises CommandError."""
        assert self._link is not None
        if not self._link.gone:
            return self._link
        if self._restarts >= MAX_RESTARTS:
            raise CommandError(
                f"The MCP server {self.entry.name} has ended {MAX_RESTARTS + 1} times; it is left alone."
            )
        self._restarts += 1
        self._link.close()
        try:
            self.open()
        except (SetupError, SettingsError) as error:
            raise CommandError(str(error)) from error
        return self._link


class _Link:
    """Hold a connection, with an event loop in a thread. `gone` tells whether the server has closed it."""

    def __init__(self, entry: ServerEntry, log: Path) -> None:
        self._entry = entry
        self._log = log
        self._opened: Future[tuple[ServerTool, ...]] = Future()
        self._done: Future[None] | None = None
        self._client: Client | None = None
        self._portal: BlockingPortal | None = None
        self.tools: tuple[ServerTool, ...] = ()
        self.gone = True

    def open(self) -> None:
        """Open the connection. Raises TimeoutError, and whatever the package raises."""
        from anyio.from_thread import start_blocking_portal

        _silence()
        self._thread = start_blocking_portal(name=f"mcp {self._entry.name}")
        self._portal = self._thread.__enter__()
        self._closing = self._portal.call(_event)
        self._done = self._portal.start_task_soon(self._live)
        self.gone = False
        self.tools = _result(self._opened, OPEN_SECONDS)

    def wait(self, asked: Callable[[], Coroutine[Any, Any, Value]], seconds: float) -> Value:
        """Run a coroutine in the loop, and cancel it if interrupted. Raises TimeoutError, and its errors."""
        assert self._portal is not None
        future: Future[Value] = self._portal.start_task_soon(asked)
        return _result(future, seconds)

    async def ask(self, tool: ServerTool, args: dict[str, Any]) -> ServerAnswer:
        """Call a tool of the server."""
        from mcp import MCPError

        client = self._client
        assert client is not None
        match tool.kind:
            case "resources":
                resources = await _pages(client.list_resources, "resources")
                templates: list[Any] = []
                with suppress(MCPError):  # a server may have none, and not know the question
                    templates = await _pages(client.list_resource_templates, "resource_templates")
                return ServerAnswer(answers.resources_text(resources, templates))
            case "resource":
                return answers.resource_of(await client.read_resource(str(args["uri"])))
            case "prompts":
                return ServerAnswer(answers.prompts_text(await _pages(client.list_prompts, "prompts")))
            case "prompt":
                given = {name: str(value) for name, value in args.get("arguments", {}).items()}
                return answers.prompt_of(await client.get_prompt(str(args["name"]), given))
            case "tool":
                return answers.answer_of(await client.call_tool(tool.name, args))

    def close(self) -> None:
        """Close the connection. A program that does not end on its own is killed within a few seconds."""
        self.gone = True
        if self._portal is None:
            return
        portal, self._portal = self._portal, None
        if self._opened.done() and not self._opened.cancelled():
            portal.call(self._closing.set)
        elif self._done is not None:
            self._done.cancel()
        self._thread.__exit__(None, None, None)

    async def _live(self) -> None:
        """Keep the connection open, in a single task."""
        from mcp import Client

        try:
            async with (
                _transport(self._entry, self._log) as streams,
                Client(_Watched(streams, self._ended), client_info=_ourselves()) as client,
            ):
                self._client = client
                self._opened.set_result(await _offered(client))
                await self._closing.wait()
        except BaseException as error:  # whatever the reason, a waiting caller is told
            self.gone = True
            if not self._opened.done():
                self._opened.set_exception(error)
            elif not isinstance(error, Exception):
                raise

    def _ended(self) -> None:
        self.gone = True


class _Watched:
    """Wrap an open transport, and report when the server has ended."""

    def __init__(self, streams: tuple[Any, Any], ended: Callable[[], None]) -> None:
        self._read, self._write = streams
        self._ended = ended

    async def __aenter__(self) -> tuple[Any, Any]:
        return self, self._write

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: the streams are closed by their opener or by the session."""

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self._read.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended()
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read, name)


@asynccontextmanager
async def _transport(entry: ServerEntry, log: Path) -> AsyncIterator[tuple[Any, Any]]:
    import httpx2
    from mcp import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if entry.url:
        timeout = httpx2.Timeout(30.0, read=None)  # callers limit the time of a call
        client = httpx2.AsyncClient(
            headers=dict(entry.headers), timeout=timeout, trust_env=False, event_hooks={"response": [_bound]}
        )
        async with client, streamable_http_client(entry.url, http_client=client) as streams:
            yield streams
        return
    # Python adds the folder of a script to its modules, which is trusted with it; with -m, the working directory.
    safe = {"PYTHONDONTWRITEBYTECODE": "1"}
    if not entry.places or "-m" in entry.args:
        safe["PYTHONSAFEPATH"] = "1"
    cwd = str(Path(entry.folder, entry.cwd))  # as it was looked at, see server_lists
    program = StdioServerParameters(command=entry.command, args=list(entry.args), env={**safe, **entry.env}, cwd=cwd)
    with _errors(log) as errors:
        async with stdio_client(program, errors) as streams:
            yield streams


async def _offered(client: Client) -> tuple[ServerTool, ...]:
    """Return the tools of the server. Raises SetupError for an endless list."""
    found: list[ServerTool] = []
    if client.server_capabilities.tools:
        found += map(answers.tool_of, await _pages(client.list_tools, "tools"))
        if len(found) > MAX_TOOLS:
            raise SetupError(f"it offers more than {MAX_TOOLS} tools")
    return (*found, *answers.readers(client.server_capabilities, {tool.name for tool in found}))


async def _pages(listing: Callable[..., Any], name: str) -> list[Any]:
    """Return all that a server lists, by pages. Raises SetupError for an endless list, and MCPError."""
    found: list[Any] = []
    cursor = None
    for _ in range(MAX_PAGES):
        page = await listing(cursor=cursor)
        found += getattr(page, name)
        cursor = page.next_cursor
        if not cursor:
            return found
    raise SetupError(f"it lists more than {MAX_PAGES} pages of {name.replace('_', ' ')}")


async def _bound(response: httpx2.Response) -> None:
    """Limit a body to MAX_BODY bytes. Reading more raises httpx2.DecodingError."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._stream:
                size += len(chunk)
                if size > MAX_BODY:
                    raise httpx2.DecodingError(f"the answer is larger than {MAX_BODY // 1024 // 1024} MB")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = Bounded(response.stream)


def _errors(log: Path) -> TextIO:
    """Open the file for the output of servers: only the user can read it, and no link is followed."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(log, flags, 0o600)
    if os.fstat(descriptor).st_size > MAX_LOG_BYTES:
        os.ftruncate(descriptor, 0)
    return TextIOWrapper(FileIO(descriptor, "a"), encoding="utf-8")


def _result(future: Future[Value], seconds: float) -> Value:
    """Wait for a result, open to Ctrl-C. Cancel it if it takes too long or is interrupted. Raises TimeoutError."""
    until = time.monotonic() + seconds
    try:
        while True:
            left = until - time.monotonic()
            with suppress(TimeoutError):
                return future.result(max(0.0, min(_POLL_SECONDS, left)))
            if future.done():
                return future.result()  # it raised its own TimeoutError
            if left <= 0:
                raise TimeoutError(f"no answer within {seconds:g} s")
    except CancelledError:
        raise TimeoutError("it was cancelled") from None
    finally:
        future.cancel()


def _reason(error: BaseException) -> str:
    """Describe an error, perhaps from an exception group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no program or folder {error.filename!r}"
    return " ".join(str(error).split()).rstrip(".")[:500] or type(error).__name__


def _ourselves() -> Any:
    from mcp.types import Implementation

    return Implementation(name="autoagent", version=__version__)


async def _event() -> anyio.Event:
    import anyio

    return anyio.Event()


def _silence() -> None:
    """Keep the package from printing a server's texts on the screen."""
    log = logging.getLogger("mcp")
    log.propagate = False
    if not log.handlers:
        log.addHandler(logging.NullHandler())
