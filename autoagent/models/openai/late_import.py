"""Imports the `openai` package without its answer models, which nothing here needs.

They are two thirds of its import: 450 modules, a quarter of a second and 11 MB. `openai.types` and the helpers of
`openai.lib` are loaded at the first access by anybody. If a release is laid out differently, everything is imported.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_PACKAGE = "openai"
_LATE = ("types", "lib")
_OF_LIB = ("pydantic_function_tool", "pydantic_responses_function_tool")  # that the package looks at by itself
_lock = threading.Lock()
_running = threading.RLock()  # held while the code of a late package runs: one for all, as they look into each other
_being_run: set[str] = set()  # their names


class _Late(ModuleType):
    """A package whose own code runs at the first access to a name that is no module of it.

    Other threads wait meanwhile. If the code fails, the error is raised, and the next access runs it again.
    """

    __spec__: ModuleSpec

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        spec = self.__spec__
        if PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations):
            return importlib.import_module(f"{spec.name}.{name}")
        with _running:
            if spec.name in _being_run:  # its own code asks for what it has not made yet
                raise AttributeError(f"module {spec.name!r} has no attribute {name!r}", name=name, obj=self)
            if type(self) is _Late:
                self._run()
            return getattr(self, name)

    def _run(self) -> None:
        spec = self.__spec__
        assert spec.loader is not None, "only what has one is made late"
        _being_run.add(spec.name)
        try:
            spec.loader.exec_module(self)
        finally:
            _being_run.remove(spec.name)
        self.__class__ = ModuleType  # type: ignore[assignment]


def import_openai() -> None:
    """Import the package, if nobody has yet. Raises ImportError where it is missing."""
    with _lock:
        if _PACKAGE in sys.modules:
            return
        try:
            _make_late()
            import openai

            for name in _LATE:
                setattr(openai, name, sys.modules[f"{_PACKAGE}.{name}"])
        except Exception:  # another release
            for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
                del sys.modules[name]
            importlib.import_module(_PACKAGE)


def _make_late() -> None:
    package = find_spec(_PACKAGE)
    if package is None:
        return
    for name in _LATE:
        spec = PathFinder.find_spec(f"{_PACKAGE}.{name}", package.submodule_search_locations)
        if spec is None or spec.loader is None or spec.submodule_search_locations is None:
            raise ImportError(f"{_PACKAGE}.{name} is no package")
        module = module_from_spec(spec)
        module.__class__ = _Late
        sys.modules[spec.name] = module
    for name in _OF_LIB:
        setattr(sys.modules[f"{_PACKAGE}.lib"], name, _later(name))


def _later(name: str) -> Callable[..., Any]:
    """Return a stand-in for a helper, which imports it when called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(f"{_PACKAGE}.lib._tools"), name)(*args, **kwargs)

    return call
