"""Serves abilities of ours to another agent, over MCP on standard input and output, by the `mcp` package.

The protocol has a thread of its own. Calls are carried out in the thread that serves, one after the other, so that
nothing below has to know of it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoagent import __version__
from autoagent.core.tool_servers import ServerAnswer, ServerTool

if TYPE_CHECKING:  # the package is an extra, and takes a second to import
    from mcp import types
    from mcp.server import Server


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call that waits for its answer."""

    tool: str
    args: Mapping[str, Any]
    answer: Future[ServerAnswer]


def serve(
    name: str,
    instructions: str,
    tools: Sequence[ServerTool],
    call: Callable[[str, Mapping[str, Any]], ServerAnswer],
    *,
    interruptible: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Serve these tools until the client leaves. Standard output belongs to the protocol meanwhile.

    `instructions` describe the service to the other agent. `call` is called with the name of a tool and its arguments.
    Its errors end the service without another word to the client. `interruptible` is entered around waiting.
    """
    asked: queue.SimpleQueue[_Asked | BaseException | None] = queue.SimpleQueue()
    threading.Thread(target=_speak, args=(name, instructions, tools, asked), name="mcp", daemon=True).start()
    while True:
        with interruptible():
            request = asked.get()
        if request is None:
            return
        if isinstance(request, BaseException):
            raise request
        if request.answer.set_running_or_notify_cancel():
            request.answer.set_result(call(request.tool, request.args))


def _speak(
    name: str,
    instructions: str,
    tools: Sequence[ServerTool],
    asked: queue.SimpleQueue[_Asked | BaseException | None],
) -> None:
    """Speak the protocol until the client leaves. Errors propagate."""
    try:
        asyncio.run(_spoken(_server(name, instructions, tools, asked)))
    except BaseException as error:  # it is raised again in the thread that serves
        asked.put(error)
    else:
        asked.put(None)


async def _spoken(server: Server[Any]) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _server(
    name: str,
    instructions: str,
    tools: Sequence[ServerTool],
    asked: queue.SimpleQueue[_Asked | BaseException | None],
) -> Server[Any]:
    from mcp import types
    from mcp.server import Server

    listed = [_tool(tool) for tool in tools]
    names = {tool.name for tool in tools}

    async def on_list(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def on_call(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in names:
            return _result(ServerAnswer(f"There is no tool {params.name!r}.", failed=True))
        answer: Future[ServerAnswer] = Future()
        asked.put(_Asked(params.name, params.arguments or {}, answer))
        return _result(await asyncio.wrap_future(answer))

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


def _result(answer: ServerAnswer) -> types.CallToolResult:
    from mcp.types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=answer.failed)
