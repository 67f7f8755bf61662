"""Convert web pages to their visible text with links. Runs in the process of `isolated`.

If the extra `readable` is installed, trafilatura finds the main text. For pages with little of it, and without the
extra, the whole page is used, navigation included.

Not covered: text written by scripts (a browser renders such pages), and subtle ways of hiding text, such as white on
white or far off the screen. Whatever is read counts as text from outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup
from bs4.element import NavigableString, Tag

from autoagent.documents.document_text import DocumentText, Link, limit_text, visible_text

HTML_LIMIT = 3_000_000  # characters of a page to parse
LINK_LIMIT = 1_000
ADDRESS_LIMIT = 2_000  # characters per link
LINK_TEXT_LIMIT = 200  # characters of a link's text, and nodes examined for it
STYLE_LIMIT = 200_000  # characters of style sheets to parse
MIN_MAIN_TEXT = 500  # characters of a main text; below that the page is a list, a form or a few words
MAX_LINKS_FOR_MAIN = 5_000  # beyond that the page is a list, and searching for a main text is slow

_INVISIBLE_TAGS = ("script", "style", "template", "title", "iframe", "object", "svg", "canvas", "datalist")
_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)"
    r"|(?:font-size|opacity)\s*:\s*0(?:\.0+)?(?:px|em|rem|%)?\s*(?:[;!]|$)",
    re.I,
)
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.S)
_SIMPLE = re.compile(r"[.#]?[\w-]+")
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt"),
    *("fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "li", "main", "nav", "ol", "p", "pre"),
    *("section", "summary", "table", "tbody", "thead", "tr", "ul", *_HEADINGS),
}


def read(kind: str, data: bytes, url: str) -> DocumentText:
    """Read a page from UTF-8 bytes. `url` is the base of relative links."""
    text = data.decode()
    note = f"only the first {HTML_LIMIT:,} characters of the page's source" if len(text) > HTML_LIMIT else ""
    soup = BeautifulSoup(text[:HTML_LIMIT], "html.parser")
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    _hide(soup)
    links, count = _resolve_links(soup, url)
    main = _main_text(str(soup)) if count <= MAX_LINKS_FOR_MAIN else ""
    text, note = limit_text(visible_text(main if len(main) >= MIN_MAIN_TEXT else _whole_text(soup)), note)
    return DocumentText(text, visible_text(title)[:300], links, count, note)


def _hide(soup: BeautifulSoup) -> None:
    """Turn every hidden element into a template, so that it is never read.

    Renaming is used because removing an element takes time proportional to its siblings.
    """
    selectors = _hiding_selectors("\n".join(style.get_text() for style in soup.find_all("style"))[:STYLE_LIMIT])
    for tag in soup.find_all(True):
        if tag.name in _INVISIBLE_TAGS or (_is_hidden(tag, selectors) and tag.name not in ("html", "body")):
            tag.name = "template"


def _is_hidden(tag: Tag, selectors: set[str]) -> bool:
    if "hidden" in tag.attrs or ("style" in tag.attrs and _HIDING.search(str(tag["style"]))):
        return True
    classes = tag.get("class") or ()
    return not selectors.isdisjoint({tag.name, f"#{tag.get('id', '')}", *(f".{name}" for name in classes)})


def _hiding_selectors(css: str) -> set[str]:
    """Return the plain selectors (`.note`, `#note`, `aside`) of rules that hide elements."""
    hiding_selectors: set[str] = set()
    depth, selectors = 0, ""
    for piece in re.split(r"([{}])", _COMMENT.sub("", css)):
        if piece in ("{", "}"):
            depth = max(0, depth + (1 if piece == "{" else -1))
        elif depth == 0:
            selectors = piece.rpartition(";")[2].strip()
        elif depth == 1 and not selectors.startswith("@") and _HIDING.search(piece):
            names = (selector.strip() for selector in selectors.split(","))
            hiding_selectors.update(filter(_SIMPLE.fullmatch, names))
    return hiding_selectors


def _resolve_links(soup: BeautifulSoup, url: str) -> tuple[tuple[Link, ...], int]:
    """Make the visible links absolute. Return a link for each address, the first with a text, and their number."""
    base = soup.find("base", href=True)
    start = _absolute_url(url, str(base["href"])) if base else url
    link_by_address: dict[str, Link] = {}
    for node, begins in _walk(soup):
        if not begins or not isinstance(node, Tag) or node.name != "a" or not node.has_attr("href"):
            continue
        target = _absolute_url(start, str(node["href"]))
        if not target.startswith(("http://", "https://")):
            del node["href"]
            continue
        node["href"] = target
        if target not in link_by_address or not link_by_address[target].text:
            link_by_address[target] = Link(_link_text(node) if len(link_by_address) < LINK_LIMIT else "", target)
    return tuple(link_by_address.values())[:LINK_LIMIT], len(link_by_address)


def _link_text(tag: Tag) -> str:
    texts = (str(node) for node, _ in islice(_walk(tag), LINK_TEXT_LIMIT) if isinstance(node, NavigableString))
    return visible_text(" ".join(" ".join(texts).split()))[:LINK_TEXT_LIMIT]


def _absolute_url(base: str, reference: str) -> str:
    try:
        joined = urljoin(base, reference.strip())
        urlsplit(joined)
    except ValueError:  # a host in unbalanced brackets
        return ""
    address = visible_text(joined).replace(" ", "%20")
    return address if len(address) <= ADDRESS_LIMIT else ""  # cut, it would be another page's


def _main_text(html: str) -> str:
    try:
        import trafilatura
    except ImportError:
        return ""
    text = trafilatura.extract(
        html,
        output_format="markdown",
        include_links=True,
        include_comments=False,
        favor_recall=True,
        prune_xpath="//template",
    )
    return text or ""


def _walk(root: Tag) -> Iterator[tuple[Tag | NavigableString, bool]]:
    """Yield everything visible in order, each element at its beginning (True) and its end. Not recursive."""
    stack: list[tuple[Tag | NavigableString, bool]] = [(root, True)]
    while stack:
        node, begins = stack.pop()
        if isinstance(node, Tag):
            if node.name == "template":
                continue
            if begins:
                children = (child for child in reversed(node.contents) if isinstance(child, (Tag, NavigableString)))
                stack += [(node, False), *((child, True) for child in children)]
        elif type(node) is not NavigableString:
            continue  # a comment, a declaration etc.
        yield node, begins


def _whole_text(soup: BeautifulSoup) -> str:
    parts: list[str] = []
    preformatted_depth = 0
    for node, begins in _walk(soup):
        if isinstance(node, NavigableString):
            parts.append(node if preformatted_depth else re.sub(r"\s+", " ", node))
        else:
            if node.name in ("pre", "textarea"):
                preformatted_depth += 1 if begins else -1
            parts.append(_markdown(node, begins))
    lines = (line.strip() for line in "".join(parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _markdown(tag: Tag, begins: bool) -> str:
    if tag.name == "a" and tag.has_attr("href"):
        return "[" if begins else f"]({tag['href']})"
    if tag.name in ("td", "th"):
        return "" if begins else " | "
    if tag.name not in _BLOCKS:
        return ""
    if begins:
        return "\n- " if tag.name == "li" else f"\n{_HEADINGS.get(tag.name, '')}"
    return "" if tag.name in ("li", "tr") else "\n"
