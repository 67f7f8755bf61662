"""The place of the user's saved rules, for the folder the program runs in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from autoagent.safety.rules import SavedRules
from autoagent.settings import Settings, user_config_path


def rules_path() -> Path:
    """Return the file with the saved rules for every folder, among the user's own settings."""
    return user_config_path(os.environ).with_name("rules.json")


def saved_rules() -> SavedRules:
    """Return the rules for the current folder."""
    return SavedRules(rules_path(), Path.cwd())


def tell_old_rules(settings: Settings, say: Callable[[str], None]) -> None:
    """Say so where there are rules of an earlier version, which nobody follows any more."""
    old = settings.state_dir / "rules.json"
    if os.path.lexists(old):
        say(f"{old} is not followed: rules are kept in {rules_path()}. Save those you want with `autoagent rules add`.")
