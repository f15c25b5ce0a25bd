"""Wall time, in microseconds, which never goes back, and does not stand still when the system's does."""

from __future__ import annotations

import time

import pytest

from tidemill.hosts.spark.clock import WallClock


@pytest.fixture
def times(monkeypatch):
    """The system's clocks, in nanoseconds: of the wall, and since some beginning."""
    now = {"wall": 1_000_000_000_000, "elapsed": 0}
    monkeypatch.setattr(time, "time_ns", lambda: now["wall"])
    monkeypatch.setattr(time, "monotonic_ns", lambda: now["elapsed"])
    return now


def test_it_is_the_time_on_the_wall():
    assert abs(WallClock().now() - time.time() * 1e6) < 1e6


def test_it_goes_with_the_wall(times):
    clock = WallClock()
    assert clock.now() == 1_000_000_000
    times["wall"] += 5_000
    assert clock.now() == 1_000_000_005
    times["wall"] += 3_600 * 10**9
    assert clock.now() == 4_600_000_005


def test_it_goes_on_when_somebody_sets_the_wall_back(times):
    """A process whose time stood still for so long would not tick, send again, nor wait for less than that."""
    clock = WallClock()
    clock.now()
    times["wall"] -= 3_600 * 10**9
    times["elapsed"] += 5_000
    first = clock.now()
    assert first == 1_000_000_005
    times["wall"] += 7_000
    times["elapsed"] += 7_000
    assert clock.now() == first + 7


def test_it_goes_with_the_wall_again_when_that_is_ahead(times):
    clock = WallClock()
    clock.now()
    times["wall"] -= 10_000
    assert clock.now() == 1_000_000_000
    times["wall"] += 20_000
    assert clock.now() == 1_000_000_010
