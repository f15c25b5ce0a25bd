"""A pipeline as the user declares it: a list of sources, computations and sinks, in any order, that runs nothing."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pyarrow as pa

from tidemill.api.check import check, check_source
from tidemill.api.computation import ChooseLate, Computation, Output, attributes
from tidemill.api.declarations import ComputationDeclaration, Declarations, SinkDeclaration, SourceDeclaration
from tidemill.api.stream import Stream, whole_stream
from tidemill.api.wording import declared_at, listing, meant
from tidemill.core.graph import Graph
from tidemill.errors import DuplicateNameError, PipelineError, UnknownStreamError
from tidemill.ports import MALFORMED, Diverting, Gathering, Sink, Source
from tidemill.sources.table import Table, is_dataframe


class Pipeline:
    """`late` is what becomes of records behind the mark wherever an `Input` does not say: "drop", "process", or a
    function of the record and the watermark that answers one of these.
    """

    def __init__(self, name: str, *, late: str | ChooseLate = "drop") -> None:
        self.name = name
        self.late = late
        self._sources: list[SourceDeclaration] = []
        self._computations: list[ComputationDeclaration] = []
        self._sinks: list[SinkDeclaration] = []

    def source(self, stream: str, source: Source | Any, timestamp: str | None = None) -> Stream:
        """Lets this source's records be the stream, or a part of it if computations produce it too.

        A bounded Spark DataFrame is a source too: `timestamp` names its column of event time.
        """
        if is_dataframe(source):
            source = Table(source, timestamp)
        elif timestamp is not None:
            raise PipelineError(
                f"timestamp={timestamp!r} is given with {source!r} (at {declared_at()}), and says the event time of a "
                "Spark DataFrame. A source is told its own: tm.sources.Rows(..., timestamp=...)."
            )
        declared = SourceDeclaration(stream, source, declared_at())
        self._sources.append(declared)
        return whole_stream(self, stream, lambda: check_source(declared))

    def stream(self, name: str) -> Stream:
        """The handle of any stream: a source's, or one that a computation which was added produces."""
        schemas = self._schemas()
        if name not in schemas:
            raise UnknownStreamError(
                f"Nothing produces stream {name!r} yet. Streams are: {listing(schemas)}.{meant(str(name), schemas)} "
                "Add the source or the computation that does before this line."
            )
        return whole_stream(self, name, schemas[name])

    def _schemas(self) -> dict[str, pa.Schema]:
        found: dict[str, pa.Schema] = {}
        for told in self._sources:
            found[told.stream] = check_source(told)
            if isinstance(told.source, Diverting) and told.source.diverts_to:
                found[told.source.diverts_to] = MALFORMED
        for computation in self._computations:
            for attribute, port in attributes(computation.computation, Output).items():
                found.setdefault(port.given_stream or attribute, port.schema)
        return found

    def new_name(self, wanted: str, given: Any = None) -> str:
        """A name for a computation and its stream: the one that was given, or what is wanted or comes near it."""
        taken = {told.stream: told.declared_at for told in self._sources}
        for told in self._computations:
            taken[told.name] = told.declared_at
            taken |= dict.fromkeys(attributes(told.computation, Output), told.declared_at)
        taken |= dict.fromkeys(set(self._schemas()) - set(taken), "the same pipeline")
        if given is None:
            numbered = (f"{wanted}-{number}" if number > 1 else wanted for number in count(1))
            return next(name for name in numbered if name not in taken)
        if not isinstance(given, str) or not given:
            raise PipelineError(f"name={given!r} (at {declared_at()}) is no name: give it text.")
        if given in taken:
            raise DuplicateNameError(
                f"name={given!r} (at {declared_at()}) is taken, at {taken[given]}. Names taken: {listing(taken)}."
            )
        return given

    def time_of(self, stream: str) -> SourceDeclaration | None:
        """The source of a stream if it has no event time."""
        return next((told for told in self._sources if told.stream == stream and told.source.timestamp is None), None)

    def add(self, computation: type[Computation] | Computation, *, name: str | None = None) -> None:
        """Adds a computation: its class, or an instance set up as wanted, of which every shard gets a copy."""
        given = _kebab(computation) if name is None else name
        self._computations.append(ComputationDeclaration(given, computation, declared_at()))

    def sink(self, stream: str, sink: Sink | Gathering) -> None:
        """Lets the stream leave here. A stream may have several sinks."""
        self._sinks.append(SinkDeclaration(stream, sink, declared_at()))

    def graph(self) -> Graph:
        """The pipeline, checked, as the core knows it. Raises the first `PipelineError` that there is."""
        parts = (tuple(self._sources), tuple(self._computations), tuple(self._sinks))
        return check(Declarations(self.name, self.late, *parts))

    def __repr__(self) -> str:
        return f"<Pipeline '{self.name}'>"


_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")


def _kebab(computation: Any) -> str:
    owner = computation if isinstance(computation, type) else type(computation)
    return _WORD_ENDS.sub("-", owner.__name__).strip("-").lower()
