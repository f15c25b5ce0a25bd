"""Rows are numbered by group: every type of key, near and far values, and so many columns that codes would not fit."""

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.keys import normal_key
from tidemill.windows.groups import group_by, is_in, normal, order_by
from tidemill.windows.panes import sessions

UTC = dt.timezone.utc
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "near": (pa.int64(), [3, 4, 5, None]),
    "far": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "small": (pa.int8(), [-128, 127]),
    "flag": (pa.bool_(), [True, False, None]),
    "float": (pa.float32(), [0.0, -0.0, math.nan, None, 1.5]),
    "double": (pa.float64(), [0.0, -0.0, math.nan, -math.nan, math.inf]),
    "text": (pa.string(), ["", "a", "ä", None]),
    "bytes": (pa.binary(), [b"", b"a", None]),
    "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2020, 1, 1)]),
    "time": (
        pa.timestamp("us", tz="UTC"),
        [dt.datetime(1969, 12, 31, tzinfo=UTC), dt.datetime(2300, 1, 1, tzinfo=UTC)],
    ),
    "decimal": (pa.decimal128(12, 2), [Decimal("0.00"), Decimal("-1.50"), None]),
}


@settings(deadline=None)
@given(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4), st.integers(0, 2**32), st.integers(0, 60))
def test_equal_rows_have_one_number(names, seed, rows):
    chance = random.Random(seed)
    values = [[chance.choice(COLUMNS[name][1]) for _ in range(rows)] for name in names]
    groups = group_by([pa.array(v, COLUMNS[n][0]) for n, v in zip(names, values, strict=True)], rows)
    seen: dict = {}
    for place, row in enumerate(zip(*values, strict=True)):
        number, first = seen.setdefault(normal_key(row), (groups.of_row[place], place))
        assert groups.of_row[place] == number
        assert groups.firsts[number] == first
    assert groups.count == len(seen) == len(set(groups.of_row.tolist()))
    assert groups.sizes().sum() == rows


def test_codes_that_would_not_fit_are_packed():
    chance = np.random.default_rng(1)
    columns = [chance.integers(0, 3, 20_000) * 20_000 for _ in range(6)]
    groups = group_by([pa.array(column) for column in columns], 20_000)
    assert groups.count == len({tuple(row) for row in np.stack(columns, axis=1).tolist()})


def test_zeros_and_nans_are_made_one_and_nulls_stay():
    made = normal(pa.array([0.0, -0.0, math.nan, -math.nan, None]))
    bits = made.fill_null(7.0).to_numpy().view(np.int64).tolist()
    assert bits[0] == bits[1] == 0
    assert bits[2] == bits[3]
    assert made.null_count == 1


def test_membership_may_find_too_many_and_never_too_few():
    one = [pa.array([1, 1, 2, None]), pa.array(["a", "b", "b", "a"])]
    other = [pa.array([1, 2, None]), pa.array(["a", "b", "a"])]
    assert is_in(one, other).tolist() == [True, True, True, True]
    assert is_in(one, [pa.array([2]), pa.array(["b"])]).tolist() == [False, False, True, False]


@given(st.lists(st.tuples(st.integers(0, 2**18), st.integers(-9, 9)), max_size=50))
def test_rows_in_order(rows):
    codes = np.array([code for code, _ in rows], np.int64)
    times = np.array([time for _, time in rows], np.int64)
    assert order_by(codes, times).tolist() == np.lexsort((times, codes)).tolist()


@pytest.mark.parametrize("far", [1, 2**55])
@settings(deadline=None)
@given(data=st.data())
def test_stretches_of_time_are_put_together(far, data):
    drawn = st.tuples(st.integers(0, 200), st.integers(-20, 20), st.integers(0, 6))
    given_rows = [(key, at * far, (at + more) * far) for key, at, more in data.draw(st.lists(drawn, max_size=30))]
    keys = np.array([row[0] for row in given_rows], np.int64)
    firsts = np.array([row[1] for row in given_rows], np.int64)
    lasts = np.array([row[2] for row in given_rows], np.int64)
    groups, found_firsts, found_lasts = sessions(keys, firsts, lasts, 3 * far)
    expected: list = []
    for key, first, last in sorted(given_rows):
        if expected and expected[-1][0] == key and first - expected[-1][2] < 3 * far:
            expected[-1][2] = max(expected[-1][2], last)
        else:
            expected.append([key, first, last])
    found = [list(row) for row in zip(keys[groups.firsts], found_firsts, found_lasts, strict=True)]
    assert found == expected
    assert all(
        found_firsts[group] <= first <= found_lasts[group]
        for group, (_, first, _) in zip(groups.of_row, given_rows, strict=True)
    )
