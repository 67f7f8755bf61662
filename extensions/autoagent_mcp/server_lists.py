"""Read lists of MCP servers: JSON files with `mcpServers`, as in other programs.

{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]}, "search":
{"url": "https://mcp.example.org/mcp", "headers": {"Authorization": "Bearer ${KEY}"}}}}

`${NAME}` and `${NAME:-default}` are expanded from the environment, but only in the user's own list: a folder's list
could send a key anywhere. Unknown keys of other programs are ignored, including those that allow calls unasked.

A program in the folder itself runs outside the sandbox, so the user trusts its content: its folder, with all that it
may load from there.

Not covered: what a launcher finds by itself (`npx` and `uv` look into the working directory), and what a program loads
from elsewhere in the folder. `cwd` can lead elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import SettingsError
from autoagent.text import code_block
from autoagent.text.text_file import check_not_writable_by_others, is_there, read_text
from autoagent_mcp.folder import listed_file, users_file
from autoagent_mcp.tool_servers import MAX_FILES, ServerEntry, digest_of

if TYPE_CHECKING:
    from autoagent.extension import Place, UntrustedValue

SERVERS = 50  # per list
_WORD = re.compile(r"[\s'\"=;|&()<>`$]+")  # separators of shell words and option values
# entry points of a folder that can be started
_PROGRAMS = ("__main__.py", "package.json", "index.js", "index.mjs", "index.cjs")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_SHAPE = 'write {"mcpServers": {"NAME": {"command": "PROGRAM", "args": []}}}, or "url" in place of "command"'


def read_servers(
    path: Path,
    folder: Path,
    env: Mapping[str, str] | None,
    within: Sequence[Path] = (),
    tell: Callable[[str], None] | None = None,
) -> list[ServerEntry]:
    """Read a list of servers, without those with `"disabled": true`, or [] if the file is missing.

    Args:
        path: the list.
        folder: see ServerEntry.
        env: the variables to expand, or None if the list is not the user's own.
        within: folders whose programs are digested, as somebody else may have written them.
        tell: hears why an entry is left out, instead of an error for all.

    Raises:
        SettingsError: the file cannot be read or is malformed, or a program is too large; names file and server.
    """
    if not is_there(path):
        return []
    entries = []
    for name, found in _listed(path):
        try:
            entries.append(_with_code(_entry(path, folder, name, found, env), within))
        except SettingsError as error:
            if tell is None:
                raise
            tell(f"{error} It is left out.")
    return entries


def listed_servers(
    place: Place, *, named: bool, tell: Callable[[str], None] | None = None
) -> Iterator[tuple[ServerEntry, bool]]:
    """Yield the servers of the user's own list, then of the list in the settings, and whether each needs trust first.

    Trust is needed for the folder's list, unless the user has named it, and for a program in the workspace, which
    agents write to. `tell` hears of entries that are left out, and of a folder's list that cannot be read. Raises
    SettingsError for a list of the user's that cannot be read, and without `tell` for any.
    """
    folder, own, listed = place.folder, users_file(place), listed_file(place)
    workspace = folder / place.setting("workspace")
    check_not_writable_by_others(own)
    for path in [own, listed] if named else [own]:
        for entry in read_servers(path, path.parent, os.environ, [workspace], tell):
            yield entry, bool(entry.places)
    if not named:
        try:
            entries = read_servers(listed, folder, None, [folder, workspace], tell)
        except SettingsError as error:
            if tell is None:
                raise
            tell(f"{error} It is left out.")
            entries = []
        yield from ((entry, True) for entry in entries)


def untrusted_servers(place: Place) -> Iterator[UntrustedValue]:
    """Yield the servers to ask the user about, or nothing more from an unreadable list, which is reported later."""
    with suppress(SettingsError):
        for entry, is_asked in listed_servers(place, named=place.is_named("mcp_servers_file"), tell=lambda line: None):
            if is_asked:
                yield untrusted_server(entry)


def untrusted_server(entry: ServerEntry) -> UntrustedValue:
    """Return the server as a value that needs trust, with its program's present content."""
    from autoagent.extension import UntrustedValue  # it loads much, and most folders list no server

    names = ", ".join(str(place) for place in entry.places)
    return UntrustedValue(
        file=entry.place.name,
        name=entry.name,
        value=f"{entry.written} with {names} as of now (SHA-256 {entry.code})" if names else entry.written,
        about=f"an MCP server: {entry.about}",
        additive=True,
    )


def programs_in(place: Place) -> list[str]:
    """Return patterns for where in the workspace the programs of listed servers lie: they run as the user."""
    root = os.path.realpath(place.folder / place.setting("workspace"))
    found = set()
    for named in (True, False):
        with suppress(SettingsError):
            for entry, _ in listed_servers(place, named=named, tell=lambda line: None):
                found |= {os.path.relpath(program, root) for program in entry.places if Path(root) in program.parents}
    return sorted(re.sub("[*!]", "?", program) for program in found)


