"""`dataclass`, for frozen records whose class costs little to make.

The standard decorator compiles six methods for each class as its module is imported: for the 90 records of the core, a
third of the time until the first question. Here all frozen records share their methods but `__init__`, which is
compiled when the first one is made.
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
        """Make a class a dataclass. Takes `frozen`, `slots` and `kw_only`, and means the same as the standard one."""

        def made(kind: type) -> type:
            if not frozen:
                return dataclasses.dataclass(kind, **options)
            for name, method in vars(_Methods).items():
                if callable(method) and name not in vars(kind):
                    setattr(kind, name, method)
            record = dataclasses.dataclass(kind, init=False, repr=False, eq=False, **options)
            record.__init__ = _compiled_when_called(record)
            return record

        return made if kind is None else made(kind)


def _compiled_when_called(kind: Any) -> Callable[..., None]:
    def first(self: Any, *args: Any, **named: Any) -> None:
        members = [(field.name, field.type, field) for field in dataclasses.fields(kind)]
        after = {"__post_init__": kind.__post_init__} if hasattr(kind, "__post_init__") else {}
        made = dataclasses.make_dataclass("_", members, namespace=after, frozen=True, repr=False, eq=False)
        kind.__init__ = compiled = vars(made)["__init__"]
        compiled(self, *args, **named)

    return first


def _values(record: Any) -> tuple[Any, ...]:
    kind = type(record)
    if (getter := _GETTERS.get(kind)) is None:
        names = [field.name for field in dataclasses.fields(kind)]
        several = len(names) > 1
        getter = attrgetter(*names) if several else lambda record: tuple(getattr(record, name) for name in names)
        _GETTERS[kind] = getter
    values: tuple[Any, ...] = getter(record)
    return values


_GETTERS: dict[type[Any], Callable[[Any], Any]] = {}


class _Methods:
    """The methods that all frozen records share, as the standard decorator makes them for each."""

    def __repr__(self: Any) -> str:
        names = (field.name for field in dataclasses.fields(self))
        shown = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({', '.join(shown)})"

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
