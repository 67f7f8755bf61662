"""Import the `openai` package without its answer models, which nothing here needs.

These take two thirds of its import: 450 modules, a quarter of a second and 11 MB. `openai.types` and the helpers of
`openai.lib` are loaded on first access. If a release is structured differently, everything is imported.
"""

from __future__ import annotations

import importlib
import sys
import threading
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_PACKAGE = "openai"
_LATE_PACKAGES = ("types", "lib")
_LIB_HELPERS = ("pydantic_function_tool", "pydantic_responses_function_tool")  # accessed by the package itself
_lock = threading.Lock()
_import_lock = threading.RLock()  # held while a late package's code runs; one for all, since they access each other
_importing: set[str] = set()  # the late packages whose code is running


class _LatePackage(ModuleType):
    """Run a package's code on the first access to a name that is not one of its modules.

    Other threads wait meanwhile. If the code fails, the error is raised, and the next access runs it again.
    """

    __spec__: ModuleSpec

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        spec = self.__spec__
        if PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations):
            return importlib.import_module(f"{spec.name}.{name}")
        with _import_lock:
            if spec.name in _importing:  # its own code uses a name that it has not defined yet
                raise AttributeError(f"module {spec.name!r} has no attribute {name!r}", name=name, obj=self)
            if type(self) is _LatePackage:  # no other thread has run it meanwhile
                assert spec.loader is not None, "see _install_late_packages"
                _importing.add(spec.name)
                try:
                    spec.loader.exec_module(self)
                finally:
                    _importing.remove(spec.name)
                self.__class__ = ModuleType  # type: ignore[assignment]
            return getattr(self, name)


def import_openai() -> None:
    """Import the package, unless this was done before. Raises ImportError if it is missing."""
    with _lock:
        if _PACKAGE in sys.modules:
            return
        try:
            _install_late_packages()
            import openai

            for name in _LATE_PACKAGES:
                setattr(openai, name, sys.modules[f"{_PACKAGE}.{name}"])
        except Exception:  # a release with another structure
            for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
                del sys.modules[name]
            importlib.import_module(_PACKAGE)


def _install_late_packages() -> None:
    package = find_spec(_PACKAGE)
    if package is None:
        return
    for name in _LATE_PACKAGES:
        spec = PathFinder.find_spec(f"{_PACKAGE}.{name}", package.submodule_search_locations)
        if spec is None or spec.loader is None or spec.submodule_search_locations is None:
            raise ImportError(f"{_PACKAGE}.{name} is not a package")
        module = module_from_spec(spec)
        module.__class__ = _LatePackage
        sys.modules[spec.name] = module
    for name in _LIB_HELPERS:
        setattr(sys.modules[f"{_PACKAGE}.lib"], name, partial(_call_helper, name))


def _call_helper(name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(importlib.import_module(f"{_PACKAGE}.lib._tools"), name)(*args, **kwargs)
