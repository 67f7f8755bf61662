"""Read and change files in the workspace. Each path passes the gate, which may refuse it."""

from __future__ import annotations

import difflib
import json
import re
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Annotated

from autoagent import documents
from autoagent.commands.context import Context
from autoagent.commands.registry import Command, CommandOutput, command
from autoagent.commands.support import matching
from autoagent.commands.support.edited_text import Decoded, decode, unified
from autoagent.core.commands import DETAIL, EXISTING, FILE_TEXT, Effects, ResultMeta
from autoagent.core.errors import CommandError
from autoagent.documents import DocumentText
from autoagent.text.figures import counted
from autoagent.text.file_formats import format_error
from autoagent.text.paging import Column, FirstLine, Lines, fill_page
from autoagent.text.redaction import MASK
from autoagent.workspace.gate import NOT_ENTERED, WorkspaceEntry, folder_or_root, shown

MAX_EDIT_BYTES = 1_000_000
MAX_READ_BYTES = 16_000_000  # of a file, page by page
MAX_LISTED_NAMES = 500
MAX_COUNTED_ENTRIES = 1_000_000
MAX_SEARCH_BYTES = 16_000_000
SEARCH_SECONDS = 10.0
_MAX_COMPARED_CHARACTERS = 100_000  # to find the line nearest to a missing text
MAX_MATCHES = 200

Filename = Annotated[str, "path relative to the workspace", "path"]
ExistingFile = Annotated[str, "path relative to the workspace", "path", EXISTING]
ExistingEntry = Annotated[str, "path relative to the workspace", "entry", EXISTING]
WholeText = Annotated[str, "the whole content", "exact", FILE_TEXT]
Directory = Annotated[str, "folder relative to the workspace", "path"]

_AMENDING = Effects(amends=True)
_file_command = partial(command, always_offered=True, autogpt=("file_operations",))


@_file_command("read_file", "Read a file", risk="read", effects=Effects())
def read_file(
    context: Context, filename: ExistingFile, first_line: FirstLine = 1, lines: Lines = None, column: Column = 1
) -> CommandOutput:
    if "://" in filename:
        raise CommandError(f"{shown(filename)} is a web address, not a file; browse_website reads pages.")
    data = context.workspace.read(filename, MAX_READ_BYTES + 1)
    if (document := _document(context, filename, data)) is not None:
        text, notes = document.text, [document.note]
    else:
        decoded, is_cut = _decode_text(filename, data, MAX_READ_BYTES)
        text, notes = decoded.text, [decoded.note]
        if is_cut:
            notes.append(f"only the first {MAX_READ_BYTES:,} bytes can be read")
    if not text:
        return CommandOutput("\n".join([f"[{filename}: empty]", *(f"[{filename}: {note}]" for note in notes if note)]))
    part = fill_page(text, context.has_room, first=first_line, lines=lines, column=column)
    if not part.is_complete:
        notes.append(part.note(f"read_file({json.dumps(filename, ensure_ascii=False)}, "))
    shown_text = part.text if part.is_complete else part.text.removesuffix("\n")
    note_lines = [note if note.startswith("[") else f"[{filename}: {note}]" for note in notes if note]
    return CommandOutput("\n".join([shown_text, *note_lines]), ResultMeta(page=(part.first, part.last, part.total)))


# write, append, edit, delete: each preview, then the change itself -------------------------------------------------


def _preview_write(context: Context, filename: str, text: str) -> str:
    entry = context.workspace.find(filename)
    if entry is None:
        return _diff(context, filename, "", text)
    _refuse_mask(context, filename, text)
    before = decode(context.workspace.read(filename, MAX_EDIT_BYTES + 1))
    if before is None or entry.size > MAX_EDIT_BYTES:
        return f"Replaces all {counted(entry.size, 'byte')} of {entry.path}.\n{_diff(context, filename, '', text)}"
    encoding = f"{before.encoding}{' with a byte order mark' if before.mark else ''}"
    note = f"Changes its encoding from {encoding} to utf-8.\n" if before.mark or before.encoding != "utf-8" else ""
    return f"{note}{_diff(context, filename, before.text, text)}"


