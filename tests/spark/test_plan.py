"""A pipeline as a Spark plan gives what the same pipeline gives in one process, and nothing but Spark runs it."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

import tidemill as tm

WORDS = "it was the best of times it was the worst of times it was the age of wisdom".split()
ROWS: list[dict[str, Any]] = [{"word": word, "at": place * 7 - 50} for place, word in enumerate(WORDS * 6)]


@dataclass
class Seen:
    n: int = 0
    before: list[int] = field(default_factory=list)


class WordCount(tm.Computation):
    """Counts as it goes, and at the end of every window of ten."""

    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")
    windows = tm.Output("word string, end long, n long")
    state = Seen

    def process_record(self, ctx, record):
        ctx.state.n += 1
        ctx.produce(self.counts, word=ctx.key, n=ctx.state.n)
        end = record.timestamp - record.timestamp % 10 + 10
        ctx.set_timer(str(end), end)

    def process_timer(self, ctx, timer):
        ctx.produce(self.windows, word=ctx.key, end=timer.at, n=ctx.state.n)
        ctx.state.before.append(ctx.state.n)


class Longest(tm.Computation):
    """Reads two streams, each by a key of its own, and tells at the end what it saw."""

    counts = tm.Input(key=lambda record: len(record.word))
    windows = tm.Input(key=lambda record: len(record.word))
    longest = tm.Output("length long, counts long, windows long, first string")
    state = Seen

    def process_record(self, ctx, record):
        ctx.state.n += record.stream == "counts"
        ctx.state.before += [1] * (record.stream == "windows")
        ctx.set_timer("end", 10**12)

    def process_timer(self, ctx, timer):
        ctx.produce(self.longest, length=ctx.key, counts=ctx.state.n, windows=len(ctx.state.before), first=timer.tag)


class Waiting(tm.Computation):
    """A timer of wall time, which fires when the input has ended."""

    words = tm.Input(key="word")
    woken = tm.Output("word string, late boolean")

    def process_record(self, ctx, record):
        ctx.set_timer("wake", ctx.now + 5_000_000, clock="wall")

    def process_timer(self, ctx, timer):
        ctx.produce(self.woken, word=ctx.key, late=ctx.now > timer.at)


def pipeline_of(*computations: type[tm.Computation], rows: Any = ROWS) -> tm.Pipeline:
    pipeline = tm.Pipeline("plan")
    pipeline.source("words", tm.sources.Rows(rows, "word string, at timestamp", timestamp="at", splits=3))
    for computation in computations:
        pipeline.add(computation)
    return pipeline


def sorted_rows(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.asDict().values() if hasattr(row, "asDict") else row.values()) for row in rows)


@pytest.mark.parametrize("stream", ["counts", "windows", "longest", "woken"])
def test_it_gives_what_one_process_gives(spark, stream):
    pipeline = pipeline_of(WordCount, Longest, Waiting)
    expected = tm.testing.replay(pipeline, {"words": ROWS})[stream]
    assert len(expected) > 3
    assert sorted_rows(pipeline.as_dataframe(stream, spark=spark).collect()) == sorted_rows(expected)


def test_it_is_lazy_and_shuffles_by_the_ring(spark, capsys):
    read: list[int] = []

    class Watched(tm.sources.Rows):
        def open(self, split, position):
            raise AssertionError("it was read before anybody asked")

    pipeline = tm.Pipeline("lazy")
    pipeline.source("words", Watched(ROWS, "word string, at timestamp", timestamp="at"))
    pipeline.add(WordCount)
    frame = pipeline.as_dataframe("counts", spark=spark)
    assert read == []
    assert frame.schema.simpleString() == "struct<word:string,n:bigint>"
    frame.explain()
    plan = capsys.readouterr().out
    assert "hashpartitioning(__position" in plan
    assert "xxhash64(word" in plan
    assert "Sort [__at" in plan
    with pytest.raises(PySparkException, match="it was read before anybody asked"):
        frame.collect()


def test_dataframes_take_the_place_of_sources(spark):
    pipeline = pipeline_of(WordCount)
    given = spark.createDataFrame(
        [(row["at"] + 10, row["word"], 1.5) for row in ROWS], "at long, WORD string, more double"
    )
    frame = given.select(F.timestamp_micros("at").alias("at"), "WORD", "more").repartition(5)
    moved = [{**row, "at": row["at"] + 10} for row in ROWS]
    expected = tm.testing.replay(pipeline, {"words": moved})["windows"]
    assert sorted_rows(pipeline.as_dataframe("windows", {"words": frame}).collect()) == sorted_rows(expected)


def test_columns_that_nobody_looks_at_stay_where_they_are(spark, tmp_path, capsys):
    path = str(tmp_path / "sales")
    spark.range(0, 3_000).selectExpr(
        "id % 7 item", "id amount", "'much text' wide", "timestamp_micros(id) at"
    ).write.parquet(path)
    for two_phase in (True, False):
        pipeline = tm.Pipeline("wide")
        sales = pipeline.source("sales", spark.read.parquet(path), timestamp="at")
        window = sales.key_by("item").window(tm.tumbling(1_000), two_phase=two_phase, name="totals")
        window.aggregate(total=("sum", "amount"))
        frame = pipeline.as_dataframe("totals", spark=spark)
        frame.explain()
        plan = capsys.readouterr().out
        assert "ReadSchema: struct<item:bigint,amount:bigint,at:timestamp>" in plan
        assert frame.selectExpr("sum(total)").first()[0] == sum(range(3_000))


def test_event_times_can_be_had_beside_the_columns(spark):
    pipeline = pipeline_of(WordCount)
    frame = pipeline.as_dataframe("windows", spark=spark, timestamp="ended")
    assert frame.schema["ended"].dataType.simpleString() == "timestamp"
    assert frame.where(F.unix_micros("ended") != F.col("end")).count() == 0


def test_time_is_the_same_in_every_zone(spark):
    """A timestamp without a zone is UTC wherever the session is."""

    class Times(tm.Computation):
        moments = tm.Input(key="id")
        times = tm.Output("id long, at timestamp, local timestamp_ntz, micros long")

        def process_record(self, ctx, record):
            ctx.produce(self.times, id=record.id, at=record["at"], local=record["local"], micros=record.timestamp)

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        for column in ("at", "local"):
            pipeline = tm.Pipeline("zones")
            local = dt.datetime(1960, 3, 1, 12)  # noqa: DTZ001 - it has no zone
            rows = [(1, local.replace(tzinfo=dt.timezone.utc), local)]
            schema = "id long, at timestamp, local timestamp_ntz"
            pipeline.source("moments", tm.sources.Rows(rows, schema, timestamp=column))
            pipeline.add(Times)
            noon = int(dt.datetime(1960, 3, 1, 12, tzinfo=dt.timezone.utc).timestamp()) * 1_000_000
            frame = spark.sql(
                "select 1L id, timestamp '1960-03-01 12:00:00Z' at, timestamp_ntz '1960-03-01 12:00:00' local"
            )
            for inputs in (None, {"moments": frame}):
                made = pipeline.as_dataframe("times", inputs, spark=spark)
                row = made.select(F.unix_micros("at").alias("at"), F.col("local").cast("string"), "micros").first()
                assert tuple(row) == (noon, "1960-03-01 12:00:00", noon)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_keys_that_are_equal_meet(spark):
    """Null, NaN and -0.0 are keys as any others."""

    class Count(tm.Computation):
        values = tm.Input(key=("x", "word"))
        counts = tm.Output("x double, word string, n long")
        state = Seen

        def process_record(self, ctx, record):
            ctx.state.n += 1
            ctx.set_timer("end", 10**12)

        def process_timer(self, ctx, timer):
            ctx.produce(self.counts, x=ctx.key[0], word=ctx.key[1], n=ctx.state.n)

    pipeline = tm.Pipeline("keys")
    pipeline.source("values", tm.sources.Rows([], "x double, word string, at long", timestamp="at"))
    pipeline.add(Count)
    rows = [
        (x, word, at)
        for at, x in enumerate([0.0, -0.0, math.nan, float("nan"), None, None, 1.5])
        for word in ("a", None)
    ]
    frame = spark.createDataFrame(rows, "x double, word string, at long").repartition(7)
    found = pipeline.as_dataframe("counts", {"values": frame}).collect()
    assert sorted((str(row.x), str(row.word), row.n) for row in found) == [
        ("0.0", "None", 2),
        ("0.0", "a", 2),
        ("1.5", "None", 1),
        ("1.5", "a", 1),
        ("None", "None", 2),
        ("None", "a", 2),
        ("nan", "None", 2),
        ("nan", "a", 2),
    ]


def test_what_can_not_be_a_plan_says_why(spark):
    class Round(tm.Computation):
        words = tm.Input(key="word")
        again = tm.Input("back", key="word")
        back = tm.Output("word string")

        def process_record(self, ctx, record):
            """Nothing goes round."""

    pipeline = pipeline_of(Round)
    with pytest.raises(tm.PipelineError, match=r"has a cycle \(round\)"):
        pipeline.as_dataframe("back", spark=spark)
    endless = tm.Pipeline("endless")
    endless.source("words", tm.sources.Generator(lambda i: (str(i),), "word string"))
    endless.add(WordCountWithoutTime)
    with pytest.raises(tm.PipelineError, match="never ends, and a plan needs all of its input"):
        endless.as_dataframe("counts", spark=spark)


class WordCountWithoutTime(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word string")

    def process_record(self, ctx, record):
        ctx.produce(self.counts, word=ctx.key)


def test_inputs_that_do_not_fit_are_named(spark):
    pipeline = pipeline_of(WordCount)
    good = spark.createDataFrame(ROWS, "word string, at long").withColumn("at", F.timestamp_micros("at"))

    def refused(inputs: dict[str, Any], stream: str = "counts") -> str:
        with pytest.raises(tm.TidemillError) as caught:
            pipeline.as_dataframe(stream, inputs, spark=spark)
        return str(caught.value)

    assert "brings in 'wrods'; inputs may be given for: words" in refused({"wrods": good})
    assert "lacks the column 'at'" in refused({"words": good.drop("at")})
    assert "has the column 'at' of type string" in refused({"words": good.withColumn("at", F.col("at").cast("string"))})
    assert "should be a Spark DataFrame" in refused({"words": ROWS})
    assert "a streaming DataFrame, which never ends" in refused({"words": spark.readStream.format("rate").load()})
    assert "no stream 'conuts'; its streams are: counts, windows, words" in refused({"words": good}, "conuts")
    without = good.withColumn("at", F.when(F.col("word") != "best", F.col("at")))
    with pytest.raises(PySparkException, match="the input 'words' has a row without an event time: at is null"):
        pipeline.as_dataframe("counts", {"words": without}).collect()


def test_user_code_that_raises_is_told_where(spark):
    class Failing(WordCountWithoutTime):
        def process_record(self, ctx, record):
            if record.word == "worst":
                raise ValueError("not this one")

    with pytest.raises(
        PySparkException, match=r"failing.process_record .* raised ValueError: not this one for key 'worst'"
    ):
        pipeline_of(Failing).as_dataframe("counts", spark=spark).collect()


# State


def test_state_is_a_table_that_can_be_read(spark):
    pipeline = pipeline_of(WordCount)
    states = pipeline.state_dataframe("word-count", spark=spark, until=10**9)
    found = states.selectExpr("key", "get_json_object(state, '$.n') n")
    assert {row.key: int(row.n) for row in found.collect()} == {
        f'"{word}"': 6 * WORDS.count(word) for word in dict.fromkeys(WORDS)
    }
    with pytest.raises(tm.PipelineError, match="those with state are: word-count"):
        pipeline.state_dataframe("longest", spark=spark)


def test_a_live_run_goes_on_from_the_state_of_a_plan(spark, live):
    """Half of the rows as history, with timers still to come, and the other half live: as if all had been live."""
    half = len(ROWS) // 2
    together = tm.testing.replay(pipeline_of(WordCount), {"words": ROWS})
    history = pipeline_of(WordCount, rows=ROWS[:half])
    states = history.state_dataframe("word-count", spark=spark)
    pipeline, sinks = pipeline_of(WordCount, rows=ROWS[half:]), {}
    for stream in ("counts", "windows"):
        sinks[stream] = tm.sinks.Collect()
        pipeline.sink(stream, sinks[stream])
    live(pipeline, workers=2, initial_state={"word-count": states}).wait(60)
    counted = sorted_rows(history.as_dataframe("counts", spark=spark).collect()) + sorted_rows(sinks["counts"].rows)
    assert sorted(counted) == sorted_rows(together["counts"])
    fired = {(row["word"], row["end"]) for row in sinks["windows"].rows}
    assert fired <= {(row["word"], row["end"]) for row in together["windows"]}
    assert fired >= {(row["word"], row["end"]) for row in together["windows"] if row["end"] > ROWS[half - 1]["at"]}
    last = {row["word"]: row["n"] for row in sinks["windows"].rows}
    assert last == {word: 6 * WORDS.count(word) for word in dict.fromkeys(WORDS)}


def test_windows_that_a_plan_left_open_are_filled_live(spark, live):
    """The state of a vectorised computation has many keys in a piece; each shard takes up its own."""
    rows = [(f"w{n % 7}", n, n * 100) for n in range(400)]
    half = 200

    def summed(given: list[Any]) -> tm.Pipeline:
        pipeline = tm.Pipeline("sums")
        sales = pipeline.source("sales", tm.sources.Rows(given, "word string, n long, at long", timestamp="at"))
        sales.key_by("word").window(tm.tumbling(9_000), name="totals").aggregate(total=("sum", "n"), n="count")
        return pipeline

    def told(found: Any) -> set[tuple[Any, ...]]:
        return {(row["word"], row["window_start"].timestamp(), row["total"], row["n"]) for row in found}

    given = [dict(zip(("word", "n", "at"), row, strict=True)) for row in rows]
    together = told(tm.testing.replay(summed(rows), {"sales": given})["totals"])
    history = summed(rows[:half])
    at = rows[half][2]
    states = history.state_dataframe("totals", spark=spark, until=at)
    pipeline, sink = summed(rows[half:]), tm.sinks.Collect()
    pipeline.sink("totals", sink)
    live(pipeline, workers=2, initial_state={"totals": states}).wait(60)
    assert told(sink.rows) == {row for row in together if row[1] * 1_000_000 + 9_000 > at}
