"""How many records a second, against the same user code in a bare loop?

Two workers, saturated, 10,000 keys, one shuffle. `record_ratio`: the record-by-record keyed count; `vector_ratio`: the
vectorised windowed sum. The other side is `plain.py`: the same function over the same Arrow batches, in one process,
with nothing around it. The two sides take turns; each round is a run of its own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.live import Batches, Discard, came, session
from benchmarks.plain import KEYS, WINDOW, Count, WindowSum, count_records, sum_windows

WORKERS = 2


def run(*, quick: bool) -> dict[str, Any]:
    rounds, seconds = (1, 3.0) if quick else (5, 6.0)
    words, sales = word_batches(), sale_batches()
    ends = [place % 4 == 3 for place in range(len(sales))]
    figures: dict[str, Any] = {}
    print(f"{'':14}{'median':>10}{'least':>10}{'most':>10}{'records/s':>14}{'plain':>14}")
    with session(f"local[{WORKERS}]") as spark:
        for name, live, plain in (
            ("record", lambda: counting(words), lambda: count_records(words)),
            ("vector", lambda: summing(sales), lambda: sum_windows(sales, ends)),
        ):
            source = "source:words" if name == "record" else "source:sales"
            batches = words if name == "record" else sales
            pairs = [
                (live_rate(spark, live(), source, seconds), plain_rate(plain, batches, seconds)) for _ in range(rounds)
            ]
            ratios = [ours / bare for ours, bare in pairs]
            figures[f"{name}_ratio"] = statistics.median(ratios)
            figures[f"{name}_ratio_rounds"] = ratios
            figures[f"{name}_per_second"] = ours = statistics.median(pair[0] for pair in pairs)
            figures[f"{name}_plain_per_second"] = bare = statistics.median(pair[1] for pair in pairs)
            print(
                f"{name + '_ratio':14}{figures[f'{name}_ratio']:10.2f}{min(ratios):10.2f}{max(ratios):10.2f}"
                f"{ours:14,.0f}{bare:14,.0f}"
            )
    return figures


def word_batches() -> list[pa.RecordBatch]:
    drawn = np.random.default_rng(1).integers(0, KEYS, (40, 8_192))
    return [pa.RecordBatch.from_arrays([pa.array([f"word{n}" for n in row])], ["word"]) for row in drawn.tolist()]


def sale_batches() -> list[pa.RecordBatch]:
    chance = np.random.default_rng(1)
    return [
        pa.RecordBatch.from_arrays(
            [pa.array(chance.integers(0, KEYS, 65_536)), pa.array(chance.integers(0, 100, 65_536))], ["item", "amount"]
        )
        for _ in range(40)
    ]


def counting(batches: list[pa.RecordBatch]) -> tm.Pipeline:
    pipeline = tm.Pipeline("count")
    pipeline.source("words", Batches(batches, WORKERS))
    pipeline.add(Count)
    pipeline.sink("counts", Discard())
    return pipeline


def summing(batches: list[pa.RecordBatch]) -> tm.Pipeline:
    pipeline = tm.Pipeline("sum")
    pipeline.source("sales", Batches(batches, WORKERS, every=WINDOW // 4))
    pipeline.add(WindowSum)
    pipeline.sink("totals", Discard())
    return pipeline


def live_rate(spark: Any, pipeline: tm.Pipeline, source: str, seconds: float) -> float:
    """What was read in steady state; what is read is bounded by what was worked off."""
    with tm.run(pipeline, spark, workers=WORKERS, display=False) as going:
        sink = going.progress.nodes[-1].name
        before = going.progress
        rate = came(going, {"source:words": "count", "source:sales": "window-sum"}[source], seconds)
        assert going.progress.node(sink).records_in > before.node(sink).records_in, "nothing came out"
        going.abandon()
    return rate


def plain_rate(work: Callable[[], Any], batches: list[pa.RecordBatch], seconds: float) -> float:
    rows, passes = sum(batch.num_rows for batch in batches), 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in work():
            pass
        passes += 1
    return rows * passes / (time.perf_counter() - began)
