"""The embedded model, fetched when it is first wanted."""

from __future__ import annotations

from pathlib import Path

from autoagent.models.local import weights
from autoagent.terminal.output import ProgressBar, echo


def fetch_once() -> Path:
    """Return the file of the embedded model, fetched with a progress bar if it is missing. Raises SetupError."""
    if weights.installed():
        return weights.path()
    from autoagent.models.local import download

    echo(f"Fetching {weights.EMBEDDED.name} ({weights.EMBEDDED.size / 1e9:.1f} GB), once.", err=True)
    bar = ProgressBar()
    try:
        return download.fetch(bar.show, notice=bar.note)
    finally:
        bar.close()
