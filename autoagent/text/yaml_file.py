"""Read settings files in YAML: errors name the line, and no file can exhaust memory.

Values stay text until the type of their setting is known, so `yes`, `1.0` and `2024-01-01` are kept as written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autoagent.core.commands import nearest
from autoagent.core.errors import SettingsError
from autoagent.core.frozen import dataclass
from autoagent.text.text_file import read_text

if TYPE_CHECKING:
    import yaml

NO_KEYS: Mapping[str, str] = MappingProxyType({})
MAX_VALUES = 10_000  # keys, values and collections; a file of 256 KiB can hold far more, too slow to read
MAX_DEPTH = 8  # nested collections; composing recurses, so a deeper file is refused first


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """A value of a settings file, with its place."""

    path: Path
    key: str  # '' for the top level
    node: Any  # a yaml.Node, incompletely typed

    @property
    def place(self) -> str:
        """Return `file:line`."""
        return f"{self.path}:{self.node.start_mark.line + 1}"

    @property
    def where(self) -> str:
        """Return `file:line: key`, or `file:line` for the top level."""
        return f"{self.place}: {self.key}" if self.key else self.place

    @property
    def is_list(self) -> bool:
        return bool(self.node.id == "sequence")

    def text(self) -> str:
        """Return the scalar as written, or '' for null. A mapping of one pair, such as `Goal 1: make x`, is text too.

        Raises SettingsError for lists and larger mappings.
        """
        value = self.node.value
        if self.node.id == "scalar":
            return "" if self.node.tag.endswith(":null") else str(value).strip()
        if self.node.id == "mapping" and len(value) == 1:
            key, below = value[0]
            if key.id == "scalar" and below.id == "scalar":
                return f"{key.value}: {below.value}".strip()
        raise SettingsError(f"{self.where}: must be text, not a {'list' if self.is_list else 'mapping'}.")

    def texts(self) -> list[str]:
        """Return a list of texts, or of a single text. Raises SettingsError for anything else and for empty items."""
        if self.node.id == "scalar":
            return [self.text()] if self.text() else []
        texts = [(item, item.text()) for item in self.items()]
        for item, text in texts:
            if not text:
                raise SettingsError(f"{item.where}: holds an empty item; write it out or remove it.")
        return [text for _, text in texts]

    def items(self) -> list[YamlEntry]:
        """Return the items of a list. Raises SettingsError for anything else."""
        if not self.is_list:
            raise SettingsError(f"{self.where}: must be a list, one item per line, each after `- `.")
        return [YamlEntry(self.path, self.key, node) for node in self.node.value]

    def members(
        self, known: Collection[str] | None = None, noun: str = "key", removed: Mapping[str, str] = NO_KEYS
    ) -> dict[str, YamlEntry]:
        """Return the values of a mapping by key.

        Raises SettingsError for anything else, and for a key that is repeated or not `known` (None: any). Errors name a
        key by `noun`, and say what to use instead of a `removed` one.
        """
        if self.node.id != "mapping":
            raise SettingsError(f"{self.where}: must hold `key: value` lines.")
        entries: dict[str, YamlEntry] = {}
        for key_node, node in self.node.value:
            key = str(key_node.value) if key_node.id == "scalar" else "?"
            where = YamlEntry(self.path, key, key_node).where
            if key in entries:
                raise SettingsError(f"{where}: is given twice; keep one of them.")
            if key in removed:
                raise SettingsError(f"{where}: is no longer a {noun}: {removed[key]}.")
            if known is not None and key not in known:
                near = nearest(key, known)
                meant = f" Did you mean {near}?" if near else f" Known: {', '.join(sorted(known))}."
                raise SettingsError(f"{where}: no such {noun}.{meant}")
            entries[key] = YamlEntry(self.path, key, node)
        return entries

    def value(self) -> Any:
        """Return the value as JSON has it. Quoted text, blocks and values unknown to JSON are strings."""
        if self.is_list:
            return [item.value() for item in self.items()]
        if self.node.id == "mapping":
            return {key: member.value() for key, member in self.members().items()}
        if self.node.style is not None:  # quoted, or a block
            return self.node.value
        if self.node.tag.endswith(":null"):
            return None
        from autoagent.core.codec import refuse_constant

        try:
            return json.loads(self.node.value, parse_constant=refuse_constant)
        except ValueError:
            return self.node.value


def read_mapping(
    path: Path, known: Collection[str] | None, noun: str = "setting", removed: Mapping[str, str] = NO_KEYS
) -> dict[str, YamlEntry]:
    """Read the top level of the file by key, or {} for an empty file. Errors name a key by `noun` (see `members`).

    Raises SettingsError as `read_text` and `members`, and for a YAML error, an alias, or deep nesting.
    """
    return mapping_of(read_text(path), path, known, noun, removed)


def mapping_of(
    text: str, path: Path, known: Collection[str] | None, noun: str = "setting", removed: Mapping[str, str] = NO_KEYS
) -> dict[str, YamlEntry]:
    """Read the top level of the file's text, as `read_mapping` does. `known` None accepts any key."""
    import yaml

    try:
        _check_limits(path, yaml.parse(text, Loader=yaml.SafeLoader))
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise SettingsError(_error_message(path, text, error)) from None
    return {} if root is None else YamlEntry(path, "", root).members(known, noun, removed)


def _check_limits(path: Path, events: Iterator[yaml.Event]) -> None:
    """Refuse aliases (they can make a short file gigantic), nesting that can exhaust the stack, and too many values."""
    import yaml

    values = depth = 0
    for event in events:
        line = event.start_mark.line + 1 if event.start_mark else 0
        values += isinstance(event, yaml.NodeEvent)
        if values > MAX_VALUES:
            raise SettingsError(f"{path}:{line}: has too many values; a settings file has at most {MAX_VALUES:,}.")
        if isinstance(event, yaml.AliasEvent):
            raise SettingsError(f"{path}:{line}: aliases (*{event.anchor}) are not allowed; write the value out.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise SettingsError(f"{path}:{line}: is nested more than {MAX_DEPTH} levels deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _error_message(path: Path, text: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:  # the reader's error for a control character has a position instead of a mark
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        return f"{path}:{line}: holds a character that YAML does not allow."
    lines = text.split("\n")
    written = lines[mark.line] if mark.line < len(lines) else ""
    key = written.partition(":")[0].strip()
    where = f"{path}:{mark.line + 1}:" + (f" {key}:" if key.isidentifier() else "")
    if written[mark.column : mark.column + 1] == "\t" or "\t" in written[: len(written) - len(written.lstrip())]:
        return f"{where} holds a tab; YAML takes spaces only."
    hint = " Put the text in quotes." if "mapping values" in str(getattr(error, "problem", "")) else ""
    return f"{where} is not YAML: {getattr(error, 'problem', error)}.{hint}"