@_file_command(
    "write_to_file",
    "Write to file",
    risk="write",
    aliases=["write_file", "create_file"],
    meant_by=["make_directory", "create_directory", "make_folder", "create_folder", "mkdir"],
    preview=_preview_write,
    effects=Effects(writes_whole=True),
)
def write_to_file(context: Context, filename: Filename, text: WholeText) -> CommandOutput:
    _refuse_mask(context, filename, text)
    data = _encode_text(text, Decoded(""))
    if context.workspace.size(filename) == len(data) and context.workspace.read(filename, len(data) + 1) == data:
        name = context.workspace.display(filename)
        return CommandOutput(f"{name} already has exactly this text; nothing was changed.")
    context.workspace.write(filename, data)
    return _change_report(context, filename, f"Wrote {_size_text(text)} to", text=text)


def _refuse_mask(context: Context, filename: str, text: str) -> None:
    """Refuse to replace a secret in the file with its mask."""
    if MASK not in text or context.workspace.find(filename) is None:
        return
    before = decode(context.workspace.read(filename, MAX_EDIT_BYTES))
    has_more_masks = before is not None and text.count(MASK) > before.text.count(MASK)
    if before is not None and has_more_masks and context.mask(before.text) != before.text:
        raise CommandError(
            f"{filename} holds a secret, which you were shown as {MASK}: your text would overwrite it with this mask. "
            "Change the passages around it with edit_file."
        )


def _read_to_append(context: Context, filename: str, text: str) -> tuple[Decoded, bool, str]:
    r"""Return a file, empty if it is missing, whether it was cut, and the text with the line ends of the file.

    Models always write `\n`.
    """
    exists = context.workspace.find(filename) is not None
    data = context.workspace.read(filename, MAX_EDIT_BYTES + 1) if exists else b""
    before, is_cut = _decode_text(filename, data)
    return before, is_cut, _with_crlf(text) if _ends_lines_in_crlf(before.text) else text


def _preview_append(context: Context, filename: str, text: str) -> str:
    before, is_cut, new_text = _read_to_append(context, filename, text)
    if is_cut:
        return f"Adds {_size_text(text)} at the end of {filename}:\n{text}"
    return _diff(context, filename, before.text, before.text + new_text)


@_file_command(
    "append_to_file", "Append to file", risk="write", preview=_preview_append, repeatable=True, effects=_AMENDING
)
def append_to_file(
    context: Context, filename: Filename, text: Annotated[str, "what to add at the end", "exact", FILE_TEXT]
) -> CommandOutput:
    before, is_cut, new_text = _read_to_append(context, filename, text)
    data = _encode_text(new_text, Decoded("", before.encoding))
    if context.workspace.find(filename) is None:
        context.workspace.write(filename, data)
    else:
        context.workspace.append(filename, data)
    whole_text = "" if is_cut else before.text + new_text
    return _change_report(context, filename, f"Appended {_size_text(text)} to", text=whole_text)


def _preview_edit(context: Context, filename: str, old: str, new: str, everywhere: bool = False) -> str:
    before, after, _ = _apply_edit(context, filename, old, new, everywhere)
    return _diff(context, filename, before.text, after)


@_file_command("edit_file", "Replace a passage in a file", risk="write", preview=_preview_edit, effects=_AMENDING)
def edit_file(
    context: Context,
    filename: ExistingFile,
    old: Annotated[str, "text that is in the file exactly once"],
    new: Annotated[str, "what takes its place"],
    everywhere: Annotated[bool, "replace every occurrence of old, not just one"] = False,
) -> CommandOutput:
    before, after, count = _apply_edit(context, filename, old, new, everywhere)
    context.workspace.write(filename, _encode_text(after, before))
    times = f" {count} times" if count > 1 else ""
    return _change_report(context, filename, f"Replaced {_line_count(old)} by {_line_count(new)}{times} in", text=after)


