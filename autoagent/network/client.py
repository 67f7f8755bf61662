"""Send HTTP requests behind the network guard: a GET and its redirects. Resume interrupted downloads.

Only cookies survive a redirect, and nothing survives a conversation. Proxies and `.netrc` are ignored. Servers must be
verified.

Not covered: the content of pages. Callers mark it as coming from outside.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urljoin

from autoagent import __version__
from autoagent.core.errors import CommandError
from autoagent.core.frozen import dataclass
from autoagent.core.services import SAME_HOST_ONLY, WebPage
from autoagent.network.addresses import Address, NetworkGuard, parse
from autoagent.network.connections import SILENCE_SECONDS, Deadline, guarded_adapter, translating_errors

if TYPE_CHECKING:
    from requests import Response

MAX_REDIRECTS = 10
FETCH_SECONDS = 60.0  # for a page, with all its redirects
DOWNLOAD_SECONDS = 3600.0  # for a file, with all its interruptions

_DEFAULT_HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
_BLOCK_BYTES = 1 << 18
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_CONTENT_STATUSES = (200, 201, 202, 203)
_ENCODINGS = ("", "gzip", "deflate")  # the compressions requested and accepted
# Headers that another origin may receive after a redirect. Others may be credentials.
_HARMLESS_HEADERS = {"accept", "accept-encoding", "accept-language", "git-protocol", "if-range", "range", "user-agent"}


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A server's answer after all redirects, with its content still unread."""

    address: Address
    response: Response
    deadline: Deadline

    @property
    def media_type(self) -> str:
        """Return the media type in lower case without parameters, or '' if missing."""
        first = self._header("Content-Type").partition(";")[0].strip().lower()
        return first if re.fullmatch(r"[\w.+-]+/[\w.+-]+", first) else ""

    @property
    def charset(self) -> str:
        found = re.search(r"""charset\s*=\s*["']?([\w.:-]+)""", self._header("Content-Type"), re.IGNORECASE)
        return found[1].lower() if found else ""

    @property
    def length(self) -> int | None:
        """Return the content's size in bytes, or None if unknown or compressed."""
        length = self._header("Content-Length")
        return int(length) if re.fullmatch(r"[0-9]{1,18}", length) and not self.encoding else None

    @property
    def encoding(self) -> str:
        """Return the compression of the content, or ''."""
        return self._header("Content-Encoding").strip().lower().removeprefix("x-").replace("identity", "")

    @property
    def validator(self) -> str:
        """Return the validator of a file's version for range requests (RFC 9110, 13.1.5), or ''."""
        if self._header("Accept-Ranges").strip().lower() != "bytes" or self.encoding:
            return ""
        tag = self._header("ETag").strip()
        if tag:
            return tag if tag.startswith('"') else ""  # a weak tag, W/"...", does not identify the exact bytes
        return self._header("Last-Modified").strip()

    @property
    def start(self) -> int:
        """Return the offset of a partial answer in the file, or -1 if unknown."""
        found = re.match(r"bytes ([0-9]{1,18})-", self._header("Content-Range"))
        return int(found[1]) if found else -1

    def blocks(self, limit: int) -> Iterator[bytes]:
        """Yield the decompressed content as it arrives, at most `limit` bytes of it. Raises CommandError."""
        remaining = limit
        with translating_errors(self.address.url, self.deadline):
            for block in self.response.raw.stream(_BLOCK_BYTES, decode_content=True):
                yield block[:remaining]
                remaining -= len(block)
                if remaining <= 0:
                    return

    def _header(self, name: str) -> str:
        return str(self.response.headers.get(name, ""))


