"""What happens to a run whose source is ten times faster than its consumer, and to a loop that makes two of one?

`memory_mib`: the most that any worker's memory grew over a minute of it, beside where it began; `rate_ratio`: the
consumer's rate under that pressure against its rate alone, which is the same user function in a bare loop in as many
processes as there are workers. The two take turns.

The loop sends two records back for each that it takes, until they have gone round so often; its edge needs no credit,
so what waits there goes to disk. It must end, exactly, within the same memory.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import statistics
import time
from typing import Any

import pyarrow as pa

import tidemill as tm
from benchmarks.live import Discard, session

WORKERS = 2
TIMES_FASTER = 10
KEYS = 1_000
MIB = 1024 * 1024

SEEDS = 1_000
ROUNDS = 11
"""So often a record of the loop goes round: 1,000 of them become 2 million."""


class Slow(tm.Computation):
    """Works for a while on each record."""

    work = tm.Input(key="item")
    done = tm.Output("item long, digest string")

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce(self.done, item=ctx.key, digest=toil(record.item))


def toil(item: int) -> str:
    """About a tenth of a millisecond of a processor."""
    return hashlib.pbkdf2_hmac("sha256", b"tide", item.to_bytes(8, "big"), 600).hex()


class Doubling(tm.Computation):
    """A record that has not gone round often enough comes back as two."""

    fresh = tm.Input("seeds", key="id")
    back = tm.Input("again", key="id")
    again = tm.Output("id long, rounds long")
    ended = tm.Output("id long")

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.rounds == ROUNDS:
            ctx.produce(self.ended, id=record.id)
            return
        for child in (2 * record.id, 2 * record.id + 1):
            ctx.produce(self.again, id=child, rounds=record.rounds + 1)


def run(*, quick: bool) -> dict[str, Any]:
    seconds, rounds = (6, 1) if quick else (60, 3)
    bare_seconds = 3 if quick else 15
    figures: dict[str, Any] = {}
    with session(f"local[{WORKERS}]") as spark:
        ratios, grown, rates = [], [], []
        for _ in range(rounds):
            alone = bare_rate(bare_seconds)
            rate, growth = under_pressure(spark, alone * TIMES_FASTER, seconds)
            ratios.append(rate / alone)
            rates.append(rate)
            grown.append(growth / MIB)
            print(
                f"alone {alone:9,.0f}/s   from a source of {alone * TIMES_FASTER:11,.0f}/s {rate:9,.0f}/s   "
                f"ratio {ratios[-1]:.3f}   memory grew by {grown[-1]:.0f} MiB",
                flush=True,
            )
        took, growth, spilled = looped(spark)
    figures = {
        "seconds": seconds,
        "rate_ratio": statistics.median(ratios),
        "rate_ratio_rounds": ratios,
        "memory_mib": max(grown),
        "memory_mib_rounds": grown,
        "records_per_second": statistics.median(rates),
        "loop_seconds": took,
        "loop_memory_mib": growth / MIB,
        "loop_records": SEEDS * 2**ROUNDS,
    }
    print(
        f"the loop: {SEEDS:,} records became {SEEDS * 2**ROUNDS:,} in {took:.1f} s, at most {spilled:,} waited; "
        f"memory grew by {growth / MIB:.0f} MiB"
    )
    return figures


# The consumer


def under_pressure(spark: Any, source_rate: float, seconds: float) -> tuple[float, float]:
    """The consumer's records a second, and by how many bytes the memory of a worker grew."""
    pipeline = tm.Pipeline("pressure")
    pipeline.source("work", tm.sources.Generator(items, "item long", rate=source_rate, splits=WORKERS, vectorised=True))
    pipeline.add(Slow)
    pipeline.sink("done", Discard())
    with tm.run(pipeline, spark, workers=WORKERS, display=False) as going:
        time.sleep(2)
        first = going.progress
        began = {worker.id: worker.memory for worker in first.workers}
        growth = 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.25)
            growth = max(growth, *(worker.memory - began[worker.id] for worker in going.progress.workers))
        last = going.progress
        rate = float(last.rates(first)["slow"][0])
        going.abandon()
    return rate, growth


def items(numbers: Any) -> dict[str, Any]:
    return {"item": numbers * 7_919 % KEYS}


def bare_rate(seconds: float) -> float:
    """The same function, Arrow in and Arrow out, in as many processes."""
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        return sum(pool.map(_bare, [seconds] * WORKERS, chunksize=1))


def _bare(seconds: float) -> float:
    batch = pa.RecordBatch.from_arrays([pa.array([n * 7_919 % KEYS for n in range(1_000)])], ["item"])
    done = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        found = batch.column(0).to_pylist()
        made = [toil(item) for item in found]
        pa.RecordBatch.from_arrays([pa.array(found), pa.array(made)], ["item", "digest"])
        done += len(made)
    return done / (time.perf_counter() - began)


# The loop


def looped(spark: Any) -> tuple[float, float, int]:
    """How long it took, by how much a worker's memory grew, and how much waited at most."""
    pipeline = tm.Pipeline("doubling")
    pipeline.source("seeds", tm.sources.Generator(lambda i: (i, 0), "id long, rounds long", count=SEEDS))
    pipeline.add(Doubling)
    pipeline.sink("ended", Discard())
    began = time.monotonic()
    growth, queued = 0, 0
    start: dict[int, int] = {}
    with tm.run(pipeline, spark, workers=WORKERS, display=False) as going:
        while not going.wait(0.1):
            for worker in going.progress.workers:
                if worker.memory:
                    growth = max(growth, worker.memory - start.setdefault(worker.id, worker.memory))
            queued = max(queued, going.progress.node("doubling").queued)
        came = going.progress.node("sink:ended").records_in
    assert came == SEEDS * 2**ROUNDS, f"{SEEDS * 2**ROUNDS:,} should have come out of the loop, and {came:,} did"
    return time.monotonic() - began, growth, queued