def _preview_delete(context: Context, filename: str) -> str:
    entry = context.workspace.find(filename, follow=False)
    if entry is None or entry.kind == "folder":
        raise CommandError(f"There is no file {filename}.")
    if entry.kind != "file":
        return f"Deletes {_entry_line(entry)}."
    decoded = None
    with suppress(CommandError):  # an unreadable file can be deleted, too
        decoded = decode(context.workspace.read(filename, MAX_EDIT_BYTES))
    lines = f"{_line_count(decoded.text)}, " if decoded and entry.size <= MAX_EDIT_BYTES else ""
    return f"Deletes {entry.path} ({lines}{counted(entry.size, 'byte')})."


@_file_command("delete_file", "Delete file", risk="irreversible", preview=_preview_delete, effects=_AMENDING)
def delete_file(context: Context, filename: ExistingEntry) -> CommandOutput:
    context.workspace.delete(filename)
    return _change_report(context, filename, "Deleted")


def _preview_move(context: Context, filename: str, new_name: str) -> str:
    place = context.workspace.display(_target_path(context, filename, new_name))
    return f"Moves {context.workspace.display(filename)} to {place}."


@_file_command(
    "move_file",
    "Rename or move a file",
    risk="write",
    aliases=["rename_file"],
    meant_by=["move", "rename", "mv"],
    preview=_preview_move,
    effects=_AMENDING,
)
def move_file(
    context: Context, filename: ExistingEntry, new_name: Annotated[str, "its new path", "path"]
) -> CommandOutput:
    place = _target_path(context, filename, new_name)
    before = context.workspace.display(filename)
    context.workspace.read(filename, 1)  # so that the labels of its content move with the file
    context.workspace.rename(filename, place)
    after = context.workspace.display(place)
    return CommandOutput(f"Moved {before} to {after}.", ResultMeta(changed=(before, after)))


def _target_path(context: Context, filename: str, new_name: str) -> str:
    """Return the new path of a file, inside the folder if `new_name` is one. Refuse an existing file."""
    source = context.workspace.find(filename, follow=False)
    if source is None or source.kind != "file":
        raise CommandError(f"There is no file {shown(filename)} to move.")
    target = context.workspace.find(new_name)
    if new_name.endswith("/") or (target is not None and target.kind == "folder"):
        new_name = f"{new_name.rstrip('/')}/{source.path.rpartition('/')[2]}"
        target = context.workspace.find(new_name)
        if context.workspace.guarded_files.is_guarded(context.workspace.display(new_name)):
            # The user is asked about the name that was given, not about those in it.
            raise CommandError(f"{shown(new_name)} needs the user's permission; give this whole name as new_name.")
    if target is not None:
        raise CommandError(f"{shown(new_name)} already exists; delete it first, or choose another name.")
    return new_name


# list and search ---------------------------------------------------------------------------------------------------


@_file_command(
    "list_files", "List files in a folder and below", risk="read", aliases=["search_files"], effects=Effects()
)
def list_files(context: Context, directory: Directory = ".") -> str:
    entries = context.workspace.walk(folder_or_root(directory), NOT_ENTERED)
    names = [_entry_line(entry) for entry in islice(entries, MAX_LISTED_NAMES)]
    remaining = sum(1 for _ in islice(entries, MAX_COUNTED_ENTRIES - MAX_LISTED_NAMES))
    if not names:
        return f"{'The workspace' if folder_or_root(directory) in ('.', './') else directory} is empty."
    if remaining:
        total = len(names) + remaining
        qualifier = "at least " if total == MAX_COUNTED_ENTRIES else ""
        names.append(f"[{remaining:,} more, {qualifier}{total:,} in all; name a folder to see what is in it]")
    return "\n".join(names)


