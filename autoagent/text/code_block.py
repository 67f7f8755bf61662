"""Parse replies with code after the object: `{"command": {… "text": "```"}}`, then the code between lines of ```.

Small models write correct code in a Markdown block but not inside a JSON string. The placeholder "```" marks the
argument that the block belongs to.
"""

from __future__ import annotations

import re

from autoagent.core.frozen import dataclass

PLACEHOLDER = "```"  # the placeholder in the object, and the fence around the code
OMITTED = "…"  # replaces omitted code; no code begins like this
QUOTED = f'"{PLACEHOLDER}"'
NOTE = (  # for the model
    f"Code does not stand in the object: {QUOTED} takes its place there, and the code follows the object, "
    f"between {PLACEHOLDER} lines."
)
CODE_SUFFIXES = ("py", "sh", "js", "ts", "c", "h", "cpp", "rs", "go", "rb", "java", "sql")
CODE_LANGUAGES = (
    "python", "bash", "sh", "shell", "javascript", "js", "typescript", "ts", "c", "cpp", "rust", "go", "ruby", "java",
    "sql",
)  # fmt: skip

_FORM = re.compile(r"(?P<object>\{[^\n]*\})\s*\n```(?P<language>[\w+#.-]*)[ \t]*\n(?P<code>.*?)\n?```\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """The code after an object, with its final newline, and its declared language."""

    language: str
    code: str


def is_code(file: str) -> bool:
    """Return whether the name is that of a code file."""
    return file.rpartition(".")[2] in CODE_SUFFIXES


def split(text: str) -> tuple[str, CodeBlock] | None:
    """Return a reply's object and the block after it, up to the last fence, or None if the reply has another form."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    code = match["code"]
    return match["object"], CodeBlock(match["language"], f"{code}\n" if code else "")


def join(reply: str, block: CodeBlock) -> str:
    """Build the reply from an object and a block, as read by `split`."""
    code = block.code if block.code.endswith("\n") or not block.code else f"{block.code}\n"
    return f"{reply}\n{PLACEHOLDER}{block.language}\n{code}{PLACEHOLDER}"
