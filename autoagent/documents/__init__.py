"""Extract text from documents.

PDF, DOCX, XLSX and HTML are parsed by libraries in a separate process (`isolated`) under limits of time and memory.
CSV, JSON, Markdown, XML and plain text are text already (`document_text`).

May import core and text. Exports `kind_of` and `read`.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import PurePosixPath
from typing import Literal

from autoagent.core.errors import CommandError
from autoagent.documents import document_text, isolated
from autoagent.documents.document_text import TEXT_LIMIT, DocumentText, UnreadableDocument, decode, is_binary

Kind = Literal["html", "pdf", "docx", "xlsx", "text"]

DOCUMENT_LIMIT = 50_000_000  # bytes; a larger document is refused, as half of it is unreadable
PDF = b"%PDF-"
ARCHIVE = b"PK\x03\x04"  # the container of DOCX and XLSX

_TYPES: dict[str, Kind] = {
    "text/html": "html", "application/xhtml+xml": "html", "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/json": "text", "application/xml": "text", "application/javascript": "text",
    "application/yaml": "text", "application/x-yaml": "text", "application/toml": "text", "application/sql": "text",
    "application/csv": "text", "application/x-sh": "text",
}  # fmt: skip
# Servers use these for unknown files, so the content decides.
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream", "application/zip", "application/x-zip-compressed")
_TEXT_SUFFIXES = (".txt", ".md", ".markdown", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".rst")
_OFFICE: dict[str, Kind] = {"word/document.xml": "docx", "xl/workbook.xml": "xlsx"}
_OFFICE_SUFFIXES: dict[str, Kind] = {".docx": "docx", ".xlsx": "xlsx"}


def kind_of(data: bytes, media_type: str = "", name: str = "") -> Kind | None:
    """Recognise a document by its bytes, its media type and the suffix of its name.

    Return None if it cannot be read as text. Office files are only recognised by the whole document.
    """
    if data.startswith(PDF):
        return "pdf"
    if data.startswith(ARCHIVE):
        return _office_kind(data, name)
    if media_type.startswith("text/") or media_type.endswith(("+json", "+xml")) or media_type in _TYPES:
        kind = _TYPES.get(media_type, "text")
        return kind if kind in ("html", "text") and not is_binary(data) else None
    if media_type not in _UNKNOWN or is_binary(data):
        return None
    if data[:200].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    return "text" if PurePosixPath(name).suffix.lower() in _TEXT_SUFFIXES else None


def read(name: str, data: bytes, kind: Kind, *, url: str = "", charset: str = "") -> DocumentText:
    """Read the text of a document, at most TEXT_LIMIT characters. Messages call it `name`.

    `url` is the base of its links, `charset` the server's claim.

    Raises CommandError if it is damaged, encrypted, too large when unpacked, too slow to read, or a library is missing.
    """
    try:
        match kind:
            case "text":
                text, note = document_text.limit_text(decode(data, charset))
                return DocumentText(text, note=note)
            case "html":
                return isolated.read("html", decode(data, charset).encode(), url)
            case _:
                return isolated.read(kind, data, url)
    except UnreadableDocument as error:
        raise CommandError(f"{name} {error}") from error


def _office_kind(data: bytes, name: str) -> Kind | None:
    try:
        if data.count(b"PK\1\2") > document_text.ENTRY_LIMIT:
            raise ValueError("it has too many entries, as its reader will report")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, RuntimeError):  # RuntimeError: on several disks
        return _OFFICE_SUFFIXES.get(PurePosixPath(name).suffix.lower())  # damaged, as its reader will report
    return next((kind for part, kind in _OFFICE.items() if part in names), None)


__all__ = ["ARCHIVE", "DOCUMENT_LIMIT", "PDF", "TEXT_LIMIT", "DocumentText", "Kind", "kind_of", "read"]
