"""How much house a reader has to walk through: figures taken from the tree itself.

    python benchmarks/house.py [--json]

Sizes, imports, circles, small functions and files, English, and, traced while the demo runs, the files that are
executed before the first prompt and from a reply to the next prompt. `BOUNDS` holds the figures that may only fall;
tests/test_house.py checks them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "autoagent"
APART = ("fleet", "web")  # rooms whose lines, and those of their tests, are not counted with the others

BOUNDS: Mapping[str, float] = {
    "lines of autoagent/": 45_995,
    "lines of tests/": 40_190,
    "arrows that point up": 0,
    "circles of modules": 0,
    "functions of one statement": 834,
    "private functions called once": 427,
    "Protocols": 14,
    "files under 50 lines": 10,
    "file names that recur": 11,
    "settings loaded before the first prompt": 1,
    "files executed before the first prompt": 187,
    "files from a reply to the next prompt": 85,
    "settings": 80,
    "root flags shown": 16,
    "subcommands shown": 16,
    "docstrings that are a relative clause": 0,
    "'what' per 1,000 words of docstrings": 0.7,
    "relative pronouns per 1,000 words": 2.9,
    "semicolons per 1,000 words": 0.9,
    "'one(s)' per 1,000 words": 5.2,
}
"""The most that each figure may be. Lower them as the figures fall; only a mended fault may raise one."""

Graph = Mapping[str, set[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_name(path: Path) -> str:
    """`loop`, `memory.store`; a room's `__init__` bears the room's name, the package's own is ''."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def imported(tree: ast.Module, known: set[str], *, at_start: bool, types: bool = False) -> Iterator[str]:
    """The modules of the package that a module imports.

    `at_start` leaves out imports in functions; imports for `types` alone are left out unless they are asked for.
    """
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if at_start and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
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


def arrows(trees: Mapping[str, ast.Module], *, at_start: bool, types: bool = False) -> Graph:
    """The modules that each module imports."""
    return {
        name: set(imported(tree, set(trees), at_start=at_start, types=types)) - {name}
        for name, tree in trees.items()
        if name
    }


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
    4: {"extension", "fleet", "scenarios", "session", "subagents", "teams", "web"},
    3: {"loop", "agent", "terminal"},
    2: {"prompt", "reply", "log", "safety", "commands", "memory", "models", "sandbox", "services"},
    1: {"registry", "settings", "workspace", "network", "documents", "text"},
    0: {"core"},
}
RANK = {room: rank for rank, rooms in RANKS.items() for room in rooms}


def parameters(function: Function) -> int:
    """How many parameters a function takes, `self` aside."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


# A step and a start, traced while the demo runs -------------------------------------------------------------------


class Trace:
    """The files of the package that are executed until the first prompt, and from each reply to the next prompt."""

    def __init__(self) -> None:
        self.start: set[str] = set()
        self.steps: list[set[str]] = []
        self.loads = 0
        self._files: set[str] = set()
        self._sent: set[str] | None = None  # the files up to the newest call of a model

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take note of an event, as sys.setprofile reports it."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(f"{PACKAGE}/"):
            return
        asks = code.co_name == "complete"
        if event == "call":
            self._files.add(code.co_filename)
            if asks:  # of a model and those that wrap it, the innermost call sends the prompt
                self._sent = set(self._files)
            elif code.co_name == "load" and code.co_filename.endswith("session/load.py") and not self.steps:
                self.loads += 1
        elif asks and self._sent is not None:  # and its return is the reply
            self.steps.append(self._sent)
            self._files, self._sent = set(), None

    @classmethod
    def of_the_demo(cls) -> Trace:
        """Run the demo in a folder of its own, with all that it executes traced."""
        sys.path.insert(0, str(ROOT))
        from autoagent import cli

        trace = cls()
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            before, environment = Path.cwd(), dict(os.environ)
            os.chdir(folder)
            os.environ.update(HOME=folder, XDG_CONFIG_HOME=folder, XDG_STATE_HOME=folder)
            threading.setprofile(trace)
            sys.setprofile(trace)
            try:
                cli.autoagent.main(["--demo", "-m", "local", "-c", "-l", "6", "--plain"], standalone_mode=False)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
                os.chdir(before)
                os.environ.clear()
                os.environ.update(environment)
        trace.start, *trace.steps = trace.steps
        return trace


# English ----------------------------------------------------------------------------------------------------------

RELATIVE = re.compile(r"(What|Who|Whom|Whose|Which|Where|That|How|When|As)\b")  # in place of an imperative


def english(trees: Iterable[ast.Module]) -> dict[str, float]:
    """What a native speaker would strike from the docstrings."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)]
    texts = [text for node in nodes if (text := ast.get_docstring(node))]
    joined = " ".join(texts)
    thousands = len(re.findall(r"\w+", joined)) / 1000

    def rate(pattern: str) -> float:
        return round(len(re.findall(pattern, joined, re.IGNORECASE)) / thousands, 1)

    return {
        "docstrings that are a relative clause": sum(bool(RELATIVE.match(text)) for text in texts),
        "'what' per 1,000 words of docstrings": rate(r"\bwhat\b"),
        "relative pronouns per 1,000 words": rate(r"\b(which|who|whom|whose)\b"),
        "semicolons per 1,000 words": rate(";"),
        "'one(s)' per 1,000 words": rate(r"\bones?\b"),
    }


