"""The check before anything starts: a pipeline's declarations become a `Graph`, or one error.

In order: names, each computation by itself, the streams and their schemas, what is read from them, and last what
only the whole graph shows: that a source reaches every computation, with event time where time is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tidemill.api.computation import Input, Output
from tidemill.api.declarations import Declarations, SinkDeclaration, SourceDeclaration
from tidemill.api.schema import ddl, read_schema
from tidemill.api.shape import Shape, shape_of
from tidemill.api.wording import listing, meant, sentence
from tidemill.core.graph import Graph, Key, Late, Node, Stream, Subscription
from tidemill.core.ids import NodeName, StreamName
from tidemill.core.keys import KEYABLE, check_key_type
from tidemill.errors import (
    ComputationError,
    DuplicateNameError,
    KeyTypeError,
    PipelineError,
    SchemaError,
    TimestampError,
    UnknownColumnError,
    UnknownStreamError,
    UnreachableError,
)
from tidemill.ports import ARRIVAL, MALFORMED, SCHEDULED, Diverting, Gathering, Sink, Source

_TIME_TYPES: Final = (pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.int64())


def check(told: Declarations) -> Graph:
    _check_names(told)
    for source in told.sources:
        check_source(source)
    shapes = [shape_of(declaration) for declaration in told.computations]
    streams = _streams(told, shapes)
    sinks = list(_sink_nodes(told.sinks, streams))
    subscriptions = [read for shape in shapes for read in _subscriptions(shape, streams, told)]
    subscriptions += [
        # What reaches a sink has been judged already; to drop it there would lose results.
        Subscription(StreamName(sink.stream), node.name, Key(), Late("process"))
        for sink, node in zip(told.sinks, sinks, strict=True)
    ]
    nodes = [*map(_source_node, told.sources), *(shape.node() for shape in shapes), *sinks]
    graph = Graph(
        told.pipeline,
        {name: Stream(name, made.schema) for name, made in streams.items()},
        {node.name: node for node in nodes},
        tuple(subscriptions),
    )
    _check_reached(graph, shapes)
    _check_times(graph, told, shapes)
    return graph


# ------------------------------------------------------------------------------------------------------------- names


def _check_names(told: Declarations) -> None:
    _check_name(told.pipeline, "A pipeline", "tm.Pipeline")
    if told.late not in ("drop", "process") and not callable(told.late):
        raise PipelineError(
            f'Pipeline \'{told.pipeline}\' has late={told.late!r}. It may be "drop", "process" or a function of the '
            "record and the watermark; to divert late records, say so at the Input."
        )
    if not told.sources:
        raise PipelineError(
            f"Pipeline '{told.pipeline}' has no source, so nothing would ever happen. Feed it: "
            "pipeline.source('words', tm.sources.Rows(...))."
        )
    seen: dict[str, str] = {}
    for source in told.sources:
        _check_name(source.stream, "A source's stream", f"pipeline.source at {source.declared_at}")
        if source.stream in seen:
            raise DuplicateNameError(
                f"Stream '{source.stream}' has two sources, declared at {seen[source.stream]} and "
                f"{source.declared_at}. Give one of them another stream; the streams of sources are: {listing(seen)}."
            )
        seen[source.stream] = source.declared_at
    _check_computation_names(told)
    for sink in told.sinks:
        _check_name(sink.stream, "A sink's stream", f"pipeline.sink at {sink.declared_at}")


def _check_computation_names(told: Declarations) -> None:
    taken = {_source_name(source): source.declared_at for source in told.sources}
    taken |= {name: sink.declared_at for name, sink in zip(_sink_names(told.sinks), told.sinks, strict=True)}
    for computation in told.computations:
        _check_name(computation.name, "A computation", f"pipeline.add at {computation.declared_at}")
        name = NodeName(computation.name)
        if name in taken:
            raise DuplicateNameError(
                f"'{name}' is the name of two things, declared at {taken[name]} and {computation.declared_at}. Names "
                f"taken: {listing(taken)}. Give one another: pipeline.add(..., name='{name}-2')."
            )
        taken[name] = computation.declared_at


def _check_name(name: Any, what: str, where: str) -> None:
    if not isinstance(name, str) or not name:
        raise PipelineError(f"{what} needs a name that is text, not {name!r} ({where}).")


# ----------------------------------------------------------------------------------------------------------- sources


def _source_name(source: SourceDeclaration) -> NodeName:
    return NodeName(f"source:{source.stream}")


def _diverts_to(source: SourceDeclaration) -> str | None:
    return source.source.diverts_to if isinstance(source.source, Diverting) else None


def _source_node(source: SourceDeclaration) -> Node:
    diverts_to = _diverts_to(source)
    return Node(
        _source_name(source),
        "source",
        outputs=(StreamName(source.stream), *((StreamName(diverts_to),) if diverts_to else ())),
        handle=source.source,
        declared_at=source.declared_at,
    )


def check_source(declared: SourceDeclaration) -> pa.Schema:
    source, owner = declared.source, str(declared)
    if isinstance(source, type) or not isinstance(source, Source):
        raise PipelineError(
            f"{source!r} can't be {owner}: a source is an object with schema, timestamp, splits() and open(). Give it "
            "one of tm.sources, such as tm.sources.Rows(...)."
        )
    if not isinstance(source.schema, pa.Schema):
        raise SchemaError(f"The schema of {owner} is {source.schema!r}. A source's schema is a pyarrow.Schema.")
    schema = read_schema(source.schema, owner)
    if source.timestamp in (None, ARRIVAL, SCHEDULED):
        return schema
    if source.timestamp not in schema.names:
        raise UnknownColumnError(
            f"The timestamp of {owner} is to be column '{source.timestamp}', which it does not have. Its columns: "
            f"{listing(schema.names)}.{meant(str(source.timestamp), schema.names)} {_time_remedy(schema)}"
        )
    kind = schema.field(source.timestamp).type
    if kind not in _TIME_TYPES:
        raise TimestampError(
            f"The timestamp of {owner} is to be column '{source.timestamp}' of type {kind}. Event time is of type "
            f"timestamp, or long in microseconds. {_time_remedy(schema)}"
        )
    return schema


def _time_remedy(schema: pa.Schema) -> str:
    fit = [field.name for field in schema if field.type in _TIME_TYPES]
    return f"Columns that could be it: {listing(fit)}. Or take the time of reading: timestamp=tm.ARRIVAL."


# ----------------------------------------------------------------------------------------------------------- streams


class _Made(NamedTuple):
    """A stream's schema, and who says so."""

    schema: pa.Schema
    by: str


