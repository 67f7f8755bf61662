"""Cache each model's probed capabilities in a JSON file (mode 0600).

Losing the file costs another probe and nothing else.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoagent.core.codec import from_plain
from autoagent.core.durable_files import replacing
from autoagent.core.frozen import dataclass
from autoagent.core.model import Asking


@dataclass(frozen=True, slots=True)
class Capability:
    """A model's capabilities: way of asking (None: not probed), rejected parameters (`without`), and window.

    `thinks` says that the model was seen thinking before an answer, and needs room for that.
    """

    asking: Asking | None = None
    without: tuple[str, ...] = ()
    window: int | None = None
    thinks: bool = False


def load(cache: Path | None, endpoint: str, model: str) -> Capability:
    """Return the capabilities of this model at this base URL, or an empty record."""
    try:
        capability = from_plain(Capability, _read(cache).get(f"{endpoint} {model}"))
    except ValueError:
        return Capability()
    is_usable = capability.window is None or capability.window > 0  # a damaged file may say otherwise
    return capability if is_usable else Capability()


def save(cache: Path | None, endpoint: str, model: str, capability: Capability) -> None:
    """Store a record, if there is a cache. If two processes store records at once, the first may be lost."""
    if cache is None:
        return
    records = {**_read(cache), f"{endpoint} {model}": asdict(capability)}
    with contextlib.suppress(OSError):  # an unwritable cache only costs another probe
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(cache) as file:
            file.write(json.dumps(records, indent=1, sort_keys=True).encode())


def _read(cache: Path | None) -> dict[str, Any]:
    try:
        records = json.loads(cache.read_text("utf-8")) if cache else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return records if isinstance(records, dict) else {}
