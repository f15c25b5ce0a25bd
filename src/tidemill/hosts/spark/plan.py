"""A bounded pipeline as a Spark plan: DataFrames in, DataFrames out, and nothing but Spark in between.

For each computation: a repartition by the keys' places on the ring, a sort by event time, and `mapInArrow` over the
same shard that a live run has (`replaying`). Nothing runs before Spark is asked for rows, and then Spark does what it
always does: it may skip, retry and repeat any part of it.

A stream on its way through the plan is a DataFrame of the user's columns and the event time, `__at`. Where a task makes
several streams, or takes several, each is a struct in a column of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from tidemill.api.schema import ddl, quoted, read_schema, type_ddl
from tidemill.core.graph import TIME_COLUMN, Graph, InSql, Node, Stream, Subscription
from tidemill.core.ids import BEGINNING, Micros, NodeName, StreamName
from tidemill.errors import PipelineError, RunError, SchemaError, TimestampError, UnknownColumnError, UnknownStreamError
from tidemill.hosts.spark import initial, replaying
from tidemill.hosts.spark.replaying import POSITION, STREAM, Task
from tidemill.ports import ARRIVAL, SCHEDULED, Endless
from tidemill.sources.table import Table

ONE: Final = "s{}"
"""The column of the n-th stream where several travel together."""


class Plan:
    """The DataFrames of one pipeline, each made when it is first asked for."""

    def __init__(self, graph: Graph, inputs: Mapping[str, Any], session: Any, now: Micros, seed: int) -> None:
        self._graph = graph
        self._inputs = dict(inputs)
        self._session = session
        self._now = now
        self._seed = seed
        self._made: dict[NodeName, Any] = {}
        _check_acyclic(graph)
        _check_inputs(graph, self._inputs)

    def stream(self, name: StreamName) -> Any:
        """The stream's columns and its times: what all that produce it give, together."""
        if name not in self._graph.streams:
            known = ", ".join(sorted(self._graph.streams))
            raise UnknownStreamError(f"pipeline {self._graph.name!r} has no stream {name!r}; its streams are: {known}")
        frames = [self._output(self._graph.nodes[node], name) for node in self._graph.producers[name]]
        return reduce(lambda left, right: left.unionByName(right), frames)

    def state(self, computation: NodeName, until: Micros | None) -> Any:
        """What the computation holds after all of the input, with the timers that are due later than `until`."""
        node = self._graph.nodes.get(computation)
        if node is None or node.kind != "computation" or node.state is None:
            stateful = [n.name for n in self._graph.of_kind("computation") if n.state is not None]
            raise PipelineError(
                f"pipeline {self._graph.name!r} has no computation {computation!r} with state; those with state are: "
                f"{', '.join(stateful) or 'none'}"
            )
        return self.task(node, "state", initial.SCHEMA, until)

    def _output(self, node: Node, stream: StreamName) -> Any:
        frame = self._of_node(node)
        if len(node.outputs) == 1:
            return frame
        column = ONE.format(node.outputs.index(stream))
        return frame.where(frame[STREAM] == node.outputs.index(stream)).select(f"{column}.*")

    def _of_node(self, node: Node) -> Any:
        if node.name not in self._made:
            make = self._source if node.kind == "source" else self._computation
            self._made[node.name] = make(node)
        return self._made[node.name]

    # Sources

    def _source(self, node: Node) -> Any:
        stream = self._graph.streams[node.outputs[0]]
        given = self._inputs.get(stream.name)
        if given is None and isinstance(node.handle, Table):
            given = node.handle.dataframe
        if given is not None:
            return timed(given, stream, node.handle.timestamp, self._now, f"the input {stream.name!r}")
        if isinstance(node.handle, Endless) and node.handle.endless:
            raise PipelineError(
                f"The source of {stream.name!r} (declared at {node.declared_at}) never ends, and a plan needs all of "
                f"its input. Give it rows that end: inputs={{{stream.name!r}: a DataFrame}}."
            )
        splits = len(node.handle.splits())
        task = Task(replaying.alone(self._graph, node, handle=True), node.name, self._now, self._seed, "read")
        return self._session.range(0, splits, 1, splits).mapInArrow(task.shipped(), self._schema_of(node))

    # Computations

    def _computation(self, node: Node) -> Any:
        if node.in_sql is not None:
            return self._grouped(node, node.in_sql)
        return self.task(node, "run", self._schema_of(node))

    def _grouped(self, node: Node, sql: InSql) -> Any:
        """By Spark's own aggregation, part of which it does before the shuffle."""
        from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

        (subscription,) = (s for s in self._graph.subscriptions if s.consumer == node.name)
        groups = [F.expr(made).alias(name) for name, made in sql.groups]
        made = [F.expr(made).alias(name) for name, made in (*sql.aggregates, (TIME_COLUMN, sql.time))]
        frame = self.stream(subscription.stream).groupBy(*groups).agg(*made)
        schema = self._graph.streams[node.outputs[0]].wire_schema
        return frame.select(
            *(F.col(quoted(field.name)).cast(type_ddl(field.type)).alias(field.name) for field in schema)
        )

    def task(self, node: Node, what: replaying.What, schema: str, until: Micros | None = None) -> Any:
        """The computation's shards over all of its input, one for each partition."""
        subscriptions = [s for s in self._graph.subscriptions if s.consumer == node.name]
        together = len(subscriptions) > 1
        frames = [self._input(s, place, subscriptions) for place, s in enumerate(subscriptions)]
        frame = reduce(lambda left, right: left.unionAll(right), frames)
        if any(s.key.columns or s.key.function is not None for s in subscriptions):
            frame = frame.repartition(POSITION).sortWithinPartitions(*self._order(subscriptions))
        frame = frame.drop(POSITION)
        alone = replaying.alone(self._graph, node)
        task = Task(alone, node.name, self._now, self._seed, what, together, until)
        return frame.mapInArrow(task.shipped(), schema)

    def _input(self, subscription: Subscription, place: int, all_of_them: list[Subscription]) -> Any:
        from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

        stream = self._graph.streams[subscription.stream]
        frame = self._placed(self.stream(subscription.stream), subscription, stream)
        if len(all_of_them) == 1:
            return frame.select(*map(quoted, self._read(subscription)), TIME_COLUMN, POSITION)
        columns = [F.lit(place).cast("int").alias(STREAM), F.col(POSITION), F.col(TIME_COLUMN)]
        for other, s in enumerate(all_of_them):
            of_other = self._graph.streams[s.stream]
            names = [F.col(quoted(name)) for name in of_other.schema.names] if other == place else None
            struct = F.struct(*names) if names else F.lit(None)
            columns.append(struct.cast(f"struct<{ddl(of_other.schema)}>").alias(ONE.format(other)))
        return frame.select(*columns)

    def _placed(self, frame: Any, subscription: Subscription, stream: Stream) -> Any:
        """With each key's place on the ring; Spark computes it where the key is columns."""
        from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

        key = subscription.key
        if key.columns:
            return frame.withColumn(POSITION, F.xxhash64(*[F.col(quoted(name)) for name in key.columns]))
        if key.function is None:
            return frame.withColumn(POSITION, F.lit(0).cast("long"))
        alone = replaying.alone(self._graph, self._graph.nodes[subscription.consumer])
        task = Task(alone, subscription.consumer, self._now, self._seed, "place", of_stream=stream.name)
        return frame.mapInArrow(task.shipped(), f"{wire_ddl(stream)}, {POSITION} long")

    def _read(self, subscription: Subscription) -> list[str]:
        """The columns that the computation looks at. The others stay where they are."""
        names: list[str] = self._graph.streams[subscription.stream].schema.names
        reads = self._graph.nodes[subscription.consumer].reads
        if reads is None or subscription.key.function is not None:
            return names
        wanted = {*reads.get(subscription.stream, names), *subscription.key.columns}
        return [name for name in names if name in wanted]

    def _order(self, subscriptions: list[Subscription]) -> list[str]:
        """By time; what happens at one time is put in an order that is the same whenever Spark evaluates it."""
        streams = [self._graph.streams[s.stream] for s in subscriptions]
        if len(streams) > 1:
            parts = [ONE.format(place) for place, stream in enumerate(streams) if _sortable(pa.struct(stream.schema))]
            return [TIME_COLUMN, STREAM, *parts]
        read = [streams[0].schema.field(name) for name in self._read(subscriptions[0])]
        return [TIME_COLUMN, *(quoted(field.name) for field in read if _sortable(field.type))]

    def _schema_of(self, node: Node) -> str:
        streams = [self._graph.streams[name] for name in node.outputs]
        if len(streams) == 1:
            return wire_ddl(streams[0])
        structs = (f"{ONE.format(place)} struct<{wire_ddl(stream)}>" for place, stream in enumerate(streams))
        return ", ".join([f"{STREAM} int", *structs])


