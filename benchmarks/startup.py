"""How long from `tm.run` to the first output, on a session that is warm?

The clock starts before `tm.run` is called and stops when a function of this program is given the first row: the
workers' jobs were submitted, their Python is up, they found each other, and a record went through a shuffle, a stateful
step and a sink. Each round is a run of its own. The parts are the run's own, as its progress tells them.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass
from typing import Any

import tidemill as tm
from benchmarks.live import session

WORKERS = 2


@dataclass
class Seen:
    n: int = 0


class Count(tm.Computation):
    numbers = tm.Input(key="item")
    counts = tm.Output("item long, n long")
    state = Seen

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.state.n += 1
        ctx.produce(self.counts, item=ctx.key, n=ctx.state.n)


def run(*, quick: bool) -> dict[str, Any]:
    rounds = 3 if quick else 15
    with session(f"local[{WORKERS}]") as spark:
        measured = [first_output(spark) for _ in range(rounds)]
    returned = [back for back, _ in measured]
    first = [output for _, output in measured]
    print(f"{'':28}{'median':>10}{'least':>10}{'most':>10}")
    for what, seconds in (("tm.run returned", returned), ("the first output was here", first)):
        print(f"{what:28}{statistics.median(seconds):9.2f}s{min(seconds):9.2f}s{max(seconds):9.2f}s")
    return {
        "first_output_s": statistics.median(first),
        "first_output_s_rounds": first,
        "returned_s": statistics.median(returned),
    }


def first_output(spark: Any) -> tuple[float, float]:
    """Seconds until `tm.run` was back, and until the first row was given to this program."""
    here = threading.Event()
    came: list[float] = []

    def note(_: Any) -> None:
        if not came:
            came.append(time.perf_counter())
            here.set()

    pipeline = tm.Pipeline("startup")
    pipeline.source("numbers", tm.sources.Generator(lambda i: (i % 100,), "item long", rate=1_000))
    pipeline.add(Count)
    pipeline.sink("counts", tm.sinks.Callback(note))
    began = time.perf_counter()
    going = tm.run(pipeline, spark, workers=WORKERS, display=False)
    back = time.perf_counter()
    assert here.wait(60), "nothing came out within a minute"
    going.stop()
    return back - began, came[0] - began
