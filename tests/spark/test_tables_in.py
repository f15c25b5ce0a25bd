"""DataFrames that go into a run: Spark evaluates each once, and the run reads what it gave."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

import tidemill as tm
from tests.spark.programs import first_words
from tests.unit.sources.test_table import TYPES_DDL, assert_same_values, some_of_each_type
from tidemill.errors import DataError, StorageError
from tidemill.sources.table import Table

START = dt.datetime(2024, 5, 1, tzinfo=dt.timezone.utc)


class InOrder(tm.Computation):
    """Says what came, and whether anything came late."""

    orders = tm.Input(key="item", late="process")
    seen = tm.Output("item string, n long, late boolean")

    def process_record(self, ctx, record):
        ctx.produce(self.seen, item=ctx.key, n=record.n, late=record.timestamp < ctx.watermark)


def orders(spark: Any, count: int) -> Any:
    """Not in the order of time."""
    place = (F.col("id") * 7919) % count
    return spark.range(count).select(
        F.concat(F.lit("item "), (F.col("id") % 10).cast("string")).alias("item"),
        F.col("id").alias("n"),
        F.timestamp_micros(F.lit(int(START.timestamp() * 1e6)) + place * 1_000_000).alias("at"),
    )


def seen(source: Any, sink: Any, **how: Any) -> tm.Pipeline:
    pipeline = tm.Pipeline("orders")
    pipeline.source("orders", source, **how)
    pipeline.add(InOrder)
    pipeline.sink("seen", sink)
    return pipeline


@pytest.mark.usefixtures("nothing_left")
def test_every_row_comes_once_in_the_order_of_time(live, spark):
    collected = tm.sinks.Collect()
    live(seen(orders(spark, 5_000), collected, timestamp="at")).wait()
    assert sorted(row["n"] for row in collected.rows) == list(range(5_000))
    assert not any(row["late"] for row in collected.rows)


def test_it_is_evaluated_once_even_if_evaluating_it_again_gives_something_else(live, spark, tmp_path):
    calls = tmp_path / "calls"
    calls.mkdir()

    def noisy(batches: Any) -> Any:
        import uuid

        (calls / uuid.uuid4().hex).touch()
        yield from batches

    frame = orders(spark, 200).repartition(2).mapInArrow(noisy, "item string, n long, at timestamp")
    collected = tm.sinks.Collect()
    live(seen(frame, collected, timestamp="at"), workers=2).wait()
    assert sorted(row["n"] for row in collected.rows) == list(range(200))
    assert len(list(calls.iterdir())) == 2  # its partitions


def test_keys_lie_together_and_where_nobody_has_keys_rows_are_dealt_out(live, spark, tmp_path, monkeypatch):
    evaluated: list[Table] = []
    written = Table.written

    def watched(table, parts):
        evaluated.append(written(table, parts))
        return evaluated[-1]

    monkeypatch.setattr(Table, "written", watched)
    collected = tm.sinks.Collect()
    run = live(seen(tm.sources.Table(orders(spark, 1_000), timestamp="at", splits=3), collected), storage=tmp_path)
    splits = [rows_of(evaluated[0], split) for split in evaluated[0].splits()]
    run.wait()
    assert len(splits) == 3
    assert sum(map(len, splits)) == 1_000
    items = [{row["item"] for row in rows} for rows in splits]
    assert sum(map(len, items)) == 10  # each in one place
    assert all(rows == sorted(rows, key=lambda row: row["at"]) for rows in splits)
    assert not list((tmp_path / "tables").glob("*"))  # they go with the run


def rows_of(source: Any, split: str) -> list[dict[str, Any]]:
    reader, rows = source.open(split, 0), []
    while True:
        chunk = reader.read(100)
        rows += chunk.batch.to_pylist()
        if chunk.ended:
            return rows


@pytest.mark.usefixtures("nothing_left")
def test_a_row_without_event_time_is_refused_with_its_column(live, spark):
    frame = orders(spark, 100).withColumn("at", F.when(F.col("n") != 7, F.col("at")))
    with pytest.raises(DataError, match=r"the source of 'orders' .*test_tables_in.*: .*at is null"):
        live(seen(frame, tm.sinks.Collect(), timestamp="at"))


def test_all_types_come_as_they_are(live, spark):
    rows = some_of_each_type()
    frame = spark.createDataFrame(rows)
    collected = tm.sinks.Collect()
    pipeline = tm.Pipeline("types")
    pipeline.source("rows", frame, timestamp="at")
    pipeline.sink("rows", collected)
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        live(pipeline).wait()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert_same_values(collected.rows, rows, TYPES_DDL)


def test_whatever_spark_reads(live, spark, tmp_path):
    words = first_words(300)
    pipeline, collected = tm.Pipeline("formats"), {}
    for form in ("csv", "json", "parquet", "orc", "text"):
        path, name = str(tmp_path / form), "value" if form == "text" else "word"
        spark.createDataFrame([(word,) for word in words], f"{name} string").write.format(form).save(path)
        pipeline.source(form, spark.read.schema(f"{name} string").format(form).load(path))
        collected[form] = tm.sinks.Collect()
        pipeline.sink(form, collected[form])
    live(pipeline).wait()
    for sink in collected.values():
        assert Counter(word for row in sink.rows for word in row.values()) == Counter(words)


def test_a_plan_uses_the_dataframe_itself(spark):
    pipeline = seen(orders(spark, 50), tm.sinks.Collect(), timestamp="at")
    frame = pipeline.as_dataframe("seen", spark=spark)
    assert Counter(row["n"] for row in frame.collect()) == Counter(range(50))
    other = orders(spark, 5)
    assert pipeline.as_dataframe("seen", {"orders": other}).count() == 5


@pytest.mark.usefixtures("nothing_left")
def test_on_several_machines_it_needs_a_folder_that_all_share(live, spark, monkeypatch):
    monkeypatch.setattr("tidemill.hosts.spark.tables.is_local", lambda _: False)
    with pytest.raises(StorageError, match=r"the source of 'orders' .*storage= in a folder that all"):
        live(seen(orders(spark, 5), tm.sinks.Collect(), timestamp="at"))


def test_an_empty_dataframe_ends_at_once_and_what_a_killed_run_left_is_gone(live, spark, tmp_path):
    left = tmp_path / "tables" / "0" / "left.arrow"
    left.parent.mkdir(parents=True)
    left.touch()
    collected = tm.sinks.Collect()
    live(seen(orders(spark, 100).where("n < 0"), collected, timestamp="at"), storage=tmp_path).wait(30)
    assert collected.rows == []
    assert not left.exists()
