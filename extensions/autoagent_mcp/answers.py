"""Converts the tools and answers of MCP servers to our records and texts."""

from __future__ import annotations

import base64
import hashlib
import json
import mimetypes
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from autoagent_mcp.tool_servers import Kind, ServerAnswer, ServerTool

if TYPE_CHECKING:
    from mcp import types

LONGEST = 1_000_000  # characters of an answer
FILES, FILE = 10, 8 << 20  # of an answer, and the bytes of one
_LISTED = 200  # resources or prompts that a list names

_TEXT = {"type": "string"}
_READING: Mapping[Kind, tuple[str, str, Mapping[str, Any]]] = {
    "resources": ("list_resources", "List the resources of the MCP server", {}),
    "resource": ("read_resource", "Read a resource of the MCP server", {"uri": _TEXT}),
    "prompts": ("list_prompts", "List the prompts of the MCP server", {}),
    "prompt": ("get_prompt", "Read a prompt of the MCP server", {"name": _TEXT, "arguments": {"type": "object"}}),
}
_OPTIONAL = {"arguments"}


def tool_of(tool: types.Tool) -> ServerTool:
    """Return a tool as a server describes it."""
    said = tool.annotations
    hints = {
        "reads only": said.read_only_hint,
        "destroys": said.destructive_hint,
        "idempotent": said.idempotent_hint,
        "reaches out": said.open_world_hint,
    } if said else {}  # fmt: skip
    return ServerTool(
        name=tool.name,
        description=tool.description or "",
        schema=tool.input_schema,
        hints={name: value for name, value in hints.items() if value is not None},
    )


def readers(capabilities: types.ServerCapabilities, taken: set[str]) -> list[ServerTool]:
    """Return tools that read the resources and prompts of a server, if any. Its own tools of that name win."""
    kinds: list[Kind] = []
    kinds += ["resources", "resource"] if capabilities.resources else []
    kinds += ["prompts", "prompt"] if capabilities.prompts else []
    found = []
    for kind in kinds:
        name, description, properties = _READING[kind]
        required = [one for one in properties if one not in _OPTIONAL]
        schema = {"type": "object", "properties": properties, "required": required}
        found.append(ServerTool(name=name, description=description, schema=schema, kind=kind))
    return [one for one in found if one.name not in taken]


def answer_of(result: types.CallToolResult) -> ServerAnswer:
    """Return the result of a tool: its text, and its pictures and the like as files."""
    files: dict[str, bytes] = {}
    text = _joined(_block(block, files) for block in result.content)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False, indent=1)
    return ServerAnswer(_cut(text), result.is_error, files)


def resource_of(result: types.ReadResourceResult) -> ServerAnswer:
    """Return a resource."""
    files: dict[str, bytes] = {}
    return ServerAnswer(_cut(_joined(_contents(part, files) for part in result.contents)), files=files)


def prompt_of(result: types.GetPromptResult) -> ServerAnswer:
    """Return the messages of a prompt."""
    files: dict[str, bytes] = {}
    text = _joined(f"{message.role}: {_block(message.content, files)}" for message in result.messages)
    return ServerAnswer(_cut(text), files=files)


def resources_text(resources: Iterable[types.Resource], templates: Iterable[types.ResourceTemplate]) -> str:
    """List resources, and the forms of addresses of further ones."""
    lines = [f"{one.uri}: {_described(one)}" for one in resources]
    lines += [f"{one.uri_template} (fill in): {_described(one)}" for one in templates]
    return _listing(lines, "There are no resources.")


def prompts_text(prompts: Iterable[types.Prompt]) -> str:
    """List prompts with their arguments."""
    lines = []
    for prompt in prompts:
        names = (f"{one.name}{'' if one.required else '?'}" for one in prompt.arguments or ())
        lines.append(f"{prompt.name}({', '.join(names)}): {prompt.description or prompt.title or ''}")
    return _listing(lines, "There are no prompts.")


def _listing(lines: list[str], none: str) -> str:
    more = [f"… and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return _cut("\n".join([*(" ".join(line.split()) for line in lines[:_LISTED]), *more]) or none)


def _described(one: types.Resource | types.ResourceTemplate) -> str:
    return str(one.description or one.title or one.name)


def _cut(text: str) -> str:
    left_out = len(text) - LONGEST
    return text if left_out <= 0 else f"{text[:LONGEST]}\n[{left_out:,} further characters of the answer left out]"


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def _block(block: types.ContentBlock, files: dict[str, bytes]) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "resource":
            return _contents(block.resource, files)
        case "resource_link":
            return f"[resource {block.uri}: {_described(block)}]"
        case _:
            return _kept(block.mime_type, block.data, files)


def _contents(contents: types.TextResourceContents | types.BlobResourceContents, files: dict[str, bytes]) -> str:
    if (text := getattr(contents, "text", None)) is not None:
        return str(text)
    return _kept(contents.mime_type, getattr(contents, "blob", ""), files)


def _kept(kind: str | None, encoded: str, files: dict[str, bytes]) -> str:
    """Return the text that stands for data, which is added to the files if it can be kept."""
    said = f"{kind or 'data'}, about {len(encoded) * 3 // 4:,} bytes"
    if len(files) >= FILES or len(encoded) * 3 // 4 > FILE:
        return f"[{said}, not kept: an answer may have {FILES} files of {FILE >> 20} MB]"
    try:
        data = base64.b64decode(encoded, validate=True)
        if (kind or "").startswith("text/"):
            return data.decode()
    except ValueError:
        return f"[{said}, not kept: it is not what it says]"
    shown = (kind or "").partition("/")[0] in ("image", "audio", "video") or kind == "application/pdf"
    suffix = (mimetypes.guess_extension(kind or "") if shown else None) or ".bin"
    name = f"mcp-{hashlib.sha256(data).hexdigest()[:12]}{suffix}"
    files[name] = data
    return f"[{kind or 'data'}, {len(data):,} bytes, saved as {name}]"
