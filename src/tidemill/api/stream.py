"""A handle of a stream, with the steps that a pipeline can take from it.

A step without a name is not yet a computation: steps that follow one another are one chain, and whoever reads the
stream in the end does them on the way. A step with `name=` makes a stream of its own under that name, that anything in
the pipeline may read.

Everything is checked when it is said, on the user's own line: columns, types and names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.api.schema import ddl, read_schema
from tidemill.api.wording import declared_at, listing, meant
from tidemill.errors import PipelineError, SchemaError, UnknownColumnError
from tidemill.windows.reading import Chains, Steps
from tidemill.windows.steps import Chain, Filter, MapBatches, Select, Step, evaluate

if TYPE_CHECKING:
    from tidemill.api.keyed import Keyed
    from tidemill.api.pipeline import Pipeline


class Stream:
    """Made by `pipeline.source`, `pipeline.stream` and by its own methods; it holds no records."""

    def __init__(
        self, pipeline: Pipeline, chains: Chains, schema: pa.Schema | Callable[[], pa.Schema], label: str
    ) -> None:
        self.pipeline = pipeline
        self.chains = chains
        self.label = label
        self._schema = schema

    @cached_property
    def schema(self) -> pa.Schema:
        """A source's is read when it is asked for: what is wrong with it is told with all else that is checked."""
        return self._schema if isinstance(self._schema, pa.Schema) else self._schema()

    # Steps

    def filter(self, condition: Any, *, name: str | None = None) -> Stream:
        """Keeps the records of which the condition is true: an Arrow expression, or a function of a RecordBatch that
        returns a mask.
        """
        told = f"filter (declared at {declared_at()}) of '{self.label}'"
        if isinstance(condition, pc.Expression):
            kind = self._evaluated({"kept": condition}, told).field(0).type
            if not pa.types.is_boolean(kind):
                raise SchemaError(
                    f"The condition of {told} is of type {kind}, and should be boolean: compare something."
                )
        elif not callable(condition):
            raise PipelineError(
                f'{told} was given {condition!r}. A condition is an Arrow expression, such as pc.field("n") > 10, or a '
                "function of a RecordBatch that returns a mask."
            )
        return self._then(Filter(condition, told), self.schema, "filter", name)

    def select(self, *columns: str, name: Any = None, **computed: Any) -> Stream:
        """Some of the columns, and others that are computed: an Arrow expression, or the name of a column to rename."""
        told = f"select (declared at {declared_at()}) of '{self.label}'"
        if isinstance(name, pc.Expression):  # a column may be called so as well
            computed["name"], name = name, None
        chosen: dict[str, Any] = {}
        for column, made in [*((column, column) for column in columns), *computed.items()]:
            if column in chosen:
                raise SchemaError(f"{told} has two columns '{column}'. Leave one of them out.")
            if isinstance(made, str):
                self.check_column(made, told)
            elif not isinstance(made, pc.Expression):
                raise PipelineError(
                    f"Column '{column}' of {told} is {made!r}. Give the name of a column, or an Arrow expression, such "
                    f"as pc.field({(self.schema.names or ['n'])[0]!r}) or pc.scalar({made!r})."
                )
            chosen[column] = made
        computed_schema = self._evaluated({k: v for k, v in chosen.items() if not isinstance(v, str)}, told)
        fields = [
            self.schema.field(made).with_name(column) if isinstance(made, str) else computed_schema.field(column)
            for column, made in chosen.items()
        ]
        schema = read_schema(pa.schema(fields), told)
        return self._then(Select(chosen, schema), schema, "select", name)

    def map_batches(self, fn: Callable[[pa.RecordBatch], Any], schema: Any, *, name: str | None = None) -> Stream:
        """What `fn` makes of each RecordBatch, with this schema: a RecordBatch or a dict of columns.

        A batch of another length must come with its timestamps: `fn` returns (columns, timestamps). They must not be
        older than the oldest of the batch it was given, or they may be late for whoever reads them.
        """
        told = f"map_batches (declared at {declared_at()}) of '{self.label}'"
        if not callable(fn):
            raise PipelineError(f"{told} was given {fn!r}, which is no function of a RecordBatch.")
        made = read_schema(schema, told)
        return self._then(MapBatches(fn, made, told), made, "map", name)

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """The records of all of them. They have one schema."""
        told = f"union (declared at {declared_at()}) of '{self.label}'"
        chains: dict[str, tuple[Chain, ...]] = dict(self.chains)
        for other in others:
            self.check_pipeline(other, told)
            if other.schema != self.schema:
                raise SchemaError(
                    f"{told} with '{other.label}' joins two schemas: \"{ddl(self.schema)}\" and "
                    f'"{ddl(other.schema)}". Make them one with select(...).'
                )
            for stream, more in other.chains.items():
                chains[stream] = (*chains.get(stream, ()), *more)
        label = "-union-".join([self.label, *(other.label for other in others)])
        return self._named(Stream(self.pipeline, chains, self.schema, label), name)

    # Where it goes

    def key_by(self, *columns: str) -> Keyed:
        """Records that are equal in these columns belong together."""
        from tidemill.api.keyed import keyed_by  # noqa: PLC0415 - what comes of a key is streams again

        return keyed_by(self, columns)

    def to(self, sink: Any) -> Stream:
        """Lets the stream leave here; it may have several sinks, and other readers."""
        made = self.settled()
        self.pipeline.sink(made.label, sink)
        return made

    # For those who build on it

    def settled(self, name: str | None = None) -> Stream:
        """The same records as a stream of the pipeline, which `label` is then the name of."""
        if self.plain and name is None:
            return self
        label = self.pipeline.new_name(self.label, name)
        self.pipeline.add(Steps(self.chains, self.schema, label), name=label)
        return whole_stream(self.pipeline, label, self.schema)

    @property
    def plain(self) -> bool:
        """Whether nothing is left to do to the records of one stream."""
        return list(self.chains.values()) == [(Chain(),)]

    def check_column(self, column: Any, told: str) -> None:
        if column not in self.schema.names:
            names = self.schema.names
            raise UnknownColumnError(
                f"{told} names column {column!r}, which it does not have. Its columns: {listing(names)}."
                f"{meant(str(column), names)}"
            )

    def check_pipeline(self, other: Any, told: str) -> None:
        if not isinstance(other, Stream):
            raise PipelineError(f"{told} was given {other!r}, which is no stream: give it pipeline.stream('...').")
        if other.pipeline is not self.pipeline:
            raise PipelineError(
                f"{told} was given '{other.label}' of {other.pipeline!r}: both streams must be of one pipeline."
            )

    def _evaluated(self, expressions: Mapping[str, pc.Expression], told: str) -> pa.Schema:
        """What Arrow says of expressions over these columns: their types, or what is wrong."""
        if not expressions:
            return pa.schema([])
        try:
            return evaluate(expressions, pa.RecordBatch.from_pylist([], schema=self.schema)).schema
        except (pa.ArrowException, TypeError) as error:
            why = str(error).split("\n")[0]
            kind = UnknownColumnError if why.startswith("No match for FieldRef") else SchemaError
            raise kind(f"{told} can't be computed: {why}. Its columns: {ddl(self.schema)}.") from None

    def _then(self, step: Step, schema: pa.Schema, word: str, name: str | None) -> Stream:
        chains = {stream: tuple(chain.then(step) for chain in several) for stream, several in self.chains.items()}
        label = self.label if self.label.endswith(f"-{word}") else f"{self.label}-{word}"
        return self._named(Stream(self.pipeline, chains, schema, label), name)

    def _named(self, stream: Stream, name: str | None) -> Stream:
        return stream if name is None else stream.settled(name)

    def __repr__(self) -> str:
        return f"<Stream '{self.label}' ({ddl(self.schema)})>"


def whole_stream(pipeline: Pipeline, name: str, schema: pa.Schema | Callable[[], pa.Schema]) -> Stream:
    """A stream of the pipeline, as it is."""
    return Stream(pipeline, {name: (Chain(),)}, schema, name)
