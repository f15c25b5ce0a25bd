"""What a window is asked for, bound to the columns it is asked of, and the computations that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from tidemill.api.schema import type_ddl
from tidemill.api.stream import Stream, whole_stream
from tidemill.api.wording import declared_at, listing, meant
from tidemill.errors import DuplicateNameError, PipelineError, SchemaError
from tidemill.windows.aggregates import (
    Aggregate,
    Combined,
    Count,
    DecimalSum,
    Distinct,
    DoubleSum,
    Extreme,
    Mean,
    Sum,
    WholeSum,
)
from tidemill.windows.counted import CountWindows, PartialCountWindows
from tidemill.windows.fold import Fold, fold
from tidemill.windows.growing import GrowingSessions
from tidemill.windows.insql import panes_in_sql
from tidemill.windows.keyed import (
    CHANGE,
    WINDOW_END,
    WINDOW_NUMBER,
    WINDOW_START,
    Choices,
    Keys,
    Names,
    PartialWindows,
)
from tidemill.windows.panes import PaneCut, SessionCut
from tidemill.windows.reading import Chains, Reading
from tidemill.windows.sessional import SessionWindows
from tidemill.windows.spans import Count as CountSpan
from tidemill.windows.spans import Session, Span
from tidemill.windows.timed import TimedWindows

if TYPE_CHECKING:
    from tidemill.api.keyed import Keyed

Phases = bool | Literal["auto"]


class Windowed:
    """Made by `key_by(...).window(...)`."""

    def __init__(self, keyed: Keyed, span: Span, choices: Choices, *, two_phase: Phases, name: str | None) -> None:
        self._keyed = keyed
        self._span = span
        self._choices = choices
        self._two_phase = two_phase
        self._name = name

    def aggregate(self, **aggregates: Any) -> Stream:
        """Of each window: `n="count"`, a pair such as `total=("sum", "amount")`, or `tm.fold(...)`.

        The first of a pair is one of "count", "sum", "min", "max", "mean" and "distinct", the second a column.
        """
        stream, span = self._keyed.stream, self._span
        told = f"aggregate (declared at {declared_at()}) of '{stream.label}'"
        bound = [(name, _bound(name, given, stream, told)) for name, given in aggregates.items()]
        _check_names(self._keyed.keys, bound, told)
        phases = self._phases(bound, told)
        pipeline = stream.pipeline
        label = pipeline.new_name(f"{stream.label}-by-{'-'.join(self._keyed.keys)}-{span}", self._name)
        key_fields = [stream.schema.field(key) for key in self._keyed.keys]
        made: CountWindows | TimedWindows | SessionWindows
        if isinstance(span, CountSpan):
            chains, keys = self._keyed.reading()
            counting = PartialCountWindows if span.partial else CountWindows
            made = counting(chains, span.size, key_fields, Combined(bound), label, keys)
            made.reads = self._reads(aggregates)
        else:
            made = self._timed(Combined(bound), key_fields, label, phases, self._reads(aggregates))
        pipeline.add(made, name=label)
        return whole_stream(pipeline, label, made.results.schema)

    def _timed(
        self,
        combined: Combined,
        key_fields: list[pa.Field],
        label: str,
        phases: Literal[1, 2],
        reads: Mapping[str, tuple[str, ...]] | None,
    ) -> TimedWindows | SessionWindows:
        span, stream = self._span, self._keyed.stream
        assert not isinstance(span, CountSpan)
        names = Names(label, stream.pipeline.new_name(f"{label}-partials"))
        cut = (
            SessionCut(span, key_fields, combined) if isinstance(span, Session) else PaneCut(span, key_fields, combined)
        )
        chains: Chains | None = None
        keys: Keys = {}
        if phases == 2:
            first: Reading = PartialWindows(stream.chains, cut, names.partials)
            first.reads = reads
            if reads is not None and isinstance(cut, PaneCut) and len(stream.chains) == 1:
                first.in_sql = panes_in_sql(cut)
            stream.pipeline.add(first, name=names.partials)
        else:
            chains, keys = self._keyed.reading()
        made: TimedWindows | SessionWindows
        if isinstance(span, Session):
            assert isinstance(cut, SessionCut)
            sessions = GrowingSessions if self._choices.lasting else SessionWindows
            made = sessions(chains, span, cut, names, keys, self._choices)
        else:
            assert isinstance(cut, PaneCut)
            late = stream.schema if self._choices.late_stream is not None else None
            made = TimedWindows(chains, span, cut, names, keys, self._choices, late)
        if phases == 1:
            made.reads = reads
        return made

    def _reads(self, aggregates: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]] | None:
        """The columns that are looked at; None where a step or a fold may look at any, or late records leave whole."""
        stream = self._keyed.stream
        steps = any(chain.steps for chains in stream.chains.values() for chain in chains)
        if (
            steps
            or self._choices.late_stream is not None
            or any(isinstance(given, fold) for given in aggregates.values())
        ):
            return None
        pairs = [given[1] for given in aggregates.values() if isinstance(given, tuple) and len(given) == 2]
        columns = tuple(dict.fromkeys([*self._keyed.keys, *(column for column in pairs if column != "*")]))
        return dict.fromkeys(stream.chains, columns)

    def _phases(self, bound: list[tuple[str, Aggregate]], told: str) -> Literal[1, 2]:
        counted, late = isinstance(self._span, CountSpan), self._choices.late_stream is not None
        if self._two_phase == "auto":
            small = not any(isinstance(aggregate, Distinct) or _keeps_records(aggregate) for _, aggregate in bound)
            return 2 if small and not late and not counted else 1
        if self._two_phase and counted:
            raise PipelineError(
                f"{told} has two_phase=True, but which records a count window holds depends on their order. "
                "Leave it out."
            )
        if self._two_phase and late:
            raise PipelineError(
                f"{told} has two_phase=True and late=: what is late is known behind the first phase only, where the "
                "records are no more. Leave one of them out."
            )
        return 2 if self._two_phase else 1


def _keeps_records(aggregate: Aggregate) -> bool:
    return isinstance(aggregate, Fold) and aggregate.keeps_records


_KINDS: Final = ("count", "sum", "min", "max", "mean", "distinct")


def _bound(name: str, given: Any, stream: Stream, told: str) -> Aggregate:
    what = f"Aggregate '{name}' of {told}"
    if isinstance(given, fold):
        return Fold(given, name, stream.schema)
    if given in ("count", ("count",), ("count", "*")):
        return Count(None)
    if not isinstance(given, tuple) or len(given) != 2 or not all(isinstance(part, str) for part in given):
        kind = given if isinstance(given, str) else ""
        raise PipelineError(
            f'{what} is {given!r}. It may be "count", a pair of one of {listing(_KINDS)} and a column, such as '
            f"({kind if kind in _KINDS else 'sum'!r}, 'amount'), or tm.fold(...).{meant(kind, _KINDS)}"
        )
    kind, column = given
    if kind not in _KINDS:
        raise PipelineError(f"{what} is of kind {kind!r}. Kinds are: {listing(_KINDS)}.{meant(kind, _KINDS)}")
    stream.check_column(column, what)
    type = stream.schema.field(column).type
    if kind == "count":
        return Count(column)
    if kind in ("sum", "mean"):
        total = _sum(column, type, what)
        return total if kind == "sum" else Mean(total, column)
    if pa.types.is_nested(type):
        raise SchemaError(
            f"{what} can't be the {kind} of column '{column}': {type_ddl(type)} has no order and no equals."
        )
    return Distinct(column, type) if kind == "distinct" else Extreme(column, type, greatest=kind == "max")


def _sum(column: str, type: pa.DataType, what: str) -> Sum:
    if pa.types.is_integer(type):
        return WholeSum(column, f"{what}, the sum of '{column}',")
    if pa.types.is_floating(type):
        return DoubleSum(column)
    if pa.types.is_decimal(type):
        return DecimalSum(column, type, f"{what}, the sum of '{column}',")
    raise SchemaError(
        f"{what} can't be the sum or mean of column '{column}' of type {type_ddl(type)}: numbers can be summed. "
        "Make it one with select(...)."
    )


def _check_names(keys: tuple[str, ...], bound: list[tuple[str, Aggregate]], told: str) -> None:
    if not bound:
        raise PipelineError(f'{told} aggregates nothing. Give it something to compute: n="count".')
    own = (WINDOW_START, WINDOW_END, WINDOW_NUMBER, CHANGE)
    taken = {**dict.fromkeys(own, "a column of every window"), **dict.fromkeys(keys, "a column of the key")}
    for key in keys:
        if key in own:
            raise DuplicateNameError(f"{told} has the key '{key}', and results have a column of that name. Rename it.")
    folded = {name.lower(): (name, why) for name, why in taken.items()}
    for name, _ in bound:
        other = folded.get(name.lower())
        if other is not None:
            raise DuplicateNameError(
                f"{told} has an aggregate '{name}', which is the name of {other[1]} ('{other[0]}'). Call it something "
                "else."
            )
        folded[name.lower()] = (name, "another aggregate")
