"""Projects of the user's: folders in which a wish works in the folder itself."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MARKS = (".git", "pyproject.toml", "package.json")


def is_project(folder: Path) -> bool:
    """Return whether the user keeps work in this folder: it has the mark of a project, or any file that is not hidden.

    The root, the home folder and those above it never are. A folder that everybody may write to, or that lies directly
    under the root, needs a mark: /tmp and /etc are nobody's project. Few entries are read, however many there are.
    """
    try:
        place, home = folder.resolve(strict=True), Path.home().resolve()
        if place == home or place in home.parents or not os.access(place, os.W_OK):
            return False
        if any(os.path.lexists(place / mark) for mark in _MARKS):
            return True
        if place.stat().st_mode & stat.S_IWOTH or len(place.parts) <= 2:
            return False
        with os.scandir(place) as entries:
            return any(not entry.name.startswith(".") for entry in entries)
    except (OSError, RuntimeError):  # it is gone or unreadable, or nobody knows where home is
        return False
