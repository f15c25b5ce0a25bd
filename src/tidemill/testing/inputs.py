"""A test's rows in place of a pipeline's sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.bundle import Int64s
from tidemill.core.graph import Graph, Node
from tidemill.core.ids import Micros, StreamName
from tidemill.errors import UnknownStreamError
from tidemill.ports import ARRIVAL, SCHEDULED, Source
from tidemill.sources.rows import Rows

Inputs = Mapping[str, Iterable[Mapping[str, Any]]]


def source_of(graph: Graph, stream: str) -> Node:
    """The source that brings a stream in."""
    for node in graph.of_kind("source"):
        if stream in node.outputs:
            return node
    known = ", ".join(sorted(str(node.outputs[0]) for node in graph.of_kind("source")))
    raise UnknownStreamError(f"no source brings in a stream {stream!r}; the pipeline's sources bring in: {known}")


def rows_of(graph: Graph, stream: str, rows: Iterable[Mapping[str, Any]], **options: Any) -> Rows:
    """Rows with the schema and the event time of the pipeline's own source. They are due when they are read."""
    source: Source = source_of(graph, stream).handle
    timestamp = ARRIVAL if source.timestamp == SCHEDULED else source.timestamp
    return Rows(list(rows), source.schema, timestamp=timestamp, **options)


def batch_of(
    graph: Graph, stream: str, rows: Iterable[Mapping[str, Any]], now: Micros
) -> tuple[pa.RecordBatch, Int64s]:
    """Rows as columns, with their event times."""
    given = list(rows)
    source = rows_of(graph, stream, given)
    chunk = source.open("0", 0).read(len(given))
    times = np.full(len(given), now, np.int64) if source.timestamp == ARRIVAL else chunk.times
    return chunk.batch, times


def with_inputs(graph: Graph, inputs: Inputs, *, splits: int, delay: Any = None) -> Graph:
    """The graph reading these rows instead of what its sources would read. Every source must be given rows.

    Without a delay they are read in the order of their event times, so that none is late.
    """
    for stream in inputs:
        source_of(graph, stream)
    nodes = dict(graph.nodes)
    for node in graph.of_kind("source"):
        stream = node.outputs[0]
        if stream not in inputs:
            given = ", ".join(sorted(inputs)) or "none"
            raise UnknownStreamError(f"the source of {stream!r} was given no rows; rows were given for: {given}")
        rows = list(inputs[stream])
        if delay is None:
            rows = [rows[place] for place in _in_time_order(graph, stream, rows)]
        nodes[node.name] = replace(node, handle=rows_of(graph, stream, rows, splits=splits, delay=delay or 0))
    return Graph(graph.name, graph.streams, nodes, graph.subscriptions)


def _in_time_order(graph: Graph, stream: str, rows: list[Mapping[str, Any]]) -> list[int]:
    _, times = batch_of(graph, stream, rows, Micros(0))
    order: list[int] = np.argsort(times, kind="stable").tolist()
    return order


def produced_streams(graph: Graph) -> list[StreamName]:
    """What the pipeline's computations produce: what a test can look at."""
    return [stream for node in graph.of_kind("computation") for stream in node.outputs]
