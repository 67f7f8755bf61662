"""Declare a setting: its default, its variables, its help, and who may set it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, Literal

Permission = Literal[
    "free", "limit", "less", "more", "fewer", "narrower", "shell", "denied", "allowed", "only true", "only false",
    "stronger", "inside", "model", "own model", "own memory",
    "own embedder", "unset", "with openai key", "with google key", "with github key", "trust", "never",
]  # fmt: skip


def setting(
    default: Any,
    *env: str,
    help: str = "",
    secret: bool = False,
    choices: Mapping[str, str] | None = None,
    parse: Callable[[str], object] | None = None,
    folder: Permission = "trust",
    scenario: Permission | None = None,
    keys: tuple[str, ...] = (),
) -> Any:
    """Declare a field of Settings: its default, its environment variables (the first wins) and its help line.

    `choices` maps each accepted word to its value. `parse` validates a text, may return the value to keep, and raises
    ValueError with the reason. `folder` is the permission of an untrusted folder to set it, `scenario` that of a
    scenario (None: the same). `keys` are the settings that are sent to this address.
    """
    metadata = {"help": help, "secret": secret, "choices": choices, "parse": parse, "folder": folder, "keys": keys}
    metadata["scenario"] = scenario or folder
    if secret and folder == "free":  # a key stands for an account, and what is sent with it may be seen there
        metadata["folder"] = "unset"
    return field(default=default, metadata={"env": env, **metadata})


free = partial(setting, folder="free")  # reaches out nowhere, weakens nothing and runs nothing, whoever sets it
limit = partial(setting, folder="limit")  # is switched off by 0: anybody may tighten it
of_run_limit = partial(setting, folder="limit", scenario="free")  # a scenario says what its own runs may take
