"""Provide a `dataclass` decorator for frozen records that is cheap at import.

The standard decorator compiles six methods per class at import: for the core's 90 records, a third of the time until
the first question. Here all frozen records share their methods except `__init__`, which is compiled on first use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(kind: type | None = None, /, *, frozen: bool = False, **options: Any) -> Any:
        """Make a class a dataclass, as the standard decorator does with `frozen`, `slots` and `kw_only`."""

        def decorate(kind: type) -> type:
            if not frozen:
                return dataclasses.dataclass(kind, **options)
            for name, method in vars(_Methods).items():
                if callable(method) and name not in vars(kind):
                    setattr(kind, name, method)
            record = dataclasses.dataclass(kind, init=False, repr=False, eq=False, **options)

            def compile_and_call(self: Any, *args: Any, **kwargs: Any) -> None:
                record.__init__ = compiled = _compile_init(record)
                compiled(self, *args, **kwargs)

            record.__init__ = compile_and_call
            return record

        return decorate if kind is None else decorate(kind)


def _compile_init(kind: Any) -> Callable[..., None]:
    """Compile `__init__` alone: `make_dataclass` takes four times as long for it."""
    namespace: dict[str, Any] = {"__put": object.__setattr__, "__absent": dataclasses.MISSING}
    parameters, lines = ["self"], []
    has_star = False
    for field in sorted(dataclasses.fields(kind), key=lambda field: bool(field.kw_only)):
        name, value = field.name, field.name
        if field.kw_only and not has_star:
            has_star = True
            parameters.append("*")
        if field.default_factory is not dataclasses.MISSING:
            namespace[f"__make_{name}"] = field.default_factory
            value = f"__make_{name}() if {name} is __absent else {name}"
            parameters.append(f"{name}=__absent")
        elif field.default is not dataclasses.MISSING:
            namespace[f"__default_{name}"] = field.default
            parameters.append(f"{name}=__default_{name}")
        else:
            parameters.append(name)
        lines.append(f" __put(self, {name!r}, {value})\n")
    if hasattr(kind, "__post_init__"):
        lines.append(" self.__post_init__()\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(lines) or ' pass'}", namespace)  # noqa: S102 - names of fields
    compiled: Callable[..., None] = namespace["__init__"]
    compiled.__qualname__ = f"{kind.__qualname__}.__init__"
    return compiled


def _values(record: Any) -> tuple[Any, ...]:
    kind = type(record)
    if (getter := _getters.get(kind)) is None:
        names = [field.name for field in dataclasses.fields(kind)]
        is_tuple = len(names) > 1
        getter = attrgetter(*names) if is_tuple else lambda record: tuple(getattr(record, name) for name in names)
        _getters[kind] = getter
    values: tuple[Any, ...] = getter(record)
    return values


_getters: dict[type[Any], Callable[[Any], Any]] = {}


class _Methods:
    """Define the methods shared by all frozen records, equivalent to those of the standard decorator."""

    def __repr__(self: Any) -> str:
        names = (field.name for field in dataclasses.fields(self))
        parts = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({', '.join(parts)})"

    def __eq__(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self: Any) -> int:
        return hash(_values(self))

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self: Any) -> tuple[Any, ...]:
        return _values(self)

    def __setstate__(self: Any, state: tuple[Any, ...]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)
