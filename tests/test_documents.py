"""Documents made by the libraries that people make them with, and documents made to do harm."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path

import pytest

from autoagent import documents
from autoagent.commands import files
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.core.commands import Call, Result
from autoagent.core.errors import CommandError
from autoagent.documents import TEXT_LIMIT, office
from autoagent.documents.document_text import Link
from autoagent.memory.none import NoMemory
from autoagent.workspace.gate import Workspace

WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def pdf(*pages: str, password: str = "") -> bytes:
    """A PDF with these pages, each one line of Helvetica, as a writer of PDF files makes it."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    named = DictionaryObject({NameObject(key): NameObject(value) for key, value in font.items()})
    for text in pages:
        blank = writer.add_blank_page(300, 300)
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(named)})
        blank[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode() if text else b"")
        blank[NameObject("/Contents")] = writer._add_object(content)
    writer.add_metadata({"/Title": "Tides of Islay"})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def docx() -> bytes:
    import docx as library

    document = library.Document()
    document.add_heading("Report", 1)
    document.add_paragraph("The bridge has 214 spans.")
    document.add_paragraph("steel", style="List Bullet")
    table = document.add_table(1, 2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "length", "3,911 m"
    document.add_paragraph("After the table.")
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def xlsx() -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "Prices"
    book.active.append(["apples", 3, 1.5])
    book.active.cell(40, 2, "far below")
    book.create_sheet("Empty")
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(entries: dict[str, bytes], *, links: tuple[str, ...] = ()) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o120777 if name in links else 0o100644) << 16
            file.writestr(entry, data)
    return out.getvalue()


def text_of(data: bytes, media_type: str = "", name: str = "x", charset: str = "") -> str:
    kind = documents.kind_of(data, media_type, name)
    assert kind is not None
    return documents.read(name, data, kind, charset=charset).text


def refusal(data: bytes, kind: documents.Kind) -> str:
    with pytest.raises(CommandError) as refused:
        documents.read("it", data, kind)
    return str(refused.value)


# What they say -----------------------------------------------------------------------------------------------------


def test_a_pdf_is_read_page_by_page() -> None:
    reading = documents.read("tides.pdf", pdf("High water is at noon.", "Low water is at six."), "pdf")
    assert reading.text == "[page 1 of 2]\nHigh water is at noon.\n\n[page 2 of 2]\nLow water is at six."
    assert (reading.title, reading.note) == ("Tides of Islay", "")


def test_a_docx_is_read_with_headings_lists_and_tables_in_their_order() -> None:
    assert text_of(docx()) == "# Report\nThe bridge has 214 spans.\n- steel\nlength | 3,911 m\nAfter the table."


def test_an_xlsx_is_read_sheet_by_sheet_without_its_empty_rows() -> None:
    assert text_of(xlsx()) == "# Prices\napples\t3\t1.5\n\tfar below\n# Empty"


@pytest.mark.parametrize(
    ("data", "media_type", "name", "kind"),
    [
        (b"%PDF-1.7", "application/octet-stream", "", "pdf"), (b"%PDF-1.7", "text/html", "", "pdf"),
        (b"<!DOCTYPE html>", "", "", "html"), (b"hello", "text/html", "", "html"),
        (b"hello", "text/markdown", "", "text"), (b"a,b", "text/csv", "", "text"),
        (b"{}", "application/ld+json", "", "text"), (b"<a/>", "application/atom+xml", "", "text"),
        (b"a,b", "", "data.CSV", "text"), (b"a,b", "application/octet-stream", "data.csv", "text"),
        (b"\x7fELF\0\0", "application/octet-stream", "data.csv", None),
        (b"hello", "application/octet-stream", "", None), (b"\x89PNG\r\n\x1a\n\0", "image/png", "", None),
        (b"\x89PNG\r\n\x1a\n\0", "text/html", "", None), (b"hello", "image/png", "", None),
        (b"hello", "application/pdf", "", None), (b"hello", WORD, "", None),
        (b"PK\x03\x04 broken", WORD, "", None), (b"PK\x03\x04 broken", "", "report.DOCX", "docx"),
        (packed({"x": b""}), "application/zip", "", None),
    ],
)  # fmt: skip
def test_the_bytes_tell_what_they_are_before_their_server_does(
    data: bytes, media_type: str, name: str, kind: str | None
) -> None:
    assert documents.kind_of(data, media_type, name) == kind


