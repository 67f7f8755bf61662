"""Run the checks of `autoagent doctor`. Each check yields findings, and a broken setting or plug-in becomes one."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from autoagent.commands import selection
from autoagent.commands.support.extras import BROWSER, Extra, is_installed
from autoagent.commands.support.shell_lines import shell_rule
from autoagent.core.errors import CommandError, SettingsError, SetupError
from autoagent.core.protocols import Sandbox
from autoagent.core.services import Finding
from autoagent.network.addresses import parse_allowed_hosts
from autoagent.registry.embedders import EMBEDDED, EMBEDDERS
from autoagent.registry.memory import BACKENDS
from autoagent.registry.models import PROVIDERS
from autoagent.registry.plugins import PREFIX, Table, extensions, plugins, plugins_of_other_groups
from autoagent.registry.sandbox import KINDS
from autoagent.safety.rules import Rule
from autoagent.session.autogpt import TRANSLATED, UNUSED, is_blank
from autoagent.session.dotenv import read_dotenv
from autoagent.session.memories import memory_folder
from autoagent.session.services import open_sandbox
from autoagent.session.session import Session, found_by_parts, notices
from autoagent.session.task_file import is_saved, read_prompt_settings, read_task
from autoagent.settings import REMOVED, Settings, all_settings, secrets_of
from autoagent.terminal.palette import palette_of
from autoagent.text.redaction import Redactor
from autoagent.text.tokens import counter
from autoagent.workspace.gate import Workspace

STAT_BLOCK_BYTES = 512  # the unit of st_blocks
MAX_START_SECONDS = 30.0  # of an interpreter in the sandbox


def examine(flags: Mapping[str, Any], env: Mapping[str, str], folder: Path, screen: TextIO) -> list[Finding]:
    """Return all findings for a start in `folder`, with secrets masked. Broken settings end the checks."""
    findings = [Finding("python", "ok", f"{platform.python_version()} at {sys.executable}"), *_python_path(env)]
    secrets: list[str] = []
    try:
        session = Session.load(flags, env, folder, task=True)
    except (SettingsError, SetupError) as error:
        findings += [Finding("settings", "fail", str(error), "fix the value named above"), *_variables(folder, {}, {})]
    else:
        loaded, settings = session.loaded, session.settings
        secrets += secrets_of(settings)
        remedy = "autoagent trust" if session.waiting else ""
        findings += [
            *(Finding("trust", "warn", line, remedy) for line in (*notices(session), *loaded.withheld_keys)),
            *(Finding("settings", "warn", line) for line in loaded.removed_settings),
            _values(settings, folder),
            *_task_files(settings, folder),
            *_catching_errors("model", _model(settings, env)),
            *_catching_errors("embedder", _embedder(settings)),
            *_catching_errors("extensions", _extras(session)),
            _encodings(),
            *_sandbox(settings),
            *_folders(settings, folder),
            *_catching_errors("memory", _memory(settings, folder)),
            *_snapshots(settings.state_dir, folder),
            *_plugins(),
            _terminal(screen, env),
            *_variables(folder, loaded.origins, {value.name for value in session.left_out}),
        ]
    mask = Redactor(secrets).mask
    return [Finding(f.check, f.status, mask(f.found), mask(f.mend)) for f in findings]


def _python_path(env: Mapping[str, str]) -> Iterator[Finding]:
    """Report a relative entry of PYTHONPATH, which lets the current folder run code when Python starts."""
    entries = env["PYTHONPATH"].split(os.pathsep) if env.get("PYTHONPATH") else []
    if relative := [entry for entry in entries if not os.path.isabs(entry)]:  # noqa: PTH117 - '' is an entry
        problem = f"PYTHONPATH contains {relative[0]!r}: Python would run a sitecustomize.py from the current folder"
        yield Finding("PYTHONPATH", "warn", problem, "remove the empty and relative entries")


def _values(settings: Settings, folder: Path) -> Finding:
    try:
        selection.choose(selection.available(settings), settings.commands, sys.maxsize)
        shell_rule(settings, folder, (), selection.all_names())
        palette_of(settings.theme, os.environ, False)
        parse_allowed_hosts(settings.allow_hosts)
        for rule in settings.allow:
            Rule.parse(rule)
    except SettingsError as error:
        return Finding("settings", "fail", str(error), "fix the value named above")
    return Finding("settings", "ok", "all values are valid; `autoagent config --show-origin` shows their origins")


def _task_files(settings: Settings, folder: Path) -> Iterator[Finding]:
    task = folder / settings.ai_settings_file
    try:
        if is_saved(task):
            yield Finding("task", "ok", f"{read_task(task).name} in {settings.ai_settings_file}")
        else:
            yield Finding("task", "ok", f"no {settings.ai_settings_file} yet; the first start asks")
        if settings.prompt_settings_file is not None:
            read_prompt_settings(folder / settings.prompt_settings_file)
            yield Finding("prompt", "ok", str(settings.prompt_settings_file))
    except SettingsError as error:
        yield Finding("task", "fail", str(error), "fix the value named above")


def _model(settings: Settings, env: Mapping[str, str]) -> Iterator[Finding]:
    choice = settings.model_choice
    if choice.provider.examine is not None:
        yield from choice.provider.examine(settings.model_settings, choice.argument, env)
    else:
        yield Finding("model", "ok", f"{settings.model}: {choice.provider.summary}")


def _embedder(settings: Settings) -> Iterator[Finding]:
    if BACKENDS.find(settings.memory_backend).open is None:
        yield Finding("embedder", "ok", "not needed: the memory is off")
        return
    kind, argument = settings.embedder
    fallback = Finding("embedder", "ok", f"{kind.name}: {kind.summary}")
    findings = list(kind.examine(settings.model_settings, argument)) if kind.examine is not None else [fallback]
    yield from findings
    if all(finding.status != "ok" for finding in findings) and kind is not EMBEDDED and EMBEDDED.examine is not None:
        yield from EMBEDDED.examine(settings.model_settings, "")


def _memory(settings: Settings, start: Path) -> Iterator[Finding]:
    backend = BACKENDS.find(settings.memory_backend)
    if backend.package and importlib.util.find_spec(backend.package) is None:
        problem = f"{backend.package} is not installed, required by MEMORY_BACKEND={backend.name}"
        yield Finding("memory", "fail", problem, f"pip install 'autoagent[{backend.extra}]'")
    elif backend.needs_url and not (settings.memory_url or backend.usual_url):
        problem = f"MEMORY_BACKEND={backend.name} needs an address"
        yield Finding("memory", "fail", problem, "set MEMORY_URL")
    elif backend.examine is not None:
        yield from backend.examine(start / memory_folder(settings))


def _plugins() -> Iterator[Finding]:
    tables: tuple[Table[Any], ...] = (PROVIDERS, BACKENDS, EMBEDDERS, KINDS)
    for plugin, record in (pair for table in tables for pair in table.plugins_with_records()):
        if plugin.is_ours:
            continue
        if isinstance(record, SetupError):
            yield Finding("plug-in", "warn", str(record))
        else:
            yield Finding("plug-in", "ok", f"{plugin.description} ({plugin.group}): {record.summary}")
    for addition in selection.plugin_commands():
        names, plugin = ", ".join(command.spec.name for command in addition.commands), addition.plugin
        if names and not plugin.is_ours:
            yield Finding("plug-in", "ok", f"{plugin.description} ({plugin.group}): {names}")
        if addition.problem:
            yield Finding("plug-in", "warn", addition.problem)
    for extension in extensions():
        if extension.problem:
            yield Finding("plug-in", "warn", extension.problem)
        elif extension.registrations.hook_names:
            roles = ", ".join(extension.registrations.hook_names)
            yield Finding("plug-in", "ok", f"{extension.plugin.description} (extension) takes part: {roles}")
    for plugin in plugins("settings"):
        try:
            plugin.load()
        except SetupError as error:
            yield Finding("plug-in", "warn", str(error))
    known_groups = ("commands", "folders", "runs", "settings", "subcommands", *(table.group for table in tables))
    for plugin in plugins_of_other_groups(known_groups):
        groups = ", ".join(f"{PREFIX}{group}" for group in known_groups)
        yield Finding("plug-in", "warn", str(plugin.refuse(f"cannot be used: the groups are {groups}")))


def _catching_errors(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings, or the error of a plug-in that cannot be used."""
    try:
        yield from findings
    except (SetupError, SettingsError) as error:
        yield Finding(check, "fail", str(error))


