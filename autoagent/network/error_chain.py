"""Finds the causes of errors of the network libraries, which keep them in three places."""

from __future__ import annotations

from collections.abc import Iterator


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, outermost first.

    Besides Python's own chain, urllib3 keeps a cause in `reason` and requests among the arguments.
    """
    pending, seen = [error], set[int]()
    while pending:
        cause = pending.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        held = (cause.__context__, cause.__cause__, getattr(cause, "reason", None), *cause.args)
        pending.extend(one for one in held if isinstance(one, BaseException))
