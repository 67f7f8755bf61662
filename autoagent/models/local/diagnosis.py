"""The findings of `autoagent doctor` on the embedded model: whether its runtime and its weights are here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from autoagent.core.services import Finding
from autoagent.models.local.weights import installed
from autoagent.registry.models import ModelSettings


def examine(settings: ModelSettings, weights: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Check whether it can be loaded. `weights` is the path of another file, '' for the embedded model's."""
    if importlib.util.find_spec("xllamacpp") is None:
        yield Finding("model", "fail", "the runtime xllamacpp is not installed", "pip install 'autoagent[local]'")
    elif weights and not Path(weights).expanduser().is_file():
        yield Finding("model", "fail", f"{weights} is not there", "give the path of a GGUF file, or `local` alone")
    elif not weights and not installed():
        found = "the embedded model is not here yet; the first run fetches it"
        yield Finding("model", "warn", found, "autoagent model fetch")
    else:
        yield Finding("model", "ok", f"{weights or 'the embedded model'} and its runtime are here")