@_file_command("search_in_files", "Search in files with a regular expression", risk="read", effects=Effects())
def search_in_files(
    context: Context,
    pattern: Annotated[str, "regular expression, matched line by line", "text"],
    directory: Annotated[str, "folder or file relative to the workspace", "path", DETAIL] = ".",
) -> str:
    texts, skipped = _read_texts(context, folder_or_root(directory))
    try:
        matches = matching.search(pattern, texts, limit=MAX_MATCHES + 1, seconds=SEARCH_SECONDS)
    except ValueError as error:
        raise CommandError(f"The pattern {shown(pattern)} cannot be used: {error}.") from error
    except TimeoutError:
        raise CommandError(
            f"The search was stopped after {SEARCH_SECONDS:.0f} seconds; "
            f"use a simpler pattern than {shown(pattern)}, or a smaller folder."
        ) from None
    lines = [f"{_printable(name)}:{number}: {line}" for name, number, line in matches[:MAX_MATCHES]]
    if not lines:
        lines.append(f"Nothing matches {shown(pattern)} in {counted(len(texts), 'file')}.")
    if len(matches) > MAX_MATCHES:
        lines.append(f"[the first {MAX_MATCHES} matches; there are more: use a narrower pattern or a smaller folder]")
    if skipped:
        suffix = f" and {len(skipped) - 5:,} more" if len(skipped) > 5 else ""
        lines.append(f"[not searched: {', '.join(skipped[:5])}{suffix}]")
    return "\n".join(lines)


def _read_texts(context: Context, directory: str) -> tuple[dict[str, str], list[str]]:
    """Return by path the texts of all text files up to the limit, and notes on the skipped files."""
    start = context.workspace.find(directory)
    entries = [start] if start and start.kind == "file" else context.workspace.walk(directory, NOT_ENTERED)
    texts: dict[str, str] = {}
    skipped = []
    bytes_left = MAX_SEARCH_BYTES
    for entry in islice(entries, MAX_COUNTED_ENTRIES):
        if entry.kind == "unreadable":
            skipped.append(_entry_line(entry))
        if entry.kind != "file":
            continue
        if bytes_left <= 0:
            skipped.append("all files that come after it")
            break
        try:
            data = context.workspace.read(entry.path, bytes_left)
        except CommandError as error:  # unreadable, or deleted meanwhile: search the other files
            skipped.append(str(error).rstrip("."))
            continue
        bytes_left -= len(data)
        decoded = decode(data, whole=len(data) == entry.size)
        if decoded is None:
            skipped.append(f"{_entry_line(entry)} (binary)")
        else:
            texts[entry.path] = decoded.text
            if len(data) < entry.size:
                skipped.append(f"{_entry_line(entry)} after its first {len(data):,} bytes")
    return texts, skipped


def _apply_edit(context: Context, filename: str, old: str, new: str, everywhere: bool) -> tuple[Decoded, str, int]:
    """Return the file before the edit, its text afterwards, and the number of replacements."""
    before, is_cut = _decode_text(filename, context.workspace.read(filename, MAX_EDIT_BYTES + 1))
    if is_cut:
        raise CommandError(f"{filename} is larger than {MAX_EDIT_BYTES:,} bytes, too large to edit.")
    if before.damaged:
        raise CommandError(f"{filename} is not valid {before.encoding} text; to edit it would damage it.")
    if _ends_lines_in_crlf(before.text) or ("\r\n" in before.text and old not in before.text):
        old, new = _with_crlf(old), _with_crlf(new)
    if not old:
        raise CommandError("The old text is empty; give the passage that is to be replaced.")
    if old == new:
        raise CommandError("The old and the new text are the same; there is nothing to change.")
    count = before.text.count(old)
    if count == 0:
        raise CommandError(f"The old text is not in {filename}{_nearest_hint(old, before.text, filename)}")
    if count > 1 and not everywhere:
        raise CommandError(
            f"The old text occurs {count} times in {filename}; include more of the text around the one you mean, or "
            "replace each with everywhere=true."
        )
    if new or old.startswith(("\n", "\r\n")) or old.endswith("\n"):
        return before, before.text.replace(old, new), count
    passage = re.escape(old)  # whole lines go with their line end, so that no empty line stays behind
    return before, re.sub(rf"^{passage}(?:\r?\n|\Z)|{passage}", "", before.text, flags=re.MULTILINE), count


