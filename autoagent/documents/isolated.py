"""Parse a document in a separate process, under limits of time and memory.

A hostile document may make any parser loop or grow, and only a process can be stopped. The process gets the document on
standard input and no environment, and answers with JSON.

Not covered: a parser taken over by a document has this user's rights. The libraries are pure Python except lxml.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import subprocess
import sys
from importlib import import_module

from autoagent.documents.document_text import DocumentText, Link, UnreadableDocument

MAX_SECONDS = 60.0
MAX_BYTES = 2_000_000_000  # of address space; libraries reserve more than they use

_READERS = {"html": "html", "pdf": "pdf", "docx": "office", "xlsx": "office"}
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from autoagent.documents import isolated; isolated.read_in_child(sys.argv[2], sys.argv[3])"
)


def read(kind: str, data: bytes, url: str) -> DocumentText:
    """Read a document of a kind in `_READERS`. Raises UnreadableDocument."""
    path = json.dumps([entry for entry in sys.path if entry])
    try:
        process = subprocess.run(  # noqa: S603 - this interpreter on our own code; the document is on standard input
            [sys.executable, "-I", "-W", "ignore", "-c", _START, path, kind, url],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=MAX_SECONDS,
            env={},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnreadableDocument(f"takes more than {MAX_SECONDS:.0f} s to read.") from None
    except (OSError, ValueError) as error:  # no memory for a process, a NUL in the address
        raise UnreadableDocument(f"could not be read: {error}.") from error
    try:
        fields = json.loads(process.stdout)
    except ValueError:
        raise UnreadableDocument(f"broke its reader (status {process.returncode}).") from None
    if "problem" in fields:
        raise UnreadableDocument(fields["problem"])
    links = tuple(Link(**link) for link in fields.pop("links"))
    return DocumentText(**fields, links=links)


def read_in_child(kind: str, url: str) -> None:
    """Read the document from standard input in the separate process, and write text or problem to standard output."""
    try:
        for resource_id, limit in ((resource.RLIMIT_CPU, int(MAX_SECONDS)), (resource.RLIMIT_AS, MAX_BYTES)):
            hard = resource.getrlimit(resource_id)[1]  # may be lower, and cannot be raised
            soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(resource_id, (soft, hard))  # also holds after the death of the agent
        reader = import_module(f"autoagent.documents.{_READERS[kind]}")
        fields = dataclasses.asdict(reader.read(kind, sys.stdin.buffer.read(), url))
    except UnreadableDocument as error:
        fields = {"problem": str(error)}
    except ImportError as error:
        fields = {"problem": f"cannot be read without {error.name}: pip install 'autoagent[documents]'."}
    except (MemoryError, RecursionError):
        fields = {"problem": f"takes more than {MAX_BYTES // 1_000_000:,} MB of memory to read, or is nested too deep."}
    except Exception as error:  # any error of a library on a damaged file, as this process does nothing else
        fields = {"problem": f"cannot be read; it seems damaged: {type(error).__name__}: {str(error)[:200]}"}
    sys.stdout.write(json.dumps(fields))
