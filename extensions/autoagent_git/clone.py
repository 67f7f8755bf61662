"""Clone a repository with git in the sandbox, which is told every address to connect to.

A first request of ours goes to the repository and follows its redirects, each one checked by the network guard. Git
is then given the final URL together with the one IP address it may use, and follows no redirect. Nothing of the
repository is executed: no hooks, filters (LFS), submodules, templates, file system monitors. Symbolic links become
small text files. The history is fetched first. Files are written only where they are few and small enough together.

Not covered: bugs of git itself in reading a hostile repository (the sandbox holds those), and an unverified sender
where the user has allowed a host over plain http.
"""

from __future__ import annotations

import base64
import dataclasses
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import unquote, urlsplit

from autoagent.extension import (
    Address,
    Command,
    CommandError,
    CommandOutput,
    Context,
    Effects,
    ProcessExit,
    ResultMeta,
    Setting,
    address_refusal,
    bracketed,
    command,
    parse_address,
    shown,
)

CLONE_SECONDS = 600.0
MAX_FILES = 200_000  # in one repository
MAX_BYTES = 1 << 30  # of these files together; its history is one file, which the sandbox limits

_OLDEST_GIT = (2, 37)  # the first to take http.curloptResolve; one before would resolve the name by itself
_REFS = "/info/refs?service=git-upload-pack"
_ADVERTISEMENT = "application/x-git-upload-pack-advertisement"
# Some servers answer only programs that call themselves git.
_PROBE_HEADERS = {"User-Agent": "git/2 (autoagent)", "Git-Protocol": "version=2"}

_ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/nonexistent",  # where .netrc would be
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
}
_CONFIG = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null", "core.protectHFS=true",
    "core.protectNTFS=true", "credential.helper=", "gc.auto=0", "http.followRedirects=false", "http.proxy=",
    "safe.bareRepository=explicit", "submodule.recurse=false",
)  # fmt: skip
# Secrets come by standard input: arguments are visible to every user of the machine.
_FROM_INPUT = 'IFS= read -r GIT_CONFIG_VALUE_0 && export GIT_CONFIG_VALUE_0 && exec "$@" </dev/null'
# Prints files, bytes and submodules; ends early where there is too much of it. A link or a file: type blob.
_MEASURE = """git "$@" ls-tree -r -l HEAD 2>/dev/null | awk -v files=%d -v bytes=%d '
$2 == "blob" { n += 1; size += $4; if (n > files || size > bytes) exit } $2 == "commit" { links += 1 }
END { printf "%%d %%.0f %%d\\n", n, size, links }'"""


@dataclass(frozen=True, slots=True)
class _Source:
    """Hold the source of a clone: its address, and its Authorization header or ''."""

    url: str
    protocol: str
    config: tuple[str, ...] = ()
    authorization: str = ""


def authorization_for(address: Address, setting: Setting) -> str:
    """Return the Authorization header for an address: '' except for github.com over https."""
    if not setting("github_api_key") or address.origin != ("https", "github.com", 443):
        return ""
    account = f"{setting('github_username') or 'x-access-token'}:{setting('github_api_key')}"
    return f"Basic {base64.b64encode(account.encode()).decode()}"


def _preview(context: Context, url: str, clone_path: str) -> str:
    source = parse_address(url).url if not _is_file(url) else _in_workspace(context, url)
    return f"Clones {source} into the folder {_target(context, clone_path)}."


