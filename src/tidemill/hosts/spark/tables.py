"""Tables between Spark and a live run: DataFrames that go in, written down once, and DataFrames of what came out.

A DataFrame that is a source is evaluated when the run starts: placed by the keys of who reads it first, so that a
partition's records go to few shards, and sorted by event time. Its tasks write Arrow files and answer with what they
wrote; only what a task that Spark counts as done wrote is taken up.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidemill.api.schema import ddl, quoted
from tidemill.core.graph import TIME_COLUMN, Graph, Node, Stream
from tidemill.core.ids import Micros, StreamName
from tidemill.errors import DataError, RunError, StorageError
from tidemill.hosts.spark.attendance import import_paths
from tidemill.hosts.spark.jobs import readable
from tidemill.hosts.spark.plan import timed
from tidemill.hosts.spark.replaying import POSITION
from tidemill.hosts.spark.session import is_local, is_remote
from tidemill.ports import Gathering
from tidemill.sinks import Collect, Parquet
from tidemill.sources.table import Part, Table
from tidemill.storage.sparklog import SparkLog

TABLES: Final = "tables"
"""The folder of a run's storage in which they are."""

WRITTEN: Final = "place int, name string, counts array<int>"

# What goes in


def evaluated(
    graph: Graph, session: Any, workers: int, storage: str | Path | None, undo: contextlib.ExitStack
) -> Graph:
    """The same pipeline, in which each DataFrame has become files. They go when the run is over."""
    tables = [node for node in graph.of_kind("source") if isinstance(node.handle, Table)]
    if not tables:
        return graph
    folder = _folder(session, storage, tables[0])
    undo.callback(shutil.rmtree, folder, ignore_errors=True)
    now = Micros(time.time_ns() // 1_000)
    nodes = dict(graph.nodes)
    for number, node in enumerate(tables):
        parts = _written(graph, node, session, folder / str(number), node.handle.wanted or workers, now)
        nodes[node.name] = replace(node, handle=node.handle.written(parts))
    return Graph(graph.name, graph.streams, nodes, graph.subscriptions)


def _folder(session: Any, storage: str | Path | None, first: Node) -> Path:
    if storage is not None:
        folder = Path(storage).absolute() / TABLES
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        folder.mkdir()
        return folder
    if not is_local(session):
        raise StorageError(
            f"the source of {first.outputs[0]!r} (declared at {first.declared_at}) is a DataFrame, which Spark writes "
            "down for the run, and the workers may be on other machines. Give the run storage= in a folder that all "
            "of them share."
        )
    return Path(tempfile.mkdtemp(prefix="tidemill-tables-"))


def _written(graph: Graph, node: Node, session: Any, folder: Path, splits: int, now: Micros) -> list[Part]:
    from pyspark.errors import PySparkException

    stream = graph.streams[node.outputs[0]]
    folder.mkdir()
    owner = f"the source of {stream.name!r} (declared at {node.declared_at})"
    frame = _placed(timed(node.handle.dataframe, stream, node.handle.timestamp, now, owner), graph, stream, splits)
    frame = frame.sortWithinPartitions(TIME_COLUMN)
    described = _described(session, f"tidemill {graph.name}: evaluates {stream.name}")
    with described:
        try:
            written = frame.mapInArrow(_writing(str(folder), stream.wire_schema), WRITTEN).collect()
        except PySparkException as error:
            raise DataError(f"{owner} can't be read: {readable(error)}") from error
    parts = {row["place"]: Part(str(folder / row["name"]), tuple(row["counts"])) for row in written}
    return [parts.get(place, Part("", ())) for place in range(splits)]


def _placed(frame: Any, graph: Graph, stream: Stream, splits: int) -> Any:
    """By the places on the ring of the first subscriber's keys, if they are columns; else in turn."""
    from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

    keys = [s.key.columns for s in graph.subscribers(stream.name) if s.key.columns]
    if not keys:
        return frame.repartition(splits)
    place = F.xxhash64(*[F.col(quoted(name)) for name in keys[0]])
    return frame.withColumn(POSITION, place).repartition(splits, POSITION).drop(POSITION)


@contextlib.contextmanager
def _described(session: Any, text: str) -> Iterator[None]:
    """On Spark's own pages."""
    if is_remote(session):
        yield
        return
    context = session.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setJobDescription(before)


def _writing(folder: str, wire: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does with its partition."""
    paths = import_paths()
    names, types = wire.names, [field.type for field in wire]

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        sys.path.extend(path for path in paths if path not in sys.path)
        from tidemill.storage.arrowfile import write_batches

        context = TaskContext.get()
        place = context.partitionId() if context is not None else 0
        schema = pa.schema([pa.field(name, type) for name, type in zip(names, types, strict=True)])
        written = write_batches(folder, f"{place}", schema, batches)
        if written is not None:
            counts = pa.array([written.counts], pa.list_(pa.int32()))
            yield pa.RecordBatch.from_arrays(
                [pa.array([place], pa.int32()), pa.array([written.name]), counts], ["place", "name", "counts"]
            )

    return write


# What came out


def table_of(graph: Graph, session: Any, stream: str) -> Any:
    """What is committed of the stream now, as a DataFrame. Rows that are committed later are in the next one."""
    if _is_stopped(session):
        raise RunError(
            f"the Spark session of this run was its own, and ended with it. Read the files of {stream!r} with a "
            "session of yours, or give the run one: tm.run(pipeline, spark)."
        )
    sinks = [node for node in graph.of_kind("sink") if isinstance(node.handle, (Parquet, Collect))]
    streams = {node.name: next(s.stream for s in graph.subscriptions if s.consumer == node.name) for node in sinks}
    for node in sinks:
        if streams[node.name] == stream:
            return _dataframe(session, node.handle, graph.streams[StreamName(stream)])
    there = ", ".join(repr(str(name)) for name in dict.fromkeys(streams.values())) or "none"
    raise RunError(
        f"pipeline {graph.name!r} has no table {stream!r}: a stream is one if it leaves by a Parquet or a Collect. "
        f"Tables are: {there}."
    )


def _dataframe(session: Any, sink: Parquet | Gathering, stream: Stream) -> Any:
    if isinstance(sink, Parquet):
        if SparkLog(Path(sink.path)).read() is None:
            return session.createDataFrame([], ddl(stream.schema))
        return session.read.schema(ddl(stream.schema)).parquet(sink.path).select(*map(quoted, stream.schema.names))
    assert isinstance(sink, Collect), "the only one with rows"
    rows = pa.Table.from_pylist(list(sink.rows), stream.schema)
    return session.createDataFrame(rows)


def _is_stopped(session: Any) -> bool:
    if is_remote(session):
        return bool(session.is_stopped)
    return session.sparkContext._jsc is None  # noqa: SLF001 - nothing else tells
