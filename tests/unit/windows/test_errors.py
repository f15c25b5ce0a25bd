"""What is wrong with a step, a window or a join is said on the user's own line, before anything starts."""

from decimal import Decimal

import pyarrow.compute as pc
import pytest

import tidemill as tm
from tidemill import errors

SCHEMA = "item string, amount long, price double, tags array<string>, at long"


def orders(name="orders", timestamp="at", pipeline=None):
    made = pipeline or tm.Pipeline("test")
    return made.source(name, tm.sources.Rows([], SCHEMA, timestamp=timestamp))


def windowed(span=None, **options):
    return orders().key_by("item").window(span or tm.tumbling("10s"), **options)


def joined(left=("item",), right=("item",), **options):
    one = orders()
    other = orders("others", pipeline=one.pipeline).select("item", other="amount", double="price", then="at")
    return one.key_by(*left).join(other.key_by(*right), **{"within": 5} | options)


HERE = "(declared at test_errors.py:"

WRONG = {
    "filter: unknown column": (
        lambda: orders().filter(pc.field("amuont") > 1),
        errors.UnknownColumnError,
        f"filter {HERE}",
    ),
    "filter: types": (lambda: orders().filter(pc.field("item") > 1), errors.SchemaError, "can't be computed: Function"),
    "filter: no condition": (lambda: orders().filter(pc.field("amount")), errors.SchemaError, "is of type int64"),
    "filter: text": (
        lambda: orders().filter("amount > 1"),
        errors.PipelineError,
        "was given 'amount > 1'. A condition",
    ),
    "select: unknown column": (
        lambda: orders().select("item", "amonut"),
        errors.UnknownColumnError,
        (
            "names column 'amonut', which it does not have. Its columns: 'item', 'amount', 'price', 'tags', 'at'. Did "
            "you mean 'amount'?"
        ),
    ),
    "select: twice": (lambda: orders().select("item", item="at"), errors.SchemaError, "has two columns 'item'"),
    "select: a number": (lambda: orders().select(one=1), errors.PipelineError, "Column 'one' of select"),
    "select: nothing": (lambda: orders().select(), errors.SchemaError, "it has no columns"),
    "map: no function": (lambda: orders().map_batches(3, "n long"), errors.PipelineError, "which is no function of a"),
    "map: schema": (lambda: orders().map_batches(print, "n lnog"), errors.SchemaError, f"schema of map_batches {HERE}"),
    "union: schemas": (
        lambda: orders().union(orders("more").select("item")),
        errors.PipelineError,
        "both streams must be of one pipeline",
    ),
    "union: no stream": (lambda: orders().union("more"), errors.PipelineError, "was given 'more', which is no stream"),
    "name: taken": (
        lambda: orders().filter(pc.field("amount") > 1, name="orders"),
        errors.DuplicateNameError,
        "name='orders' (at test_errors.py:",
    ),
    "name: none": (lambda: orders().select("item", name=""), errors.PipelineError, "is no name: give it text"),
    "key: unknown": (lambda: orders().key_by("itme"), errors.UnknownColumnError, "Did you mean 'item'?"),
    "key: type": (lambda: orders().key_by("tags"), errors.KeyTypeError, f"key_by {HERE}"),
    "key: nothing": (lambda: orders().key_by(), errors.PipelineError, "names no column"),
    "key: twice": (lambda: orders().key_by("item", "item"), errors.PipelineError, "names a column twice"),
    "key: function": (lambda: orders().key_by(lambda r: r.item), errors.PipelineError, "was given a function"),
    "window: no time": (
        lambda: orders(timestamp=None).key_by("item").window(tm.tumbling(5)),
        errors.TimestampError,
        "needs event time, and the source of 'orders' (declared at test_errors.py:",
    ),
    "window: no span": (lambda: windowed("10s"), errors.PipelineError, "was given '10s'. Give it tm.tumbling"),
    "window: two_phase": (lambda: windowed(two_phase="yes"), errors.PipelineError, "has two_phase='yes'"),
    "window: late": (lambda: windowed(late=3), errors.PipelineError, "has late=3. It may be"),
    "window: late is taken": (lambda: windowed(late="orders"), errors.DuplicateNameError, "name='orders'"),
    "window: early": (lambda: windowed(early=0), errors.PipelineError, "has early=0"),
    "window: lateness": (lambda: windowed(allowed_lateness="x"), errors.PipelineError, "allowed_lateness of window"),
    "window: retract alone": (lambda: windowed(retract=True), errors.PipelineError, "a result leaves only once"),
    "window: early sessions": (
        lambda: windowed(tm.session(5), early=5),
        errors.PipelineError,
        "A session that grows is another window",
    ),
    "window: late sessions": (
        lambda: windowed(tm.session(5), late="too-late"),
        errors.PipelineError,
        "has late=, which session windows do not have",
    ),
    "window: early for counts": (lambda: windowed(tm.count(5), early=5), errors.PipelineError, "which count windows"),
    "span: nothing": (lambda: tm.tumbling(0), errors.PipelineError, "must be longer than nothing"),
    "span: gaps": (lambda: tm.sliding("2s", every="3s"), errors.PipelineError, "can't begin every '3s' only"),
    "span: count": (lambda: tm.count(0), errors.PipelineError, "A count window can't be of 0 records"),
    "aggregate: nothing": (lambda: windowed().aggregate(), errors.PipelineError, "aggregates nothing"),
    "aggregate: kind": (lambda: windowed().aggregate(n=("smu", "amount")), errors.PipelineError, "Did you mean 'sum'?"),
    "aggregate: alone": (lambda: windowed().aggregate(n="sum"), errors.PipelineError, "such as ('sum', 'amount')"),
    "aggregate: column": (
        lambda: windowed().aggregate(n=("sum", "amonut")),
        errors.UnknownColumnError,
        f"Aggregate 'n' of aggregate {HERE}",
    ),
    "aggregate: sum of text": (
        lambda: windowed().aggregate(n=("sum", "item")),
        errors.SchemaError,
        "can't be the sum or mean of column 'item' of type string",
    ),
    "aggregate: min of lists": (
        lambda: windowed().aggregate(n=("min", "tags")),
        errors.SchemaError,
        "can't be the min of column 'tags': array<string> has no order",
    ),
    "aggregate: name of a key": (
        lambda: windowed().aggregate(Item="count"),
        errors.DuplicateNameError,
        "an aggregate 'Item', which is the name of a column of the key ('item')",
    ),
    "aggregate: name of the window": (
        lambda: windowed().aggregate(window_end="count"),
        errors.DuplicateNameError,
        "a column of every window",
    ),
    "aggregate: two phases and late": (
        lambda: windowed(late="too-late", two_phase=True).aggregate(n="count"),
        errors.PipelineError,
        "has two_phase=True and late=",
    ),
    "aggregate: two phases of counts": (
        lambda: windowed(tm.count(3), two_phase=True).aggregate(n="count"),
        errors.PipelineError,
        "depends on their order",
    ),
    "fold: no function": (
        lambda: tm.fold(0, 1, "long"),  # type: ignore[arg-type]
        errors.PipelineError,
        "which is no function",
    ),
    "fold: type": (lambda: tm.fold(0, max, "lnog"), errors.SchemaError, f"the fold {HERE[1:]}".rstrip("(")),
    "join: not by key": (
        lambda: orders().key_by("item").join(orders(), within=5),
        errors.PipelineError,
        "Give it the other stream by key",
    ),
    "join: types": (
        lambda: joined(right=("other",)),
        errors.KeyTypeError,
        "keys of two types: (item string) and (other",
    ),
    "join: within": (lambda: joined(within="x"), errors.PipelineError, "within of join"),
    "join: names": (
        lambda: orders().key_by("item").join(orders("more").key_by("item"), within=5),
        errors.PipelineError,
        "both streams must be of one pipeline",
    ),
}


