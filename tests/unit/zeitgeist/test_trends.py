"""Windows of counts and the models beside them: a spike is told at once, a dip when time has passed."""

from __future__ import annotations

import math

import pytest

import tidemill as tm
from tidemill.zeitgeist import trends
from tidemill.zeitgeist.tables import DAY
from tidemill.zeitgeist.trends import HOUR, SECOND, WINDOW

USUAL = 20


def counting(until=100):
    pipeline = tm.Pipeline("counting")
    pipeline.source("searches", tm.sources.Rows([], "query string, at timestamp", timestamp="at"))
    pipeline.add(trends.WindowCounter(until * SECOND))
    return tm.testing.Stage(pipeline)


def search(stage, *moments, query="tides"):
    stage.send("searches", *({"query": query, "at": round(at * SECOND)} for at in moments))


def told(rows):
    return [(row["ends"].timestamp(), row["searches"]) for row in rows]


def test_a_bucket_is_told_when_it_is_complete_and_empty_ones_are_too():
    stage = counting()
    search(stage, 1.1, 2.0, 1.9)
    assert stage.outputs["windows"] == []
    stage.advance_watermark(2 * SECOND)
    search(stage, 2.5)
    stage.advance_watermark(4 * SECOND)
    assert told(stage.outputs["windows"]) == [(2.0, 2), (3.0, 2), (4.0, 0)]


def test_nothing_is_told_of_time_after_the_end():
    stage = counting(until=4)
    search(stage, 1.1)
    stage.advance_watermark(50 * SECOND)
    assert told(stage.outputs["windows"]) == [(2.0, 1), (3.0, 0), (4.0, 0)]


def test_how_far_a_count_has_come_is_told_now_and_then():
    stage = counting()
    search(stage, *(1 + n / 100 for n in range(20)))
    assert told(stage.outputs["running"]) == [(2.0, 8), (2.0, 16)]


def test_late_searches_are_set_aside_and_counted_nowhere_else():
    stage = counting()
    search(stage, 1.1)
    stage.advance_watermark(3 * SECOND)
    search(stage, 1.2, 3.1)
    stage.advance_watermark(4 * SECOND)
    assert [row["at"].timestamp() for row in stage.outputs["late"]] == [1.2]
    assert told(stage.outputs["windows"]) == [(2.0, 1), (3.0, 0), (4.0, 1)]


# The models


@pytest.fixture
def judging():
    """With ten days of history, in which a query has 20 searches at each hour of the day but 40 at eight."""
    pipeline = tm.Pipeline("judging")
    for stream in ("windows", "running"):
        pipeline.source(stream, tm.sources.Rows([], WINDOW, timestamp="ends"))
    pipeline.add(trends.ModelCalculator(HOUR, midnight=0))
    stage = tm.testing.Stage(pipeline)
    for hour in range(10 * DAY):
        window(stage, hour, USUAL * (2 if hour % DAY == 8 else 1))
    assert stage.outputs["anomalies"] == []
    return stage


TODAY = 10 * DAY


def window(stage, hour, searches, stream="windows"):
    """A running count bears the time of a search, a complete one that of its end."""
    at = (hour + 1) * HOUR
    count = {"query": "tides", "ends": at, "searches": searches}
    if stream == "windows":
        stage.send(stream, count)
    else:
        stage.send(stream, count | {"ends": at - HOUR // 2})


def anomalies(stage):
    return [
        (row["kind"], row["ends"].timestamp() // 3600 - 1 - TODAY, row["searches"])
        for row in stage.outputs["anomalies"]
    ]


def test_a_spike_is_told_before_its_bucket_is_complete_and_once(judging):
    for searches in (16, 40, 56, 64):
        window(judging, TODAY + 3, searches, "running")
    window(judging, TODAY + 3, 70)
    window(judging, TODAY + 4, 90)
    assert anomalies(judging) == [("spike", 3, 56)]
    for hour in range(5, 20):
        window(judging, TODAY + hour, USUAL)
    window(judging, TODAY + 20, 80)
    assert anomalies(judging)[1:] == [("spike", 20, 80)]


def test_what_is_usual_at_this_hour_is_no_anomaly(judging):
    window(judging, TODAY + 8, 56)
    assert anomalies(judging) == []
    window(judging, TODAY + 9, 56)
    assert anomalies(judging) == [("spike", 9, 56)]


def test_a_dip_takes_a_few_complete_buckets_and_is_told_once(judging):
    window(judging, TODAY, 0, "running")
    assert anomalies(judging) == []
    for hour in range(6):
        window(judging, TODAY + hour, 0)
    assert anomalies(judging) == [("dip", 1, 0)]
    for hour in range(6, 20):
        window(judging, TODAY + hour, USUAL)
    for hour in range(20, 23):
        window(judging, TODAY + hour, 1)
    assert anomalies(judging)[1:] == [("dip", 21, 1)]


def test_a_count_that_is_a_little_low_is_no_dip(judging):
    for hour in range(20):
        window(judging, TODAY + hour, USUAL - 5 if hour != 8 else 35)
    assert anomalies(judging) == []


def test_a_young_model_says_nothing():
    model = trends.Model()
    for _ in range(trends.OLD_ENOUGH):
        model.learn(3, 10)
    assert model.days[3] == trends.OLD_ENOUGH
    assert model.mean[3] == pytest.approx(10)
    assert model.deviation(3) == pytest.approx(math.sqrt(11))


def test_what_is_far_out_teaches_little():
    model = trends.Model()
    for _ in range(20):
        model.learn(0, 10)
    model.learn(0, 10_000)
    assert model.mean[0] < 11
    for _ in range(200):
        model.learn(0, 30)
    assert model.mean[0] == pytest.approx(30, abs=1)  # what stays becomes usual
