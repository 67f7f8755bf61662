"""Documents that do something else than be read."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

WORDS = b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"/>'


def archive(entries: Mapping[str, bytes], *, link: str = "", declared: int | None = None) -> bytes:
    """A document of Word with further entries, one perhaps a link; `declared` bytes stand for the size of the last."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in {"[Content_Types].xml": b"<Types/>", "word/document.xml": WORDS, **entries}.items():
            made.writestr(name, content)
        if link:
            info = zipfile.ZipInfo(link)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            made.writestr(info, "../../../outside")
        if declared is not None:
            made.infolist()[-1].file_size = declared
    return file.getvalue()


def pdf(text: bytes, picture: bytes = b"") -> bytes:
    """A document of one page, whose text and whose one grey picture of 10,000 by 10,000 are compressed twice."""
    packed = b"/Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%b\nendstream"
    grey = b"/Width 10000 /Height 10000 /BitsPerComponent 8 /ColorSpace /DeviceGray"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R"
        b" /Resources << /Font << /F 5 0 R >> /XObject << /P 6 0 R >> >> >>",
        b"<< " + packed % (len(text), text),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /XObject /Subtype /Image " + grey + packed % (len(picture), picture),
    ]
    made, places = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = b"trailer\n<< /Size 7 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(made)
    return made + b"xref\n0 7\n0000000000 65535 f \n" + table + start


def twice(content: bytes) -> bytes:
    return zlib.compress(zlib.compress(content, 1), 1)


# How to make each, and what the refusal to read it names.
DOCUMENTS: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "absolute.docx": (lambda: archive({"/etc/x": b"hostile"}), "an absolute path"),
    "drive.docx": (lambda: archive({"C:\\x": b"hostile"}), "an absolute path"),
    "up.docx": (lambda: archive({"word/../../../x": b"hostile"}), "leads out of its folder"),
    "link.docx": (lambda: archive({}, link="word/media"), "a symbolic link"),
    "many.docx": (lambda: archive({f"{number}": b"" for number in range(10_001)}), "the limit is 10,000"),
    "large.docx": (lambda: archive({"x": b""}, declared=300_000_001), "bytes; the limit is 300,000,000"),
    "bomb.docx": (lambda: archive({"x": bytes(20_000_000)}), "times its size; the limit is 200"),
    "cut.docx": (lambda: archive({})[:-30], "a damaged archive"),
    "bomb.pdf": (lambda: pdf(twice(b"BT /F 9 Tf (x) Tj ET\n" * 5_000_000)), "a limit of the PDF library"),
    "picture.pdf": (lambda: pdf(twice(b"/P Do\n"), twice(bytes(100_000_000))), "pictures, which are not read"),
}


def unpackable(folder: Path, outside: Path) -> None:
    """Archives in a folder whose entries lead to another one, for programs that believe in names."""
    names = (str(outside / "new.txt"), "../../outside/new.txt")
    with tarfile.open(folder / "evil.tar", "w") as packed:
        for name in names:
            packed.addfile(_file(name), io.BytesIO(b"hostile"))
        link = tarfile.TarInfo("way")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        packed.addfile(link)
        packed.addfile(_file("way/new.txt"), io.BytesIO(b"hostile"))
        hard = tarfile.TarInfo("hard")
        hard.type, hard.linkname = tarfile.LNKTYPE, str(outside / "secret.txt")
        packed.addfile(hard)
        packed.addfile(_file("hard"), io.BytesIO(b"hostile"))
    with zipfile.ZipFile(folder / "evil.zip", "w", zipfile.ZIP_DEFLATED) as made:
        for name in (*names, "inside.txt"):
            made.writestr(name, "hostile")
        made.writestr("bomb", bytes(30_000_000))


def _file(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = 7
    return info
