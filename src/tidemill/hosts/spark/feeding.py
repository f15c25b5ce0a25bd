"""What a streaming query does to feed a run: its tasks write files, and its driver makes one entry of each batch.

Spark may run a task twice, or a whole batch again when the query was killed before it noted that the batch was done.
Files are named so that none meets another, and only those of tasks that Spark counts as done are listed. A batch that
the log has already, by the query and its number, is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tidemill.api.eventtime import time_column, times_of, without_time
from tidemill.api.rowform import batch_of_rows
from tidemill.api.schema import read_schema, type_ddl
from tidemill.core.bundle import with_times
from tidemill.core.graph import Graph, Stream
from tidemill.core.ids import StreamName
from tidemill.errors import DataError, PipelineError, RunError, SchemaError, StorageError, UnknownStreamError
from tidemill.sources.feed import Feed
from tidemill.storage.arrowfile import in_schema, write_batches
from tidemill.storage.feedlog import FedFile, FeedLog, folder_of


class Fed(NamedTuple):
    """What one task wrote. Spark carries it to the query's driver."""

    query: str
    batch: int
    name: str
    counts: tuple[int, ...]


# The run's part


def housed(graph: Graph, storage: str | Path | None) -> tuple[Graph, dict[str, str]]:
    """The same pipeline, in which each feed has its folder; and the folders by stream."""
    nodes, folders = dict(graph.nodes), {}
    for node in graph.of_kind("source"):
        if isinstance(node.handle, Feed):
            stream = str(node.outputs[0])
            if storage is None:
                raise PipelineError(
                    f"The source of {stream!r} (declared at {node.declared_at}) is a Feed, which queries write to by "
                    "way of the run's storage. Give the run storage=, a folder that Spark's executors reach."
                )
            folder = folder_of(storage, stream)
            nodes[node.name] = replace(node, handle=node.handle.housed(folder))
            folders[stream] = str(folder)
    return Graph(graph.name, graph.streams, nodes, graph.subscriptions), folders


def end(graph: Graph, stream: str) -> None:
    """Lets the feed of this stream end behind what it was given."""
    feeds = {str(node.outputs[0]): node.handle for node in graph.of_kind("source") if isinstance(node.handle, Feed)}
    if stream not in feeds:
        raise UnknownStreamError(
            f"no Feed of pipeline {graph.name!r} brings in {stream!r}; feeds are: {', '.join(sorted(feeds)) or 'none'}"
        )
    feeds[stream].log().end()


# The query's part


def folder_for(options: Mapping[str, str], known: Mapping[str, str]) -> str:
    """The feed that the query's options mean."""
    stream = options.get("stream")
    if stream is None:
        raise StorageError(
            f"which stream is fed? .option('stream', ...); feeds of this session's runs: {', '.join(known) or 'none'}"
        )
    storage = options.get("path")
    if storage is not None:
        return str(folder_of(storage.removeprefix("file:"), stream))
    if stream not in known:
        raise StorageError(
            f"no run of this session has a Feed of {stream!r}; feeds are: {', '.join(known) or 'none'}. Start the run "
            "first, or name its storage: .option('path', ...)."
        )
    return known[stream]


def check_fits(folder: str, given: Any) -> None:
    """Raises if the query's columns are not those of the stream. It may have more."""
    wanted = read_schema(FeedLog(folder).description().schema)
    there = {field.name.lower(): field for field in read_schema(given, "the query")}
    for field in wanted:
        found = there.get(field.name.lower())
        if found is None:
            raise SchemaError(
                f"the query lacks the column {field.name!r} of the stream; it has {', '.join(there)}. Select or rename "
                "its columns."
            )
        if found.type != field.type:
            raise SchemaError(
                f"the query's column {found.name!r} is of type {type_ddl(found.type)}, and the stream's of type "
                f"{type_ddl(field.type)}. Cast it."
            )


def write(folder: str, rows: Iterable[Any], query: str | None, batch: str | None, partition: int) -> Fed | None:
    """One task's part of a batch, in a file of its own."""
    if query is None or batch is None:
        raise RunError("only a streaming query can feed a run: df.writeStream.format('tidemill')")
    log = FeedLog(folder)
    description = log.description()
    stream = Stream(StreamName("fed"), read_schema(description.schema))
    timed = (_timed(part, stream, description.timestamp) for part in _batches(rows, stream.schema))
    into = log.batch_folder(query, int(batch))
    written = write_batches(into, str(partition), stream.wire_schema, timed)
    if written is None:
        return None
    return Fed(query, int(batch), str((into / written.name).relative_to(log.data)), tuple(written.counts))


def _batches(rows: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Arrow batches as they are; rows, which Spark 4.0 gives, some thousands at once."""
    waiting: list[Any] = []
    for row in rows:
        if isinstance(row, pa.RecordBatch):
            yield row
            continue
        waiting.append(row.asDict(recursive=True))
        if len(waiting) == 8_192:
            yield _of_rows(waiting, schema)
            waiting = []
    if waiting:
        yield _of_rows(waiting, schema)


def _of_rows(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    names = {name.lower(): name for name in schema.names}
    renamed = [{names[k.lower()]: v for k, v in row.items() if k.lower() in names} for row in rows]
    return batch_of_rows(renamed, schema, lambda place: f"Row {place} (from 0) of a batch")


def _timed(batch: pa.RecordBatch, stream: Stream, timestamp: str | None) -> pa.RecordBatch:
    places = {name.lower(): place for place, name in enumerate(batch.schema.names)}
    columns = [batch.column(places[name.lower()]) for name in stream.schema.names]
    fitting = in_schema(pa.RecordBatch.from_arrays(columns, names=stream.schema.names), stream.schema)
    column = time_column(stream.schema, timestamp)
    if column is None:
        return with_times(fitting, without_time(batch.num_rows), stream.wire_schema)
    times, bad = times_of(fitting.column(column))
    if bad:
        raise DataError(f"a row that is fed has no event time: column {column!r} is null, or beyond all times")
    return with_times(fitting, times, stream.wire_schema)


def commit(folder: str, parts: Iterable[Sequence[Any] | None]) -> bool:
    """Makes the batch, whose parts `write` told of, an entry of the log; False if it is there already."""
    fed = [Fed(*part) for part in parts if part is not None]
    if not fed:
        return False
    query, batch = fed[0].query, fed[0].batch
    log = FeedLog(folder)
    names = [part.name for part in fed]
    _refuse_if_not_there(log, names)
    if not log.append(query, batch, [FedFile(part.name, part.counts) for part in fed]):
        log.remove(names)
        return False
    log.clean(query, batch, names)
    return True


def _refuse_if_not_there(log: FeedLog, names: Iterable[str]) -> None:
    for name in names:
        if not (log.data / name).exists():
            raise StorageError(
                f"a task wrote {name!r}, and it is not in {str(log.data)!r} here. Storage must be a folder that all "
                "machines share."
            )


def abort(folder: str, parts: Iterable[Sequence[Any] | None]) -> None:
    """The batch failed, or so Spark thinks: what is in the log stays."""
    log = FeedLog(folder)
    for part in [Fed(*part) for part in parts if part is not None]:
        if not log.has(part.query, part.batch):
            log.remove([part.name])
