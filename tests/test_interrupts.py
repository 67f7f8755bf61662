"""Signals are raised where they may be, and held back within that where something must be whole."""

from __future__ import annotations

import os
import signal
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

import pytest

from autoagent.core.errors import StopRun
from autoagent.terminal.signals import Interrupts


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_is_raised_in_the_block_that_allows_it_and_kept_until_then() -> None:
    with Interrupts().installed() as interrupts:
        press()
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            pytest.fail("it came before")
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            press()
            pytest.fail("it comes at once")


def test_a_signal_in_a_block_that_holds_it_back_is_raised_behind_it() -> None:
    done = []
    with Interrupts().installed() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            with interrupts.deferred():
                press()
                done.append("whole")
            done.append("and what follows")
        with interrupts.deferred():
            press()
        done.append("nothing is raised where nothing may be")
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            done.append("late")
    assert done == ["whole", "nothing is raised where nothing may be"]


class Held:
    """What runs a function when nobody holds it any longer."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then

    def __del__(self) -> None:
        self.then()


def by_a_weak_reference(then: Callable[[], None]) -> None:
    held = Held(lambda: None)
    watcher = weakref.ref(held, lambda _: then())
    del held
    assert watcher() is None


@pytest.mark.parametrize("leave", [by_a_weak_reference, Held])
@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, "Ended by SIGTERM."), (signal.SIGINT, "^$"), (signal.SIGHUP, "by SIGHUP")]
)
def test_a_signal_where_python_forgets_what_is_raised_is_raised_behind_it(
    leave: Callable[[Callable[[], None]], object], number: signal.Signals, error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def signalled() -> None:
        signal.raise_signal(number)
        time.sleep(0)

    with Interrupts().installed() as interrupts:
        with pytest.raises((StopRun, KeyboardInterrupt), match=error), interrupts.allowed():
            leave(signalled)
            time.sleep(10)
            pytest.fail("it was forgotten")
        with interrupts.allowed():
            time.sleep(0.1)  # it is raised once
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_no_code_that_catches_every_exception_can_catch_a_signal(number: signal.Signals) -> None:
    with Interrupts().installed() as interrupts:
        with pytest.raises((StopRun, KeyboardInterrupt)), interrupts.allowed(), suppress(Exception):
            signal.raise_signal(number)
            time.sleep(10)
        with interrupts.allowed():
            time.sleep(0.1)


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts().installed() as interrupts, interrupts.allowed():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
