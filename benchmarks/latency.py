"""How long from the time a record is due to the sink, through one shuffle and one stateful Python step?

A paced source of 1,000 and 10,000 records a second on two workers; every record counts, from its *scheduled* time, so
that a source that falls behind shows. Beside it: a bare ZeroMQ and Arrow hop there and back between two Spark tasks,
and PySpark's own `transformWithState` with the same Python step, in micro-batches as fast as they go.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks import hop, micro_batches
from benchmarks.live import session

RATES = (1_000, 10_000)
KEYS = 1_000
WARM = 3  # seconds at the beginning that do not count


@dataclass
class Seen:
    n: int = 0


class Step(tm.Computation):
    """The stateful step: a count for each key. It passes on when its input was due."""

    events = tm.Input(key="item")
    counts = tm.Output("item long, n long, due long")
    state = Seen

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.state.n += 1
        ctx.produce(self.counts, item=ctx.key, n=ctx.state.n, due=record.timestamp)


class Stopwatch:
    """A sink that notes how late each record is; the commit writes that down."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, schema: pa.Schema, writer: str) -> StopwatchWriter:
        return StopwatchWriter()

    def commit(self, generation: int, number: int, prepared: Sequence[bytes]) -> None:
        with self._path.open("ab") as file:
            file.write(b"".join(prepared))

    def committed(self, generation: int) -> int:
        return 0


class StopwatchWriter:
    def __init__(self) -> None:
        self._late: list[np.ndarray] = []

    def write(self, batch: pa.RecordBatch) -> None:
        due = batch.column(2).to_numpy()
        self._late.append(np.stack([due, time.time_ns() // 1_000 - due]))

    def prepare(self) -> bytes:
        late, self._late = self._late, []
        return np.concatenate(late, axis=1).T.tobytes() if late else b""

    def close(self) -> None:
        """Nothing is held."""


def run(*, quick: bool) -> dict[str, Any]:
    seconds = 8 if quick else 60
    figures: dict[str, Any] = {"p50_ms": {}, "p99_ms": {}, "seconds": seconds}
    print(f"{'':34}{'records/s':>10}{'records':>10}{'p50 ms':>9}{'p99 ms':>9}{'most ms':>9}")
    with session("local[3]") as spark:
        bare = hop.measure(spark, 2_000 if quick else 10_000)
        _row("a bare hop there and back", "", bare)
        figures["hop_ms"] = {"p50": _p(bare, 50), "p99": _p(bare, 99)}
        for rate in RATES:
            late = measure(spark, rate, seconds)
            _row("tidemill", rate, late)
            figures["p50_ms"][str(rate)] = _p(late, 50)
            figures["p99_ms"][str(rate)] = _p(late, 99)
        for rate in RATES:
            late = micro_batches.measure(spark, rate, min(seconds, 30))
            _row("transformWithState", rate, late)
            figures.setdefault("transform_with_state_ms", {})[str(rate)] = {"p50": _p(late, 50), "p99": _p(late, 99)}
    return figures


def measure(spark: Any, rate: int, seconds: int) -> np.ndarray:
    """Microseconds for each record, the warm-up aside. All of them must have come."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "late"
        pipeline = tm.Pipeline("latency")
        count = rate * (seconds + WARM)
        source = tm.sources.Generator(item, "item long", tm.sources.SCHEDULED, rate=rate, count=count)
        pipeline.source("events", source)
        pipeline.add(Step)
        pipeline.sink("counts", Stopwatch(path))
        tm.run(pipeline, spark, workers=2, display=False).wait()
        due, late = np.frombuffer(path.read_bytes(), np.int64).reshape(-1, 2).T
    assert len(late) == count, f"{count} records went in and {len(late)} came out"
    return late[due >= due.min() + WARM * 1_000_000]


def item(number: int) -> tuple[int]:
    return (number * 7_919 % KEYS,)


def _p(micros: np.ndarray, percent: float) -> float:
    return round(float(np.percentile(micros, percent)) / 1_000, 3)


def _row(what: str, rate: Any, micros: np.ndarray) -> None:
    rated = f"{rate:,}" if rate else ""
    print(
        f"{what:34}{rated:>10}{len(micros):>10,}{_p(micros, 50):9.2f}{_p(micros, 99):9.2f}{_p(micros, 100):9.2f}",
        flush=True,
    )
