"""How much house a reader has to walk through: the figures of docs/architecture.md, taken from the tree itself.

    python benchmarks/house.py [--json]

Rooms and the arrows between them, circles, arrows that point up, the longest chain of imports, modules in each room,
lines, the largest file and function, the most parameters, and the files that one reply passes through until the next
prompt is sent (counted while the demo runs).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "autoagent"
STEP = 2  # the reply of the demo that is followed: not the first, which does much for the first time

Graph = Mapping[str, set[str]]


def module_name(path: Path) -> str:
    """`loop`, `memory.store`; a room's `__init__` bears the room's name, the package's own is ''."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def imported(tree: ast.Module, known: set[str], *, at_start: bool) -> Iterator[str]:
    """The modules of the package that a module imports; `at_start` leaves out imports for types and in functions."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if at_start and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        nodes += ast.iter_child_nodes(node)
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "autoagent":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("autoagent.")]
        for name in names:
            inside = name.partition(".")[2]
            while inside and inside not in known:
                inside = inside.rpartition(".")[0]
            if inside:
                yield inside


def longest_chain(graph: Graph) -> list[str]:
    """The longest way from import to import on which no module comes twice."""
    best: dict[str, list[str]] = {}

    def chain(module: str, above: tuple[str, ...]) -> list[str]:
        if module in best:
            return best[module]
        ways = [chain(other, (*above, module)) for other in sorted(graph[module]) if other not in (*above, module)]
        best[module] = [module, *max(ways, key=len, default=[])]
        return best[module]

    return max((chain(module, ()) for module in graph), key=len)


def circles(graph: Graph) -> list[list[str]]:
    """The groups of modules that import one another in a circle."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            module = waiting.pop()
            if module not in found:
                found.add(module)
                waiting += graph[module]
        return found

    reach = {module: reached(module) for module in graph}
    groups = {
        frozenset(other for other in reach if other in reach[module] and module in reach[other])
        for module in graph
        if module in reach[module]
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


# An import never points up; the rooms of rank 2 do not import one another (tests/test_house.py).
RANKS = {
    5: {"cli", "__main__", "subcommands"},
    4: {"app", "plugins", "scenarios", "subagents", "teams"},
    3: {"loop", "steps", "terminal", "extension"},
    2: {"prompt", "reply", "runs", "safety", "commands", "memory", "models", "sandbox", "services"},
    1: {"config", "registry", "workspace", "network", "documents", "text"},
    0: {"core"},
}
RANK = {room: rank for rank, rooms in RANKS.items() for room in rooms}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters a function takes, `self` aside."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def walk() -> tuple[int, int]:
    """Files and changes of file while one reply of the demo becomes the next prompt."""
    sys.path.insert(0, str(ROOT))
    from autoagent import cli

    files: list[str] = []
    replies = 0

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal replies
        file = frame.f_code.co_filename
        if not file.startswith(str(PACKAGE)):
            return
        if frame.f_code.co_name == "complete" and event == "return":
            replies += 1
        if replies == STEP and event == "call" and (not files or files[-1] != file):
            files.append(file)

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        before = Path.cwd()
        os.chdir(folder)
        os.environ.update(HOME=folder, XDG_CONFIG_HOME=folder, XDG_STATE_HOME=folder)
        sys.setprofile(look)
        try:
            cli.autoagent.main(["--demo", "-c", "-l", "6", "--plain"], standalone_mode=False)
        finally:
            sys.setprofile(None)
            os.chdir(before)
    return len(set(files)), len(files)


def figures() -> dict[str, Any]:
    """Every figure by its name."""
    trees = {module_name(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    known = set(trees)
    graph = {name: set(imported(tree, known, at_start=True)) - {name} for name, tree in trees.items() if name}
    every = {name: set(imported(tree, known, at_start=False)) - {name} for name, tree in trees.items() if name}
    room = {name: name.split(".")[0] for name in every}
    arrows = {
        (room[name], room[other]) for name, others in every.items() for other in others if room[name] != room[other]
    }
    functions = [
        (name, node)
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]

    def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        return (function.end_lineno or 0) - function.lineno + 1

    lines = {name: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py") if (name := module_name(path))}
    widest_module, widest = max(functions, key=lambda found: parameters(found[1]))
    longest_module, longest = max(functions, key=lambda found: length(found[1]))
    largest = max(lines, key=lambda name: lines[name])
    chain = longest_chain(graph)
    visited, changes = walk()
    return {
        "lines": sum(lines.values()),
        "modules": len(lines),
        "modules at the top": len([name for name in lines if "." not in name and (PACKAGE / f"{name}.py").exists()]),
        "rooms": len({name for name in room.values() if (PACKAGE / name).is_dir()}),
        "arrows between rooms": len(arrows),
        "arrows that point up": len([pair for pair in arrows if RANK[pair[0]] < RANK[pair[1]]]),
        "circles of modules": len(circles(every)),
        "longest import chain": f"{len(chain)} ({' > '.join(chain)})",
        "largest module": f"{lines[largest]} lines ({largest})",
        "longest function": f"{length(longest)} lines ({longest_module}.{longest.name})",
        "most parameters": f"{parameters(widest)} ({widest_module}.{widest.name})",
        "modules in a room": dict(Counter(name for name in room.values() if (PACKAGE / name).is_dir()).most_common()),
        "files from a reply to the next prompt": visited,
        "changes of file on that way": changes,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    found = figures()
    if parser.parse_args().json:
        print(json.dumps(found, indent=2))
        return
    for name, figure in found.items():
        shown = ", ".join(f"{room} {number}" for room, number in figure.items()) if isinstance(figure, dict) else figure
        print(f"{name:38} {shown}")


if __name__ == "__main__":
    main()
