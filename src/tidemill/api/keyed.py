"""A stream by key: windows over it and joins of it, made computations of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemill.api.aggregating import Phases, Windowed
from tidemill.api.durations import duration
from tidemill.api.schema import type_ddl
from tidemill.api.stream import Stream, whole_stream
from tidemill.api.wording import declared_at, listing
from tidemill.core.keys import KEYABLE, check_key_type
from tidemill.errors import DuplicateNameError, KeyTypeError, PipelineError, TimestampError
from tidemill.windows.joined import IntervalJoin, output_clash
from tidemill.windows.keyed import Choices
from tidemill.windows.reading import Chains
from tidemill.windows.spans import Count as CountSpan
from tidemill.windows.spans import Session, Span

Keys = tuple[str, ...]


def keyed_by(stream: Stream, columns: tuple[Any, ...]) -> Keyed:
    told = f"key_by (declared at {declared_at()}) of '{stream.label}'"
    if not columns:
        raise PipelineError(f"{told} names no column. Its columns: {listing(stream.schema.names)}.")
    for column in columns:
        if callable(column):
            raise PipelineError(
                f"{told} was given a function. Its results have the key's columns, so the key must be columns: compute "
                "one with select(...) or map_batches(...) before."
            )
        stream.check_column(column, told)
        kind = stream.schema.field(column).type
        if not check_key_type(kind):
            raise KeyTypeError(
                f"{told} names column '{column}' of type {kind}, which can't be a key. Keys are {KEYABLE}."
            )
    if len(dict.fromkeys(columns)) < len(columns):
        raise PipelineError(f"{told} names a column twice: {listing(columns)}.")
    return Keyed(stream, columns)


class Keyed:
    """Made by `stream.key_by`."""

    def __init__(self, stream: Stream, keys: Keys) -> None:
        self.stream = stream
        self.keys: Final = keys

    def window(
        self,
        span: Span,
        *,
        allowed_lateness: Any = 0,
        early: Any = None,
        retract: bool = False,
        late: str = "drop",
        two_phase: Phases = "auto",
        name: str | None = None,
    ) -> Windowed:
        """Windows of each key, of `tm.tumbling`, `tm.sliding`, `tm.session` or `tm.count`.

        A window's result leaves when the watermark passes its end. `allowed_lateness`: for so long, late records make
        it leave again, corrected. `early`: before, it leaves whenever event time has gone on by so much and it has
        changed. Each of these replaces the one before; with `retract`, a column `change` is "+", and the former result
        leaves before it once more as "-". What comes later still is dropped and counted, or goes to the stream `late`.

        `two_phase` adds a computation in front that aggregates what arrives together, before it is shuffled, so that a
        hot key costs little. By default it is there where partial results are small.
        """
        told = f"window (declared at {declared_at()}) of '{self.stream.label}'"
        if not isinstance(span, Span):
            raise PipelineError(
                f"{told} was given {span!r}. Give it tm.tumbling(...), tm.sliding(...), tm.session(...) or "
                "tm.count(...)."
            )
        if two_phase not in (True, False, "auto"):
            raise PipelineError(f'{told} has two_phase={two_phase!r}. It may be True, False or "auto".')
        self.check_time(told)
        choices = Choices(
            duration(allowed_lateness, f"allowed_lateness of {told}"),
            None if early is None else duration(early, f"early of {told}"),
            retract,
            _late_stream(self.stream, late, told),
        )
        _check_choices(span, choices, told)
        return Windowed(self, span, choices, two_phase=two_phase, name=name)

    def join(self, other: Keyed, *, within: Any, name: str | None = None) -> Stream:
        """Pairs of records with equal keys whose event times are at most `within` apart. A null is equal to nothing.

        A pair has the columns of both and the later of the two times. Columns of the key that are called alike on both
        sides are there once; others that are called alike are an error: rename them with `select`.
        """
        told = f"join (declared at {declared_at()}) of '{self.stream.label}'"
        if not isinstance(other, Keyed):
            raise PipelineError(f"{told} was given {other!r}. Give it the other stream by key: other.key_by(...).")
        self.stream.check_pipeline(other.stream, told)
        self.check_time(told)
        other.check_time(told)
        _check_pair(self, other, told)
        length = duration(within, f"within of {told}")
        pipeline = self.stream.pipeline
        label = pipeline.new_name(f"{self.stream.label}-join-{other.stream.label}", name)
        chains, keys = self.reading()
        more_chains, more_keys = other.reading()
        if any(keys.get(stream, columns) != columns for stream, columns in more_keys.items()):
            apart = other.stream.settled(pipeline.new_name(f"{other.stream.label}-apart"))  # one stream, by two keys
            more_chains, more_keys = apart.chains, {apart.label: other.keys}
        schemas = (self.stream.schema, other.stream.schema)
        both = (self.keys, other.keys)
        made = IntervalJoin((chains, more_chains), {**keys, **more_keys}, schemas, both, length, label)
        pipeline.add(made, name=label)
        return whole_stream(pipeline, label, made.pairs.schema)

    def check_time(self, told: str) -> None:
        for stream in self.stream.chains:
            source = self.stream.pipeline.time_of(stream)
            if source is not None:
                raise TimestampError(
                    f"{told} needs event time, and {source} has none. Give the source timestamp=: the name of a "
                    "column, or tm.ARRIVAL for the time of reading."
                )

    def reading(self) -> tuple[Chains, Mapping[str, Keys]]:
        """What to read, and by which key of each stream. Steps that change the key's columns are done before."""
        stream = self.stream
        found = _untouched(stream, self.keys)
        if found is None:
            stream = stream.settled()
            return stream.chains, {stream.label: self.keys}
        return stream.chains, found


