"""MCP servers as records: their list entries, tools and answers."""

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
"""Before the names of all commands that servers offer: `mcp__SERVER__TOOL`."""


MOST_FILES, _BYTES = 2_000, 64 << 20  # of the programs of one server


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


def digest_of(entry: ServerEntry) -> str:
    """Return the digest of the files of its program as they are now, or '' if it has none in the folder.

    Raises SettingsError if they cannot be read, or are too many or too large to be looked at.
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
                if len(files) > MOST_FILES or size > _BYTES:
                    raise SettingsError(
                        f"{entry.place}: the program of the MCP server {entry.name!r} shares {file.parent} with too "
                        f"much to look at ({MOST_FILES:,} files, {_BYTES >> 20} MB); move it into a folder of its own."
                    )
                head = f"{file}\0{file.stat().st_mode & 0o111}\0{file.stat().st_size}\0"
                digest.update(head.encode("utf-8", "surrogateescape") + file.read_bytes())
    except OSError as error:
        raise SettingsError(f"{entry.place}: the program of the MCP server {entry.name!r}: {error}.") from error
    return digest.hexdigest()


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
    """The answer to a call. `failed`: the server reports a failure. `files` are pictures and the like."""

    text: str
    failed: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
