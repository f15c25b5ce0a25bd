"""Our places on the ring against Spark SQL's own `xxhash64`, for every type that a key may have and for chains of them.

Hypothesis draws many rows, and all of them go through Spark in one job: what differs is in the assertion as it stands.
"""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from decimal import Decimal
from itertools import cycle, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from tests.key_types import KEY_TYPES
from tidemill.core.keys import function_key_position, ring_position, ring_positions

ROWS = 600
CHAINS = 60


@pytest.fixture(scope="module")
def spark():
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)  # otherwise Spark starts the `python3` of the path
        yield from session()


def session():
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("placement")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "America/St_Johns")  # places do not depend on it
        .getOrCreate()
    )
    yield spark
    spark.stop()


def drawn(strategy: st.SearchStrategy, count: int) -> list[Any]:
    found: list[Any] = []

    @settings(max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found


def placed_by_spark(frame: DataFrame, chains: list[tuple[str, ...]]) -> dict[tuple[str, ...], list[int]]:
    """What Spark says of each chain of columns, row by row."""
    hashes = [F.xxhash64(*(f"`{name}`" for name in chain)).alias(str(i)) for i, chain in enumerate(chains)]
    answers = frame.sort("row").select(*hashes).toArrow()
    return {chain: answers.column(i).to_numpy().view(np.uint64).tolist() for i, chain in enumerate(chains)}


@pytest.fixture(scope="module")
def table():
    types = KEY_TYPES.values()
    odd = zip(*(islice(cycle(key_type.odd), max(len(other.odd) for other in types)) for key_type in types), strict=True)
    rows = [*odd, *drawn(st.tuples(*(st.none() | key_type.values for key_type in types)), ROWS)]
    columns = {
        name: key_type.array([row[place] for row in rows]) for place, (name, key_type) in enumerate(KEY_TYPES.items())
    }
    return pa.table({"row": pa.array(range(len(rows)), pa.int64()), **columns})


@pytest.fixture(scope="module")
def answers(spark, table):
    names = st.sampled_from(list(KEY_TYPES))
    chains = drawn(st.lists(names, min_size=2, max_size=5).map(tuple), CHAINS)
    every = [*((name,) for name in KEY_TYPES), *dict.fromkeys(chains)]
    schema = ", ".join(["row bigint", *(f"`{name}` {name}" for name in KEY_TYPES)])
    return placed_by_spark(spark.createDataFrame(table, schema), every)


def as_keys(table: pa.Table, name: str) -> Any:
    """A column as `ring_position` takes it: times and dates as numbers."""
    column = table.column(name).combine_chunks()
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return column.to_pylist()


def assert_same(table: pa.Table, chain: tuple[str, ...], expected: list[int]) -> None:
    types = [KEY_TYPES[name].type for name in chain]
    keys = list(zip(*(as_keys(table, name) for name in chain), strict=True))
    one_by_one = [ring_position(key if len(chain) > 1 else key[0], types) for key in keys]
    assert [(k, e, f) for k, e, f in zip(keys, expected, one_by_one, strict=True) if e != f] == []
    batch = ring_positions([table.column(name).combine_chunks() for name in chain], types).tolist()
    assert [(k, e, f) for k, e, f in zip(keys, expected, batch, strict=True) if e != f] == []


@pytest.mark.parametrize("name", KEY_TYPES)
def test_each_type_lies_where_spark_says(table, answers, name):
    assert_same(table, (name,), answers[name,])


def test_chains_lie_where_spark_says(table, answers):
    chains = [chain for chain in answers if len(chain) > 1]
    assert len(chains) > CHAINS // 3
    for chain in chains:
        assert_same(table, chain, answers[chain])


MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(timezone.utc))  # noqa: DTZ001
FUNCTION_KEYS = {
    "bool": st.booleans(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "str": st.text(),
    "bytes": st.binary(),
    "datetime": MOMENTS,
    "date": st.dates(),
    "Decimal": st.sampled_from([Decimal("-0.0"), Decimal("1E+19"), Decimal("-1E-18")])
    | st.decimals(-(10**19), 10**19, places=18),
}


def test_keys_of_functions_lie_where_spark_types_them(spark):
    """Spark itself finds the type of each Python value."""
    rows = drawn(st.tuples(*(st.none() | values for values in FUNCTION_KEYS.values())), ROWS)
    frame = spark.createDataFrame([(i, *row) for i, row in enumerate(rows)], ["row", *FUNCTION_KEYS])
    whole = tuple(FUNCTION_KEYS)
    answers = placed_by_spark(frame, [*((name,) for name in whole), whole])
    for place, name in enumerate(whole):
        found = [function_key_position(row[place]) for row in rows]
        assert [(r[place], e, f) for r, e, f in zip(rows, answers[name,], found, strict=True) if e != f] == []
    assert answers[whole] == [function_key_position(row) for row in rows]