def _ends_lines_in_crlf(text: str) -> bool:
    return "\n" in text and text.count("\n") == text.count("\r\n")


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _nearest_hint(old: str, text: str, filename: str) -> str:
    first_line = next((line.strip() for line in old.splitlines() if line.strip()), "")[:200]
    lines = [line.strip()[:200] for line in text[:_MAX_COMPARED_CHARACTERS].splitlines()]
    matches = difflib.get_close_matches(first_line, lines, n=1, cutoff=0.5)
    if matches:
        return f". The nearest line is {lines.index(matches[0]) + 1}: {matches[0]!r}"
    if old in filename:
        return ", but in its name: move_file renames it."
    return ". Copy it word for word from what read_file shows."


def _document(context: Context, filename: str, data: bytes) -> DocumentText | None:
    """Extract a PDF, DOCX or XLSX file, recognized by its first bytes. Return None for any other file."""
    if not data.startswith((documents.PDF, documents.ARCHIVE)):
        return None
    data = context.workspace.read(filename, documents.DOCUMENT_LIMIT + 1)
    kind = documents.kind_of(data, name=filename)
    if kind is None:
        return None
    if len(data) > documents.DOCUMENT_LIMIT:
        raise CommandError(f"{filename} is larger than {documents.DOCUMENT_LIMIT:,} bytes, too large to be read.")
    return documents.read(filename, data, kind)


def _decode_text(filename: str, data: bytes, limit: int = MAX_EDIT_BYTES) -> tuple[Decoded, bool]:
    """Return the text up to the limit, and whether it was cut."""
    is_cut = len(data) > limit
    decoded = decode(data[:limit], whole=not is_cut)
    if decoded is None:
        size = f"more than {limit:,}" if is_cut else f"{len(data):,}"
        raise CommandError(f"{filename} is a binary file of {size} bytes, not text.")
    return decoded, is_cut


def _encode_text(text: str, like: Decoded) -> bytes:
    try:
        return like.encode(text)
    except UnicodeEncodeError as error:
        where = f"{text[error.start]!a} at position {error.start}"
        raise CommandError(f"The text holds {where}, which {like.encoding} cannot encode.") from error


def _diff(context: Context, filename: str, before: str, after: str) -> str:
    name = context.workspace.display(filename)  # the user must see the target of a link
    is_new = context.workspace.find(filename) is None
    return unified(name, before, after, is_new=is_new) or (f"Creates {name}, empty." if is_new else "")


def _change_report(context: Context, filename: str, action: str, text: str = "") -> CommandOutput:
    name = context.workspace.display(filename)
    problem = format_error(name, text)
    report = f"{action} {name}. It {problem}." if problem else f"{action} {name}."
    return CommandOutput(report, ResultMeta(changed=(name,)))


def _entry_line(entry: WorkspaceEntry) -> str:
    endings = {
        "folder": "/",
        "link": " (symbolic link)",
        "special": " (not a regular file)",
        "unreadable": "/ (cannot be opened)",
    }
    return _printable(entry.path) + endings.get(entry.kind, "")


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _size_text(text: str) -> str:
    return f"{counted(len(text), 'character')} ({_line_count(text)})"


def _line_count(text: str) -> str:
    return counted(text.count("\n") + (not text.endswith("\n") and text != ""), "line")


COMMANDS: tuple[Command, ...] = (
    read_file, write_to_file, append_to_file, edit_file, move_file, delete_file, list_files, search_in_files,
)  # fmt: skip
