"""Serve the commands of a run and the long-term memory to other agents over MCP."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from autoagent.core import command_schema
from autoagent.core.commands import CommandSpec
from autoagent.core.errors import ModelError, StateError
from autoagent.core.memory import RetrievedMemory
from autoagent.extension import Answer, SharedMemory
from autoagent.text.quoting import EXPLANATION, mark_untrusted
from autoagent_mcp.tool_servers import ServerTool

SOURCE = "an MCP client"
INSTRUCTIONS = (
    f"Commands of autoagent, which work in one folder. {EXPLANATION} A call that is refused was not run, and will be "
    "refused again: nobody is here to be asked."
)


def offered(spec: CommandSpec) -> ServerTool:
    """Return a command as it is served."""
    hints = {
        "reads only": spec.risk == "read",
        "destroys": spec.risk in ("irreversible", "run"),
        "reaches out": spec.risk not in ("read", "write"),
    }
    return ServerTool(name=spec.name, description=spec.label, schema=command_schema.arguments(spec), hints=hints)


MOST = 100  # memories of one answer
MEMORY_INSTRUCTIONS = f"The long-term memory of autoagent, which lasts across runs and programs. {EXPLANATION}"


def _memory_tool(name: str, description: str, hints: Mapping[str, bool], **arguments: Any) -> ServerTool:
    required = [argument for argument, schema in arguments.items() if "default" not in schema]
    schema = {"type": "object", "properties": arguments, **({"required": required} if required else {})}
    return ServerTool(name=name, description=description, schema=schema, hints={**hints, "reaches out": False})


_READS = {"reads only": True}
_COUNT = {"type": "integer", "description": f"how many, {MOST} at most", "minimum": 1, "maximum": MOST, "default": 10}
MEMORY_TOOLS = (
    _memory_tool(
        "search",
        "Search the memory by meaning and by words; what is found grows firmer.",
        _READS,
        query={"type": "string", "description": "what the memories are about"},
        count=_COUNT,
    ),
    _memory_tool("recent", "List the memories that were stored or used last.", _READS, count=_COUNT),
    _memory_tool(
        "add",
        "Remember a text.",
        {"reads only": False, "destroys": False},
        text={"type": "string", "description": "what to remember, in full sentences"},
    ),
    _memory_tool(
        "forget",
        "Delete a memory for good.",
        {"reads only": False, "destroys": True},
        id={"type": "integer", "description": "as search and recent give it"},
    ),
)


class MemoryService:
    """Carry out another agent's calls on the memory."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    def call(self, tool: str, args: Mapping[str, Any]) -> Answer:
        """Carry out one call. Errors of the call or the memory are its answer."""
        try:
            return Answer(getattr(self, f"_{tool}")(**args))
        except TypeError as error:
            return Answer(f"{tool} does not take these arguments: {_plain_words(error)}", failed=True)
        except ValueError as error:
            return Answer(f"{tool}: {error}.", failed=True)
        except (ModelError, StateError) as error:
            return Answer(str(error), failed=True)

    def _search(self, query: str, count: int = 10) -> str:
        return _listed(self._memory.search(_text(query), _whole(count, MOST)), "No memory fits.")

    def _recent(self, count: int = 10) -> str:
        return _listed(self._memory.recent(_whole(count, MOST)), "There are no memories yet.")

    def _add(self, text: str) -> str:
        id = self._memory.add(_text(text), SOURCE)
        if id is None:
            raise ValueError("the text is empty")
        return f"Remembered as {id}."

    def _forget(self, id: int) -> str:
        if not self._memory.forget(_whole(id)):
            raise ValueError(f"there is no memory {id}")
        return f"Forgot {id}."


def _plain_words(error: TypeError) -> str:
    """Return an error without the names of Python's functions."""
    return re.sub(r"MemoryService\._\w+\(\) |(positional|keyword) ", "", str(error))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _whole(value: Any, most: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TypeError(f"{value!r} is no whole number of 1 or more")
    return min(value, most) if most else value


def _listed(memories: Iterable[RetrievedMemory], none: str) -> str:
    return "\n\n".join(map(_shown, memories)) or none


def _shown(memory: RetrievedMemory) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(memory.t))
    text = (
        memory.text if memory.trusted else mark_untrusted(memory.text, memory.source, run=memory.run, step=memory.step)
    )
    return f"[{memory.id}] {when}, {memory.kind}\n{text}"
