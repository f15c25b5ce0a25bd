"""What comes out of a run is a table: plain Spark sees what is committed, and a streaming query follows a live run."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import tidemill as tm
from tests.spark.conftest import ROOT
from tests.spark.processes import eventually
from tests.spark.programs import assert_counted, first_words, some_words, word_count
from tests.unit.sources.test_table import TYPES_DDL, assert_same_values, some_of_each_type
from tidemill.errors import RunError, StorageError


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def assert_table(rows: list[dict[str, Any]], words: list[str]) -> None:
    """Files have no order among them."""
    assert_counted(sorted(rows, key=lambda row: row["n"]), words)


@contextlib.contextmanager
def following(spark: Any, table: str, into: Path) -> Iterator[Any]:
    rows = spark.readStream.format("tidemill").load(table)
    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{into}-checkpoint")
    query = writer.trigger(processingTime="100 milliseconds").start(str(into))
    try:
        yield query
    finally:
        query.stop()


def test_a_streaming_query_follows_a_live_run_and_has_each_row_once(live, spark, tmp_path):
    table, copy = str(tmp_path / "table"), tmp_path / "copy"
    run = live(word_count(some_words(None, rate=100), tm.sinks.Parquet(table)), workers=1, commit_every="300ms")
    with following(spark, table, copy):
        eventually(lambda: copied(spark, copy), 60.0, "rows came by the query")
        assert run.status == "running"
        assert run.table("counts").count() > 0
    run.stop()
    words = first_words(run.table("counts").count())
    with following(spark, table, copy) as query:  # from where it was
        query.processAllAvailable()
        assert_table(copied(spark, copy), words)
        query.processAllAvailable()
        assert len(copied(spark, copy)) == len(words)  # and nothing new
    for frame in (spark.read.parquet(table), spark.read.format("tidemill").load(table), run.table("counts")):
        assert_table(rows_of(frame), words)
    assert run.table("counts").columns == ["word", "n"]


def copied(spark: Any, copy: Path) -> list[dict[str, Any]]:
    return rows_of(spark.read.parquet(str(copy))) if (copy / "_spark_metadata" / "0").exists() else []


def test_nothing_else_in_the_folder_is_seen_and_the_next_run_adds_to_it(live, spark, tmp_path):
    table = tmp_path / "table"
    for times in (1, 2):
        live(word_count(some_words(200), tm.sinks.Parquet(table))).wait(30)
        stranger = pa.table({"word": ["not committed"], "n": pa.array([1], pa.int64())})
        pq.write_table(stranger, table / f"tidemill-0-left-{times}.parquet")
        counts = Counter(row["word"] for row in rows_of(spark.read.parquet(str(table))))
        assert counts == {word: times * n for word, n in Counter(first_words(200)).items()}


@pytest.mark.parametrize("by", [(), ("t", "n")])
def test_all_types_come_out_as_they_are(live, spark, tmp_path, by):
    rows = some_of_each_type()
    pipeline = tm.Pipeline("types")
    pipeline.source("rows", spark.createDataFrame(rows), timestamp="at")
    pipeline.sink("rows", tm.sinks.Parquet(tmp_path / "table", partition_by=by))
    run = live(pipeline, workers=1)
    run.wait(30)
    for frame in (run.table("rows"), spark.read.format("tidemill").load(str(tmp_path / "table"))):
        assert frame.columns == rows.column_names
        assert_same_values(frame.toArrow().to_pylist(), rows, TYPES_DDL)


def test_a_stream_without_rows_is_a_table_with_columns(live, spark, tmp_path):
    run = live(word_count(some_words(0), tm.sinks.Parquet(tmp_path / "table")), workers=1)
    run.wait(30)
    for frame in (run.table("counts"), spark.read.parquet(str(tmp_path / "table"))):
        assert (frame.dtypes, frame.count()) == ([("word", "string"), ("n", "bigint")], 0)


def test_what_is_collected_is_a_table_too_and_others_are_told_what_is(live, spark, tmp_path):
    pipeline = word_count(some_words(50), tm.sinks.Callback(lambda _: None))
    pipeline.sink("words", tm.sinks.Collect())
    run = live(pipeline, workers=1)
    run.wait(30)
    assert Counter(row["word"] for row in rows_of(run.table("words"))) == Counter(first_words(50))
    with pytest.raises(RunError, match=r"no table 'counts': .*Tables are: 'words'"):
        run.table("counts")
    with pytest.raises(PySparkException, match=r"no folder of a tm\.sinks\.Parquet, or no run has begun"):
        spark.read.format("tidemill").load(str(tmp_path / "nothing"))


def test_a_folder_that_holds_something_else_ends_the_run_and_names_it(live, tmp_path):
    (tmp_path / "report.csv").write_text("precious")
    with pytest.raises(StorageError, match=r"holds other things already, such as 'report.csv'.*\[in sink:counts"):
        live(word_count(some_words(50), tm.sinks.Parquet(tmp_path)), workers=1).wait(30)
    assert (tmp_path / "report.csv").read_text() == "precious"


def test_the_page_of_tables(spark, tmp_path):
    page = (ROOT / "docs" / "tables.md").read_text()
    page = re.sub(r'"(out/\w+|state|incoming|checkpoint)"', lambda path: repr(str(tmp_path / path[1])), page)
    scope = {"spark": spark}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "tables.md", "exec"), scope)  # noqa: S102 - it is our own