def _streams(told: Declarations, shapes: Iterable[Shape]) -> dict[StreamName, _Made]:
    streams: dict[StreamName, _Made] = {}
    for stream, made in _productions(told, shapes):
        first = streams.setdefault(stream, made)
        if first.schema != made.schema:
            raise SchemaError(
                f'Stream \'{stream}\' has two schemas: "{ddl(first.schema)}" from {first.by}, and "{ddl(made.schema)}" '
                f"from {made.by}. All that produce a stream must give it the same: change one, or rename a stream."
            )
    return streams


def _productions(told: Declarations, shapes: Iterable[Shape]) -> Iterator[tuple[StreamName, _Made]]:
    for source in told.sources:
        schema = read_schema(source.source.schema)
        yield StreamName(source.stream), _Made(schema, f"its source (declared at {source.declared_at})")
        if diverts_to := _diverts_to(source):
            by = f"the malformed records of the source of '{source.stream}' (declared at {source.declared_at})"
            yield StreamName(diverts_to), _Made(MALFORMED, by)
    for shape in shapes:
        for port in shape.outputs.values():
            by = f"an Output (declared at {port.declared_at}) of computation '{shape.name}'"
            yield StreamName(port.stream), _Made(port.schema, by)


def _known(stream: StreamName, streams: dict[StreamName, _Made], reader: str) -> _Made:
    if stream not in streams:
        raise UnknownStreamError(
            f"{reader} reads stream '{stream}', which nothing produces. Streams are: {listing(streams)}."
            f"{meant(stream, streams)} Feed it, pipeline.source('{stream}', ...), or let an Output produce it."
        )
    return streams[stream]


# ------------------------------------------------------------------------------------------------------------- sinks


def _sink_names(sinks: Iterable[SinkDeclaration]) -> Iterator[NodeName]:
    counts: dict[str, int] = {}
    for sink in sinks:
        counts[sink.stream] = count = counts.get(sink.stream, 0) + 1
        yield NodeName(f"sink:{sink.stream}" if count == 1 else f"sink:{sink.stream}:{count}")


def _sink_nodes(sinks: tuple[SinkDeclaration, ...], streams: dict[StreamName, _Made]) -> Iterator[Node]:
    for name, sink in zip(_sink_names(sinks), sinks, strict=True):
        if isinstance(sink.sink, type) or not isinstance(sink.sink, (Sink, Gathering)):
            raise PipelineError(f"{sink.sink!r} can't be {sink}. Give it one of tm.sinks, such as tm.sinks.Collect().")
        _known(StreamName(sink.stream), streams, sentence(str(sink)))
        yield Node(name, "sink", handle=sink.sink, declared_at=sink.declared_at)


# ----------------------------------------------------------------------------------------------------- subscriptions


def _subscriptions(shape: Shape, streams: dict[StreamName, _Made], told: Declarations) -> Iterator[Subscription]:
    first: tuple[str, Key] | None = None
    for stream, port in shape.inputs.items():
        reader = f"The Input (declared at {port.declared_at}) of {shape}"
        made = _known(stream, streams, reader)
        key = _key(port, stream, made, reader, shape)
        if first is None and key.types:
            first = stream, key
        if first is not None and key.types and key.types != first[1].types:
            raise KeyTypeError(
                f"The Inputs of {shape} have keys of two types: {_types(first[1])} for stream '{first[0]}' and "
                f"{_types(key)} for stream '{stream}' (declared at {port.declared_at}). Equal keys of two types would "
                "lie in two places: declare the columns with one type."
            )
        yield Subscription(stream, shape.name, key, _late(port, shape, stream, made, told))


