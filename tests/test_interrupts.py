"""Signals are raised where they may be, and held back within that where something must be whole."""

from __future__ import annotations

import os
import signal

import pytest

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
            with interrupts.held():
                press()
                done.append("whole")
            done.append("and what follows")
        with interrupts.held():
            press()
        done.append("nothing is raised where nothing may be")
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            done.append("late")
    assert done == ["whole", "nothing is raised where nothing may be"]


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts().installed() as interrupts, interrupts.allowed():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
