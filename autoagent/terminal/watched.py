"""Reading that ends for a reason of its own: the time is over, or the answer came from elsewhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK = 0.25  # seconds from one look to the next

Watch = Callable[[], BaseException | None]
"""Says, whenever it is called, with which error reading is to end; None to go on."""


@contextmanager
def watched(watch: Watch | None) -> Iterator[None]:
    """Raise the error of `watch`, once there is one, in this block, which reads in the main thread and blocks there."""
    if watch is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    found: list[BaseException] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK):
            if not found and (error := watch()):
                found.append(error)
            if found:  # again and again: a signal just before a system call does not end that
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    def interrupt(*_: object) -> None:
        if found and not over.is_set():
            over.set()
            raise found[0]

    before = signal.signal(signal.SIGALRM, interrupt)
    looking = threading.Thread(target=look, name="watch", daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
        signal.signal(signal.SIGALRM, before)
