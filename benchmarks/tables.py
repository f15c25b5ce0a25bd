"""How fast do tables go through a windowed sum, as a plan and live, against Spark's own?

`plan_ratio`: a table of 10 million rows, read from Parquet, through a sum for each item in windows of ten seconds, as a
Spark plan, against Spark's own batch `groupBy(window)` over the same table: seconds against seconds, in turns.

`live_speedup`: the same sum over the same records without an end, records a second in steady state, against Structured
Streaming's own `groupBy(window)`. Both are fed as fast as they take it, from memory: Tidemill's source gives the same
Arrow batches again and again, Spark's `rate-micro-batch` counts and computes the same columns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.live import Batches, Discard, came, session

ROWS = 10_000_000
KEYS = 10_000
WINDOW = "10 seconds"
SPEED = 100_000
"""Records in a second of event time: so 100 windows in all."""

CORES = 2


def run(*, quick: bool) -> dict[str, Any]:
    rows, rounds, seconds = (1_000_000, 1, 5.0) if quick else (ROWS, 5, 15.0)
    figures: dict[str, Any] = {"rows": rows}
    print(f"{'':14}{'median':>10}{'least':>10}{'most':>10}{'tidemill':>16}{'spark':>16}")
    with session(f"local[{CORES}]") as spark, tempfile.TemporaryDirectory() as folder:
        spark.conf.set("spark.sql.shuffle.partitions", str(CORES))
        sales = table(spark, f"{folder}/sales", rows)
        pairs = [(as_plan(spark, sales), as_spark(sales)) for _ in range(rounds + 1)][1:]  # the first warms both
        _row(figures, "plan_ratio", [ours / theirs for ours, theirs in pairs], pairs, "s")
        rates = [(live_rate(spark, seconds), streaming_rate(spark, seconds)) for _ in range(max(rounds - 2, 1))]
        _row(figures, "live_speedup", [ours / theirs for ours, theirs in rates], rates, "/s")
    return figures


def _row(figures: dict[str, Any], name: str, ratios: list[float], pairs: list[tuple[float, float]], unit: str) -> None:
    figures[name] = statistics.median(ratios)
    figures[f"{name}_rounds"] = ratios
    ours, theirs = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    print(
        f"{name:14}{figures[name]:10.2f}{min(ratios):10.2f}{max(ratios):10.2f}{ours:14,.1f}{unit}{theirs:14,.1f}{unit}",
        flush=True,
    )


def table(spark: Any, path: str, rows: int) -> Any:
    columns = [
        f"id * 7919 % {KEYS} as item",
        "id * 31 % 100 as amount",
        f"timestamp_micros(id * {1_000_000 // SPEED}) as at",
    ]
    spark.range(0, rows, 1, 8).selectExpr(*columns).write.parquet(path)
    return spark.read.parquet(path)


def summed(source: Any, timestamp: str | None = None) -> tm.Pipeline:
    pipeline = tm.Pipeline("tables")
    sales = pipeline.source("sales", source, timestamp)
    totals = sales.key_by("item").window(tm.tumbling("10s"), name="totals").aggregate(total=("sum", "amount"))
    totals.to(Discard())
    return pipeline


# As a plan


def as_plan(spark: Any, sales: Any) -> float:
    frame = summed(sales, "at").as_dataframe("totals", spark=spark)
    return _seconds(frame)


def as_spark(sales: Any) -> float:
    from pyspark.sql.functions import sum as total
    from pyspark.sql.functions import window

    return _seconds(sales.groupBy("item", window("at", WINDOW)).agg(total("amount").alias("total")))


def _seconds(frame: Any) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


# Live


def live_rate(spark: Any, seconds: float) -> float:
    rows, many = 65_536, 32
    numbers = np.arange(rows * many, dtype=np.int64)
    batches = [
        pa.RecordBatch.from_arrays([pa.array(part * 7_919 % KEYS), pa.array(part * 31 % 100)], ["item", "amount"])
        for part in np.split(numbers, many)
    ]
    source = Batches(batches, CORES, every=rows * 1_000_000 // SPEED)
    with tm.run(summed(source), spark, workers=CORES, display=False) as going:
        rate = came(going, "totals-partials", seconds)  # the first phase: what reads the records themselves
        going.abandon()
    return rate


def streaming_rate(spark: Any, seconds: float) -> float:
    """Structured Streaming at its best: batches so large that what a batch costs by itself matters little."""
    from pyspark.sql.functions import sum as total
    from pyspark.sql.functions import window

    batch = 2_000_000
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", batch).option("numPartitions", CORES)
    source = source.option("advanceMillisPerBatch", batch * 1_000 // SPEED).load()
    columns = [
        f"value * 7919 % {KEYS} as item",
        "value * 31 % 100 as amount",
        f"timestamp_micros(value * {1_000_000 // SPEED}) as at",
    ]
    sales = source.selectExpr(*columns).withWatermark("at", "0 seconds")
    summed = sales.groupBy("item", window("at", WINDOW)).agg(total("amount").alias("total"))
    with tempfile.TemporaryDirectory() as folder:
        query = summed.writeStream.format("noop").outputMode("append").option("checkpointLocation", folder).start()
        _until_batches(query, 3)
        first, began = _rows(query), time.perf_counter()
        time.sleep(seconds)
        last, took = _rows(query), time.perf_counter() - began
        query.stop()
    return (last - first) / took


def _until_batches(query: Any, many: int) -> None:
    while query.lastProgress is None or query.lastProgress["batchId"] < many:
        time.sleep(0.1)


def _rows(query: Any) -> int:
    """So far, as the query says after each batch."""
    return int(sum(progress["numInputRows"] for progress in query.recentProgress))
