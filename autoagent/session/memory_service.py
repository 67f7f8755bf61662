"""The long-term memory, for other agents: to add to, to search, to list and to forget from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import ModelError, StateError
from autoagent.core.memory import RetrievedMemory
from autoagent.core.tool_servers import ServerAnswer, ServerTool
from autoagent.text.quoting import EXPLANATION, marked

if TYPE_CHECKING:  # numpy and sqlite3 wait until a memory is opened
    from autoagent.memory.living_memory import LivingMemory

SOURCE = "an MCP client"
MOST = 100  # memories of one answer
INSTRUCTIONS = f"The long-term memory of autoagent, which lasts across runs and programs. {EXPLANATION}"

_COUNT = {"type": "integer", "description": f"how many, {MOST} at most", "minimum": 1, "maximum": MOST, "default": 10}
TOOLS = (
    ServerTool(
        name="search",
        description="Search the memory by meaning and by words; what is found grows firmer.",
        schema={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "what the memories are about"}, "count": _COUNT},
            "required": ["query"],
        },
        hints={"reads only": True, "reaches out": False},
    ),
    ServerTool(
        name="recent",
        description="List the memories that were stored or used last.",
        schema={"type": "object", "properties": {"count": _COUNT}},
        hints={"reads only": True, "reaches out": False},
    ),
    ServerTool(
        name="add",
        description="Remember a text.",
        schema={
            "type": "object",
            "properties": {"text": {"type": "string", "description": "what to remember, in full sentences"}},
            "required": ["text"],
        },
        hints={"reads only": False, "destroys": False, "reaches out": False},
    ),
    ServerTool(
        name="forget",
        description="Delete a memory for good.",
        schema={
            "type": "object",
            "properties": {"id": {"type": "integer", "description": "as search and recent give it"}},
            "required": ["id"],
        },
        hints={"reads only": False, "destroys": True, "reaches out": False},
    ),
)


class MemoryService:
    """Carries out the calls of another agent on the memory. Its additions count as text from outside.

    `mask` removes secrets before storing.
    """

    def __init__(self, memory: LivingMemory, mask: Callable[[str], str]) -> None:
        self._memory = memory
        self._mask = mask

    def call(self, tool: str, args: Mapping[str, Any]) -> ServerAnswer:
        """Carry out one call. Errors of the call or the memory are its answer."""
        try:
            return ServerAnswer(getattr(self, f"_{tool}")(**args))
        except (TypeError, ValueError) as error:
            return ServerAnswer(f"{tool} does not take these arguments: {error}", failed=True)
        except (ModelError, StateError) as error:
            return ServerAnswer(str(error), failed=True)

    def _search(self, query: str, count: int = 10) -> str:
        found = self._memory.recall(_text(query), _whole(count, MOST))
        return _listed(found.memories, "No memory fits.")

    def _recent(self, count: int = 10) -> str:
        return _listed(self._memory.store.listed(_whole(count, MOST)), "There are no memories yet.")

    def _add(self, text: str) -> str:
        id = self._memory.add(self._mask(_text(text)), source=SOURCE, trusted=False)
        if id is None:
            raise ValueError("the text is empty")
        return f"Remembered as {id}."

    def _forget(self, id: int) -> str:
        if not self._memory.forget(_whole(id)):
            raise ValueError(f"there is no memory {id}")
        return f"Forgot {id}."


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any, most: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TypeError(f"{value!r} is no whole number of 1 or more")
    return min(value, most) if most else value


def _listed(memories: Iterable[RetrievedMemory], none: str) -> str:
    return "\n\n".join(map(_shown, memories)) or none


def _shown(memory: RetrievedMemory) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(memory.t))
    text = memory.text if memory.trusted else marked(memory.text, memory.source, run=memory.run, step=memory.step)
    return f"[{memory.id}] {when}, {memory.kind}\n{text}"
