"""Timers that share a thread: what is due is called, what is cancelled is not, and no timer costs a thread."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from autoagent.models.openai.timers import Timers


def test_what_is_due_is_called_in_its_order() -> None:
    timers, called = Timers(), queue.SimpleQueue[str]()
    timers.after(0.1, lambda: called.put("later"))
    timers.after(0.01, lambda: called.put("sooner"))
    assert [called.get(timeout=5), called.get(timeout=5)] == ["sooner", "later"]


def test_a_timer_set_when_nothing_is_due_any_more_is_called_too() -> None:
    timers, called = Timers(), queue.SimpleQueue[str]()
    timers.after(0.0, lambda: called.put("first"))
    called.get(timeout=5)
    time.sleep(0.05)
    timers.after(0.0, lambda: called.put("second"))
    assert called.get(timeout=5) == "second"


def test_a_cancelled_timer_is_not_called() -> None:
    timers, called = Timers(), queue.SimpleQueue[str]()
    cancel = timers.after(0.05, lambda: called.put("cancelled"))
    cancel()
    cancel()  # twice is as good as once
    timers.after(0.1, lambda: called.put("kept"))
    assert called.get(timeout=5) == "kept"
    with pytest.raises(queue.Empty):
        called.get_nowait()


def test_a_timer_may_set_the_next() -> None:
    timers, called = Timers(), queue.SimpleQueue[str]()
    timers.after(0.01, lambda: timers.after(0.01, lambda: called.put("next")) and None)
    assert called.get(timeout=5) == "next"


def test_many_timers_are_one_thread() -> None:
    before, timers = threading.active_count(), Timers()
    for cancel in [timers.after(60, lambda: None) for _ in range(100)]:
        cancel()
    assert threading.active_count() == before + 1
