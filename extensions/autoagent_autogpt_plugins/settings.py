"""The settings of AutoGPT's plug-ins."""

from __future__ import annotations

from pathlib import Path

from autoagent.core.declaration import free, setting
from autoagent.core.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """AutoGPT plug-ins."""

    plugins_config_file: Path = setting(
        Path("plugins_config.yaml"), "PLUGINS_CONFIG_FILE", help="which plug-ins are enabled", folder="inside"
    )
    plugins_dir: Path = setting(Path("plugins"), "PLUGINS_DIR", help="the folder of plug-ins", folder="inside")
    allowlisted_plugins: tuple[str, ...] = free((), "ALLOWLISTED_PLUGINS", help="more enabled plug-ins")
    denylisted_plugins: tuple[str, ...] = setting(
        (), "DENYLISTED_PLUGINS", help="disabled plug-ins; overrides all else", folder="more"
    )
    chat_messages: bool = setting(
        False, "CHAT_MESSAGES_ENABLED", help="whether plug-ins may answer for the user and get reports"
    )
