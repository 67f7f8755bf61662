"""Define the records of MCP servers: list entries, tools and answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from autoagent.core.errors import SettingsError
from autoagent.core.frozen import dataclass

PREFIX = "mcp__"
"""The prefix of all commands from servers: `mcp__SERVER__TOOL`."""


MAX_FILES, _MAX_BYTES = 2_000, 64 << 20  # of one server's programs


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """Hold an entry of a server list: a program to start, or the address of a running server.

    Attributes:
        name: the name used in its commands.
        place: the file of the list.
        folder: the folder of the list, where its tools are allowed.
        command, args, env, cwd: the program, its additional variables and its working directory.
        url, headers: the address, and the headers of each request.
        written: its entry as written, with variables unexpanded.
        places: the files and folders of its program that an agent or a `git pull` may change.
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
        """Describe its action for the user."""
        return "an address that calls are sent to" if self.url else "a program, run outside the sandbox"


def digest_of(entry: ServerEntry) -> str:
    """Return the digest of its program's present files, or '' if it has none in the folder.

    Raises SettingsError if they cannot be read, or are too many or too large.
    """
    if not entry.places:
        return ""
    digest, size = hashlib.sha256(), 0
    files = [file for place in entry.places for file in ([place] if place.is_file() else sorted(place.rglob("*")))]
    try:
        for file in files:
            if file.is_symlink():
                digest.update(f"{file}\0{file.readlink()}\0".encode("utf-8", "surrogateescape"))
            elif file.is_file():
                size += file.stat().st_size
                if len(files) > MAX_FILES or size > _MAX_BYTES:
                    raise SettingsError(
                        f"{entry.place}: the program of the MCP server {entry.name!r} shares {file.parent} with too "
                        f"much to look at ({MAX_FILES:,} files, {_MAX_BYTES >> 20} MB); move it into its own folder."
                    )
                head = f"{file}\0{file.stat().st_mode & 0o111}\0{file.stat().st_size}\0"
                digest.update(head.encode("utf-8", "surrogateescape") + file.read_bytes())
    except OSError as error:
        raise SettingsError(f"{entry.place}: the program of the MCP server {entry.name!r}: {error}.") from error
    return digest.hexdigest()


Kind = Literal["tool", "resources", "resource", "prompts", "prompt"]
"""The kind of request to a server: a tool call, or listing or reading resources or prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """Describe a tool of a server. Its description and schema are the server's own.

    `hints` are the server's unverified claims about its effects.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    hints: Mapping[str, bool] = field(default_factory=dict)
    kind: Kind = "tool"

    @property
    def self_description(self) -> str:
        """Return its whole self-description as one text. A change of the text makes it another tool."""
        return json.dumps([self.description, self.schema, self.hints, self.kind], sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """Hold the answer to a call. `failed`: the server reports a failure. `files` are pictures and the like."""

    text: str
    failed: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