# All of it --------------------------------------------------------------------------------------------------------


def is_one_statement(function: Function) -> bool:
    """Whether all that a function does is one statement; a declaration without a body does nothing."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return len(body) == 1 and not (isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))


def called_once(tree: ast.Module) -> int:
    """How many private functions of a module are called in it once."""
    called = Counter(
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
    )
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return sum(re.match("_[^_]", node.name) is not None and called[node.name] == 1 for node in functions)


def is_protocol(node: ast.AST) -> bool:
    """Whether a class is a Protocol."""
    return isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)


def lines_of(folder: Path) -> int:
    """The lines of all modules in a folder."""
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def outside() -> dict[str, int]:
    """How much a user can set and call."""
    sys.path.insert(0, str(ROOT))
    import click

    from autoagent import cli
    from autoagent.settings import Settings

    settings = fields(Settings)
    group = cli.autoagent
    context = click.Context(group)
    shown = {*cli.COMMON_FLAGS, *cli.MORE_FLAGS}
    root = [parameter for parameter in group.get_params(context) if isinstance(parameter, click.Option)]
    return {
        "settings": len(settings),
        "environment variables": len({name for one in settings for name in one.metadata["env"]}),
        "root flags shown": len([option for option in root if shown & {option.name, *option.opts}]),
        "subcommands shown": sum(map(len, cli.GROUPS.values())),
    }


def figures() -> dict[str, Any]:
    """Every figure by its name."""
    trees = {module_name(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    graph = arrows(trees, at_start=True)
    every = arrows(trees, at_start=False, types=True)
    room = {name: name.split(".")[0] for name in every}
    between = {
        (room[name], room[other]) for name, others in every.items() for other in others if room[name] != room[other]
    }
    nodes = [(name, node) for name, tree in trees.items() for node in ast.walk(tree)]
    functions = [(name, node) for name, node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]

    def length(function: Function) -> int:
        return (function.end_lineno or 0) - function.lineno + 1

    lines = {name: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py") if (name := module_name(path))}
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    rooms = sorted({name for name in room.values() if (PACKAGE / name).is_dir()})
    widest_module, widest = max(functions, key=lambda found: parameters(found[1]))
    longest_module, longest = max(functions, key=lambda found: length(found[1]))
    largest = max(lines, key=lambda name: lines[name])
    chain = longest_chain(graph)
    trace = Trace.of_the_demo()
    return {
        "lines of autoagent/": sum(lines.values()) - sum(lines_of(PACKAGE / name) for name in APART),
        "lines of tests/": lines_of(ROOT / "tests") - sum(lines_of(ROOT / "tests" / name) for name in APART),
        "lines of extensions/": lines_of(ROOT / "extensions"),
        "modules": len(lines),
        "rooms": len(rooms),
        "arrows between rooms": len(between),
        "arrows that point up": len([pair for pair in between if RANK[pair[0]] < RANK[pair[1]]]),
        "circles of modules": len(circles(every)),
        "longest import chain": f"{len(chain)} ({' > '.join(chain)})",
        "largest module": f"{lines[largest]} lines ({largest})",
        "longest function": f"{length(longest)} lines ({longest_module}.{longest.name})",
        "most parameters": f"{parameters(widest)} ({widest_module}.{widest.name})",
        "functions": len(functions),
        "functions of one statement": sum(is_one_statement(function) for _, function in functions),
        "private functions called once": sum(called_once(tree) for tree in trees.values()),
        "Protocols": sum(is_protocol(node) for _, node in nodes),
        "files under 50 lines": sum(len(path.read_text().splitlines()) < 50 for path in files),
        "file names that recur": sum(number > 1 for number in Counter(path.name for path in files).values()),
        "settings loaded before the first prompt": trace.loads,
        "files executed before the first prompt": len(trace.start),
        "files from a reply to the next prompt": max(map(len, trace.steps)),
        **outside(),
        **english(trees.values()),
        "lines by room": {name: lines_of(PACKAGE / name) for name in rooms},
        "modules by room": dict(Counter(name for name in room.values() if name in rooms)),
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
        bound = f"   (at most {BOUNDS[name]:,})" if name in BOUNDS else ""
        print(f"{name:40} {_shown(figure)}{bound}")


def _shown(figure: Any) -> str:
    if isinstance(figure, dict):
        return ", ".join(f"{name} {number:,}" for name, number in figure.items())
    return figure if isinstance(figure, str) else f"{figure:,}"


if __name__ == "__main__":
    main()
