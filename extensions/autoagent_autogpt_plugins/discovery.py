"""Find plug-ins in PLUGINS_DIR and among the installed packages, without importing them.

What a plug-in is called is read from its source: the folder, zip or package, and its classes.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import lzma
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from io import BytesIO
from pathlib import Path, PurePosixPath

from autoagent.extension import Place, SettingsError, UntrustedValue
from autoagent.text.text_file import open_regular
from autoagent_autogpt_plugins.config import PluginEntry, configured

TEMPLATE = "auto_gpt_plugin_template"
BASE = "AutoGPTPluginTemplate"

_MAX_SOURCE_BYTES = 2_000_000  # of a file that is read
_MAX_PLUGIN_BYTES = 100_000_000  # of a plug-in
_MAX_TOTAL_BYTES = 300_000_000  # of all plug-ins in the folder, which take a few seconds to read
_FILES = 5_000
_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError)
_MAX_DEPTH = 5  # folders down to a package: REPOSITORY-main/src/autogpt_plugins/NAME
_TOOLS = frozenset({  # what builds, checks and tests a plug-in; it runs without them, unless its source imports one
    "black", "build", "coverage", "flake8", "isort", "mypy", "pre-commit", "pylint", "pytest", "pytest-asyncio",
    "pytest-cov", "pytest-mock", "requests-mock", "setuptools", "sourcery", "tox", "twine", "wheel",
})  # fmt: skip
_READS = re.compile(rb"""(?:getenv\(|environ(?:\.get\(|\[))\s{0,99}["']([A-Z][A-Z0-9_]*)["']""")
_IMPORTS = re.compile(rb"^[ \t]*(?:from|import)[ \t]+(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """A plug-in, and what imports it: `module`, with `root` on the path ('' for what is installed).

    `alone`: nothing else in `root` belongs to it, or may be imported by it. `classes` are those in it. `requirements`
    what it says it needs, `reads` the variables of the environment that its source names. `digest` changes with any of
    its files. `problem`: why it cannot be used, '' if it can.
    """

    name: str
    kind: str
    module: str
    root: str = ""
    alone: bool = False
    classes: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    digest: str = ""
    problem: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names that plugins_config.yaml may use for it."""
        return (self.name, *self.classes, self.module, self.name.removesuffix(".zip"))

    def entry(self, entries: Mapping[str, PluginEntry]) -> PluginEntry:
        """Return its entry in the configuration, under any of its names. One that disables it counts before others."""
        found = [entries[name] for name in self.names if name in entries]
        return next((entry for entry in found if not entry.enabled), found[0] if found else PluginEntry(self.name))


def untrusted_plugins(place: Place) -> Iterator[UntrustedValue]:
    """Yield the enabled plug-ins, each of which is a program, or nothing for a file that is reported later."""
    try:
        entries = configured(place)
    except SettingsError:
        return
    if any(entry.enabled for entry in entries.values()):
        for plugin in find_plugins(place.folder / place.setting("plugins_dir"), place.folder):
            if (entry := plugin.entry(entries)).enabled and not plugin.problem:
                yield untrusted_plugin(plugin, entry, str(place.setting("plugins_config_file")))


def untrusted_plugin(plugin: FoundPlugin, entry: PluginEntry, shown: str) -> UntrustedValue:
    """Return the plug-in as what the user is asked about: all of its files, and what it is given, without secrets."""
    given = ", ".join(f"{name}=[masked]" if value else name for name, value in entry.env.items())
    secret = json.dumps(sorted((name, value or "") for name, value in entry.env.items()))
    digest = hashlib.sha256(f"{plugin.digest}{secret}".encode()).hexdigest() if given else plugin.digest
    config = json.dumps(entry.config, sort_keys=True, default=str) if entry.config else ""
    return UntrustedValue(
        file=shown,
        name=plugin.name,
        value=f"{plugin.kind} {digest}"
        + (f", given {given}" if given else "")
        + (f", config {config}" if config else "")
        + (f", requirements {', '.join(entry.requirements)}" if entry.requirements else ""),
        about="a plug-in: a program that may use the network and your files",
        additive=True,
    )


def find_plugins(place: Path, folder: Path) -> list[FoundPlugin]:
    """Return the plug-ins in a place, then the installed ones outside of the folder, by name."""
    found = list(_in_folder(place))
    known = {name for one in found for name in (one.name, one.module)}
    return found + [one for one in _installed(folder) if one.module not in known]


def missing_requirements(wanted: Sequence[str], places: Sequence[str]) -> list[str]:
    """Return the requirements that no package meets which is installed in these places, the first of which count."""
    there: dict[str, str] = {}
    for one in distributions(path=list(places)):
        there.setdefault(_normal(one.metadata["Name"] or ""), one.version)
    return [line for line in wanted if not _met(line, there)]


def _met(line: str, there: Mapping[str, str]) -> bool:
    """Return whether a requirement is met, or does not apply to this Python."""
    from packaging.requirements import Requirement

    address, _, fragment = line.partition("#")
    if re.match(
        r"\s*(?:\w+\+)?\w+://", address
    ):  # of an address, only the name can be looked up: `#egg=NAME`, or the file's
        named = re.search(r"egg=([\w.-]+)", fragment)
        line = named[1] if named else address.rstrip("/").rpartition("/")[2].partition("@")[0].removesuffix(".git")
    try:
        wanted = Requirement(line)
        if wanted.marker and not wanted.marker.evaluate():
            return True
    except ValueError:  # also for a marker that compares what cannot be compared
        return _normal(_package(line)) in there
    version = there.get(_normal(wanted.name))
    return version is not None and wanted.specifier.contains(version, prereleases=True)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _package(requirement: str) -> str:
    named = re.match(r"[A-Za-z0-9._-]+", requirement)
    return named[0] if named else requirement


# In the folder ---------------------------------------------------------------------------------------------------


def _in_folder(place: Path) -> Iterator[FoundPlugin]:
    left = _MAX_TOTAL_BYTES
    with suppress(OSError):
        for path in sorted(place.iterdir()):
            if path.name.startswith((".", "_")):
                continue
            if path.is_symlink():
                yield FoundPlugin(path.name, "link", "", problem="it is a symbolic link, which is not followed")
            elif (is_folder := path.is_dir()) or path.suffix == ".zip":
                kind = "folder" if is_folder else "zip"
                try:
                    files, raw = (_folder if is_folder else _zip)(path, min(left, _MAX_PLUGIN_BYTES))
                except (*_UNREADABLE, SettingsError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
                    yield FoundPlugin(path.name, kind, "", problem=f"it cannot be read: {error}")
                    continue
                left -= sum(map(len, files.values()))
                yield from _packages(path.name, kind, str(path), files, raw)


def _folder(path: Path, most: int) -> tuple[Mapping[str, bytes], bytes]:
    """Return the files of a folder, which may take so many bytes, and no zip. Raises OSError, ValueError."""
    files: dict[str, bytes] = {}
    size = 0
    for name in _walk(path):
        found = (path / name).lstat()
        size += found.st_size
        if not stat.S_ISREG(found.st_mode):  # otherwise a pipe would block
            raise ValueError(f"{name} is no regular file")
        if size > most or len(files) > _FILES:
            raise ValueError("it is too large, alone or with the others")
        files[name] = (path / name).read_bytes()
    return files, b""


def _walk(path: Path) -> Iterator[str]:
    for folder, names, files in os.walk(path):  # does not follow links
        names[:] = sorted(name for name in names if not name.startswith(".") and name != "__pycache__")
        files.sort()
        if link := next((name for name in (*names, *files) if (Path(folder) / name).is_symlink()), None):
            raise ValueError(f"{link} is a symbolic link")
        yield from (str((Path(folder) / name).relative_to(path)) for name in files)


def _zip(path: Path, most: int) -> tuple[Mapping[str, bytes], bytes]:
    """Return the files of a zip, which may take so many bytes, and the zip. Raises what zipfile and open_regular do."""
    with open_regular(path) as file:  # otherwise a pipe would block
        if len(raw := file.read(most + 1)) > most:
            raise ValueError("it is too large, alone or with the others")
    with zipfile.ZipFile(BytesIO(raw)) as archive:
        infos = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX")]
        if len(infos) > _FILES or sum(one.file_size for one in infos) > most:
            raise ValueError("it is too large, alone or with the others")
        return {one.filename: archive.read(one) for one in infos}, raw


def _packages(name: str, kind: str, place: str, files: Mapping[str, bytes], raw: bytes = b"") -> Iterator[FoundPlugin]:
    """Yield a plug-in for each package among the files that defines one. `raw` is the zip, if they come from one."""
    digest = hashlib.sha256(raw)  # Python's two readers of zips may find different files in it
    for path, content in sorted(files.items()):
        digest.update(f"{path}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
    wanted = [files[one] for one in files if PurePosixPath(one).name == "requirements.txt" and one.count("/") <= 1]
    sources = {one: files[one] for one in files if re.search(r"(?:^|/)(?!test_)[^/]+\.py$", one)}
    imported = {name.decode() for source in sources.values() for name in _IMPORTS.findall(source)}
    requirements = tuple(_requirements(b"\n".join(wanted), imported))
    found = []
    for path in sorted(files, key=lambda one: (one.count("/"), one)):
        package = PurePosixPath(path).parent
        if PurePosixPath(path).name != "__init__.py" or len(package.parts) > _MAX_DEPTH:
            continue
        if package.is_absolute() or ".." in package.parts:  # such a name would be imported from there
            continue
        if classes := _classes(files[path]):
            whole = str(package) == "."
            module = Path(place).name if whole else package.name
            root = str(Path(place).parent) if whole else str(Path(place) / package.parent)
            below = "" if whole else f"{package}/"
            read = [name for one in sources if one.startswith(below) for name in _READS.findall(sources[one])]
            found.append((module, root, whole, classes, tuple(sorted({name.decode() for name in read}))))
    for module, root, alone, classes, reads in found:
        called = name if len(found) == 1 else f"{name}/{module}"
        problem = f"a package cannot be called {module!r}" if "." in module else ""
        yield FoundPlugin(called, kind, module, root, alone, classes, requirements, reads, digest.hexdigest(), problem)
    if not found:
        yield FoundPlugin(name, kind, "", digest=digest.hexdigest(), problem=f"no class of it is an {BASE}")


def _classes(source: bytes) -> tuple[str, ...]:
    """Return the names of the plug-ins' classes in a source."""
    try:
        return tuple(
            node.name
            for node in ast.walk(ast.parse(source[:_MAX_SOURCE_BYTES]))
            if isinstance(node, ast.ClassDef) and any(BASE in ast.unparse(base) for base in node.bases)
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _requirements(text: bytes, imported: Collection[str]) -> Iterator[str]:
    """Yield the packages that a requirements.txt asks an index for, with their versions.

    Addresses and paths are left out: the user is not shown them, and what they lead to is not in the digest.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    for line in text.decode("utf-8", "replace").splitlines():
        line = line.partition(" #")[0].strip()
        name = _normal(_package(line))
        with suppress(InvalidRequirement):
            if not Requirement(line).url and name != _normal(TEMPLATE) and (name not in _TOOLS or name in imported):
                yield line


# Installed -------------------------------------------------------------------------------------------------------


def _installed(folder: Path) -> Iterator[FoundPlugin]:
    """Yield the installed packages that are made for the template, and nothing that lies in the folder itself."""
    for one in distributions():
        if any(_normal(_package(line)) == _normal(TEMPLATE) for line in one.requires or ()):
            yield from _of_distribution(one, folder)


def _of_distribution(one: Distribution, folder: Path) -> Iterator[FoundPlugin]:
    names = (one.read_text("top_level.txt") or "").split() or sorted(
        {file.parts[0] for file in one.files or () if len(file.parts) == 2 and file.name == "__init__.py"}
    )
    for module in filter(str.isidentifier, names):
        with suppress(OSError, ValueError):  # `__main__` has no location
            spec = importlib.util.find_spec(module)
            if spec is None or spec.origin is None or Path(spec.origin).is_relative_to(folder):
                continue
            if classes := _classes(Path(spec.origin).read_bytes()):
                version = f"{one.metadata['Name']} {one.version}"
                yield FoundPlugin(module, "package", module, classes=classes, digest=version)
