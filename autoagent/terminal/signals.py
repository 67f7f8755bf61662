"""Signals that may cut a run short, let through only where being cut short is harmless.

Python raises KeyboardInterrupt between any two instructions, also between writing a log line and syncing it. Here a
signal is noted at once and raised only inside `allowed()`: while a model thinks, a command runs or a question waits.

A signal that arrives just before a system call starts to wait is noted by Python only when the call returns: at a
question, never. So after every signal a thread interrupts the waiting call by SIGURG. And what is raised in a
destructor or in the callback of a weak reference, Python prints and forgets. So it is raised again at the next SIGURG.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from autoagent.core.errors import StopRun
from autoagent.core.task import Outcome, Status

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_LOOKS = (0.05, 0.2, 0.75)  # seconds after a signal, and from one look to the next


class Interrupts:
    """While installed: Ctrl-C raises KeyboardInterrupt, SIGTERM and SIGHUP raise StopRun, each inside `allowed()`.

    Two Ctrl-C before the first could be raised count as the second one: StopRun. A SIGHUP that is ignored from the
    start stays so: under nohup the user wants the run to outlive the terminal.
    """

    def __init__(self) -> None:
        self._pending: list[int] = []
        self._depth = 0
        self._raised: tuple[BaseException, list[int]] | None = None

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Take the signals over. Give them back at the end."""
        ending = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, *ending)}
        hook = sys.unraisablehook
        sys.unraisablehook = lambda forgotten: None if self._takes_back(forgotten) else hook(forgotten)
        try:
            with _looked_after(self._note):
                yield self
        finally:
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Raise signals in this block: those that come, and those that came before it."""
        self._depth += 1
        try:
            self._raise_pending()
            yield
        finally:
            self._depth -= 1
            self._raised = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back signals that come in this block and would be raised in it, until after it."""
        depth, self._depth = self._depth, 0
        try:
            yield
        finally:
            self._depth = depth
        if depth:
            self._raise_pending()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGURG:
            self._pending.append(number)
        if self._depth:
            self._raise_pending()

    def _takes_back(self, forgotten: sys.UnraisableHookArgs) -> bool:
        """Return whether Python has dropped the exception of a signal, which then waits to be raised again."""
        if self._raised is None or forgotten.exc_value is not self._raised[0]:
            return False
        self._pending = [*self._raised[1], *self._pending]
        self._raised = None
        return True

    def _raise_pending(self) -> None:
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        error: BaseException = KeyboardInterrupt()
        if ending := [signal.Signals(number).name for number in pending if number in _ENDING]:
            error = StopRun(Outcome(Status.INTERRUPTED, f"Ended by {ending[0]}."))
        elif len(pending) > 1:
            error = StopRun(Outcome(Status.INTERRUPTED, "Ended by Ctrl-C."))
        self._raised = error, pending
        raise error


@contextmanager
def _looked_after(again: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Keep signals, while entered, from waiting for a system call of this thread that waits for something else.

    `again` handles the SIGURG that follows a signal.
    """
    came, tells = os.pipe()
    os.set_blocking(tells, False)
    over = threading.Event()
    looking = threading.Thread(target=_look, args=(came, threading.get_ident(), over), name="signals", daemon=True)
    looking.start()
    quiet = signal.signal(signal.SIGURG, again)
    earlier = signal.set_wakeup_fd(tells, warn_on_full_buffer=False)  # Python writes the number of each signal to it
    try:
        yield
    finally:
        signal.set_wakeup_fd(earlier)
        signal.signal(signal.SIGURG, quiet)
        over.set()
        os.close(tells)
        looking.join()
        os.close(came)


def _look(came: int, thread: int, over: threading.Event) -> None:
    while numbers := os.read(came, 64):
        if set(numbers) == {signal.SIGURG}:  # our own
            continue
        for seconds in _LOOKS:
            if over.wait(seconds):
                return
            signal.pthread_kill(thread, signal.SIGURG)
