"""The settings that the folder a program is started in may set by itself: somebody else may have written them.

Each setting declares beside its default which of these permissions a folder has. What reaches out, weakens a boundary
or runs a program counts only once the user has trusted the folder with it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autoagent.registry.embedders import EMBEDDERS
from autoagent.registry.memory import BACKENDS
from autoagent.registry.models import PROVIDERS, parse_model
from autoagent.registry.sandbox import is_stronger

if TYPE_CHECKING:
    from autoagent.config.settings import Settings

Permission = Literal[
    "free", "limit", "less", "more", "fewer", "narrower", "shell", "denied", "allowed", "only true", "only false",
    "stronger", "inside", "model", "own model", "own memory",
    "own embedder", "paired", "trust", "never",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrustedValue:
    """Something that a folder would set, ignored until the user has trusted it.

    `file` and `line` (0: none) say where it stands, `name` what it is called there, `about` what it is for. `setting`
    is the setting that it would set, '' if it sets none. `never`: not even a trusted folder may set it. `additive`: a
    run can go without it, where nobody can be asked.
    """

    file: str
    line: int = 0
    name: str
    value: str
    about: str
    setting: str = ""
    secret: bool = False
    never: bool = False
    additive: bool = False

    @property
    def called(self) -> str:
        """`.env:2 OPENAI_BASE_URL`."""
        return f"{self.file}:{self.line} {self.name}" if self.line else f"{self.file} {self.name}".strip()

    @property
    def mark(self) -> str:
        """The digest of what is trusted: the file, the name and the value, wherever they stand in the file."""
        return hashlib.sha256(json.dumps([self.file, self.name, self.value]).encode()).hexdigest()


LIMITED: Mapping[str, str] = {
    **dict.fromkeys(("limit", "less", "more", "fewer", "narrower", "shell", "denied", "allowed"), "only tighter"),
    **dict.fromkeys(("only true", "only false"), "only tighter"),
    "inside": "within the folder",
    "model": "no file, no run, no plug-in",
    **dict.fromkeys(("own model", "own memory", "own embedder"), "no plug-in"),
    "paired": "with its key",
    "trust": "once trusted",
    "never": "never",
}
"""What a `.env` may do with a setting of each permission but "free", in words."""


def may_set(permission: Permission, value: Any, now: Any, held: Settings, folder: Path) -> bool:
    """Return whether an untrusted folder may set a value where `now` holds without it, among the settings `held`."""
    return permission in _ALLOWED and _ALLOWED[permission](value, now, held, folder)


COMPARED: frozenset[Permission] = frozenset(
    {"limit", "less", "more", "fewer", "narrower", "shell", "denied", "allowed", "only true", "only false", "stronger"}
)
"""The permissions that let a value be tighter than another."""


def is_inside(folder: Path, path: Path) -> bool:
    """Return whether a path, seen from the folder and with its links resolved, lies in it; none with NUL does."""
    if "\0" in str(path):
        return False
    real = (Path(os.path.realpath(one)) for one in (folder / path, folder))  # resolve() raises for links in a circle
    return next(real).is_relative_to(next(real))


def _is_tighter(value: float, now: float) -> bool:
    """Return whether a limit, which 0 switches off, is at least as tight."""
    return value > 0 and (now == 0 or value <= now)


def _has_no_lists(held: Settings) -> bool:
    return not (held.shell_command_control or held.shell_allowlist or held.shell_denylist)


# Whether the value is allowed, given the one in effect without it. A permission that is not here allows nothing.
_ALLOWED: Mapping[str, Callable[[Any, Any, Settings, Path], bool]] = {
    "free": lambda value, now, held, folder: True,
    "limit": lambda value, now, held, folder: _is_tighter(value, now),
    "less": lambda value, now, held, folder: bool(value <= now),
    "more": lambda value, now, held, folder: set(value) >= set(now),
    "fewer": lambda value, now, held, folder: set(value) <= set(now),
    "narrower": lambda value, now, held, folder: not now or set(value) <= set(now),
    "shell": lambda value, now, held, folder: _has_no_lists(held),
    "denied": lambda value, now, held, folder: _has_no_lists(held) or (bool(now) and set(value) >= set(now)),
    "allowed": lambda value, now, held, folder: _has_no_lists(held) or (bool(now) and set(value) <= set(now)),
    "stronger": lambda value, now, held, folder: is_stronger(value, now),
    "only true": lambda value, now, held, folder: value is True,
    "only false": lambda value, now, held, folder: value is False,
    "inside": lambda value, now, held, folder: is_inside(folder, value),
    "model": lambda value, now, held, folder: parse_model(value).is_harmless,
    "own model": lambda value, now, held, folder: not PROVIDERS.is_added(parse_model(value).name),
    "own memory": lambda value, now, held, folder: not BACKENDS.is_added(value),
    "own embedder": lambda value, now, held, folder: not EMBEDDERS.is_added(value.partition(":")[0]),
    "paired": lambda value, now, held, folder: False,  # decided where the key is known
}
