"""A record gets its sequence by its place in the order of production, whenever the flushes were."""

# mypy: disable-error-code="arg-type, assignment, union-attr"

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.pipes import SCHEMA, batch, records_of, rows_of
from tidemill.core.graph import Stream
from tidemill.core.outbox import FEW, Outbox
from tidemill.errors import DataError

COUNTS = Stream("counts", SCHEMA)


def produce(box, *rows):
    for word, n, at in rows:
        box.rows.append({"word": word, "n": n})
        box.times.append(at)


def produce_batch(box, *rows):
    box.add_batch(batch(*((word, n) for word, n, _ in rows)), np.array([at for *_, at in rows], np.int64))


ROWS = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9), st.integers(0, 99))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.lists(ROWS, max_size=2 * FEW)),
        st.tuples(st.just("batch"), st.lists(ROWS, max_size=3)),
        st.tuples(st.just("flush"), st.none()),
    ),
    max_size=12,
)


@given(STEPS)
def test_sequences_follow_the_order_of_production_and_not_the_flushes(steps):
    box = Outbox(COUNTS, 4)
    produced: list = []
    flushed: list = []
    for what, rows in steps:
        if what == "rows":
            produce(box, *rows)
            produced += rows
        elif what == "batch":
            produce_batch(box, *rows)
            produced += rows
        else:
            flushed.append(box.flush())
    waiting = box.size
    last = box.flush()
    assert waiting == (last.rows if last else 0)
    records = records_of(*(each for each in (*flushed, last) if each is not None))
    assert records == [("counts", 4, place, *row) for place, row in enumerate(produced, 1)]


def test_nothing_produced_is_no_bundle():
    box = Outbox(COUNTS, 4)
    assert box.flush() is None
    produce(box, ("a", 1, 1))
    assert box.flush() is not None
    assert box.flush() is None
    assert box.size == 0


def test_a_restored_box_goes_on_with_its_number():
    box = Outbox(COUNTS, 4)
    box.sequence = 17
    produce(box, ("a", 1, 1), ("b", 2, 2))
    assert box.flush().sequences.tolist() == [17, 18]
    assert box.sequence == 19


@pytest.mark.parametrize("count", [1, FEW, FEW + 1])
def test_columns_are_found_by_name_also_when_some_are_null(count):
    box = Outbox(COUNTS, 4)
    for place in range(count):
        box.rows.append({"n": None if place % 2 else place, "word": None})
        box.times.append(place)
    assert rows_of(box.flush()) == [(None, None if place % 2 else place, place) for place in range(count)]


@pytest.mark.parametrize("others", [0, FEW])
@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"word": "a"}, "that lacks n"),
        ({}, "that lacks word, n"),
        ({"word": "a", "n": 1, "m": 2}, "that has m besides"),
        ({"word": "a", "m": 2}, "that lacks n"),
        ({"word": "a", "n": "one"}, "with n='one'"),
        ({"word": 1, "n": 1}, "with word=1"),
        ({"word": "a", "n": 2**63}, f"with n={2**63}"),
    ],
)
def test_a_row_that_does_not_fit_is_named(row, complaint, others):
    box = Outbox(COUNTS, 4)
    produce(box, *[("a", 1, 1)] * others)
    box.rows.append(row)
    box.times.append(1)
    with pytest.raises(DataError, match=r"stream 'counts' takes \(word string, n int64\)") as caught:
        box.flush()
    assert complaint in str(caught.value)


def test_a_batch_may_have_its_columns_in_any_order_and_of_any_type_that_can_become_theirs():
    box = Outbox(COUNTS, 4)
    box.add_batch(pa.record_batch({"n": pa.array([1], pa.int32()), "word": pa.array(["a"])}), np.array([7]))
    box.add_batch({"n": [2], "word": ["b"]}, np.array([8]))
    assert rows_of(box.flush()) == [("a", 1, 7), ("b", 2, 8)]


@pytest.mark.parametrize(
    "columns",
    [
        pa.record_batch({"word": ["a"]}),
        {"word": ["a"]},
        {"word": ["a"], "n": ["one"]},
        pa.record_batch({"word": ["a"], "n": ["one"]}),
        {"word": ["a", "b"], "n": [1]},
    ],
)
def test_a_batch_that_does_not_fit_is_refused_at_once(columns):
    with pytest.raises(DataError, match=r"stream 'counts' takes \(word string, n int64\)"):
        Outbox(COUNTS, 4).add_batch(columns, np.array([7]))


def test_a_batch_has_a_time_for_each_record():
    produced = batch(("a", 1), ("b", 2))
    with pytest.raises(DataError, match="2 records were produced with 1 timestamps"):
        Outbox(COUNTS, 4).add_batch(produced, np.array([7]))


def test_an_empty_batch_is_nothing():
    box = Outbox(COUNTS, 4)
    produce_batch(box)
    assert box.size == 0
    assert box.flush() is None


def test_what_was_produced_does_not_change_with_the_array_it_was_made_from():
    """A view of columnar state, most of all: the next bundle changes it."""
    numbers, times = np.array([1, 2]), np.array([10, 20])
    box = Outbox(COUNTS, 4)
    box.add_batch({"word": ["a", "b"], "n": numbers}, times)
    numbers[:] = 99
    times[:] = 99
    assert rows_of(box.flush()) == [("a", 1, 10), ("b", 2, 20)]