def wire_ddl(stream: Stream) -> str:
    return f"{ddl(stream.schema)}, {TIME_COLUMN} long NOT NULL"


def _sortable(type: pa.DataType) -> bool:
    """Spark has no order for maps."""
    if pa.types.is_map(type):
        return False
    if pa.types.is_struct(type):
        return all(_sortable(field.type) for field in type)
    return _sortable(type.value_type) if pa.types.is_list(type) else True


# What is given


def timed(frame: Any, stream: Stream, timestamp: str | None, now: Micros, owner: str) -> Any:
    """A DataFrame with the columns of a stream, as they are declared, and the event time behind them."""
    from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it
    from pyspark.sql.types import StructType

    there = {field.name.lower(): field for field in frame.schema.fields}
    columns = []
    for field in stream.schema:
        found = there.get(field.name.lower())
        if found is None:
            raise UnknownColumnError(
                f"{owner} lacks the column {field.name!r}: the stream is ({ddl(stream.schema)}), and what was given "
                f"has {', '.join(f.name for f in frame.schema.fields)}. Select or rename its columns."
            )
        wanted = type_ddl(field.type)
        if read_schema(StructType([found]), owner).field(0).type != field.type:
            raise SchemaError(
                f"{owner} has the column {found.name!r} of type {found.dataType.simpleString()}, and the stream is "
                f"({ddl(stream.schema)}). Cast it: .withColumn({field.name!r}, col({field.name!r}).cast({wanted!r}))."
            )
        columns.append(F.col(quoted(found.name)).alias(field.name))
    return frame.select(*columns, _time(stream, timestamp, now, owner).cast("long").alias(TIME_COLUMN))


