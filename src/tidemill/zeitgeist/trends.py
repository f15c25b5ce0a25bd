"""The pipeline: windows of counts, and a model for each query that says which of them are out of the ordinary.

`WindowCounter` counts each query's searches in buckets of a second, as the Windower of MillWheel's figure 9. Once the
low watermark has passed a bucket's end, all of its searches have come, and a timer sends the count on, be it zero.
Until then it tells now and then how far a count has come.

`ModelCalculator` knows what is usual for a query at each hour of the day. A spike needs no timer: a count that is above
what the model allows will not come down again. A dip is seen in complete buckets only, and takes a few of them in a row
to be believed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tidemill as tm
from tidemill.ports import Source
from tidemill.zeitgeist.tables import DAY

SECOND: Final = 1_000_000
HOUR: Final = 3_600 * SECOND

WINDOW: Final = "query string, ends timestamp, searches long"
EVERY: Final = 8
"""A running count is told at each so many searches."""

ALLOWED: Final = 6.0
"""Standard deviations above the usual that are no spike yet."""

DOUBT: Final = 1.5
"""Standard deviations below the usual that say nothing yet; what is beyond adds to the confidence in a dip."""

CONFIDENT: Final = 5.0
OLD_ENOUGH: Final = 7
"""Days that a model must have seen before it judges anything."""


@dataclass
class Buckets:
    searches: dict[int, int] = field(default_factory=dict)


class WindowCounter(tm.Computation):
    """Key: the query. Whoever searches for nothing has buckets too, until the live part is over."""

    late = tm.Output("query string, at timestamp")
    searches = tm.Input(key="query", late=late)
    running = tm.Output(WINDOW)
    windows = tm.Output(WINDOW)
    state = Buckets

    def __init__(self, until: int) -> None:
        self.until = until

    def process_record(self, ctx: Any, record: Any) -> None:
        ends = record.timestamp - record.timestamp % SECOND + SECOND
        searches = ctx.state.searches.get(ends, 0) + 1
        ctx.state.searches[ends] = searches
        if searches == 1:
            ctx.set_timer(str(ends), ends)
        if searches % EVERY == 0:
            ctx.produce(self.running, query=ctx.key, ends=ends, searches=searches)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        searches = ctx.state.searches.pop(timer.at, 0)
        ctx.produce(self.windows, query=ctx.key, ends=timer.at, searches=searches)
        following = timer.at + SECOND
        if following <= self.until:  # even if nothing comes: that would be a dip
            ctx.set_timer(str(following), following)


@dataclass
class Model:
    """What is usual, by hour of the day, and what is going on."""

    mean: list[float] = field(default_factory=lambda: [0.0] * DAY)
    variance: list[float] = field(default_factory=lambda: [0.0] * DAY)
    days: list[int] = field(default_factory=lambda: [0] * DAY)
    spiked: int = 0
    """The end of the last bucket that was above what is allowed."""

    confidence: float = 0.0
    dipping: bool = False

    def deviation(self, hour: int) -> float:
        """Counts vary by chance at least as their mean does."""
        return math.sqrt(max(self.variance[hour], self.mean[hour]) + 1.0)

    def learn(self, hour: int, searches: int) -> None:
        """Exponentially weighted. What is far out teaches no more than what is a little."""
        days, mean = self.days[hour], self.mean[hour]
        away = searches - mean
        if days >= OLD_ENOUGH:
            most = 3.0 * self.deviation(hour)
            away = min(max(away, -most), most)
        weight = max(1.0 / (days + 1), 0.05)
        self.mean[hour] = mean + weight * away
        self.variance[hour] = (1.0 - weight) * (self.variance[hour] + weight * away * away)
        self.days[hour] = days + 1


class ModelCalculator(tm.Computation):
    """Key: the query. `bucket` is how long a bucket is and stands for an hour, `midnight` when some day begins."""

    windows = tm.Input(key="query")
    running = tm.Input(key="query")
    anomalies = tm.Output(
        "query string, kind string, ends timestamp, searches long, usual double, confidence double, found timestamp"
    )
    state = Model

    def __init__(self, bucket: int, midnight: int) -> None:
        self.bucket = bucket
        self.midnight = midnight

    def process_record(self, ctx: Any, record: Any) -> None:
        model: Model = ctx.state
        complete = record.stream == "windows"
        ends = record.timestamp - record.timestamp % self.bucket + (0 if complete else self.bucket)
        hour = (ends - self.bucket - self.midnight) // self.bucket % DAY
        if model.days[hour] >= OLD_ENOUGH:
            deviations = (record.searches - model.mean[hour]) / model.deviation(hour)
            if deviations > ALLOWED:
                self.spike(ctx, ends, hour, record.searches, deviations)
            if complete:
                self.dip(ctx, ends, hour, record.searches, deviations)
        if complete:
            model.learn(hour, record.searches)

    def spike(self, ctx: Any, ends: int, hour: int, searches: int, deviations: float) -> None:
        if ends > ctx.state.spiked + 2 * self.bucket:  # one that goes on is told once
            self.tell(ctx, "spike", ends, hour, searches, deviations)
        ctx.state.spiked = max(ctx.state.spiked, ends)

    def dip(self, ctx: Any, ends: int, hour: int, searches: int, deviations: float) -> None:
        model: Model = ctx.state
        model.confidence = min(max(model.confidence - deviations - DOUBT, 0.0), 2 * CONFIDENT)
        if model.confidence > CONFIDENT and not model.dipping:
            model.dipping = True
            self.tell(ctx, "dip", ends, hour, searches, model.confidence)
        elif model.confidence == 0.0:
            model.dipping = False

    def tell(self, ctx: Any, kind: str, ends: int, hour: int, searches: int, confidence: float) -> None:
        ctx.produce(
            self.anomalies,
            query=ctx.key,
            kind=kind,
            ends=ends,
            searches=searches,
            usual=round(ctx.state.mean[hour], 1),
            confidence=round(confidence, 1),
            found=ctx.now,
        )


MODELS: Final = "model-calculator"
"""What the computation is called in both pipelines: what one ends with, the other begins with."""


def of_history(history: Any) -> tm.Pipeline:
    """The models alone, over a DataFrame of counts by the hour."""
    pipeline = tm.Pipeline("history")
    pipeline.source("windows", history, timestamp="ends")
    pipeline.source("running", tm.sources.Rows([], WINDOW, timestamp="ends"))
    pipeline.add(ModelCalculator(HOUR, midnight=0), name=MODELS)
    return pipeline


def live(
    searches: Source, begins: int, seconds: int, folder: Path, tell: Callable[[Mapping[str, Any]], None]
) -> tm.Pipeline:
    """All of it. What comes out is in tables below the folder; anomalies are told as well, as they are committed."""
    pipeline = tm.Pipeline("zeitgeist")
    pipeline.source("searches", searches)
    pipeline.add(WindowCounter(until=begins + seconds * SECOND))
    pipeline.add(ModelCalculator(SECOND, midnight=begins), name=MODELS)
    for stream in ("windows", "anomalies", "late"):
        pipeline.sink(stream, tm.sinks.Parquet(folder / stream))
    pipeline.sink("anomalies", tm.sinks.Callback(tell))
    return pipeline
