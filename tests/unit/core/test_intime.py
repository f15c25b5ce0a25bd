"""Fed in the order of event time, a shard fires its timers in their places, and nothing is ever late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.core import intime
from tidemill.core.bundle import new_bundle, times_of, with_times, without_times
from tidemill.core.ids import END, Epoch, Micros, NodeName, Sequence, ShardId, StreamName
from tidemill.core.intime import InTime
from tidemill.core.keys import FULL
from tidemill.core.shard import Place
from tidemill.errors import TidemillError, UserCodeError


class Diary(tm.Computation):
    """Writes down what happens to a key, and when."""

    words = tm.Input(key="word")
    diary = tm.Output("word string, what string")

    def process_record(self, ctx, record):
        ctx.produce(self.diary, word=ctx.key, what=f"record {record.timestamp} at {ctx.watermark >= record.timestamp}")
        ctx.set_timer("after", record.timestamp + 10)

    def process_timer(self, ctx, timer):
        ctx.produce(self.diary, word=ctx.key, what=f"timer {timer.at}")


class Sum(tm.Computation):
    """The same for whole bundles."""

    words = tm.Input(key="word")
    marks = tm.Output("mark long, seen long")
    state = tm.Columns("n long")

    def process_bundle(self, ctx, batch):
        rows = ctx.state.rows(batch.column(0))
        ctx.state.n[:] += np.bincount(rows, minlength=len(ctx.state.n))

    def process_watermark(self, ctx):
        seen = int(ctx.state.n.sum())
        ctx.produce_batch(self.marks, {"mark": [min(ctx.watermark, 10**9)], "seen": [seen]}, np.array([0]))


def shard(computation: type[tm.Computation], now: int = 0) -> InTime:
    pipeline = tm.Pipeline("in-time")
    pipeline.source("words", tm.sources.Rows([], "word string, at long", timestamp="at"))
    pipeline.add(computation, name="it")
    return InTime(pipeline.graph(), Place(ShardId(1), NodeName("it"), FULL, Epoch(1)), 0, Micros(now))


def feed(running: InTime, *records: tuple[str, int], first: int = 1) -> None:
    stream = running.shard.graph.streams[StreamName("words")]
    words, times = [word for word, _ in records], np.array([at for _, at in records], np.int64)
    batch = with_times(pa.RecordBatch.from_pydict({"word": words, "at": times}), times, stream.wire_schema)
    running.feed(new_bundle(stream.name, ShardId(9), Sequence(first), batch))


def produced(running: InTime) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for bundle in running.shard.flush() for row in without_times(bundle.batch).to_pylist()]


def test_a_timer_fires_before_the_first_record_that_is_not_older():
    running = shard(Diary)
    feed(running, ("a", 0), ("b", 9), ("a", 10), ("b", 11), ("a", 50))
    assert produced(running) == [
        ("a", "record 0 at True"),
        ("b", "record 9 at False"),
        ("a", "timer 10"),
        ("a", "record 10 at True"),
        ("b", "record 11 at False"),
        ("a", "timer 20"),
        ("b", "timer 21"),
        ("a", "record 50 at True"),
    ]
    assert running.shard.late == 0
    for _ in running.end():
        pass
    assert produced(running) == [("a", "timer 60")]
    assert running.shard.mark == END


def test_cuts_between_bundles_change_nothing():
    records = [("abc"[n * 7 % 3], n * n % 13 + 13 * (n // 4)) for n in range(40)]
    records.sort(key=lambda record: record[1])
    whole, cut = shard(Diary), shard(Diary)
    feed(whole, *records)
    for n, record in enumerate(records):
        feed(cut, record, first=n + 1)
    assert [row for row in produced(whole) if "record" not in row[1]] == [
        row for row in produced(cut) if "record" not in row[1]
    ]


def test_whole_bundles_hear_of_time_between_them():
    running = shard(Sum)
    feed(running, ("a", 5), ("b", 8))
    feed(running, ("a", 20), first=3)
    for _ in running.end():
        pass
    assert produced(running) == [(5, 0), (20, 2), (10**9, 3)]


def test_time_may_go_on_without_records():
    running = shard(Diary)
    feed(running, ("a", 0), ("b", 90))
    produced(running)
    for _ in running.until(Micros(95)):
        pass
    assert produced(running) == []
    assert running.shard.next_wake() is None
    for _ in running.until(Micros(100)):
        pass
    assert produced(running) == [("b", "timer 100")]


def test_input_that_is_not_sorted_is_a_fault():
    with pytest.raises(AssertionError, match="sorted"):
        feed(shard(Diary), ("a", 5), ("a", 4))


def test_wall_timers_fire_at_the_end_each_at_its_time():
    class Waiting(Diary):
        def process_record(self, ctx, record):
            ctx.set_timer("later", ctx.now + 1_000, clock="wall")
            ctx.set_timer("sooner", ctx.now + 10, clock="wall")

        def process_timer(self, ctx, timer):
            ctx.produce(self.diary, word=timer.tag, what=f"{timer.at}: {ctx.now}")

    running = shard(Waiting, now=500)
    feed(running, ("a", 0))
    for _ in running.end():
        pass
    assert produced(running) == [("sooner", "510: 510"), ("later", "1500: 1500")]


def test_a_wall_timer_that_sets_itself_for_ever_is_an_error(monkeypatch):
    monkeypatch.setattr(intime, "ENDLESS", 50)

    class Clock(Diary):
        def process_record(self, ctx, record):
            self.process_timer(ctx, None)

        def process_timer(self, ctx, timer):
            ctx.set_timer("tick", ctx.now + 1, clock="wall")

    running = shard(Clock)
    feed(running, ("a", 0))
    with pytest.raises(TidemillError, match="it fired wall timers 50 times after its input had ended"):
        for _ in running.end():
            pass


def test_what_a_timer_raises_is_told_as_the_timer_s():
    class Failing(Diary):
        def process_timer(self, ctx, timer):
            raise ValueError("no")

    running = shard(Failing)
    with pytest.raises(UserCodeError) as caught:
        feed(running, ("a", 0), ("b", 30))
    assert "it.process_timer('after')" in str(caught.value)
    assert "for key 'a'" in str(caught.value)
    assert "process_record" not in str(caught.value)


def test_times_of_what_it_makes_are_those_of_their_causes():
    running = shard(Diary)
    feed(running, ("a", 3), ("a", 40))
    (bundle,) = running.shard.flush()
    assert times_of(bundle.batch).tolist() == [3, 13, 40]
