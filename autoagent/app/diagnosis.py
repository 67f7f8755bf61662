"""What `autoagent doctor` looks at. Every check gives findings and raises nothing."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import platform
import shutil
import ssl
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TextIO

from autoagent.app.current import Here, look, notices
from autoagent.app.memory_factory import embeds_remotely, memory_folder
from autoagent.commands import selection
from autoagent.commands.support.shell_lists import shell_rule
from autoagent.config.autogpt_env import NOT_USED
from autoagent.config.dotenv import read_dotenv
from autoagent.config.secrets import secrets_of
from autoagent.config.settings import EMBEDDER, WITHOUT_ENDPOINT, Settings
from autoagent.config.task_file import is_saved, read_prompt_settings, read_task
from autoagent.core.errors import CommandError, SettingsError, SetupError, StateError
from autoagent.core.protocols import Sandbox
from autoagent.models.local.weights import installed
from autoagent.models.servers import ProbeAnswer, list_models, request
from autoagent.text.redaction import Redactor
from autoagent.workspace.gate import Workspace

OPENAI = "https://api.openai.com/v1"
BLOCK = 512  # bytes, as stat counts them
SANDBOX_PATIENCE = 30.0  # seconds that an interpreter may take to start


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `mend` says what to do, '' where nothing needs doing."""

    check: str
    status: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""


def examine(flags: Mapping[str, Any], env: Mapping[str, str], folder: Path, screen: TextIO) -> list[Finding]:
    """All findings for a start in `folder`, free of secrets. Where the settings are broken, the rest is left out."""
    findings = [_python()]
    secrets: list[str] = []
    try:
        here = look(flags, env, folder, task=True)
        loaded = here.loaded
    except (SettingsError, SetupError) as error:
        findings += [Finding("settings", "fail", str(error), "correct it there"), *_variables(folder, {}, {})]
    else:
        settings = loaded.settings
        secrets += secrets_of(settings)
        findings += [
            *_trust(here),
            *_files(settings, folder),
            *_model(settings, env),
            *_embedder(settings),
            *_extras(settings),
            *_encodings(),
            *_sandbox(settings),
            *_folders(settings, folder),
            *_memory(settings, folder),
            *_snapshots(settings.state_dir, folder),
            _terminal(screen, env),
            *_variables(folder, loaded.origins, {brought.name for brought in here.left_out}),
        ]
    mask = Redactor(secrets).mask
    return [Finding(f.check, f.status, mask(f.found), mask(f.mend)) for f in findings]


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _trust(here: Here) -> Iterator[Finding]:
    """What does not count, as the folder is not trusted with it; which keys do not go to an address of the folder."""
    for line in (*notices(here), *here.loaded.unsent):
        yield Finding("trust", "warn", line, "autoagent trust" if here.waiting else "")


def _files(settings: Settings, folder: Path) -> Iterator[Finding]:
    try:
        selection.choose(selection.available(settings), settings.commands, (), sys.maxsize)
        shell_rule(settings, folder, ())
    except SettingsError as error:
        yield Finding("settings", "fail", str(error), "correct it there")
    else:
        yield Finding("settings", "ok", "all values can be used; `autoagent config --show-origin` shows them")
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
        yield Finding("task", "fail", str(error), "correct it there")


# The model -------------------------------------------------------------------------------------------------------


def _model(settings: Settings, env: Mapping[str, str]) -> Iterator[Finding]:
    kind, _, rest = settings.model.partition(":")
    if kind == "local":
        yield _embedded(rest)
    elif kind in WITHOUT_ENDPOINT:
        yield Finding("model", "ok", f"{settings.model}: needs no key")
    elif settings.openai_api_key or settings.openai_base_url:
        yield from _endpoint(settings, env)
    else:
        mend = "run `autoagent setup`; or set OPENAI_API_KEY; or pass --model local (no key, 1.1 GB once)"
        yield Finding("model", "fail", "no key, no server and no embedded model is chosen", mend)


def _embedded(weights: str) -> Finding:
    if importlib.util.find_spec("xllamacpp") is None:
        return Finding("model", "fail", "the runtime xllamacpp is not installed", "pip install 'autoagent[local]'")
    if weights and not Path(weights).expanduser().is_file():
        return Finding("model", "fail", f"{weights} is not there", "give the path of a GGUF file, or `local` alone")
    if not weights and not installed():
        found = "the embedded model is not here yet; the first run fetches it"
        return Finding("model", "warn", found, "autoagent model fetch")
    return Finding("model", "ok", f"{weights or 'the embedded model'} and its runtime are here")


