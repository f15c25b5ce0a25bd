"""What a pipeline was told, word for word, with the user's line for each: what the check reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.api.computation import ChooseLate


@dataclass(frozen=True)
class SourceDeclaration:
    stream: str
    source: Any
    declared_at: str

    def __str__(self) -> str:
        return f"the source of '{self.stream}' (declared at {self.declared_at})"


@dataclass(frozen=True)
class ComputationDeclaration:
    name: str
    computation: Any
    """A subclass of `Computation`, or an instance that every shard gets a copy of."""

    declared_at: str

    def __str__(self) -> str:
        return f"computation '{self.name}' (declared at {self.declared_at})"


@dataclass(frozen=True)
class SinkDeclaration:
    stream: str
    sink: Any
    declared_at: str

    def __str__(self) -> str:
        return f"the sink of '{self.stream}' (declared at {self.declared_at})"


@dataclass(frozen=True)
class Declarations:
    pipeline: str
    late: str | ChooseLate
    sources: tuple[SourceDeclaration, ...]
    computations: tuple[ComputationDeclaration, ...]
    sinks: tuple[SinkDeclaration, ...]
