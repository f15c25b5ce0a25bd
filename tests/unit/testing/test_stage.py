"""The stage: records, watermark and clock move when the test moves them, and then everything follows at once."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

import tidemill as tm

SECOND = 1_000_000


@dataclass
class Sums:
    by_second: dict[int, int] = field(default_factory=dict)


class Windows(tm.Computation):
    """A sum for each key and second, when the second is over."""

    sales = tm.Input(key="item", late="process")
    sums = tm.Output("item string, total long")
    behind = tm.Output("item string")
    state = Sums

    def process_record(self, ctx, record):
        if record.timestamp < ctx.watermark:
            ctx.produce(self.behind, item=ctx.key)
            return
        second = record.timestamp // SECOND
        ctx.state.by_second[second] = ctx.state.by_second.get(second, 0) + record.amount
        ctx.set_timer(f"second {second}", (second + 1) * SECOND)

    def process_timer(self, ctx, timer):
        ctx.produce(self.sums, item=ctx.key, total=ctx.state.by_second.pop(timer.at // SECOND - 1))
        if not ctx.state.by_second:
            del ctx.state


def windows():
    pipeline = tm.Pipeline("windows")
    pipeline.source("sales", tm.sources.Rows([], "item string, amount long, at timestamp", timestamp="at"))
    pipeline.add(Windows)
    pipeline.sink("sums", tm.sinks.Collect())
    return pipeline


def sale(at, amount=1, item="a"):
    return {"item": item, "amount": amount, "at": at}


def test_a_timer_fires_when_the_watermark_is_there_and_not_before():
    stage = tm.testing.Stage(windows())
    stage.send("sales", sale(0), sale(5), sale(7))
    stage.advance_watermark(SECOND - 1)
    assert stage.outputs["sums"] == []
    assert stage.state("windows", "a") == Sums({0: 3})
    stage.advance_watermark(SECOND)
    assert stage.outputs["sums"] == [{"item": "a", "total": 3}]
    assert stage.outputs["sums"][0].timestamp == SECOND
    assert stage.state("windows", "a") is None


def test_what_comes_behind_the_watermark_is_late():
    stage = tm.testing.Stage(windows())
    stage.advance_watermark(10)
    stage.send("sales", sale(9), sale(10))
    assert stage.outputs["behind"] == [{"item": "a"}]
    assert stage.late("windows") == 1
    assert stage.watermark("windows") == 10


def test_the_end_fires_all_timers():
    stage = tm.testing.Stage(windows())
    stage.send("sales", sale(0), sale(3 * SECOND, item="b"))
    assert stage.finish()["sums"] == [{"item": "a", "total": 1}, {"item": "b", "total": 1}]


class Reminder(tm.Computation):
    asks = tm.Input(key="who")
    reminders = tm.Output("who string, at long")

    def process_record(self, ctx, record):
        ctx.set_timer("remind", ctx.now + 5 * SECOND, clock="wall")

    def process_timer(self, ctx, timer):
        ctx.produce(self.reminders, who=ctx.key, at=ctx.now)


def reminders():
    pipeline = tm.Pipeline("reminders")
    pipeline.source("asks", tm.sources.Rows([], "who string", timestamp=tm.ARRIVAL))
    pipeline.add(Reminder)
    pipeline.sink("reminders", tm.sinks.Collect())
    return pipeline


def test_the_wall_clock_is_in_the_tests_hand():
    stage = tm.testing.Stage(reminders(), now=100)
    stage.send("asks", {"who": "x"})
    stage.advance_clock("2s")
    stage.send("asks", {"who": "y"})
    stage.advance_clock("2999ms")
    assert stage.outputs["reminders"] == []
    stage.advance_clock("10s")
    assert stage.outputs["reminders"] == [
        {"who": "x", "at": 100 + 5 * SECOND},
        {"who": "y", "at": 100 + 7 * SECOND},
    ]


def test_what_a_schedule_would_time_is_due_when_it_is_sent():
    pipeline = tm.Pipeline("ticks")
    source = tm.sources.Generator(lambda n: (str(n),), "who string", tm.sources.SCHEDULED, rate=1)
    pipeline.source("asks", source)
    pipeline.add(Reminder)
    stage = tm.testing.Stage(pipeline, now=100)
    stage.send("asks", {"who": "x"})
    stage.advance_clock("10s")
    assert stage.outputs["reminders"] == [{"who": "x", "at": 100 + 5 * SECOND}]


class Forever(Reminder):
    def process_timer(self, ctx, timer):
        ctx.set_timer("remind", ctx.now + 1, clock="wall")


def test_a_timer_that_sets_itself_for_ever_is_an_error_at_the_end():
    pipeline = tm.Pipeline("for-ever")
    pipeline.source("asks", tm.sources.Rows([], "who string", timestamp=tm.ARRIVAL))
    pipeline.add(Forever)
    stage = tm.testing.Stage(pipeline)
    stage.send("asks", {"who": "x"})
    with pytest.raises(tm.TidemillError, match="for ever"):
        stage.finish()


class Countdown(tm.Computation):
    """A cycle: each record comes back one less, until it is nothing."""

    steps = tm.Input(key="name")
    again = tm.Input(stream="again", key="name")
    back = tm.Output("name string, left long", stream="again")
    done = tm.Output("name string")

    def process_record(self, ctx, record):
        if record.left:
            ctx.produce(self.back, name=ctx.key, left=record.left - 1)
        else:
            ctx.produce(self.done, name=ctx.key)


def test_a_cycle_runs_until_it_is_quiet_and_its_mark_reaches_the_end():
    pipeline = tm.Pipeline("countdown")
    pipeline.source("steps", tm.sources.Rows([], "name string, left long, at timestamp", timestamp="at"))
    pipeline.add(Countdown)
    pipeline.sink("done", tm.sinks.Collect())
    outputs = tm.testing.replay(
        pipeline, {"steps": [{"name": "a", "left": 50, "at": 1}, {"name": "b", "left": 0, "at": 2}]}
    )
    assert outputs["done"] == [{"name": "a"}, {"name": "b"}]
    assert len(outputs["again"]) == 50


class Doubled(tm.Computation):
    numbers = tm.Input(key="n")
    doubles = tm.Output("n long, twice long")
    state = tm.Columns("seen long")

    def process_bundle(self, ctx, batch):
        rows = ctx.state.rows(batch.column(0))
        ctx.state.seen[rows] += 1
        ctx.produce_batch(
            self.doubles, {"n": batch.column(0), "twice": pa.array([n * 2 for n in batch.column(0).to_pylist()])}
        )


def test_the_vectorised_form_works_on_the_stage_too():
    pipeline = tm.Pipeline("doubled")
    pipeline.source("numbers", tm.sources.Rows([], "n long, at timestamp", timestamp="at"))
    pipeline.add(Doubled)
    stage = tm.testing.Stage(pipeline)
    stage.send("numbers", {"n": 1, "at": 5}, {"n": 2, "at": 6})
    assert stage.outputs["doubles"] == [{"n": 1, "twice": 2}, {"n": 2, "twice": 4}]
    assert [row.timestamp for row in stage.outputs["doubles"]] == [5, 6]
    assert list(stage.state("doubled", None).seen) == [1, 1]


def test_an_unknown_name_is_an_error_that_lists_what_exists():
    stage = tm.testing.Stage(windows())
    with pytest.raises(tm.errors.UnknownStreamError, match="sales"):
        stage.send("sale", sale(1))
    with pytest.raises(tm.TidemillError, match="windows"):
        stage.state("window", "a")
    with pytest.raises(tm.errors.UnknownStreamError, match="sales"):
        tm.testing.replay(windows(), {})


def test_replay_sorts_by_event_time_unless_a_delay_says_how_rows_arrive():
    rows = [sale(2 * SECOND), sale(0)]
    assert tm.testing.replay(windows(), {"sales": rows})["behind"] == []
    assert tm.testing.replay(windows(), {"sales": rows}, delay="0s")["behind"] == [{"item": "a"}]
    assert tm.testing.replay(windows(), {"sales": rows}, delay="2s")["behind"] == []


class Broken(Windows):
    def process_record(self, ctx, record):
        raise ValueError("no good")


def test_the_users_exception_says_where_and_stays_chained():
    pipeline = tm.Pipeline("broken")
    pipeline.source("sales", tm.sources.Rows([], "item string, amount long, at timestamp", timestamp="at"))
    pipeline.add(Broken)
    with pytest.raises(tm.errors.UserCodeError, match=r"broken\.process_record.*no good.*'a'.*sales") as raised:
        tm.testing.replay(pipeline, {"sales": [sale(1)]})
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(tm.errors.UserCodeError, match="seed=3"):
        tm.testing.simulate(pipeline, {"sales": [sale(1)]}, seed=3, faults="none")