def _endpoint(settings: Settings, env: Mapping[str, str]) -> Iterator[Finding]:
    base_url, key = settings.openai_base_url or OPENAI, settings.openai_api_key
    if key.startswith("your-"):
        yield Finding("model", "fail", "OPENAI_API_KEY still holds the template's words", "put your key there")
        return
    if base_url.startswith("https:"):
        yield _certificates()
    answer = list_models(base_url, key)
    if answer.status == 0:
        yield _unreachable(base_url, answer, env)
    elif answer.status in (401, 403):
        found = f"{base_url} refuses the key" if key else f"{base_url} wants a key"
        yield Finding("model", "fail", found, "set OPENAI_API_KEY to a valid key of this endpoint")
    elif answer.status != 200 or not answer.models:
        found = f"{base_url} answers, but gives no list of models (HTTP {answer.status})"
        yield Finding("model", "warn", found, "if the first step fails, check the address; most end in /v1")
    else:
        yield _listed(settings, base_url, answer.models)


def _unreachable(base_url: str, answer: ProbeAnswer, env: Mapping[str, str]) -> Finding:
    found = f"{base_url} cannot be reached: {answer.problem}"
    if env.get("HTTPS_PROXY") or env.get("https_proxy"):
        return Finding("model", "warn", f"{found} (without the proxy, which this check does not use)")
    return Finding("model", "fail", found, "start the server, or correct OPENAI_BASE_URL")


def _listed(settings: Settings, base_url: str, offered: tuple[str, ...]) -> Finding:
    smart = settings.model if settings.model not in ("", "openai") else settings.smart_llm
    missing = [name for name in (smart, settings.fast_llm) if name not in offered and f"{name}:latest" not in offered]
    some = ", ".join(offered[:5]) + (", ..." if len(offered) > 5 else "")
    if smart in missing:
        return Finding("model", "fail", f"{base_url} has no model {smart}", f"set SMART_LLM to one of: {some}")
    if missing:
        found = f"{base_url} has {smart}, but no {missing[0]}"
        return Finding("model", "warn", found, f"set FAST_LLM to one of: {some}")
    return Finding("model", "ok", f"{smart} at {base_url}")


def _certificates() -> Finding:
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath) if paths.capath else None
    if paths.cafile or (folder is not None and any(folder.iterdir())):
        return Finding("certificates", "ok", paths.cafile or str(folder))
    return Finding("certificates", "fail", "this system has no CA certificates", "install the package ca-certificates")


# The rest --------------------------------------------------------------------------------------------------------


def _embedder(settings: Settings) -> Iterator[Finding]:
    if settings.memory_backend == "none":
        yield Finding("embedder", "ok", "not needed: the memory is off")
        return
    name = settings.embedding_model or EMBEDDER
    if embeds_remotely(settings) and not settings.openai_api_key.startswith("your-"):
        base_url = settings.openai_base_url or OPENAI
        answer = request(base_url, "/embeddings", settings.openai_api_key, {"model": name, "input": "doctor"})
        if answer.status == 200 and isinstance(answer.body, dict) and answer.body.get("data"):
            yield Finding("embedder", "ok", f"{name} at {base_url}")
            return
        found = f"{base_url} gives no embeddings with {name} ({answer.problem or f'HTTP {answer.status}'})"
        yield Finding("embedder", "warn", found, "set EMBEDDING_MODEL to one that the endpoint has")
    if importlib.util.find_spec("wordllama"):
        yield Finding("embedder", "ok", "the embedded one is installed")
    else:
        yield Finding("embedder", "warn", "the embedded one is not installed", "pip install 'autoagent[local]'")


def _extras(settings: Settings) -> Iterator[Finding]:
    """What the settings ask for and is not installed: the commands that need it are not offered."""
    from autoagent.commands.support.extras import EXTRAS

    for extra in EXTRAS:
        if extra.is_missing(settings):
            yield Finding(extra.name, "warn", extra.problem, extra.remedy)


def _encodings() -> Iterator[Finding]:
    from autoagent.text.tokens import counter

    for model in ("gpt-4", "gpt-5"):
        try:
            counter(model)("one two")
        except Exception as error:  # whatever a broken or foreign version of the package raises is a finding
            yield Finding("encodings", "fail", f"tokens cannot be counted: {error}", "pip install -U autoagent")
            return
    yield Finding("encodings", "ok", "tokens are counted offline")


