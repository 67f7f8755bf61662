"""Check a text against the form of its file name: JSON, Python, TOML or YAML.

Errors have only the parser's words and the line, never the content.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from pathlib import PurePosixPath

MAX_CHARACTERS = 200_000  # longer texts are not checked
_MAX_KEY_PARTS = 1000  # of a dotted key; tomllib takes memory for the square of their number
_DEFINITION = re.compile(r"^(?:async +)?(?:def|class) +(\w+)", re.MULTILINE)


def format_error(path: str, text: str) -> str:
    """Describe the error in the text of a file, such as "is not valid JSON: Expecting value, line 1".

    Return '' for a well-formed or blank text, a text too long or too deeply nested to check, and other kinds of file.
    """
    name = format_of(path, text)
    if not name:
        return ""
    find_error = _FORMS[PurePosixPath(path).suffix.lower()][1]
    try:
        error = find_error(text.removeprefix("\ufeff"))
    except (RecursionError, MemoryError):
        return ""
    return f"is not valid {name}: {error}" if error else ""


def digest(path: str, text: str | None) -> str:
    """Return a digest of a file's meaning, or ''.

    It ignores the layout of Python and JSON, and spaces at the ends of lines.
    """
    if text is None:
        return ""
    normalized = "\n".join(line.rstrip() for line in text.rstrip().splitlines())
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        match format_of(path, text):
            case "JSON":
                normalized = json.dumps(json.loads(text), sort_keys=True)
            case "Python":
                normalized = _code_and_comments(text)
    return hashlib.sha256(normalized.encode("utf-8", "replace")).hexdigest()[:16]


def definitions_lost(path: str, old: str, new: str) -> list[str]:
    """Return the top-level functions and classes of a Python file that its new text no longer has."""
    new_names = _DEFINITION.findall(new)
    return [name for name in _DEFINITION.findall(old) if name not in new_names] if path.endswith(".py") else []


def _code_and_comments(text: str) -> str:
    """Return the syntax tree of a Python program as text. Raises SyntaxError or ValueError."""
    import ast
    import tokenize

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the text's own escapes
        code = ast.dump(ast.parse(text))
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    return "\n".join([code, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def format_of(path: str, text: str) -> str:
    """Return the form that `format_error` would check, such as "JSON", or ''."""
    name, _ = _FORMS.get(PurePosixPath(path).suffix.lower(), ("", None))
    return "" if len(text) > MAX_CHARACTERS or not text.strip() else name


def _json_error(text: str) -> str:
    try:
        json.loads(text, parse_int=float)  # unlike int, without a limit of digits
    except json.JSONDecodeError as error:
        return f"{error.msg}, line {error.lineno}"
    return ""


def _python_error(text: str) -> str:
    import ast

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the text's own escapes
            ast.parse(text)
    except SyntaxError as error:
        return f"{error.msg}, line {error.lineno}" if error.lineno else error.msg
    except ValueError as error:  # a NUL, in some versions
        return str(error)
    return ""


def _toml_error(text: str) -> str:
    import tomllib

    if any(line.count(".") > _MAX_KEY_PARTS for line in text.splitlines()):
        return ""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at (line \d+)", str(error))
        return match[1] if match else "at its end"
    return ""


def _yaml_error(text: str) -> str:
    import yaml

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        for _ in yaml.parse(text, loader):  # only parse events, without building values
            pass
    except yaml.MarkedYAMLError as error:
        return f"line {error.problem_mark.line + 1}" if error.problem_mark else "at its end"
    except yaml.YAMLError:
        return "a character that it cannot hold"
    return ""


_FORMS: dict[str, tuple[str, Callable[[str], str]]] = {
    ".json": ("JSON", _json_error),
    ".py": ("Python", _python_error),
    ".toml": ("TOML", _toml_error),
    ".yaml": ("YAML", _yaml_error),
    ".yml": ("YAML", _yaml_error),
}


_ENCODINGS = {  # longest first: the mark of UTF-32-LE begins with that of UTF-16-LE
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def byte_order_mark(data: bytes) -> tuple[bytes, str]:
    """Return the byte order mark at the beginning and its encoding. Both empty without a mark."""
    return next(((mark, name) for mark, name in _ENCODINGS.items() if data.startswith(mark)), (b"", ""))
