"""Cache each model's probed capabilities in a file.

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
    """Hold a model's capabilities: way of asking (None: not probed), rejected parameters (`without`), and window.

    `thinks`: it was seen thinking before an answer, and needs room for that.
    """

    asking: Asking | None = None
    without: tuple[str, ...] = ()
    window: int | None = None
    thinks: bool = False


class CapabilityCache:
    """Store the capabilities of all models in a JSON file (mode 0600), or in memory without a path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._by_model: dict[str, Capability] = {}

    def get(self, endpoint: str, model: str) -> Capability:
        """Return the capabilities of this model at this base URL, or an empty record."""
        key = f"{endpoint} {model}"
        if key not in self._by_model:
            try:
                capability = from_plain(Capability, self._read().get(key))
            except ValueError:
                capability = Capability()
            is_usable = capability.window is None or capability.window > 0  # a damaged file may say otherwise
            self._by_model[key] = capability if is_usable else Capability()
        return self._by_model[key]

    def put(self, endpoint: str, model: str, capability: Capability) -> None:
        """Store a record. Of two processes that store one at once, one may be lost, which costs a probe."""
        key = f"{endpoint} {model}"
        self._by_model[key] = capability
        if self._path is None:
            return
        records = {**self._read(), key: asdict(capability)}
        with contextlib.suppress(OSError):  # an unwritable cache only costs another probe
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self._path) as file:
                file.write(json.dumps(records, indent=1, sort_keys=True).encode())

    def _read(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            records = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return records if isinstance(records, dict) else {}
