"""Read DOCX and XLSX with python-docx and openpyxl (the extra `documents`). Runs in the process of `isolated`."""

from __future__ import annotations

import io
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath

from autoagent.documents.document_text import ENTRY_LIMIT, TEXT_LIMIT, DocumentText, UnreadableDocument, limit_text

UNPACKED_LIMIT = 300_000_000  # bytes of all entries together
EXPANSION_LIMIT = 200  # times the size of the archive; office files reach about 50
EXPANSION_FROM = 1_000_000  # unpacked bytes that are always accepted

_HEADING = re.compile(r"Heading ([1-6])")


def read(kind: str, data: bytes, url: str) -> DocumentText:
    """Read a `docx` as Markdown, an `xlsx` sheet by sheet with a line per non-empty row. Raises UnreadableDocument."""
    check_archive(data)
    lines, size = [], 0
    for line in _docx_lines(data) if kind == "docx" else _xlsx_lines(data):
        lines.append(line)
        size += len(line) + 1
        if size > TEXT_LIMIT:
            break
    text, note = limit_text("\n".join(lines))
    return DocumentText(text or "[it holds no text]", note=note)


def _docx_lines(data: bytes) -> Iterator[str]:
    import docx
    from docx.table import Table

    for block in docx.Document(io.BytesIO(data)).iter_inner_content():
        if isinstance(block, Table):
            for row in block.rows:
                yield " | ".join(cell.text.strip().replace("\n", " ") for cell in row.cells)
        elif text := block.text.strip():
            style = str(block.style.name) if block.style else ""
            heading = _HEADING.match(style)
            mark = "#" * int(heading[1]) + " " if heading else "- " if style.startswith("List") else ""
            yield f"{mark}{text}"


def _xlsx_lines(data: bytes) -> Iterator[str]:
    import openpyxl

    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    for sheet in book.worksheets:
        yield f"# {sheet.title}"
        for row in sheet.iter_rows(values_only=True):
            cells = ["" if value is None else str(value) for value in row]
            if any(cells):
                yield "\t".join(cells).rstrip("\t")


# The archive, checked before a library opens it --------------------------------------------------------------------


def check_archive(data: bytes) -> None:
    """Raise UnreadableDocument for an archive with damage, paths out of its folder, or sizes beyond the limits.

    The sizes in the central directory bind: Python's zipfile reads no more of an entry than it declares there.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, zlib.error, ValueError, RuntimeError) as error:  # RuntimeError: on several disks
        raise UnreadableDocument(f"is a damaged archive: {error}.") from error
    if len(entries) > ENTRY_LIMIT:
        raise UnreadableDocument(f"holds {len(entries):,} files; the limit is {ENTRY_LIMIT:,}.")
    for entry in entries:
        if problem := _entry_problem(entry):
            raise UnreadableDocument(f"holds an entry {problem}: {entry.filename[:100]!r}.")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > UNPACKED_LIMIT:
        raise UnreadableDocument(f"unpacks to {unpacked:,} bytes; the limit is {UNPACKED_LIMIT:,}.")
    if unpacked > EXPANSION_FROM and unpacked > EXPANSION_LIMIT * len(data):
        times = unpacked // len(data)
        raise UnreadableDocument(f"unpacks to {times:,} times its size; the limit is {EXPANSION_LIMIT}.")


def _entry_problem(entry: zipfile.ZipInfo) -> str:
    name = entry.orig_filename.replace("\\", "/")
    if name.startswith("/") or name[1:2] == ":":
        return "with an absolute path"
    if ".." in PurePosixPath(name).parts:
        return "that leads out of its folder"
    return "that is a symbolic link" if stat.S_ISLNK(entry.external_attr >> 16) else ""