@dataclass(frozen=True, slots=True)
class HttpClient:
    """Fetch over HTTP within the guard's rules, without state between calls."""

    guard: NetworkGuard
    user_agent: str = f"autoagent/{__version__}"

    def fetch(self, url: str, *, limit: int, headers: Mapping[str, str] | None = None) -> WebPage:
        with Deadline(FETCH_SECONDS) as deadline, self.get(url, headers or {}, deadline) as answer:
            body = b"".join(answer.blocks(limit + 1))
            return WebPage(answer.address.url, answer.media_type, body[:limit], answer.charset, cut=len(body) > limit)

    @contextmanager
    def get(
        self, url: str, headers: Mapping[str, str], deadline: Deadline, expected: Collection[int] = _CONTENT_STATUSES
    ) -> Iterator[HttpAnswer]:
        """Send a GET, follow all checked redirects, and yield the answer, closed afterwards.

        Raises CommandError for a forbidden address, an unexpected status, and any failure.
        """
        from requests import Request
        from requests.cookies import RequestsCookieJar

        address, sent = parse(url), {**_DEFAULT_HEADERS, "User-Agent": self.user_agent, **headers}
        cookies = RequestsCookieJar()
        with closing(guarded_adapter(self.guard, deadline)) as http:
            for _ in range(MAX_REDIRECTS + 1):
                with translating_errors(address.url, deadline):
                    request = Request("GET", address.url, headers=sent, cookies=cookies).prepare()
                    # Only the adapter: a Session reads the environment, and the whole body of a redirect.
                    response = http.send(request, stream=True, timeout=SILENCE_SECONDS)
                with response:
                    if response.status_code not in _REDIRECT_STATUSES:
                        answer = HttpAnswer(address, response, deadline)
                        if response.status_code not in expected:
                            note = " without being asked for a part" if response.status_code == 206 else ""
                            raise CommandError(f"{address.url} answers {_status(response.status_code)}{note}.")
                        if answer.encoding not in _ENCODINGS:
                            raise CommandError(f"{address.url} has an unrequested compression that cannot be read.")
                        yield answer
                        return
                    to = response.headers.get("Location", "").encode("latin-1", "replace").decode("utf-8", "replace")
                    if not to.strip():
                        status = _status(response.status_code)
                        raise CommandError(f"{address.url} answers {status}, but not where to go.")
                    try:
                        target = parse(urljoin(address.url, to.strip()))
                    except (CommandError, ValueError) as error:
                        raise CommandError(f"{address.url} redirects to a refused address: {error}") from error
                is_same_host = target.host == address.host and {target.port, address.port} <= {address.port, 80, 443}
                if SAME_HOST_ONLY.get() and not is_same_host:
                    to = f"{target.url}, another host than this call was allowed for; ask for that by itself"
                    raise CommandError(f"{address.url} redirects to {to}.")
                cookies.update(response.cookies)
                if target.origin != address.origin:
                    sent = {name: value for name, value in sent.items() if name.lower() in _HARMLESS_HEADERS}
                address = target
        raise CommandError(f"{parse(url).url} leads to too many redirects ({MAX_REDIRECTS}), at last to {address.url}.")


def _status(status: int) -> str:
    """Describe a status as `404 Not Found`, with the standard's reason instead of the server's."""
    from http.client import responses  # requests has imported it by now

    return f"{status} {responses.get(status, '')}".rstrip()


# Downloads: large files, piece by piece to the disk ----------------------------------------------------------------

_UNCOMPRESSED: Mapping[str, str] = {"Accept-Encoding": "identity"}

# As in protocols.Web.download.
Progress = Callable[[int, int | None], None]
OpenPart = Callable[[str], AbstractContextManager[BinaryIO]]


def download(client: HttpClient, url: str, part: OpenPart, *, limit: int, progress: Progress) -> int:
    """Download a file of at most `limit` bytes, resuming while attempts make progress, and return its size.

    A part is continued only if the server confirms that the file is unchanged: its name stands for the URL, the ETag or
    date, and the size. Otherwise the download starts over.

    Raises CommandError. The part is emptied if it cannot be continued later.
    """
    with Deadline(DOWNLOAD_SECONDS) as deadline, client.get(url, _UNCOMPRESSED, deadline) as first:
        validator, size = first.validator, first.length
        if size is not None and size > limit:
            raise _too_large(first, limit)
        version = hashlib.sha256(f"{url}\n{validator}\n{size}".encode()).hexdigest()[:16]
        with part(version) as file:
            if not validator or size is None:
                return _download_whole(first, file, limit, progress)
            if file.seek(0, os.SEEK_END) > size:
                _empty(file)
            while (before := file.tell()) < size:
                try:
                    if before == 0:
                        _receive(first, file, size, progress)
                    else:
                        headers = {**_UNCOMPRESSED, "Range": f"bytes={before}-", "If-Range": validator}
                        with client.get(url, headers, deadline, expected=(200, 206)) as rest:
                            if rest.response.status_code != 206 or rest.start != file.tell():
                                _empty(file)
                                raise CommandError(f"{url} has changed while it was being fetched; fetch it again.")
                            _receive(rest, file, size, progress)
                except CommandError:
                    if deadline.passed or file.tell() <= before:
                        raise
                if file.tell() <= before:
                    raise CommandError(f"{url} cannot be fetched: the server sent nothing more after {before:,} bytes.")
            return size


def _download_whole(answer: HttpAnswer, file: BinaryIO, limit: int, progress: Progress) -> int:
    _empty(file)
    try:
        _receive(answer, file, limit + 1, progress)
        if file.tell() > limit:
            raise _too_large(answer, limit)
    except CommandError:
        _empty(file)
        raise
    return file.tell()


def _receive(answer: HttpAnswer, file: BinaryIO, end: int, progress: Progress) -> None:
    """Append the content to the file, up to a size of `end` bytes."""
    total = file.tell() + answer.length if answer.length is not None else None
    for block in answer.blocks(end - file.tell()):
        file.write(block)
        progress(file.tell(), total)


def _empty(file: BinaryIO) -> None:
    file.truncate(0)
    file.seek(0)


def _too_large(answer: HttpAnswer, limit: int) -> CommandError:
    size = f"has {answer.length:,} bytes" if answer.length is not None else "goes on"
    return CommandError(
        f"{answer.address.url} {size}, beyond the limit of {limit:,} bytes (AUTOAGENT_SANDBOX_FILE, in MB)."
    )