@pytest.mark.parametrize(("build", "kind", "said"), WRONG.values(), ids=WRONG)
def test_what_is_refused(build, kind, said):
    with pytest.raises(kind) as caught:
        build()
    assert said in str(caught.value)


def test_columns_that_both_sides_of_a_join_have():
    one = orders()
    other = orders("others", pipeline=one.pipeline)
    with pytest.raises(
        errors.DuplicateNameError, match=r"two columns of each of these names: 'amount', 'price', 'tags'"
    ):
        one.key_by("item").join(other.key_by("item"), within=5)


def test_a_union_of_two_schemas():
    one = orders()
    other = orders("others", pipeline=one.pipeline).select("item")
    with pytest.raises(errors.SchemaError, match="joins two schemas"):
        one.union(other)


def test_a_stream_that_nothing_produces_yet():
    with pytest.raises(errors.UnknownStreamError, match=r"Nothing produces stream 'order' yet.*Did you mean 'orders'"):
        orders().pipeline.stream("order")


@pytest.mark.parametrize(("kind", "value"), [("long", 2**62), ("decimal(38, 0)", Decimal(9 * 10**37))])
def test_a_sum_that_is_too_large_names_its_column(kind, value):
    pipeline = tm.Pipeline("test")
    source = tm.sources.Rows([], f"n {kind}, at long", timestamp="at")
    sums = pipeline.source("numbers", source).key_by("at").window(tm.tumbling(5)).aggregate(total=("sum", "n"))
    sums.to(tm.sinks.Collect())
    with pytest.raises(errors.DataError, match=r"Aggregate 'total' of .*, the sum of 'n', is too large for a"):
        tm.testing.replay(pipeline, {"numbers": [{"n": value, "at": 1}] * 4})


def test_a_sum_may_be_too_large_on_the_way():
    pipeline = tm.Pipeline("test")
    source = tm.sources.Rows([], "n long, at long", timestamp="at")
    sums = pipeline.source("numbers", source).key_by("at").window(tm.tumbling(5)).aggregate(total=("sum", "n"))
    sums.to(tm.sinks.Collect())
    rows = [{"n": n, "at": 1} for n in (2**63 - 1, 2**63 - 1, -(2**63), -(2**63), 5)]
    assert tm.testing.replay(pipeline, {"numbers": rows})[sums.label][0]["total"] == 3
