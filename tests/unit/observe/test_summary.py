"""A run in one line."""

from __future__ import annotations

from tests.unit.observe.invented import node, progress, worker
from tidemill.observe.rates import Pace
from tidemill.observe.summary import summary


def said(*shown):
    pace = Pace()
    return [summary(each, pace.of(each)) for each in shown][-1]


def test_running():
    two = [worker(0), worker(1)]
    assert said(progress(0), progress(1, workers=two)) == (
        "run word-count: running, 2 workers, 1,000 records/s in, lag 0.25 s"
    )


def test_before_any_worker():
    assert said(progress(0, "starting", nodes=[])) == "run word-count: starting, no workers"


def test_what_went_wrong_is_counted():
    nodes = [node(came=1, malformed=3), node("count", "computation", late=1200)]
    line = "run word-count: running, 1 worker, 1,200 late, 3 malformed, 7 refused"
    assert said(progress(0, nodes=nodes, workers=[worker()], refused=7)) == line


def test_the_end():
    assert said(progress(2, "finished")) == "run word-count: finished after 0:02, 2,000 records in, 4,000 out"
    assert said(progress(0, "failed", nodes=[])) == "run word-count: failed after 0:00, no records in, 0 out"


def test_a_source_that_counts_only_what_it_lets_out():
    assert "5 records in" in said(progress(0, "stopped", nodes=[node(left=5)]))


def test_a_name_with_strange_characters():
    assert said(progress(0, nodes=[], pipeline="[red]a\n\x1b[1mb")) == "run [red]a [1mb: running, no workers"
