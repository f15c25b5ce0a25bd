"""Rates come from about a second ago, however often progress comes."""

from __future__ import annotations

import pytest

from tests.unit.observe.invented import node, progress, worker
from tidemill.observe.rates import Pace


def paced(*shown):
    pace = Pace()
    return [pace.of(each) for each in shown]


def test_a_first_progress_tells_no_speed():
    assert paced(progress(5)) == [None]


@pytest.mark.parametrize("every", [0.001, 0.05, 0.25, 1, 10])
def test_seldom_or_often(every):
    rates = paced(*(progress(step * every) for step in range(int(max(3 / every, 3)))))[-1]
    assert rates is not None
    assert rates.nodes["words"] == pytest.approx((1000, 1000), rel=0.05)
    assert rates.nodes["count"] == pytest.approx((1000, 2000), rel=0.05)


def test_it_is_a_second_that_counts():
    """A source that gives a thousand records once in a second has a steady speed."""
    shown = [progress(step / 10, nodes=[node(came=1000 * (step // 10))]) for step in range(100)]
    speeds = [rates.nodes["words"][0] for rates in paced(*shown)[20:] if rates]
    assert len(speeds) == 80
    assert all(speed == pytest.approx(1000, rel=0.15) for speed in speeds)


def test_what_comes_often_is_not_all_kept():
    pace = Pace()
    for step in range(10_000):
        pace.of(progress(step / 1000))
    assert len(pace._earlier) < 20


def test_from_a_moment_no_speed_is_told():
    assert paced(progress(1), progress(1), progress(1.1), progress(1.3))[:3] == [None] * 3


def test_a_clock_that_goes_back():
    first, back, later = paced(progress(1000), progress(10), progress(11))
    assert (first, back) == (None, None)
    assert later is not None
    assert later.nodes["words"] == (1000, 1000)


def test_the_end_has_no_speed():
    assert paced(progress(1), progress(2, "finished"), progress(3, "finished"))[1:] == [None, None]


def test_before_there_are_nodes_nothing_is_compared():
    assert paced(progress(0, "starting", nodes=[]), progress(1)) == [None, None]


def test_counts_that_fall_are_no_speed():
    rates = paced(progress(0, nodes=[node(came=500)]), progress(1, nodes=[node(came=100)]))[1]
    assert rates is not None
    assert rates.nodes["words"] == (0, 0)


def test_cpu_is_of_one_process():
    before = progress(1, workers=[worker(0, cpu=1.0), worker(1, cpu=50.0)])
    rates = paced(before, progress(3, workers=[worker(0, cpu=2.5), worker(1, 2, cpu=0.5)]))[1]
    assert rates is not None
    assert rates.cpu == {(0, 1): 0.75}
