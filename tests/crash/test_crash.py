"""A handful of the boundaries by default, more where there is time; `python -m crash` tries them all."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from crash import boundaries, power, sub_agents, trial
from crash.boundaries import Boundary

AT_ONCE = 2  # trials

if reason := boundaries.missing():
    if os.environ.get("CI"):
        pytest.fail(f"system calls cannot be traced here: {reason}")
    pytest.skip(f"system calls cannot be traced here: {reason}", allow_module_level=True)


@pytest.fixture(scope="module")
def recorded() -> list[Boundary]:
    """All boundaries of a run; that it has so many is part of the proof."""
    found = trial.record()
    assert len(found) >= 500
    assert {"write", "pwrite64", "fdatasync", "fsync", "rename", "unlink", "mkdir"} <= {b.call for b in found}
    return found


def failures(trials: dict[str, partial[trial.Outcome]], least: int) -> dict[str, str]:
    """What went wrong in each of these trials, by its name; at least so many of them are to cut the run off."""
    cut = 0
    wrong: dict[str, str] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {name: pool.submit(attempt) for name, attempt in trials.items()}
    for name, future in running.items():
        try:
            cut += future.result().cut
        except AssertionError as error:
            wrong[name] = str(error)
    assert wrong or cut >= least, f"only {cut} of {len(trials)} trials cut the run off"
    return wrong


def at(call: str, found: list[Boundary], about: str) -> Boundary:
    """The boundary in the middle of those of this call on such a path."""
    fitting = [boundary for boundary in found if boundary.call == call and about in boundary.about]
    return fitting[len(fitting) // 2]


def test_a_kill_around_the_log_loses_nothing(recorded: list[Boundary]) -> None:
    chosen = [at("write", recorded, "events.jsonl")]  # CI takes a sample of all
    assert failures({str(boundary): partial(trial.kill_at, boundary) for boundary in chosen}, len(chosen)) == {}


@pytest.mark.slow
def test_a_fault_at_the_log_loses_nothing(recorded: list[Boundary]) -> None:
    boundary = at("fdatasync", recorded, "events.jsonl")
    tried = {"EIO": partial(trial.fail_at, boundary, "EIO")}
    if not power.missing():
        tried["power"] = partial(power.cut_at, boundary)
    assert failures(tried, len(tried)) == {}


@pytest.mark.slow
def test_a_kill_at_a_sample_of_all_boundaries_loses_nothing(recorded: list[Boundary]) -> None:
    chosen = trial.spread(recorded, 24)
    assert failures({str(boundary): partial(trial.kill_at, boundary) for boundary in chosen}, 21) == {}


@pytest.mark.slow
def test_a_kill_in_a_sub_agents_thread_loses_nothing() -> None:
    chosen = trial.spread(sub_agents.record(), 8)
    assert failures({str(boundary): partial(sub_agents.kill_at, boundary) for boundary in chosen}, 6) == {}


@pytest.mark.slow
@pytest.mark.skipif(bool(power.missing()), reason=power.missing() or "it can")
def test_a_power_cut_at_a_sample_of_boundaries_loses_nothing(recorded: list[Boundary]) -> None:
    chosen = trial.spread(power.cuts(recorded), 10)
    assert failures({str(boundary): partial(power.cut_at, boundary) for boundary in chosen}, 8) == {}


@pytest.mark.slow
def test_an_error_at_a_sample_of_boundaries_is_told_and_does_no_damage(recorded: list[Boundary]) -> None:
    chosen = trial.spread(recorded, 18)
    errors = ["ENOSPC", "EIO", "EINTR"] * 6
    tried = {f"{error} {b}": partial(trial.fail_at, b, error) for b, error in zip(chosen, errors, strict=True)}
    assert failures(tried, 1) == {}
