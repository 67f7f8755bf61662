"""Take part in a folder: have the user asked about each enabled plug-in, and hide plug-ins from commands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoagent.extension import Place, UntrustedValue


def asks(place: Place) -> Iterator[UntrustedValue]:
    """Yield the enabled plug-ins, each with a digest of its files."""
    if _are_configured(place):
        from autoagent_autogpt_plugins.discovery import untrusted_plugins

        yield from untrusted_plugins(place)


def hides(place: Place) -> Iterator[Path]:
    """Yield the configuration and the folder of the plug-ins, if any is enabled."""
    if _are_configured(place):
        yield place.folder / place.setting("plugins_config_file")
        yield place.folder / place.setting("plugins_dir")


def guards(place: Place) -> Iterable[str]:
    """Return nothing: they are hidden."""
    return ()


def _are_configured(place: Place) -> bool:
    file = place.folder / place.setting("plugins_config_file")
    return bool(place.setting("allowlisted_plugins")) or os.path.lexists(file)
