"""A pipeline as the user declares it: a list of sources, computations and sinks, in any order, that runs nothing."""

from __future__ import annotations

import re
from typing import Any

from tidemill.api.check import check
from tidemill.api.computation import ChooseLate, Computation
from tidemill.api.declarations import ComputationDeclaration, Declarations, SinkDeclaration, SourceDeclaration
from tidemill.api.wording import declared_at
from tidemill.core.graph import Graph
from tidemill.ports import Gathering, Sink, Source


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

    def source(self, stream: str, source: Source) -> None:
        """Lets this source's records be the stream, or a part of it if computations produce it too."""
        self._sources.append(SourceDeclaration(stream, source, declared_at()))

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
