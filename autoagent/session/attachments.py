"""Attach texts and images that the user names as `@path`, and standard input that is piped in with a wish."""

from __future__ import annotations

import codecs
import os
import re
import select
import stat
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

from autoagent.core.errors import SettingsError
from autoagent.core.events import AgentMessage
from autoagent.core.frozen import dataclass
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.safety.typed_answers import read_answer
from autoagent.session.permissions import enforce_inside
from autoagent.terminal.output import echo
from autoagent.text.text_file import open_regular

PIPED = "piped"  # the flag for text from standard input given with a wish
MAX_TEXT_BYTES = 1_000_000  # prompts show as much of a text as of any result
MAX_IMAGE_BYTES = 4_000_000  # the usual endpoints accept at least 5 MB
MAX_SILENT_SECONDS = 10.0  # without a byte, before standard input counts as ended
_INPUT_NAME = "standard input"
_IMAGES = {  # magic numbers by file type
    rb"\x89PNG\r\n\x1a\n": "png", rb"\xff\xd8\xff": "jpeg", rb"GIF8[79]a": "gif", rb"RIFF....WEBP": "webp",
}  # fmt: skip
FILE_REFERENCE = re.compile(r'(?<![^\s(])@(?:"([^"\n]+)"|(\S*\w))')  # without the punctuation behind a name


def with_piped_input(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the flags, with the text on standard input if it is meant as an attachment.

    It is one with a wish if nobody is asked (-c), or if questions can be asked at a terminal instead. Input that begins
    with an answer (`yes | autoagent ...`) is read as answers. Raises SettingsError if it is not text.
    """
    if not flags.get("wish") or PIPED in flags or sys.stdin.closed or sys.stdin.isatty():
        return flags
    with ExitStack() as stack:
        terminal = None
        if sys.stderr.isatty():
            with suppress(OSError):
                terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
                stack.callback(os.close, terminal)
        kind = os.fstat(0).st_mode
        if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)) or not (flags.get("continuous") or terminal is not None):
            return flags
        text = _decode(_read_input(), _INPUT_NAME)
        first_line = text.partition("\n")[0]
        if text.strip() and len(first_line) < MAX_TEXT_BYTES and read_answer(first_line).kind in ("run", "stop"):
            sys.stdin = StringIO(text)
            return flags
        if terminal is not None:
            os.dup2(terminal, 0)
            sys.stdin = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115
    return {**flags, PIPED: text} if text.strip() else flags


def _read_input() -> bytes:
    data = b""
    while len(data) <= MAX_TEXT_BYTES:
        if not select.select([0], [], [], MAX_SILENT_SECONDS)[0]:
            echo("autoagent: standard input stays open and silent; continuing with what it has sent so far.", err=True)
            break
        if not (piece := os.read(0, 65_536)):
            break
        data += piece
    return data


def _decode(raw: bytes, name: str) -> str:
    """Return the data, up to the limit, as text. Raises SettingsError if it is not text."""
    is_cut = len(raw) > MAX_TEXT_BYTES
    try:
        text, _ = codecs.utf_8_decode(raw[:MAX_TEXT_BYTES].removeprefix(codecs.BOM_UTF8), "strict", not is_cut)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SettingsError(
            f"{name}: is neither UTF-8 text nor an image; save it in the workspace, where the agent can open it."
        )
    return f"{text}\n(only the first {MAX_TEXT_BYTES:,} bytes are attached)" if is_cut else text


@dataclass(frozen=True, slots=True)
class Attachments:
    """Read the files that the user names, from the current folder or else from the `workspace`.

    A user's file is private. A file with text from outside is untrusted, like standard input. Images need a model that
    `sees`.
    """

    workspace: Path
    tainted: TaintedFiles
    say: Callable[[str], None]
    sees: bool = False

    def at_start(self, texts: Sequence[str], piped: str) -> list[AgentMessage]:
        """Return the attachments of the texts that begin or continue a run."""
        labels = {"untrusted": _INPUT_NAME}
        messages = [AgentMessage(sender=_INPUT_NAME, text=piped, attached=True, data=labels)] if piped else []
        return [*messages, *self.read_named("\n".join(texts))]

    def read_named(self, text: str) -> list[AgentMessage]:
        """Return the files that a text names as `@path`. Report those that cannot be attached."""
        messages = []
        for name in dict.fromkeys(match[1] or match[2] for match in FILE_REFERENCE.finditer(text)):
            try:
                messages.append(self.read(name))
            except SettingsError as error:
                self.say(f"Not attached: {error}")
        return messages

    def read(self, name: str) -> AgentMessage:
        """Return a file as an attachment. Raises SettingsError if it cannot be read, or is neither text nor image."""
        try:
            path = Path(name).expanduser().absolute()
            path = path if path.exists() else self.workspace / name
            places, real = (Path.cwd(), self.workspace.absolute()), path.resolve()
            is_named_inside = any(Path(os.path.normpath(path)).is_relative_to(place) for place in places)
            if is_named_inside and not any(real.is_relative_to(place.resolve()) for place in places):
                raise SettingsError(f"{name}: is a link to {real}; name that file instead.")
            enforce_inside(path, name)
            with open_regular(path) as file:
                raw = file.read(MAX_IMAGE_BYTES + 1)
        except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, or an unknown home
            raise SettingsError(f"{name}: {str(getattr(error, 'strerror', '') or error).rstrip('.')}.") from error
        kind = next((kind for signature, kind in _IMAGES.items() if re.match(signature, raw, re.DOTALL)), "")
        text, image = self._read_image(raw, name, kind) if kind else (_decode(raw, name), "")
        source = self.tainted.source_of(str(path))
        labels = {"private": True, **({"untrusted": source} if source else {})}
        return AgentMessage(sender=name, text=text, image=image, attached=True, data=labels)

    def _read_image(self, raw: bytes, name: str, kind: str) -> tuple[str, str]:
        """Return the text that stands for an image, and its data URL."""
        if not self.sees:
            raise SettingsError(f"{name}: this model sees no images; choose one of an endpoint that does (--model).")
        if len(raw) > MAX_IMAGE_BYTES:
            raise SettingsError(f"{name}: an image of more than {MAX_IMAGE_BYTES // 1_000_000} MB; make it smaller.")
        text = f"({kind.upper()} image, {len(raw):,} bytes, {sha256(raw).hexdigest()[:12]})"
        return text, f"data:image/{kind};base64,{b64encode(raw).decode()}"
