"""MCP servers as records: their list entries, tools and answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PREFIX = "mcp__"
"""Before the names of all commands that servers offer: `mcp__SERVER__TOOL`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """An entry of a server list: a program to start, or the address of a running server.

    Attributes:
        name: the name used in its commands.
        place: the file of the list.
        folder: the folder of the list, where its tools are allowed.
        command, args, env, cwd: the program, its additional variables and its working directory.
        url, headers: the address, and the headers of each request.
        written: its entry as written, variables not filled in.
        places: the files and folders of its program that lie where an agent or a `git pull` may change them.
        code: their digest, or '' if there are none.
    """

    name: str
    place: Path
    folder: Path
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    written: str = ""
    places: tuple[Path, ...] = ()
    code: str = ""

    @property
    def about(self) -> str:
        """A description of its action for the user."""
        return "an address that calls are sent to" if self.url else "a program, run outside the sandbox"


Kind = Literal["tool", "resources", "resource", "prompts", "prompt"]
"""What a call asks of a server: one of its tools, the list of its resources, one of them, and so of its prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A tool of a server. Its description and schema are the server's own.

    `hints` are the server's unverified claims about its effects.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    hints: Mapping[str, bool] = field(default_factory=dict)
    kind: Kind = "tool"

    @property
    def told(self) -> str:
        """Everything it says about itself, as one text. A tool with another text is another tool."""
        return json.dumps([self.description, self.schema, self.hints, self.kind], sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The answer to a call. `failed`: the server reports a failure."""

    text: str
    failed: bool = False