def _time(stream: Stream, timestamp: str | None, now: Micros, owner: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

    if timestamp is None:
        return F.lit(int(BEGINNING))
    if timestamp == ARRIVAL:
        return F.lit(int(now))
    if timestamp == SCHEDULED:
        raise TimestampError(
            f"{owner} takes the place of a source whose records bear the time at which they are due, which no column "
            "tells. Give the source a column as its timestamp, or leave the input out."
        )
    column = F.col(quoted(timestamp))
    kind = stream.schema.field(timestamp).type
    if pa.types.is_timestamp(kind):
        # Without a zone it is UTC, whatever the session's zone is.
        since = f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01', {quoted(timestamp)})"
        column = F.unix_micros(column) if kind.tz else F.expr(since)
    return F.coalesce(column, F.raise_error(F.lit(f"{owner} has a row without an event time: {timestamp} is null")))


def _check_acyclic(graph: Graph) -> None:
    if graph.cycles:
        names = ", ".join(graph.cycles)
        raise PipelineError(
            f"pipeline {graph.name!r} has a cycle ({names}), and a plan goes one way only. Run it live: tm.run(...)."
        )


def _check_inputs(graph: Graph, inputs: Mapping[str, Any]) -> None:
    brought = [node.outputs[0] for node in graph.of_kind("source")]
    for name, frame in inputs.items():
        if name not in brought:
            raise UnknownStreamError(
                f"no source of pipeline {graph.name!r} brings in {name!r}; inputs may be given for: "
                f"{', '.join(sorted(brought))}"
            )
        if not hasattr(frame, "mapInArrow"):
            raise PipelineError(f"the input {name!r} is {frame!r}, and should be a Spark DataFrame.")
        if frame.isStreaming:
            raise RunError(
                f"the input {name!r} is a streaming DataFrame, which never ends; a plan needs all of its input. Feed "
                "a live run with it: writeStream.format('tidemill')."
            )
