"""Serves abilities of ours to another agent over MCP, by the `mcp` package: on standard input and output, or over HTTP.

HTTP is served on the loopback interface alone, and only to requests that bear the token. The names of other hosts and
the pages of other origins are refused, so that no page in a browser can reach it.

The protocol has a thread of its own. Calls are carried out in the thread that serves, one after the other, so that
nothing below has to know of it.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import mimetypes
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import SetupError, StateError
from autoagent.extension import Answer, Place, Workspace, __version__, echo
from autoagent_mcp.answers import FILES
from autoagent_mcp.tool_servers import ServerTool

if TYPE_CHECKING:  # the package is an extra, and takes a second to import
    from mcp import types
    from mcp.server import Server

REFUSED = b"""{"jsonrpc": "2.0", "id": null, "error":
{"code": -32000, "message": "The token is missing, or another one: see STATE/mcp/token."}}"""  # clients show that
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # that models see
PICTURE = 4_000_000  # bytes of a picture; the usual endpoints accept at least 5 MB


@dataclass(frozen=True, slots=True)
class Loopback:
    """A port of the loopback interface (0: a free one), the token of its clients, and who is told the address."""

    port: int
    token: str
    tell: Callable[[str], None]


def loopback(place: Place, port: int | None) -> Loopback | None:
    """Return where HTTP is served, None for standard input and output. Its token stays the same for a state folder.

    Raises StateError if the token cannot be kept.
    """
    if port is None:
        return None
    path = place.folder / place.setting("state_dir") / "mcp" / "token"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(secrets.token_urlsafe(32))
        token = path.read_text(errors="replace").strip()
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}.") from error
    if len(token) < 32:
        raise StateError(f"{path} holds no token; delete it.")
    return Loopback(port, token, lambda url: echo(f"{url}\nAuthorization: Bearer {token}"))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call that waits for its answer."""

    tool: str
    args: Mapping[str, Any]
    answer: Future[types.CallToolResult]


def serve(
    name: str,
    instructions: str,
    tools: Sequence[ServerTool],
    call: Callable[[str, Mapping[str, Any]], Answer],
    *,
    interruptible: Callable[[], AbstractContextManager[object]] = nullcontext,
    http: Loopback | None = None,
    workspace: Workspace | None = None,
) -> None:
    """Serve these tools until the client leaves, over `http` until Ctrl-C. Without it, standard output belongs to the
    protocol meanwhile.

    `instructions` describe the service to the other agent. `call` is called with the name of a tool and its arguments.
    Its errors end the service without another word to the client. `interruptible` is entered around waiting. The files
    that an answer has made are in the `workspace`. Raises SetupError if the port cannot be used.
    """
    asked: queue.SimpleQueue[_Asked | BaseException | None] = queue.SimpleQueue()
    server = _server(name, instructions, tools, asked)
    speaking = partial(_spoken_over_http, server, http, _bound(http.port)) if http else partial(_spoken, server)
    threading.Thread(target=_speak, args=(speaking, asked), name="mcp", daemon=True).start()
    while True:
        with interruptible():
            request = asked.get()
        if request is None:
            return
        if isinstance(request, BaseException):
            raise request
        if request.answer.set_running_or_notify_cancel():
            request.answer.set_result(_result(call(request.tool, request.args), workspace))


def _speak(
    speaking: Callable[[], Coroutine[Any, Any, None]], asked: queue.SimpleQueue[_Asked | BaseException | None]
) -> None:
    """Speak the protocol until the client leaves. Errors propagate."""
    try:
        asyncio.run(speaking())
    except BaseException as error:  # it is raised again in the thread that serves
        asked.put(error)
    else:
        asked.put(None)


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        bound.listen()  # whoever is told the address can connect
    except OSError as error:
        bound.close()
        raise SetupError(f"The port {port} cannot be used: {error.strerror}. Take another with --port.") from error
    return bound


async def _spoken_over_http(server: Server[Any], http: Loopback, bound: socket.socket) -> None:
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    place = f"127.0.0.1:{bound.getsockname()[1]}"
    local = [place, place.replace("127.0.0.1", "localhost")]
    security = TransportSecuritySettings(allowed_hosts=local, allowed_origins=[f"http://{host}" for host in local])
    app = server.streamable_http_app(transport_security=security)
    expected = f"Bearer {http.token}".encode()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "lifespan" or hmac.compare_digest(given, expected):
            await app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": REFUSED})

    http.tell(f"http://{place}/mcp")
    config = uvicorn.Config(guarded, log_level="error", access_log=False, lifespan="on")
    await uvicorn.Server(config).serve(sockets=[bound])


async def _spoken(server: Server[Any]) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _server(
    name: str, instructions: str, tools: Sequence[ServerTool], asked: queue.SimpleQueue[_Asked | BaseException | None]
) -> Server[Any]:
    from mcp import types
    from mcp.server import Server

    listed = [_tool(tool) for tool in tools]
    names = {tool.name for tool in tools}

    async def on_list(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def on_call(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in names:
            return _result(Answer(f"There is no tool {params.name!r}.", failed=True))
        answer: Future[types.CallToolResult] = Future()
        asked.put(_Asked(params.name, params.arguments or {}, answer))
        return await asyncio.wrap_future(answer)

    return Server(name, version=__version__, instructions=instructions, on_list_tools=on_list, on_call_tool=on_call)


def _tool(tool: ServerTool) -> types.Tool:
    from mcp.types import Tool, ToolAnnotations

    hints = tool.hints
    annotations = ToolAnnotations(
        read_only_hint=hints.get("reads only"),
        destructive_hint=hints.get("destroys"),
        open_world_hint=hints.get("reaches out"),
    )
    return Tool(name=tool.name, description=tool.description, input_schema=dict(tool.schema), annotations=annotations)


def _result(answer: Answer, workspace: Workspace | None = None) -> types.CallToolResult:
    from mcp.types import CallToolResult, TextContent

    content: list[types.ContentBlock] = [TextContent(type="text", text=answer.text)]
    if workspace is not None:
        content += [block for path in answer.made[:FILES] for block in _file(path, workspace)]
    return CallToolResult(content=content, is_error=answer.failed)


def _file(path: str, workspace: Workspace) -> list[types.ContentBlock]:
    """Return a link to a file, and before it the file itself if it is a picture. Nothing if it is gone."""
    from mcp.types import ImageContent, ResourceLink

    if (size := workspace.size(path)) is None:
        return []
    kind, _ = mimetypes.guess_type(path)
    uri = (workspace.root / path).as_uri()
    link = ResourceLink(type="resource_link", name=path, uri=uri, mime_type=kind, size=size)
    if kind not in PICTURES or size > PICTURE:
        return [link]
    data = base64.b64encode(workspace.read(path, PICTURE)).decode()
    return [ImageContent(type="image", data=data, mime_type=kind), link]
