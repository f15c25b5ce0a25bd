"""The state that a run begins with: a DataFrame of saved rows on its way from a plan to a live run's shards.

A plan ends with the shards' state as rows of bytes, each with its key's place on the ring. Spark writes them to files
before the run starts; a worker that is given a shard reads those that may be its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.core.codec import StateCodec
from tidemill.core.computing import BundleShard, ComputationShard, RecordShard
from tidemill.core.graph import Graph, RowState
from tidemill.core.ids import NodeName
from tidemill.core.keys import KeyRange
from tidemill.core.pieces import encode, pieces_of, rows_of
from tidemill.errors import PipelineError, StorageError

SCHEMA: Final = "key string, state string, position long, part long, piece binary"
"""`position` is null where a piece holds more than one key. The pieces of one part belong together."""

_ARROW: Final = pa.schema(
    [
        ("key", pa.string()),
        ("state", pa.string()),
        ("position", pa.int64()),
        ("part", pa.int64()),
        ("piece", pa.binary()),
    ]
)

BATCH: Final = 4_096


def saved(shard: ComputationShard, part: int) -> Iterator[pa.RecordBatch]:
    """What a shard holds, as rows of the DataFrame."""
    rows: list[tuple[str | None, str | None, int | None, int, bytes]] = []
    for row in _saved_rows(shard, part):
        rows.append(row)
        if len(rows) == BATCH:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _saved_rows(shard: ComputationShard, part: int) -> Iterator[tuple[str | None, str | None, int | None, int, bytes]]:
    if isinstance(shard, RecordShard):
        spec = shard.node.state
        codec = StateCodec(spec.type) if isinstance(spec, RowState) else None
        for key, position, row in rows_of(shard):
            value = codec.decode(row.state) if codec is not None and row.state is not None else None
            signed = int(np.uint64(position).view(np.int64))
            yield _readable(key), _readable(value), signed, part, encode(row)
    else:
        assert isinstance(shard, BundleShard)
        for piece in pieces_of(shard):
            yield None, None, None, part, encode(piece)


def _readable(value: Any) -> str:
    """As JSON; what JSON can't say, as Python writes it."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def _batch(rows: list[Any]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


@dataclass(frozen=True)
class SavedState:
    """The files of one computation's state, as its node has them on a worker (`ports.InitialState`)."""

    folder: str

    def load(self, range: KeyRange) -> list[list[bytes]]:
        parts: dict[int, list[bytes]] = {}
        try:
            found = sorted(path for path in Path(self.folder).iterdir() if path.suffix == ".parquet")
            tables = [pq.read_table(path, columns=["position", "part", "piece"]) for path in found]
        except OSError as error:
            raise StorageError(
                f"the state that the run begins with can't be read from {self.folder!r}: {error}. All workers must "
                "reach the storage folder."
            ) from error
        for table in tables:
            for position, part, piece in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if position is None or range.contains(position % 2**64):
                    parts.setdefault(part, []).append(piece)
        return [parts[part] for part in sorted(parts)]


def beginning_with(graph: Graph, states: Mapping[str, Any], folder: Callable[[], Path]) -> Graph:
    """The pipeline whose computations begin with these DataFrames, written to files by Spark."""
    nodes = dict(graph.nodes)
    for name, frame in states.items():
        node = nodes.get(NodeName(name))
        if node is None or node.kind != "computation" or node.state is None:
            stateful = [n.name for n in graph.of_kind("computation") if n.state is not None]
            raise PipelineError(
                f"initial_state names {name!r}, and pipeline {graph.name!r} has no such computation with state; there "
                f"are: {', '.join(stateful) or 'none'}"
            )
        there = getattr(frame, "columns", None)
        if there is None or not {"position", "part", "piece"} <= set(there):
            raise PipelineError(
                f"initial_state[{name!r}] is {frame!r}, and should be what pipeline.state_dataframe({name!r}, ...) "
                "gave."
            )
        into = folder() / name
        shutil.rmtree(into, ignore_errors=True)
        frame.select("position", "part", "piece").write.parquet(str(into))
        nodes[NodeName(name)] = replace(node, initial=SavedState(str(into)))
    return Graph(graph.name, graph.streams, nodes, graph.subscriptions)
