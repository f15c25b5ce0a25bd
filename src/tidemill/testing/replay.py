"""The outputs of a pipeline for some rows, in this process and at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidemill.api.durations import duration
from tidemill.api.pipeline import Pipeline
from tidemill.core.ids import BEGINNING, Micros
from tidemill.testing.inputs import Inputs, batch_of, source_of, with_inputs
from tidemill.testing.stage import Row, Stage


def replay(
    pipeline: Pipeline, inputs: Inputs, *, delay: Any = None, now: Any = 0, seed: int = 0
) -> dict[str, list[Row]]:
    """What the pipeline produces for these rows: for each stream of its computations, the records in order.

    The rows of all sources arrive in the order of their event times, and the watermark is never behind them, so that
    every event timer fires in its place and nothing is late. With `delay`, rows arrive in the order in which they are
    given, source by source, and the watermark follows the newest of each source by that delay; then records can be
    late.
    """
    stage = Stage(pipeline, now=now, seed=seed)
    with_inputs(stage.graph, inputs, splits=1, delay=delay)  # says what is missing or unknown
    if delay is None:
        _in_order_of_time(stage, inputs)
    else:
        _as_given(stage, inputs, duration(delay, "replay(delay=...)"))
    return stage.finish()


def _in_order_of_time(stage: Stage, inputs: Inputs) -> None:
    batches = {stream: batch_of(stage.graph, stream, list(rows), stage.now) for stream, rows in inputs.items()}
    moments = np.unique(np.concatenate([np.empty(0, np.int64), *(times for _, times in batches.values())]))
    for moment in moments.tolist():
        if moment > BEGINNING:
            stage.advance_watermark(moment)
        for stream, (batch, times) in batches.items():
            together = np.flatnonzero(times == moment)
            stage.send_batch(stream, batch.take(together), times[together])


def _as_given(stage: Stage, inputs: Inputs, delay: Micros) -> None:
    for stream, rows in inputs.items():
        batch, times = batch_of(stage.graph, stream, list(rows), stage.now)
        source_of(stage.graph, stream)
        newest = BEGINNING
        for place in range(batch.num_rows):
            stage.send_batch(stream, batch.slice(place, 1), times[place : place + 1])
            newest = Micros(max(newest, int(times[place])))
            if newest - delay > BEGINNING:
                stage.advance_watermark(newest - delay, stream)
