"""Counting: the records of each word are numbered, in the order in which they come.

Each split numbers its own records of a word, so that the order of those is known whatever the order between splits. A
second computation reads the numbers and reports every one that does not follow on the one before: whatever is lost,
repeated or out of order between two computations shows there, also when the final rows happen to be right.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.api.computation import Computation, Input, Output
from tidemill.api.pipeline import Pipeline
from tidemill.hosts.simulator.workloads.workload import Oracle, Row, Shown, Workload, compare, none
from tidemill.sinks.collect import Collect
from tidemill.sources.rows import Rows

SPLITS = 4
RECORDS = 600


@dataclass
class Seen:
    n: int = 0


class Count(Computation):
    words = Input(key="word")
    counts = Output("word string, n long, split int, i long")
    state = Seen

    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.state.n += 1
        ctx.produce(self.counts, word=ctx.key, n=ctx.state.n, split=record.split, i=record.i)


class Audit(Computation):
    counts = Input(key="word")
    disorder = Output("word string, after long, came long")
    state = Seen

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.n != ctx.state.n + 1:
            ctx.produce(self.disorder, word=ctx.key, after=ctx.state.n, came=record.n)
        ctx.state.n = record.n


def build(seed: int) -> tuple[Pipeline, Oracle]:
    rows = _rows(seed)
    pipeline = Pipeline("counting")
    pipeline.source("words", Rows(rows, "word string, split int, i long, at long", timestamp="at", splits=SPLITS))
    pipeline.add(Count)
    pipeline.add(Audit)
    pipeline.sink("counts", Collect())
    pipeline.sink("disorder", Collect())
    return pipeline, lambda shown: _complaints(rows, shown)


def _rows(seed: int) -> list[Row]:
    chance = random.Random(f"counting {seed}")
    speed = [chance.choice((10, 100, 1_000)) for _ in range(SPLITS)]
    clocks = [0] * SPLITS
    numbers: Counter[tuple[int, str]] = Counter()
    rows = []
    for place in range(RECORDS):
        split = place % SPLITS
        word = f"w{int(chance.expovariate(1 / 12))}"
        clocks[split] += chance.randint(0, speed[split])
        numbers[split, word] += 1
        rows.append({"word": word, "split": split, "i": numbers[split, word], "at": clocks[split]})
    return rows


def _complaints(rows: list[Row], shown: Shown) -> Iterator[str]:
    counts = shown.rows("counts")
    yield from compare(
        "records counted",
        ((row["word"], row["split"], row["i"]) for row in counts),
        ((row["word"], row["split"], row["i"]) for row in rows),
    )
    totals = Counter(row["word"] for row in rows)
    yield from compare(
        "numbers given",
        ((row["word"], row["n"]) for row in counts),
        ((word, n) for word, total in totals.items() for n in range(1, total + 1)),
    )
    yield from none("a word's numbers did not follow on each other", shown.rows("disorder"))
    yield from _order(counts)
    for piece in shown.pieces("counts"):
        yield from _rising_in(piece)


def _order(counts: list[Row]) -> Iterator[str]:
    """By its numbers, each word's records are in the order of their splits."""
    last: dict[tuple[str, int], int] = {}
    for row in sorted(counts, key=lambda row: row["n"]):
        word, split, i = row["word"], row["split"], row["i"]
        if i <= last.get((word, split), 0):
            yield f"order of {word!r} in split {split}: {i} was handled after {last[word, split]}"
        last[word, split] = i


def _rising_in(piece: list[Row]) -> Iterator[str]:
    """A sink writes a word's rows in their order."""
    last: dict[str, int] = defaultdict(int)
    for row in piece:
        if row["n"] <= last[row["word"]]:
            yield f"order of {row['word']!r} in a sink: {row['n']} was written after {last[row['word']]}"
        last[row["word"]] = row["n"]


counting = Workload("counting", "numbers the records of each word, and audits the numbers downstream", build)