def test_half_a_character_of_a_page_is_replaced() -> None:
    assert text_of(b"<p>\xe9 \\ud800 end", "text/html", charset="unicode_escape").endswith("end")


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        ("Grüße".encode(), "latin-1", "Grüße"),
        ("Grüße".encode("latin-1"), "utf-8", "Grüße"),
        ("Grüße".encode("latin-1"), "", "Grüße"),
        ("“Grüße” €".encode("windows-1252"), "", "“Grüße” €"),
        ("привет".encode("koi8-r"), "koi8-r", "привет"),
        (b'<meta charset="koi8-r">' + "привет".encode("koi8-r"), "", '<meta charset="koi8-r">привет'),
        ("Grüße".encode("utf-16"), "utf-8", "Grüße"),
        *(("Grüße".encode("latin-1"), wrong, "Grüße") for wrong in ("no-such-charset", "base64", "quopri", "zlib")),
        ("Grüße".encode()[:-2], "utf-8", "Grü"),
        (b"\xef\xbb\xbfa\r\nb", "", "a\nb"),
        ("a\x1b[2Jb\u202ec\u200bd\U000e0041e".encode(), "", "a[2Jbcde"),
    ],
)
def test_a_charset_that_lies_is_found_out(data: bytes, charset: str, text: str) -> None:
    assert text_of(data, "text/plain", charset=charset) == text


def test_a_long_text_is_cut_and_says_so() -> None:
    reading = documents.read("x", b"word " * TEXT_LIMIT, "text")
    assert (len(reading.text), reading.note) == (TEXT_LIMIT, f"only the first {TEXT_LIMIT:,} characters")


@pytest.mark.slow
def test_read_file_reads_documents_of_the_workspace(tmp_path: Path) -> None:
    context = Context(Workspace(tmp_path), NoMemory(), ask=lambda question, timeout: "")
    registry = Registry(files.COMMANDS)

    def read_file(name: str, data: bytes) -> Result:
        (tmp_path / name).write_bytes(data)
        return registry.execute(Call("1", "read_file", {"filename": name}), context)

    assert read_file("tides.pdf", pdf("High water.")).text == "[page 1 of 1]\nHigh water."
    assert read_file("report", docx()).text.startswith("# Report\n")
    assert read_file("prices.xlsx", xlsx()).text.startswith("# Prices\napples\t3")
    assert read_file("page.html", b"<p>as it is</p>").text == "<p>as it is</p>"
    assert read_file("about.txt", b"PDF files begin with %PDF-").text == "PDF files begin with %PDF-"
    assert read_file("x.zip", packed({"x": b"y"})).text.endswith("bytes, not text.")
    assert read_file("bad.xlsx", xlsx()[:-40]).text.startswith("bad.xlsx is a damaged archive: ")
    assert read_file("bad.pdf", b"%PDF-1.7").text.startswith("bad.pdf cannot be read; it seems damaged: ")


# Made to do harm ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("/etc/passwd", "holds an entry with an absolute path: '/etc/passwd'"),
        ("C:\\x", "holds an entry with an absolute path: 'C:\\\\x'"),
        ("word/../../x", "holds an entry that leads out of its folder: 'word/../../x'"),
        ("..\\x", "holds an entry that leads out of its folder: '..\\\\x'"),
        ("link", "holds an entry that is a symbolic link: 'link'"),
    ],
)
def test_an_archive_that_leads_out_of_its_folder_is_refused(name: str, problem: str) -> None:
    data = packed({"word/document.xml": b"<x/>", name: b"target"}, links=("link",))
    assert documents.kind_of(data) == "docx"
    assert refusal(data, "docx") == f"it {problem}."


def test_an_archive_that_expands_a_thousandfold_is_refused_unopened() -> None:
    data = packed({"xl/workbook.xml": b"\0" * 20_000_000})
    assert len(data) < 30_000
    began = time.monotonic()
    message = refusal(data, "xlsx")
    assert message.startswith("it unpacks to ")
    assert message.endswith(f"times its size; the limit is {office.EXPANSION_LIMIT}.")
    assert time.monotonic() - began < 10


def test_an_archive_that_declares_more_than_fits_is_refused() -> None:
    """Ten thousandfold and more needs entries that overlap: the sizes in the directory tell, whatever they lie on."""
    data = bytearray(packed({"word/document.xml": b"<x/>", "b": b"y"}))
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = (4_000_000_000).to_bytes(4, "little")
    message = refusal(bytes(data), "docx")
    assert message == f"it unpacks to 4,000,000,004 bytes; the limit is {office.UNPACKED_LIMIT:,}."


def test_an_archive_of_too_many_files_is_refused() -> None:
    data = packed({"word/document.xml": b"", **{str(number): b"" for number in range(office.ENTRY_LIMIT)}})
    assert refusal(data, "docx") == f"it holds {office.ENTRY_LIMIT + 1:,} files; the limit is {office.ENTRY_LIMIT:,}."