def _extras(session: Session) -> Iterator[Finding]:
    """Report missing packages that the settings and the folder need, since commands that use them are not offered."""
    declared = (getattr(command.available, "__self__", None) for command in selection.all_commands())
    offered = dict.fromkeys((BROWSER, *(extra for extra in declared if isinstance(extra, Extra))))
    missing = (extra for extra in offered if extra.is_missing(session.settings))
    needed = (extra for extra in found_by_parts("needs", session.place) if not is_installed(extra))
    for extra in chain(missing, needed):
        yield Finding(extra.name, "warn", extra.problem, extra.remedy)


def _encodings() -> Finding:
    try:
        for model in ("gpt-4", "gpt-5"):
            counter(model)("one two")
    except Exception as error:  # a broken or other version may raise anything
        return Finding("encodings", "fail", f"tokens cannot be counted: {error}", "pip install -U autoagent")
    return Finding("encodings", "ok", "tokens are counted offline")


def _sandbox(settings: Settings) -> Iterator[Finding]:
    """Report the sandbox of a run in an empty workspace: its kind, its gaps and its Python."""
    python = settings.python or sys.executable
    remedy = "set AUTOAGENT_PYTHON to an interpreter that your user may run, such as /usr/bin/python3"
    try:
        with TemporaryDirectory() as folder, closing(open_sandbox(settings, Workspace(Path(folder)))) as sandbox:
            strongest = KINDS.builtin[0]
            advice = "" if sandbox.name == strongest.name else f"{strongest.remedy}, which blocks more"
            yield from (Finding("sandbox", "warn", gap) for gap in sandbox.gaps)
            yield Finding("sandbox", "warn" if sandbox.gaps else "ok", f"{sandbox.name} works", advice)
            if problem := _python_problem(sandbox, python):
                yield Finding("sandbox", "fail", f"{python} does not run in it: {problem}", remedy)
    except (SetupError, OSError) as error:  # OSError: no folder for temporary files
        yield Finding("sandbox", "fail", str(error), remedy if settings.python else KINDS.builtin[0].remedy)


