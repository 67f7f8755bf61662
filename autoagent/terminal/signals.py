"""Raise the signals that interrupt a run only where an interruption is harmless.

Python raises KeyboardInterrupt between any two instructions, even between writing a log line and syncing it. Here a
signal is noted at once and raised only inside `allowed()`: while a model thinks, a command runs or a question waits.

Python misses a signal that arrives just before a system call blocks, and notices it only when the call returns: at a
question, never. So a thread interrupts the blocked call with SIGURG after every signal. Python also prints and forgets
an exception raised in a destructor or in the callback of a weak reference. It is raised again at the next SIGURG.
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
_SIGURG_DELAYS = (0.05, 0.2, 0.75)  # seconds after a signal, then from one SIGURG to the next


class Interrupts:
    """Turn Ctrl-C into KeyboardInterrupt, and SIGTERM and SIGHUP into StopRun, raised only inside `allowed()`.

    A second Ctrl-C before the first could be raised becomes StopRun. A SIGHUP ignored from the start stays ignored:
    under nohup the user wants the run to outlive the terminal.
    """

    def __init__(self) -> None:
        self._pending: list[int] = []
        self._depth = 0
        self._raised: tuple[BaseException, list[int]] | None = None

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Install the handlers, and restore the earlier ones at the end."""
        ending = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        handlers = {number: signal.signal(number, self._note) for number in (signal.SIGINT, *ending)}
        hook = sys.unraisablehook
        sys.unraisablehook = lambda dropped: None if self._requeue_dropped(dropped) else hook(dropped)
        try:
            with _wake_blocked_calls(self._note):
                yield self
        finally:
            sys.unraisablehook = hook
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Raise signals in this block: those that arrive in it, and those that arrived before."""
        self._depth += 1
        try:
            self._raise_pending()
            yield
        finally:
            self._depth -= 1
            self._raised = None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals to the end of this block, even inside `allowed()`."""
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

    def _requeue_dropped(self, dropped: sys.UnraisableHookArgs) -> bool:
        """Return whether Python has dropped a signal's exception, and if so, queue the signal again."""
        if self._raised is None or dropped.exc_value is not self._raised[0]:
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
def _wake_blocked_calls(on_sigurg: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """In this block, interrupt this thread's blocked system calls after each signal. `on_sigurg` handles SIGURG."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    done = threading.Event()
    arguments = read_fd, threading.get_ident(), done
    interrupter = threading.Thread(target=_interrupt, args=arguments, name="signals", daemon=True)
    interrupter.start()
    handler = signal.signal(signal.SIGURG, on_sigurg)
    wakeup_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)  # Python writes signal numbers to it
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup_fd)
        signal.signal(signal.SIGURG, handler)
        done.set()
        os.close(write_fd)
        interrupter.join()
        os.close(read_fd)


def _interrupt(read_fd: int, thread: int, done: threading.Event) -> None:
    while numbers := os.read(read_fd, 64):
        if set(numbers) == {signal.SIGURG}:  # our own
            continue
        for seconds in _SIGURG_DELAYS:
            if done.wait(seconds):
                return
            signal.pthread_kill(thread, signal.SIGURG)
