"""Filter, select, map and union: what they do to records, and that they travel to Spark."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

import tidemill as tm
from tidemill import errors

ROWS: list[dict[str, Any]] = [
    {"item": "a", "amount": 5, "at": 1},
    {"item": None, "amount": None, "at": 2},
    {"item": "b", "amount": 50, "at": 3},
]


def begun(*names):
    pipeline = tm.Pipeline("test")
    source = tm.sources.Rows([], "item string, amount long, at long", timestamp="at")
    streams = [pipeline.source(name, source) for name in names or ("orders",)]
    return pipeline, *streams


def outcome(pipeline, stream, **inputs):
    made = stream.to(tm.sinks.Collect())
    return tm.testing.replay(pipeline, inputs or {"orders": ROWS})[made.label]


def test_a_filter_keeps_what_is_true_and_not_what_is_null():
    pipeline, orders = begun()
    assert outcome(pipeline, orders.filter(pc.field("amount") > 10)) == [ROWS[2]]


@pytest.mark.parametrize(
    "mask",
    [
        lambda batch: pc.equal(batch.column("item"), "a"),
        lambda batch: np.array([item == "a" for item in batch.column("item").to_pylist()]),
        lambda batch: pa.chunked_array([pc.equal(batch.column("item"), "a")]),
    ],
)
def test_a_filter_by_a_function(mask):
    pipeline, orders = begun()
    assert outcome(pipeline, orders.filter(mask)) == [ROWS[0]]


def test_columns_are_chosen_renamed_and_computed():
    pipeline, orders = begun()
    made = orders.select("amount", name=pc.field("item"), double=pc.field("amount") * 2, what="item", one=pc.scalar(1))
    assert made.schema.names == ["amount", "name", "double", "what", "one"] or set(made.schema.names) == {
        *("amount", "name", "double", "what", "one")
    }
    found = outcome(pipeline, made)
    assert found[0] == {"amount": 5, "name": "a", "double": 10, "what": "a", "one": 1}
    assert [row.timestamp for row in found] == [1, 2, 3]


def test_batches_are_mapped():
    pipeline, orders = begun()

    def shout(batch):
        return {"item": pc.utf8_upper(batch.column("item")), "n": batch.column("amount")}

    found = outcome(pipeline, orders.map_batches(shout, "item string, n double"))
    assert found == [{"item": "A", "n": 5.0}, {"item": None, "n": None}, {"item": "B", "n": 50.0}]


@pytest.mark.parametrize(
    "times", [np.array([7, 8]), pa.array([7, 8]), [7, 8], pa.array([7, 8], pa.timestamp("us", tz="UTC"))]
)
def test_a_batch_of_another_length_comes_with_its_timestamps(times):
    pipeline, orders = begun()
    made = orders.map_batches(lambda _: (pa.record_batch({"n": [1, 2]}), times), "n long")
    found = outcome(pipeline, made, orders=ROWS[:1])
    assert [(row["n"], row.timestamp) for row in found] == [(1, 7), (2, 8)]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"n": [1, 2]}, "returned 2 records with 1 timestamps, those of the batch that it was given. Let it return"),
        (({"n": [1, 2]}, [1]), "returned 2 records with 1 timestamps. Let it return (columns, timestamps)"),
        (({"n": [1]}, pa.array([None], pa.int64())), "returned timestamps of which 1 are null"),
        (({"n": [1]}, 1, 2), "returned a tuple of 3: it must return a pyarrow.RecordBatch or a dict"),
        (3, "returned a int: it must return a pyarrow.RecordBatch or a dict"),
        ({"m": [1]}, "have a column 'm', which their schema does not have. Columns are: 'n'."),
        ({"n": ["x"]}, "column 'n' is 'x', of type str, and should be long"),
    ],
)
def test_what_a_function_may_not_make_of_a_batch(made, said):
    pipeline, orders = begun()
    with pytest.raises(errors.DataError) as caught:
        outcome(pipeline, orders.map_batches(lambda _: made, "n long"), orders=ROWS[:1])
    assert said in str(caught.value)
    assert "map_batches (declared at test_steps.py:" in str(caught.value)
    assert "of 'orders'" in str(caught.value)


def test_a_mask_that_is_none():
    pipeline, orders = begun()
    with pytest.raises(errors.DataError, match=r"filter \(declared at .*returned 1 values of int64 for a batch of 1"):
        outcome(pipeline, orders.filter(lambda _: pa.array([1])), orders=ROWS[:1])


def test_streams_of_one_schema_become_one():
    pipeline, orders, returns = begun("orders", "returns")
    both = orders.union(returns, orders.filter(pc.field("amount") > 10))
    found = outcome(pipeline, both, orders=ROWS[:1] + ROWS[2:], returns=ROWS[1:2])
    assert [row["at"] for row in found] == [1, 2, 3, 3]
    assert both.label == "orders-union-returns-union-orders-filter"


def test_steps_without_a_name_are_one_computation_and_one_with_a_name_is_a_stream():
    pipeline, orders = begun()
    big = orders.filter(pc.field("amount") > 1).filter(pc.field("amount") > 10)
    big.select("item").to(tm.sinks.Collect())
    assert [str(node.name) for node in pipeline.graph().of_kind("computation")] == ["orders-filter-select"]
    named = orders.filter(pc.field("amount") > 10, name="big")
    assert (named.label, named.plain) == ("big", True)
    pipeline.sink("big", tm.sinks.Collect())
    assert pipeline.stream("big").schema == orders.schema
    big.select("item").to(tm.sinks.Collect())
    names = [str(node.name) for node in pipeline.graph().of_kind("computation")]
    assert names == ["orders-filter-select", "big", "orders-filter-select-2"]


def test_a_computation_of_ones_own_reads_a_step_and_is_read_by_one():
    pipeline, orders = begun()
    orders.filter(pc.field("amount") > 1, name="some")

    class Seen(tm.Computation):
        some = tm.Input(key="item")
        seen = tm.Output("item string")

        def process_record(self, ctx, record):
            ctx.produce(self.seen, item=record.item)

    pipeline.add(Seen)
    found = outcome(pipeline, pipeline.stream("seen").filter(pc.field("item") == "b"))
    assert found == [{"item": "b"}]


def test_steps_and_windows_travel_to_spark():
    pipeline, orders, returns = begun("orders", "returns")
    least = 10
    kept = orders.filter(pc.field("amount") > least).filter(lambda batch: pc.is_valid(batch.column("item")))
    mapped = kept.map_batches(
        lambda batch: {"item": batch.column("item"), "n": [least] * len(batch)}, "item string, n long"
    )
    own = tm.fold(0, lambda value, record: value + record.n + least, "long", merge=lambda a, b: a + b)
    totals = mapped.key_by("item").window(tm.tumbling(10)).aggregate(total=("sum", "n"), own=own)
    joined = orders.key_by("item").join(returns.select("item", back="at").key_by("item"), within=5)
    for stream in (totals, joined):
        stream.to(tm.sinks.Collect())
    inputs = {"orders": ROWS, "returns": ROWS}
    before = tm.testing.replay(pipeline, inputs)
    again = cloudpickle.loads(cloudpickle.dumps(pipeline.graph()))
    assert [str(name) for name in again.nodes] == [str(name) for name in pipeline.graph().nodes]
    program = again.nodes["orders-filter-map-by-item-tumbling-10us-partials"].make()
    assert next(iter(program.chains["orders"])).steps[0].condition.equals(pc.field("amount") > 10)
    assert before[totals.label][0]["own"] == 20
    assert [row["back"] for row in before[joined.label]] == [1, 3]