def test_damaged_documents_say_so() -> None:
    assert refusal(b"%PDF-1.7\n" + b"\xff" * 400, "pdf").startswith("it cannot be read; it seems damaged: ")
    assert refusal(docx()[:2000], "docx") == "it is a damaged archive: File is not a zip file."
    assert refusal(packed({"word/document.xml": b"<"}), "docx").startswith("it cannot be read; it seems damaged: ")


def test_a_pdf_without_text_or_with_a_password_says_so() -> None:
    assert refusal(pdf("", ""), "pdf") == "it has no text: its pages (2) are pictures, which are not read."
    assert refusal(pdf("secret", password="k"), "pdf") == "it is encrypted with a password."


def test_entities_in_a_docx_are_not_expanded() -> None:
    """Neither a file of ours nor a billion of anything gets into the text."""
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    head = f'<!DOCTYPE d [<!ENTITY f SYSTEM "file:///etc/passwd"><!ENTITY l0 "ha">{laughs}]>'
    entries = unpacked(docx())
    document = entries["word/document.xml"].decode()
    document = document.replace("<w:document", f"{head}<w:document", 1).replace("214 spans", "&f; &l9; spans")
    began = time.monotonic()
    try:
        text = documents.read("it", packed({**entries, "word/document.xml": document.encode()}), "docx").text
    except CommandError as error:
        text = str(error)
    assert "root:" not in text and "haha" not in text
    assert time.monotonic() - began < 30


def test_a_docx_nested_without_end_is_refused() -> None:
    entries = unpacked(docx())
    nested = b"<w:tbl><w:tr><w:tc>" * 2000 + b"<w:p/>" + b"</w:tc></w:tr></w:tbl>" * 2000
    entries["word/document.xml"] = entries["word/document.xml"].replace(b"<w:body>", b"<w:body>" + nested, 1)
    assert "it seems damaged: XMLSyntaxError: Excessive depth" in refusal(packed(entries), "docx")


@pytest.mark.parametrize(
    ("name", "data"),
    {
        "deep.json": b"[" * 900_000,
        "laughs.yaml": b"b0: &b0 [ha]\n"
        + b"".join(b"b%d: &b%d [*b%d, *b%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 60)),
    }.items(),
)
def test_what_only_a_parser_would_choke_on_is_read_as_it_stands(name: str, data: bytes) -> None:
    kind = documents.kind_of(data, "", name)
    assert kind == "text"
    assert documents.read(name, data, kind).text.encode() == data


# Pages -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_page_too_large_to_be_parsed_is_cut_in_bounded_time() -> None:
    began = time.monotonic()
    reading = documents.read("it", b"<p>" + b"word " * 4_000_000, "html")
    cuts = ("only the first 3,000,000 characters of the page's source", f"only the first {TEXT_LIMIT:,} characters")
    assert reading.note == "; ".join(cuts)
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_a_page_nested_fifty_thousand_deep_is_read() -> None:
    body = b"<div>" * 50_000 + b"at the bottom" + b"</div>" * 50_000 + b"<p>and after</p>"
    assert documents.read("it", body, "html").text == "at the bottom\n\nand after"


def test_an_address_too_long_to_show_is_no_link() -> None:
    body = f'<p>See <a href="/{"a" * 3000}">the long page</a> or <a href="/b">the other one</a>.</p>'.encode()
    reading = documents.read("it", body, "html", url="http://h.example/")
    assert reading.links == (Link("the other one", "http://h.example/b"),) and "the long page" in reading.text


@pytest.mark.slow
def test_a_page_of_a_hundred_thousand_links_is_cut() -> None:
    body = "".join(f'<p><a href="/{number}">link {number}</a></p>' for number in range(100_000)).encode()
    reading = documents.read("it", body, "html", url="http://h.example/")
    assert len(reading.links) == 1000 and reading.link_count > 70_000
    assert reading.links[0] == Link("link 0", "http://h.example/0")
    assert "only the first" in reading.note


@pytest.mark.slow
def test_style_sheets_and_links_made_to_be_slow_are_not() -> None:
    slow = b"<style>" + b"@" * 100_000 + b"/*" * 50_000 + b"</style><style>" + b"a{" * 50_000 + b"</style>"
    links = b"".join(b"<a href=/%d>" % number for number in range(20_000))
    began = time.monotonic()
    assert documents.read("it", slow + b"<p>still here</p>", "html").text == "still here"
    assert documents.read("it", links, "html", url="http://h.example/").link_count == 20_000
    assert time.monotonic() - began < 30
