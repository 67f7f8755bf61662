"""DOCX and XLSX files, with python-docx and openpyxl (the extra `documents`). Runs in the process of `isolated`."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from autoagent.documents import archive
from autoagent.documents.reading import TEXT_LIMIT, DocumentText, limited

if TYPE_CHECKING:
    from docx.table import Table
    from docx.text.paragraph import Paragraph

_HEADING = re.compile(r"Heading ([1-6])")


def read(kind: str, data: bytes, url: str) -> DocumentText:
    """A `docx` as Markdown; an `xlsx` sheet by sheet, a line for each row that holds something. Raises Unreadable."""
    archive.check(data)
    text, note = limited(_joined(_document(data) if kind == "docx" else _sheets(data)))
    return DocumentText(text or "[it holds no text]", note=note)


def _joined(lines: Iterable[str]) -> str:
    """The lines up to the limit; what comes after is not even read."""
    taken, size = [], 0
    for line in lines:
        taken.append(line)
        size += len(line) + 1
        if size > TEXT_LIMIT:
            break
    return "\n".join(taken)


def _document(data: bytes) -> Iterator[str]:
    import docx
    from docx.table import Table

    for block in docx.Document(io.BytesIO(data)).iter_inner_content():
        yield from _rows(block) if isinstance(block, Table) else _paragraph(block)


def _paragraph(paragraph: Paragraph) -> Iterator[str]:
    style = str(paragraph.style.name) if paragraph.style else ""
    heading = _HEADING.match(style)
    mark = "#" * int(heading[1]) + " " if heading else "- " if style.startswith("List") else ""
    if paragraph.text.strip():
        yield f"{mark}{paragraph.text.strip()}"


def _rows(table: Table) -> Iterator[str]:
    for row in table.rows:
        yield " | ".join(cell.text.strip().replace("\n", " ") for cell in row.cells)


def _sheets(data: bytes) -> Iterator[str]:
    import openpyxl

    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    for sheet in book.worksheets:
        yield f"# {sheet.title}"
        for row in sheet.iter_rows(values_only=True):
            cells = ["" if value is None else str(value) for value in row]
            if any(cells):
                yield "\t".join(cells).rstrip("\t")
