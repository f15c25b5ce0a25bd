"""The user's own pipeline on a failing cluster: the same rows come out, and the same seed gives the same run."""

from collections import Counter

import pytest

import tidemill as tm
from tests.unit.testing.test_stage import SECOND, sale, windows

ROWS = [sale(place * SECOND // 10, amount=place, item=f"item{place % 7}") for place in range(200)]


def of(outputs):
    return Counter((row["item"], row["total"], row.timestamp) for row in outputs["sums"])


@pytest.mark.parametrize("seed", range(12))
def test_what_is_committed_is_what_replay_gives(seed):
    result = tm.testing.simulate(windows(), {"sales": ROWS}, seed=seed)
    assert of(result.outputs) == of(tm.testing.replay(windows(), {"sales": ROWS}))


def test_the_same_seed_tells_the_same_story():
    one, other = (tm.testing.simulate(windows(), {"sales": ROWS}, seed=5) for _ in range(2))
    assert str(one) == str(other)
    assert one.events == other.events


def test_a_fault_can_be_aimed():
    faults = tm.testing.Faults(crashes=(tm.testing.CrashPoint("worker", "Send", 30, "before"),))
    result = tm.testing.simulate(windows(), {"sales": ROWS}, seed=1, faults=faults)
    assert result.crashes == 1
    assert any("crashes before Send" in line for line in result.story)
    assert tm.testing.simulate(windows(), {"sales": ROWS}, seed=1, faults="none").crashes == 0