def _key(port: Input, stream: StreamName, made: _Made, reader: str, shape: Shape) -> Key:
    if port.key is None:
        if not shape.node().vectorised or shape.state is not None:
            raise ComputationError(
                f"{reader} has key=None, so its records have no place of their own: only process_bundle without state "
                "can take them as they come. Give the Input a key."
            )
        return Key()
    if callable(port.key):
        return Key(function=port.key)
    columns: Any = (port.key,) if isinstance(port.key, str) else port.key
    if not isinstance(columns, tuple) or not columns or not all(isinstance(name, str) for name in columns):
        raise ComputationError(
            f"{reader} has key={port.key!r}. A key is the name of a column of '{stream}' "
            f"({listing(made.schema.names)}), a tuple of such names, or a function of the record."
        )
    for name in columns:
        if name not in made.schema.names:
            raise UnknownColumnError(
                f"{reader} is keyed by column '{name}', which stream '{stream}' from {made.by} does not have. Its "
                f"columns: {listing(made.schema.names)}.{meant(name, made.schema.names)} Name one of these in key=."
            )
        kind = made.schema.field(name).type
        if not check_key_type(kind):
            raise KeyTypeError(
                f"{reader} is keyed by column '{name}' of stream '{stream}', of type {kind}, which can't be a key. "
                f"Keys are {KEYABLE}. Key by another column, by several, or by a function of the record."
            )
    return Key(columns, tuple(made.schema.field(name).type for name in columns))


def _types(key: Key) -> str:
    return ", ".join(map(str, key.types))


# ------------------------------------------------------------------------------------------------------ late records


def _late(port: Input, shape: Shape, stream: StreamName, made: _Made, told: Declarations) -> Late:
    late = told.late if port.late is None else port.late
    if callable(late):
        side = None if port.divert is None else _side(port.divert, port, shape, stream, made)
        return Late(stream=side, choose=late)
    if port.divert is not None and late != "divert":
        raise ComputationError(
            f"The Input (declared at {port.declared_at}) of {shape} has divert= beside late={port.late!r}. Give late= "
            "the Output itself to divert all late records, or a function to divert some."
        )
    if late == "drop":
        return Late("drop")
    if late == "process":
        return Late("process")
    if late == "self" and shape.node().vectorised:
        return Late("self")
    side = _side((late == "divert" and port.divert) or late, port, shape, stream, made)
    return Late("divert", side)


def _side(given: Any, port: Input, shape: Shape, stream: StreamName, made: _Made) -> StreamName:
    """The stream of late records: an output of the same computation, given as the object or by name."""
    for attribute, output in shape.outputs.items():
        if given is output or given in (attribute, output.stream):
            if output.schema != made.schema:
                raise SchemaError(
                    f"Late records of stream '{stream}', \"{ddl(made.schema)}\" from {made.by}, can't be diverted to "
                    f"'{output.stream}' by {shape}: that is \"{ddl(output.schema)}\", declared at "
                    f"{output.declared_at}. Give it the same schema."
                )
            return StreamName(output.stream)
    choices = ["drop", "process", *shape.outputs]
    name = given.stream if isinstance(given, Output) else str(given)
    raise ComputationError(
        f"The Input (declared at {port.declared_at}) of {shape} would treat late records by {given!r}. It may be one "
        f"of {listing(choices)} or a function.{meant(name, choices)} To divert, make the Output an attribute of the "
        "computation."
    )


# --------------------------------------------------------------------------------------------------- the whole graph


def _check_reached(graph: Graph, shapes: Iterable[Shape]) -> None:
    sources = [node.name for node in graph.of_kind("source")]
    reached = _downstream(graph, sources)
    for shape in shapes:
        if shape.name not in reached:
            raise UnreachableError(
                f"No source leads to {shape}: it reads {listing(shape.inputs)}, produced only by "
                f"{listing(graph.senders[shape.name])}. Sources feed: "
                f"{listing(s.removeprefix('source:') for s in sources)}. Feed one of its streams with "
                "pipeline.source(...), or take the computation out."
            )


def _check_times(graph: Graph, told: Declarations, shapes: Iterable[Shape]) -> None:
    for declared in told.sources:
        if declared.source.timestamp is not None:
            continue
        reached = _downstream(graph, [_source_name(declared)])
        for shape in shapes:
            if shape.needs_time and shape.name in reached:
                raise TimestampError(
                    f"{sentence(str(declared))} has no timestamp, but "
                    f"leads to {shape}, whose {shape.needs_time} waits for event time. Give the source timestamp=. "
                    f"{_time_remedy(declared.source.schema)}"
                )


def _downstream(graph: Graph, starts: Iterable[NodeName]) -> set[NodeName]:
    found: set[NodeName] = set()
    ends = list(starts)
    while ends:
        for name in graph.receivers[ends.pop()]:
            if name not in found:
                found.add(name)
                ends.append(name)
    return found
