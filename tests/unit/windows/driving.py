"""A pipeline fed in any pieces and with any marks that leave nothing late, and the same asked of DuckDB."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from decimal import Decimal

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

import tidemill as tm
from tidemill.core.ids import Micros
from tidemill.testing.inputs import batch_of

SCHEMA = "k string, f double, n long, d double, c decimal(12, 2), s string, ts long"
ARROW = pa.schema(
    [
        *(("k", pa.string()), ("f", pa.float64()), ("n", pa.int64()), ("d", pa.float64())),
        *(("c", pa.decimal128(12, 2)), ("s", pa.string()), ("ts", pa.int64())),
    ]
)

NAN = math.nan
KEYS = [None, "a", "b", "", "äö"]
KEY_DOUBLES = [None, 0.0, -0.0, 1.5, NAN, -NAN]
NUMBERS = [None, 0, 1, -1, 2**40, -(2**40), 7]
DOUBLES = [None, 0.0, -0.0, 1.5, -2.25, 1024.0, 0.5, NAN]
DECIMALS = [None, *map(Decimal, ("0.00", "-0.01", "9999999999.99", "12.50"))]
TEXTS = [None, "", "x", "xy", "é", "Z"]


def made_rows(seed, many, longest):
    """Drawn from a seed: shrinking them would tell little, and they should be many."""
    chance = random.Random(seed)
    return [
        {
            "k": chance.choice(KEYS),
            "f": chance.choice(KEY_DOUBLES),
            "n": chance.choice(NUMBERS),
            "d": chance.choice(DOUBLES) if chance.random() < 0.98 else math.inf,
            "c": chance.choice(DECIMALS),
            "s": chance.choice(TEXTS),
            "ts": chance.randint(-longest, longest),
        }
        for _ in range(many)
    ]


ROWS = st.builds(made_rows, st.integers(0, 2**32), st.sampled_from([0, 1, 8, 40, 120]), st.sampled_from([10, 60, 300]))


def source(pipeline, name="rows", schema=SCHEMA):
    return pipeline.source(name, tm.sources.Rows([], schema, timestamp="ts"))


def fed(pipeline, inputs, seed=0, disorder=10):
    """The rows of each stream, a little out of order and in bundles of any size, with a mark now and then."""
    chance = random.Random(seed)
    stage = tm.testing.Stage(pipeline)
    left = [
        (row["ts"] + chance.uniform(0, disorder), place, stream, row)
        for stream, rows in inputs.items()
        for place, row in enumerate(rows)
    ]
    left.sort(key=lambda item: item[:2])
    while left:
        many = chance.randint(1, 8)
        now, left = left[:many], left[many:]
        for stream in dict.fromkeys(item[2] for item in now):
            stage.send_batch(stream, *batch_of(stage.graph, stream, [i[3] for i in now if i[2] == stream], Micros(0)))
        if left and chance.random() < 0.5:
            stage.advance_watermark(min(item[3]["ts"] for item in left) - chance.choice([0, 0, 5]))
    return stage.finish()


@functools.cache
def connection():
    """Closed, and forgotten, when the tests have ended."""
    return duckdb.connect(config={"threads": 1})


def asked(sql, **tables):
    with connection().cursor() as cursor:
        for name, rows in tables.items():
            cursor.register(name, pa.Table.from_pylist(rows, schema=ARROW))
        cursor.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def plain(value):
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, Decimal):
        return value.normalize()
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1_000_000)
    return value


def same(mine, theirs):
    """Rows in any order, by the names that both have."""
    names = list(theirs[0]) if theirs else []
    assert Counter(tuple(plain(row[name]) for name in names) for row in mine) == Counter(
        tuple(plain(row[name]) for name in names) for row in theirs
    )