def _python_problem(sandbox: Sandbox, python: str) -> str:
    """Return why this interpreter does not run in the sandbox, or ''."""
    try:
        result = sandbox.run([python, "-c", ""], seconds=MAX_START_SECONDS)
    except CommandError as error:
        return str(error)
    if result.status == 0:
        return ""
    return result.output.decode(errors="replace").strip() or result.limit or result.signal or f"status {result.status}"


def _folders(settings: Settings, start: Path) -> Iterator[Finding]:
    for check, name, private in (("workspace", settings.workspace, False), ("state", settings.state_dir, True)):
        folder = start / name
        # not Path.exists, which raises an error below a folder that may not be entered
        nearest = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))  # noqa: PTH110
        if not nearest.is_dir():
            yield Finding(check, "fail", f"{nearest} is a file", "move it away, or choose another folder")
        elif not os.access(nearest, os.W_OK | os.X_OK):
            yield Finding(check, "fail", f"{nearest} is not writable", "change its mode, or choose another folder")
        elif private and nearest == folder and (mode := folder.stat().st_mode & 0o077):
            problem = f"{folder} can be read by others (mode {mode | 0o700:o})"
            yield Finding(check, "warn", problem, f"chmod -R go= {folder}")
        else:
            yield Finding(check, "ok", f"{folder}" + ("" if nearest == folder else " (created at the first start)"))


def _snapshots(state_dir: Path, start: Path) -> Iterator[Finding]:
    store = start / state_dir / "snapshots"
    try:
        sizes = [path.stat().st_blocks * STAT_BLOCK_BYTES for path in store.glob("objects/*/*")]
    except OSError as error:
        yield Finding("snapshots", "warn", f"{store} cannot be read: {error.strerror}")
        return
    if sizes:
        megabytes = sum(sizes) / (1 << 20)
        yield Finding("snapshots", "ok", f"{store} takes {megabytes:,.1f} MB; without it, no run can be undone")


def _terminal(screen: TextIO, env: Mapping[str, str]) -> Finding:
    encoding = (screen.encoding or "ascii").lower()
    kind = env.get("TERM") or "without a name"
    summary = f"{kind}, {shutil.get_terminal_size().columns} columns, {encoding}" if screen.isatty() else "none"
    if encoding.replace("-", "") != "utf8":
        return Finding("terminal", "warn", f"{summary}; {encoding} cannot show every character", "export LANG=C.UTF-8")
    return Finding("terminal", "ok", summary)


def _variables(folder: Path, origins: Mapping[str, str], left_out: Collection[str]) -> Iterator[Finding]:
    """Report for each variable of `.env` whether it is used, or why not."""
    try:
        variables = read_dotenv(folder / ".env")
    except SettingsError:
        return  # reported by the check of the settings
    settings_by_variable = {name: f.name for f in dataclasses.fields(all_settings()) for name in f.metadata["env"]}
    for name, variable in variables.items():
        here = f".env:{variable.line}"
        check = f"{here} {name}"
        origin = origins.get(settings_by_variable.get(name, ""), here)
        if name in REMOVED:  # named with those of the environment
            continue
        if variable.problem:
            yield Finding(check, "warn", f"not used: {variable.problem}")
        elif is_blank(variable.value):
            kind = "the placeholder of the template" if variable.value.strip() else "empty"
            yield Finding(check, "ok", f"{kind}: treated as not set")
        elif name in UNUSED:
            has_effect = variable.value.strip().lower() not in UNUSED[name].harmless
            yield Finding(check, "warn" if has_effect else "ok", f"not used: {UNUSED[name].reason}")
        elif name in TRANSLATED:
            yield Finding(check, "ok", f"used: {TRANSLATED[name]}")
        elif name not in settings_by_variable:
            yield Finding(check, "warn", "not used: unknown to this program and to AutoGPT")
        elif name in left_out:
            yield Finding(check, "warn", "not used: you have not trusted this folder with it")
        elif origin == here:
            yield Finding(check, "ok", f"used: {settings_by_variable[name]}")
        else:
            yield Finding(check, "warn", f"not used: {settings_by_variable[name]} is set by {origin}")