@command(
    "clone_repository",
    "Clone a git repository",
    risk="network",
    rare=True,
    category="git",
    available=lambda settings: "" if shutil.which("git") else "git is not installed",
    preview=_preview,
    effects=Effects(from_outside=True),
    autogpt=["git_operations"],
)
def clone_repository(
    context: Context,
    url: Annotated[str, "https address of the repository, without a password", "url"],
    clone_path: Annotated[str, "new folder relative to the workspace", "path"],
) -> CommandOutput:
    target = _target(context, clone_path)
    exit = context.sandbox.run(["git", "version"], env=_ENVIRONMENT)
    version = re.search(rb"git version (\d+)\.(\d+)", exit.output)
    if not version or (int(version[1]), int(version[2])) < _OLDEST_GIT:
        oldest = ".".join(map(str, _OLDEST_GIT))
        raise CommandError(f"Repositories are cloned with git {oldest} or newer, which is not here.")
    source = _Source(f"./{_in_workspace(context, url)}", "file") if _is_file(url) else _remote(context, url)
    context.progress(f"Cloning {source.url} ...")
    draft = f"{target}.{secrets.token_hex(4)}.part"  # ours alone, whatever others write into the target meanwhile
    try:
        _fetch(context, source, draft)
        files, size, submodules = _measure(context, draft)
        if files:
            argv = ["git", *_options(()), *_repository(draft), "reset", "--quiet", "--hard"]
            _require_success(context.sandbox.run(argv, seconds=CLONE_SECONDS, network=False, env=_ENVIRONMENT), source)
        branches = "" if files else _branches(context, draft)
        if context.sandbox.run(["mv", "-T", "--", f"./{draft}", f"./{target}"], network=False).status != 0:
            raise CommandError(f"{source.url} was not cloned: something was written to {target} meanwhile.")
    except BaseException:  # whatever ended it, also Ctrl-C: no half of a repository stays
        context.sandbox.run(["rm", "-rf", "--", f"./{draft}"])
        raise
    left_out = f"; its {submodules} submodules were left out" if submodules else ""
    nothing = f"no file, as its HEAD names no branch; there are {branches}" if branches else "it is empty"
    content = f"{files:,} files, {size:,} bytes" if files else nothing
    return CommandOutput(
        f"Cloned {source.url} into {target} ({content}{left_out}).", ResultMeta(changed=(target,), untrusted=url)
    )


# Where from and where to -------------------------------------------------------------------------------------------


def _target(context: Context, clone_path: str) -> str:
    """Return the target folder as a plain path. Refuse a folder with content."""
    if context.workspace.display(clone_path) == ".":
        raise CommandError("The workspace itself is no place for a clone; name a new folder in it.")
    entry = context.workspace.find(clone_path)
    if entry is None:
        return context.workspace.display(clone_path)
    if entry.kind != "folder":
        raise CommandError(f"{clone_path} is not a folder; choose another name.")
    if next(context.workspace.walk(clone_path), None) is not None:
        raise CommandError(f"The folder {clone_path} is not empty; clone into a new one.")
    return context.workspace.display(clone_path)


def _is_file(url: str) -> bool:
    return url.strip().lower().startswith("file:")


def _in_workspace(context: Context, url: str) -> str:
    """Return the path of a file: URL relative to the workspace. Refuse paths outside."""
    try:
        return context.workspace.display(unquote(urlsplit(url.strip()).path))
    except ValueError as error:
        raise CommandError(f"{shown(url)} is not a URL: {error}.") from error
    except CommandError as error:
        raise CommandError(f"With file: only what is in the workspace is cloned. {error}") from error


def _remote(context: Context, url: str) -> _Source:
    """Follow the redirects of a repository's address. Return the final source, checked and pinned to one IP address."""
    address = parse_address(url)
    address = dataclasses.replace(address, target=address.target.partition("?")[0].rstrip("/"))
    authorization = authorization_for(address, context.setting)
    headers = {**_PROBE_HEADERS, **({"Authorization": authorization} if authorization else {})}
    page = context.web.fetch(address.url + _REFS, limit=4096, headers=headers)
    final = parse_address(page.url)
    if page.media_type != _ADVERTISEMENT or not final.target.endswith(_REFS):
        raise CommandError(f"{address.url} is no git repository that can be cloned over HTTP.")
    final = dataclasses.replace(final, target=final.target.removesuffix(_REFS))
    host, port, ip = context.web.pin(final.url)
    if final.scheme == "http" and not address_refusal(ip):  # a private one is reached only where the user allows it
        raise CommandError(f"{final.url} would be cloned from a sender that nobody verified; use https.")
    # Computed again: the credentials of the first host are not for the redirect's target.
    authorization = authorization_for(final, context.setting)
    config = (f"http.curloptResolve={host}:{port}:{bracketed(ip)}",)
    return _Source(final.url, final.scheme, config, authorization)


