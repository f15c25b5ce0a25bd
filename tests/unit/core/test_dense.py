"""The table of dense rows says what it was taught or that it does not know; never anything else."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.columns import ColumnarState
from tidemill.core.dense import FREE, LARGEST, SPARSE, DenseRows
from tidemill.core.graph import ColumnState

ENDS = [-(2**63), 2**63 - 1]

a_place = st.one_of(st.integers(-50, 50), st.integers(-(10**5), 10**5), st.sampled_from(ENDS))
batches = st.lists(st.lists(a_place, min_size=1, max_size=20), max_size=12)


def numbers(values):
    return np.array(values, np.int64)


def found(table, *keys):
    """The rows as a list; None where the table does not know."""
    rows = table.find(numbers(keys))
    return None if rows is None else rows.tolist()


@given(batches, st.lists(a_place, max_size=20))
def test_it_finds_what_it_was_taught(lessons, asked):
    table = DenseRows()
    known: dict = {}
    for lesson in lessons:
        fresh = [key for key in dict.fromkeys(lesson) if key not in known]
        known |= {key: len(known) + place for place, key in enumerate(fresh)}
        distinct = list(dict.fromkeys(lesson))
        table.learn(numbers(distinct), np.array([known[key] for key in distinct], np.intp))
        assert found(table, *lesson) in (None, [known[key] for key in lesson])
    told = found(table, *asked)
    assert told is None or told == [known[key] for key in asked]


def test_close_keys_are_found():
    table = DenseRows()
    table.learn(numbers([1_000_000, 1_000_002]), np.array([0, 1]))
    assert found(table, 1_000_002, 1_000_000, 1_000_002) == [1, 0, 1]
    assert found(table, 1_000_001) is None
    table.learn(numbers([999_990]), np.array([2]))
    table.learn(numbers([1_000_400]), np.array([3]))
    assert found(table, 999_990, 1_000_000, 1_000_400) == [2, 0, 3]
    assert [found(table, key) for key in (0, 2**40, *ENDS)] == [None] * 4


def test_keys_far_apart_take_no_memory():
    table = DenseRows()
    table.learn(numbers([0, FREE + 2 * SPARSE]), np.array([0, 1]))
    assert table.find(numbers([0])) is None
    many = np.arange(LARGEST // SPARSE + 1, dtype=np.int64) * SPARSE
    table = DenseRows()
    table.learn(many, np.arange(len(many)))
    assert table.find(many[:1]) is None


@given(st.lists(st.lists(st.one_of(st.integers(-128, 127), st.none()), max_size=20), max_size=8))
def test_rows_are_the_same_with_it_and_without(batches):
    small = ColumnarState(ColumnState((("n", "int64"),)))
    plain: dict = {}
    for batch in batches:
        rows = small.rows(pa.array(batch, pa.int8()))
        assert rows.tolist() == [plain.setdefault(key, len(plain)) for key in batch]
        small.n[np.unique(rows)] += 1
    assert small.keys == list(plain)