def _untouched(stream: Stream, keys: Keys) -> dict[str, Keys] | None:
    """The columns of each stream that become the key; None unless they only pass through."""
    found: dict[str, Keys] = {}
    for name, chains in stream.chains.items():
        for chain in chains:
            origins = tuple(origin for key in keys if (origin := chain.origin(key)) is not None)
            if len(origins) < len(keys) or found.setdefault(name, origins) != origins:
                return None
    return found


def _late_stream(stream: Stream, late: Any, told: str) -> str | None:
    if late == "drop":
        return None
    if not isinstance(late, str) or not late:
        raise PipelineError(
            f'{told} has late={late!r}. It may be "drop" or the name of a stream that late records are to go to. To '
            "take them into their windows, give allowed_lateness=."
        )
    return stream.pipeline.new_name(late, late)


def _check_choices(span: Span, choices: Choices, told: str) -> None:
    if choices.early == 0:
        raise PipelineError(f"{told} has early=0: give the event time between two early results, or leave it out.")
    if isinstance(span, CountSpan):
        if choices.lasting or choices.retract or choices.late_stream is not None:
            raise PipelineError(
                f"{told} has one of allowed_lateness=, early=, retract= and late=, which count windows do not have: "
                "their results leave once, when they are full."
            )
        return
    if choices.retract and not choices.lasting:
        raise PipelineError(
            f"{told} has retract=True, but a result leaves only once. Give early= or allowed_lateness=, or leave it "
            "out."
        )
    if isinstance(span, Session) and choices.lasting and not choices.retract:
        raise PipelineError(
            f"{told} has sessions whose results leave more than once. A session that grows is another window, which "
            "replaces nothing: give retract=True, so that the one before it is taken back."
        )
    if isinstance(span, Session) and choices.late_stream is not None:
        raise PipelineError(
            f"{told} has late=, which session windows do not have: whether a record is late shows only among others of "
            "its key. Leave it out, and late ones are dropped and counted."
        )


def _check_pair(left: Keyed, right: Keyed, told: str) -> None:
    mine, theirs = left.stream.schema, right.stream.schema
    types = [[schema.field(key).type for key in keyed.keys] for keyed, schema in ((left, mine), (right, theirs))]
    if types[0] != types[1]:
        shown = [
            ", ".join(f"{k} {type_ddl(t)}" for k, t in zip(one.keys, kinds, strict=True))
            for one, kinds in zip((left, right), types, strict=True)
        ]
        raise KeyTypeError(
            f"{told} with '{right.stream.label}' has keys of two types: ({shown[0]}) and ({shown[1]}). Equal keys of "
            "two types would lie in two places: make them one type with select(...)."
        )
    clash = output_clash(mine, theirs, dict(zip(left.keys, right.keys, strict=True)))
    if clash:
        raise DuplicateNameError(
            f"{told} with '{right.stream.label}' would have two columns of each of these names: {listing(clash)}. "
            f"Rename them on one side: select(..., right_{clash[0]}={clash[0]!r})."
        )