def _with_code(entry: ServerEntry, within: Sequence[Path]) -> ServerEntry:
    entry = replace(entry, places=tuple(_places(entry, [Path(os.path.realpath(root)) for root in within])))
    return replace(entry, code=digest_of(entry))


def _places(entry: ServerEntry, within: Sequence[Path]) -> list[Path]:
    """Return the files of an entry's program in the watched folders, with link targets.

    Each is named by its folder, unless that is a watched folder itself. Of several files, code counts, and the first:
    others may be data. A folder counts if it is a program, or if a variable names it for modules.
    """
    base = Path(entry.folder, entry.cwd)
    modules = [
        following.replace(".", "/") for flag, following in zip(entry.args, entry.args[1:], strict=False) if flag == "-m"
    ]
    words = [word for text in (entry.command, *entry.args) for word in (text, *_WORD.split(text))]
    search_path = [part for value in entry.env.values() for part in value.split(os.pathsep) if part]
    places: dict[Path, None] = {}
    for text in dict.fromkeys([*words, *modules, *(f"{module}.py" for module in modules), *search_path]):
        with suppress(OSError, ValueError):  # it is too long for a path, or has a character that none may have
            path = Path(os.path.realpath(base / text))
            if not text or not any(root in path.parents for root in within):
                continue
            if path.is_dir() and (
                text in modules or text in search_path or any((path / name).exists() for name in _PROGRAMS)
            ):
                places[path] = None
            elif path.is_file() and (not places or code_block.is_code(path.name) or os.access(path, os.X_OK)):
                places[path if path.parent in within else path.parent] = None
    all_paths = list(places)
    for place in all_paths:  # grows while it is iterated: link targets are included
        links = [entry for entry in islice(place.rglob("*"), MAX_FILES) if entry.is_symlink()]
        for path in [Path(os.path.realpath(link)) for link in links]:
            inside = any(root in path.parents for root in within)
            if inside and path.exists() and not any(path.is_relative_to(other_path) for other_path in all_paths):
                all_paths.append(path if path.is_dir() or path.parent in within else path.parent)
    return all_paths


def _listed(path: Path) -> list[tuple[str, dict[str, Any]]]:
    text = read_text(path)
    if not text:  # an empty file lists none
        return []
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: is not JSON ({error}); {_SHAPE}.") from None
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict) or not all(isinstance(entry, dict) for entry in servers.values()):
        raise SettingsError(f"{path}: has no list of MCP servers; {_SHAPE}.")
    if len(servers) > SERVERS:
        raise SettingsError(f"{path}: names {len(servers)} MCP servers; at most {SERVERS} are allowed.")
    return [(name, entry) for name, entry in servers.items() if entry.get("disabled") is not True]


def _entry(path: Path, folder: Path, name: str, found: dict[str, Any], env: Mapping[str, str] | None) -> ServerEntry:
    label = f"{path}: the MCP server {name!r}"
    if len(name) > 32 or not re.fullmatch(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*", name):  # `a__b` could be mistaken for `a`
        raise SettingsError(f"{label}: a name has up to 32 letters and digits, with single '_' or '-' between.")
    if found.get("type") == "sse":
        raise SettingsError(f"{label}: the transport 'sse' is obsolete; give the address for streamable HTTP.")
    texts = {key: found.get(key, "") for key in ("command", "cwd", "url")}
    args = found.get("args", [])
    maps = {key: found.get(key, {}) for key in ("env", "headers")}
    is_valid = (
        all(isinstance(text, str) for text in texts.values())
        and isinstance(args, list)
        and all(isinstance(argument, str) for argument in args)
        and all(
            isinstance(argument, dict) and all(isinstance(v, str) for v in argument.values())
            for argument in maps.values()
        )
    )
    if not is_valid or bool(texts["command"]) == bool(texts["url"]):
        raise SettingsError(f"{label}: it is malformed; {_SHAPE}.")
    if texts["url"] and not re.match(r"https?://[^/]", texts["url"]):
        raise SettingsError(f"{label}: its address must begin with https:// or http:// and a host.")
    written = {key: value for key, value in {**texts, "args": args, **maps}.items() if value}

    def filled(text: str) -> str:
        def value(variable: re.Match[str]) -> str:
            if env is None:
                raise SettingsError(
                    f"{label}: {variable[0]} is filled in only in your own list; put the server into "
                    "~/.config/autoagent/mcp.json, or name the file with AUTOAGENT_MCP_SERVERS."
                )
            value_text = env.get(variable[1]) or variable[2]
            if value_text is None:
                raise SettingsError(f"{label}: {variable[0]} is not set in the environment.")
            return value_text

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
        headers={key: _header(f"{label}: the header {key!r}", filled(value)) for key, value in maps["headers"].items()},
        written=json.dumps(written, ensure_ascii=False, sort_keys=True),
    )


def _header(label: str, value: str) -> str:
    """Return the value of a header as it is sent. Raises SettingsError, without the value, which may be a key."""
    value = value.strip()  # a line end of the file that the key came from
    if not re.fullmatch(r"[ -~]*", value):
        raise SettingsError(f"{label} has a character that no header may have.")
    return value
