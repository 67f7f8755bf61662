"""Lists of MCP servers: JSON files with `mcpServers`, as in other programs.

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]},
                    "search": {"url": "https://mcp.example.org/mcp", "headers": {"Authorization": "Bearer ${KEY}"}}}}

`${NAME}` and `${NAME:-default}` are filled in from the environment, but only in the user's own list: a folder's list
could send a key anywhere. Unknown keys of other programs are ignored, including those that allow calls unasked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoagent.config.folder import UntrustedValue
from autoagent.config.text_file import is_there, read_text
from autoagent.core.errors import SettingsError
from autoagent.core.tool_servers import ServerEntry

SERVERS = 50  # of one list
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_SHAPE = 'write {"mcpServers": {"NAME": {"command": "PROGRAM", "args": []}}}, or "url" in place of "command"'


def read_servers(path: Path, folder: Path, env: Mapping[str, str] | None) -> list[ServerEntry]:
    """Read a list of servers, without those with `"disabled": true`; [] if the file is missing.

    Args:
        path: the list.
        folder: see ServerEntry.
        env: the variables to fill in; None if the list is not the user's own.

    Raises:
        SettingsError: the file cannot be read or is malformed; names the file and the server.
    """
    if not is_there(path):
        return []
    return [_entry(path, folder, name, found, env) for name, found in _listed(path)]


def untrusted_servers(path: Path, shown: str) -> Iterator[UntrustedValue]:
    """Yield the servers of a folder's list; nothing for an unreadable list, which is reported later."""
    try:
        for entry in read_servers(path, path.parent, None):
            yield untrusted_server(entry, shown)
    except SettingsError:
        return


def untrusted_server(entry: ServerEntry, shown: str) -> UntrustedValue:
    """Return the server as a value to ask the user about; `shown` is the displayed name of its list."""
    return UntrustedValue(
        file=shown, name=entry.name, value=entry.written, about=f"an MCP server: {entry.about}", additive=True
    )


def _listed(path: Path) -> list[tuple[str, dict[str, Any]]]:
    text = read_text(path)
    if not text:  # a killed agent can leave an empty one (sandbox/bubblewrap.py)
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: is not JSON ({error}); {_SHAPE}.") from None
    servers = found.get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict) or not all(isinstance(entry, dict) for entry in servers.values()):
        raise SettingsError(f"{path}: holds no list of MCP servers; {_SHAPE}.")
    if len(servers) > SERVERS:
        raise SettingsError(f"{path}: names {len(servers)} MCP servers; {SERVERS} are the most.")
    return [(name, entry) for name, entry in servers.items() if entry.get("disabled") is not True]


def _entry(path: Path, folder: Path, name: str, found: dict[str, Any], env: Mapping[str, str] | None) -> ServerEntry:
    where = f"{path}: the MCP server {name!r}"
    if len(name) > 32 or not re.fullmatch(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*", name):  # `a__b` could pass for `a`
        raise SettingsError(f"{where}: a name is made of up to 32 letters and digits, with single '_' or '-' between.")
    if found.get("type") == "sse":
        raise SettingsError(f"{where}: its transport 'sse' is out of use; give it the address of streamable HTTP.")
    texts = {key: found.get(key, "") for key in ("command", "cwd", "url")}
    args = found.get("args", [])
    maps = {key: found.get(key, {}) for key in ("env", "headers")}
    right = (
        all(isinstance(text, str) for text in texts.values())
        and isinstance(args, list)
        and all(isinstance(one, str) for one in args)
        and all(isinstance(one, dict) and all(isinstance(v, str) for v in one.values()) for one in maps.values())
    )
    if not right or bool(texts["command"]) == bool(texts["url"]):
        raise SettingsError(f"{where}: it is not written as one; {_SHAPE}.")
    if texts["url"] and not re.match(r"https?://[^/]", texts["url"]):
        raise SettingsError(f"{where}: its address must begin with https:// or http:// and a host.")
    written = {key: value for key, value in {**texts, "args": args, **maps}.items() if value}

    def filled(text: str) -> str:
        def value(variable: re.Match[str]) -> str:
            if env is None:
                raise SettingsError(
                    f"{where}: {variable[0]} is filled in only where the list is yours; put the server into "
                    "~/.config/autoagent/mcp.json, or name the file with AUTOAGENT_MCP_SERVERS."
                )
            given = env.get(variable[1]) or variable[2]
            if given is None:
                raise SettingsError(f"{where}: {variable[0]} is not set in the environment.")
            return given

        return _VARIABLE.sub(value, text)

    return ServerEntry(
        name=name,
        place=path,
        folder=folder,
        command=filled(texts["command"]),
        args=tuple(map(filled, args)),
        env={key: filled(value) for key, value in maps["env"].items()},
        cwd=filled(texts["cwd"]),
        url=filled(texts["url"]),
        headers={key: filled(value) for key, value in maps["headers"].items()},
        written=json.dumps(written, ensure_ascii=False, sort_keys=True),
    )
