"""The MCP servers of a folder: the user is asked about each, and no command reaches the lists or changes a program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoagent.extension import Extra, Place, RunOpening, RunPart, UntrustedValue


def listed_file(place: Place) -> Path:
    """Return the list of servers in the settings, which is the folder's unless the user has named it himself."""
    return Path(place.folder / place.setting("mcp_servers_file"))


def users_file(place: Place) -> Path:
    """Return the user's own list of servers, among his settings."""
    return place.user_config / "mcp.json"


def is_listed(place: Place) -> bool:
    """Return whether there may be servers. Few folders have any, and the rest is not loaded for the others."""
    return any(map(os.path.lexists, (users_file(place), listed_file(place))))


def asks(place: Place) -> Iterator[UntrustedValue]:
    """Yield the servers of the folder's list, and the programs in the workspace, each with a digest of its files."""
    if is_listed(place):
        from autoagent_mcp.server_lists import untrusted_servers

        yield from untrusted_servers(place)


def hides(place: Place) -> Iterator[Path]:
    """Yield both lists, as they can name programs that run outside the sandbox."""
    yield users_file(place)
    yield listed_file(place)


def guards(place: Place) -> Iterator[str]:
    """Yield where in the workspace the programs of servers lie."""
    if is_listed(place):
        from autoagent_mcp.server_lists import programs_in

        yield from programs_in(place)


def needs(place: Place) -> Iterator[Extra]:
    """Yield the extra that brings the `mcp` package, where servers are listed."""
    if is_listed(place):
        from autoagent_mcp.running import EXTRA

        yield EXTRA


@contextmanager
def opened(run: RunOpening) -> Iterator[RunPart | None]:
    """Take part in a run where servers are listed. Close those that it connects to."""
    if not is_listed(run.place) and not run.place.is_named("mcp_servers_file"):
        yield None
        return
    from autoagent_mcp.running import Servers

    with ExitStack() as stack:
        yield Servers(run.place, stack)
