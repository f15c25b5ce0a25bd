"""The first phase of an aggregate in Spark's own words: a plan lets Spark make the panes, before the shuffle.

Only where Spark's result is the very same: its sums of halves of whole numbers, its least and greatest, its counts.
What is not said here is done by the computation itself.
"""

from __future__ import annotations

from tidemill.api.schema import quoted
from tidemill.core.graph import TIME_COLUMN, InSql
from tidemill.windows.aggregates import Aggregate, Count, DoubleSum, Extreme, Mean, WholeSum
from tidemill.windows.panes import RECORDS, START, PaneCut


def panes_in_sql(cut: PaneCut) -> InSql | None:
    """None if any of the aggregates can't be said."""
    made = [_partials(aggregate) for aggregate in cut.combined.aggregates]
    if any(one is None for one in made):
        return None
    expressions = [expression for one in made if one is not None for expression in one]
    since = f"({TIME_COLUMN} - {cut.offset}L)"
    start = f"{since} - pmod({since}, {cut.pane}L) + {cut.offset}L"  # rounded down, before 1970 too
    names = [field.name for field in cut.combined.partial_fields]
    return InSql(
        groups=(*((name, quoted(name)) for name in cut.keys), (START, start)),
        aggregates=((RECORDS, "count(1)"), *zip(names, expressions, strict=True)),
        time=f"min({TIME_COLUMN})",
    )


def _partials(aggregate: Aggregate) -> tuple[str, ...] | None:
    """For each of its partial results."""
    match aggregate:
        case Count(column=None):
            return ("count(1)",)
        case Count(column=str(column)):
            return (f"count({quoted(column)})",)
        case WholeSum(column=column):
            value = f"cast({quoted(column)} as long)"
            return f"sum(shiftright({value}, 32))", f"sum({value} & 4294967295L)"
        case DoubleSum(column=column):
            return (f"sum(cast({quoted(column)} as double))",)
        case Extreme(column=column, greatest=greatest):
            return (f"{'max' if greatest else 'min'}({quoted(column)})",)
        case Mean(sum=total, count=count):
            summed, counted = _partials(total), _partials(count)
            return None if summed is None or counted is None else (*summed, *counted)
        case _:
            return None