def _sandbox(settings: Settings) -> Iterator[Finding]:
    """What a start would find, in an empty workspace: the kind of sandbox, what it leaves open, and Python in it."""
    from autoagent.app.services_factory import open_sandbox

    python = settings.python or sys.executable
    another = "set AUTOAGENT_PYTHON to an interpreter that your user may run, such as /usr/bin/python3"
    try:
        with TemporaryDirectory() as folder, closing(open_sandbox(settings, Workspace(Path(folder)))) as sandbox:
            mend = "" if sandbox.name == "bubblewrap" else "install bubblewrap, which holds more"
            yield from (Finding("sandbox", "warn", gap) for gap in sandbox.gaps)
            yield Finding("sandbox", "warn" if sandbox.gaps else "ok", f"{sandbox.name} works", mend)
            if problem := _problem_of(sandbox, python):
                yield Finding("sandbox", "fail", f"{python} does not run in it: {problem}", another)
    except (SetupError, OSError) as error:  # OSError: no folder for temporary files
        yield Finding("sandbox", "fail", str(error), another if settings.python else "install bubblewrap")


def _problem_of(sandbox: Sandbox, python: str) -> str:
    """Why this interpreter does not run there; '' where it does."""
    try:
        done = sandbox.run([python, "-c", ""], seconds=SANDBOX_PATIENCE)
    except CommandError as error:
        return str(error)
    if done.status == 0:
        return ""
    return done.output.decode(errors="replace").strip() or done.limit or done.signal or f"status {done.status}"


def _folders(settings: Settings, start: Path) -> Iterator[Finding]:
    for check, name, private in (("workspace", settings.workspace, False), ("state", settings.state_dir, True)):
        folder = start / name
        nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not nearest.is_dir():
            yield Finding(check, "fail", f"{nearest} is a file", "move it away, or name another folder")
        elif not os.access(nearest, os.W_OK | os.X_OK):
            yield Finding(check, "fail", f"{nearest} cannot be written", "change its mode, or name another folder")
        elif private and folder.exists() and (mode := folder.stat().st_mode & 0o077):
            found = f"{folder} can be read by others (mode {mode | 0o700:o})"
            yield Finding(check, "warn", found, f"chmod -R go= {folder}")
        else:
            yield Finding(check, "ok", f"{folder}" + ("" if folder.exists() else " (made at the first start)"))


def _memory(settings: Settings, start: Path) -> Iterator[Finding]:
    """Whether all of it can be read, where there is one on this machine."""
    from autoagent.memory.sqlite.database import FILE, look_over

    folder = start / memory_folder(settings)
    if settings.memory_backend == "local" and (folder / FILE).exists():
        try:
            yield Finding("memory", "ok", f"{folder} can be read; memories: {look_over(folder):,}")
        except StateError as error:
            yield Finding("memory", "fail", str(error))


def _snapshots(state_dir: Path, start: Path) -> Iterator[Finding]:
    """How much they take, where there are any: nothing takes them away."""
    store = start / state_dir / "snapshots"
    try:
        sizes = [path.stat().st_blocks * BLOCK for path in store.glob("objects/*/*")]
    except OSError as error:
        yield Finding("snapshots", "warn", f"{store} cannot be looked at: {error.strerror}")
        return
    if sizes:
        megabytes = sum(sizes) / (1 << 20)
        yield Finding("snapshots", "ok", f"{store} takes {megabytes:,.1f} MB; to delete it costs the undo of all runs")


def _terminal(screen: TextIO, env: Mapping[str, str]) -> Finding:
    encoding = (screen.encoding or "ascii").lower()
    kind = env.get("TERM") or "without a name"
    found = f"{kind}, {shutil.get_terminal_size().columns} columns, {encoding}" if screen.isatty() else "none"
    if encoding.replace("-", "") != "utf8":
        return Finding("terminal", "warn", f"{found}; {encoding} cannot show every character", "export LANG=C.UTF-8")
    return Finding("terminal", "ok", found)


def _variables(folder: Path, origins: Mapping[str, str], left_out: Collection[str]) -> Iterator[Finding]:
    """Each variable of `.env`: used, or why not."""
    try:
        variables = read_dotenv(folder / ".env")
    except SettingsError:
        return  # named by the check of the settings
    setting_of = {name: f.name for f in dataclasses.fields(Settings) for name in f.metadata["env"]}
    for name, variable in variables.items():
        check = f".env:{variable.line} {name}"
        if variable.problem:
            yield Finding(check, "warn", f"not used: {variable.problem}")
        elif not variable.value.strip():
            yield Finding(check, "ok", "empty: counts as not set")
        elif name in NOT_USED:
            yield Finding(check, "warn", f"not used: {NOT_USED[name]}")
        elif name not in setting_of:
            yield Finding(check, "warn", "not used: neither this program nor AutoGPT knows it")
        elif name in left_out:
            yield Finding(check, "warn", "not used: this folder is not trusted with it")
        elif (origin := origins.get(setting_of[name], f".env:{variable.line}")) == f".env:{variable.line}":
            yield Finding(check, "ok", f"used: {setting_of[name]}")
        else:
            yield Finding(check, "warn", f"not used: {setting_of[name]} is set by {origin}")