# git -----------------------------------------------------------------------------------------------------------------


def _fetch(context: Context, source: _Source, where: str) -> None:
    """Fetch only the history: the folder then contains nothing but `.git`."""
    # Written to the settings of the clone, so that links stay files for later work in it too.
    options = ["--quiet", "--no-checkout", "--no-local", "--template=", "--config", "core.symlinks=false"]
    argv = ["git", *_options(source.config), "clone", *options, "--", source.url, f"./{where}"]
    env = {**_ENVIRONMENT, "GIT_ALLOW_PROTOCOL": source.protocol}
    data = None
    if source.authorization:
        address = parse_address(source.url)
        origin = dataclasses.replace(address, target="/").url
        env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"http.{origin}.extraHeader"}
        data = f"Authorization: {source.authorization}\n".encode()
        argv = ["/bin/sh", "-c", _FROM_INPUT, "sh", *argv]
    network = source.protocol != "file"
    exit = context.sandbox.run(argv, seconds=CLONE_SECONDS, network=network, env=env, data=data)
    _require_success(exit, source)


def _measure(context: Context, where: str) -> tuple[int, int, int]:
    """Count the files, bytes and submodules of a checkout. Raises CommandError beyond the limits."""
    script = _MEASURE % (MAX_FILES, MAX_BYTES)
    exit = context.sandbox.run(
        ["/bin/sh", "-c", script, "sh", *_options(()), *_repository(where)], env=_ENVIRONMENT, network=False
    )
    counts = re.fullmatch(rb"(\d+) (\d+) (\d+)", exit.output.strip())
    if exit.limit or not counts:
        raise CommandError(f"The repository was not written: {exit.limit or 'its files cannot be counted'}.")
    files, size, submodules = (int(number) for number in counts.groups())
    if files > MAX_FILES or size > MAX_BYTES:
        raise CommandError(
            f"The repository has more than {MAX_FILES:,} files or {MAX_BYTES:,} bytes, too much to be written."
        )
    return files, size, submodules


def _branches(context: Context, where: str) -> str:
    """Name the branches that a clone has fetched, the first of them."""
    listing = ["for-each-ref", "--count=20", "--format=%(refname:short)", "refs/remotes"]
    exit = context.sandbox.run(["git", *_options(()), *_repository(where), *listing], env=_ENVIRONMENT, network=False)
    return ", ".join(re.findall(r"^[!-~]{1,100}$", exit.output.decode(errors="replace"), re.MULTILINE))


def _repository(where: str) -> list[str]:
    return [f"--git-dir=./{where}/.git", f"--work-tree=./{where}"]


def _options(more: tuple[str, ...]) -> list[str]:
    return [word for entry in (*_CONFIG, *more) for word in ("-c", entry)]


def _require_success(exit: ProcessExit, source: _Source) -> None:
    if exit.status == 0:
        return
    output = exit.output.decode(errors="replace")
    if exit.limit or exit.signal:
        problem = f"git was stopped: {exit.limit or exit.signal}"
    elif "signal 25" in output or "File too large" in output:  # SIGXFSZ, EFBIG
        problem = "it is larger than one file may be (AUTOAGENT_SANDBOX_FILE)"
    else:
        # Quote only git's own messages: text from the server ("remote: ...") is untrusted.
        words = re.findall(r"^(?:fatal|error): (?!remote)([ -~]{1,200})", output, re.MULTILINE)
        problem = f"git failed with exit status {exit.status}" + (f": {shown(words[-1])}" if words else "")
    raise CommandError(f"{source.url} was not cloned: {problem}.")


COMMANDS: tuple[Command, ...] = (clone_repository,)
