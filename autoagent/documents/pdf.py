"""Read PDF files, with pypdf (the extra `documents`). Runs in the process of `isolated`."""

from __future__ import annotations

import io
import time

from autoagent.documents.document_text import TEXT_LIMIT, DocumentText, UnreadableDocument, limit_text

MAX_READ_SECONDS = 40.0  # after that, the pages read so far are the answer


def read(kind: str, data: bytes, url: str) -> DocumentText:
    """Read the text page by page, each under a line `[page N of M]`. Raises UnreadableDocument."""
    from pypdf.errors import LimitReachedError

    try:
        return _pages(data)
    except LimitReachedError as error:  # unpacks to more than the library accepts, or refers to itself
        raise UnreadableDocument(f"goes past a limit of the PDF library: {error}") from error


def _pages(data: bytes) -> DocumentText:
    import pypdf

    document = pypdf.PdfReader(io.BytesIO(data))
    if document.is_encrypted and not document.decrypt(""):
        raise UnreadableDocument("is encrypted with a password.")
    start, pages = time.monotonic(), len(document.pages)
    texts, size, note = [], 0, ""
    for number, page in enumerate(document.pages, 1):
        if size > TEXT_LIMIT or time.monotonic() - start > MAX_READ_SECONDS:
            note = f"only the first {number - 1} of {pages} pages"
            break
        text = page.extract_text().strip()
        texts.append(f"[page {number} of {pages}]\n{text}")
        size += len(text)
    if not size:
        raise UnreadableDocument(f"has no text: its pages ({pages}) are pictures, which are not read.")
    title = document.metadata.title if document.metadata else None
    text, note = limit_text("\n\n".join(texts), note)
    return DocumentText(text, str(title or ""), note=note)
