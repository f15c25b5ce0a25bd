"""Windows and joins give what SQL gives, however their input is cut and whenever the marks come."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.unit.windows.driving import ROWS, asked, fed, plain, same, source

AGGREGATES = {
    "records": "count",
    "values": ("count", "n"),
    "total": ("sum", "n"),
    "doubles": ("sum", "d"),
    "exact": ("sum", "c"),
    "least": ("min", "n"),
    "least_d": ("min", "d"),
    "most_d": ("max", "d"),
    "least_s": ("min", "s"),
    "most_s": ("max", "s"),
    "most_c": ("max", "c"),
    "mean_n": ("mean", "n"),
    "mean_d": ("mean", "d"),
    "kinds_d": ("distinct", "d"),
    "kinds_s": ("distinct", "s"),
}
SQL = """
    count(*) AS records, count(n) AS values, sum(n)::BIGINT AS total, sum(d) AS doubles, sum(c) AS exact,
    min(n) AS least, min(d) AS least_d, max(d) AS most_d, min(s COLLATE "binary") AS least_s,
    max(s COLLATE "binary") AS most_s, max(c) AS most_c, avg(n) AS mean_n, avg(d) AS mean_d,
    count(DISTINCT d) AS kinds_d, count(DISTINCT s) AS kinds_s
""".replace(' COLLATE "binary"', "")

SEEDS = st.integers(0, 2**32)
TWO_PHASE = st.sampled_from([True, False, "auto"])


def aggregated(span, rows, seed, *keys, **options):
    pipeline = tm.Pipeline("test")
    made = source(pipeline).key_by(*keys).window(span, **options).aggregate(**AGGREGATES)
    made.to(tm.sinks.Collect())
    return fed(pipeline, {"rows": rows}, seed)[made.label]


@settings(deadline=None, max_examples=60)
@given(ROWS, SEEDS, TWO_PHASE, st.sampled_from([("k",), ("f",), ("k", "f"), ("n",)]))
def test_tumbling(rows, seed, two_phase, keys):
    found = aggregated(tm.tumbling(20, offset=3), rows, seed, *keys, two_phase=two_phase)
    named = ", ".join(keys)
    same(
        found,
        asked(
            f"""SELECT {named}, window_start, window_start + 20 AS window_end, {SQL}
            FROM (SELECT *, (floor((ts - 3) / 20.0) * 20 + 3)::BIGINT AS window_start FROM events)
            GROUP BY {named}, window_start""",  # noqa: S608 - it is a test's own
            events=rows,
        ),
    )
    assert all(row.timestamp == plain(row["window_end"]) - 1 for row in found)


@settings(deadline=None, max_examples=60)
@given(ROWS, SEEDS, TWO_PHASE, st.sampled_from([(20, 5), (20, 20), (20, 8), (7, 3)]))
def test_sliding(rows, seed, two_phase, sizes):
    size, every = sizes
    found = aggregated(tm.sliding(size, every=every), rows, seed, "k", two_phase=two_phase)
    same(
        found,
        asked(
            f"""SELECT k, window_start, window_start + {size} AS window_end, {SQL}
            FROM events, (SELECT (unnest(range(-150, 150)) * {every})::BIGINT AS window_start)
            WHERE ts >= window_start AND ts < window_start + {size}
            GROUP BY k, window_start""",  # noqa: S608
            events=rows,
        ),
    )


@settings(deadline=None, max_examples=60)
@given(ROWS, SEEDS, TWO_PHASE, st.sampled_from([("k",), ("k", "f")]))
def test_sessions(rows, seed, two_phase, keys):
    found = aggregated(tm.session(6), rows, seed, *keys, two_phase=two_phase)
    named = ", ".join(keys)
    same(
        found,
        asked(
            f"""SELECT {named}, min(ts) AS window_start, max(ts) + 6 AS window_end, {SQL}
            FROM (SELECT *, sum(begins) OVER (PARTITION BY {named} ORDER BY ts, place ROWS UNBOUNDED PRECEDING) AS nth
                FROM (SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY {named} ORDER BY ts, place) >= 6
                    THEN 1 ELSE 0 END AS begins FROM (SELECT *, row_number() OVER () AS place FROM events)))
            GROUP BY {named}, nth""",  # noqa: S608
            events=rows,
        ),
    )


@settings(deadline=None, max_examples=60)
@given(ROWS, ROWS, SEEDS, st.integers(0, 25), st.booleans())
def test_joins(rows, others, seed, within, one_stream):
    pipeline = tm.Pipeline("test")
    left = source(pipeline)
    right = left if one_stream else source(pipeline, "others")
    right = right.select("k", m="n", then="ts")
    made = left.key_by("k", "n").join(right.key_by("k", "m"), within=within)
    made.to(tm.sinks.Collect())
    inputs = {"rows": rows} if one_stream else {"rows": rows, "others": others}
    found = fed(pipeline, inputs, seed)[made.label]
    assert all(row.timestamp == max(row["ts"], row["then"]) for row in found)
    same(
        found,
        asked(
            f"""SELECT l.*, r.n AS m, r.ts AS then FROM events AS l
            JOIN {"events" if one_stream else "others"} AS r ON l.k = r.k AND l.n = r.n
            WHERE abs(l.ts - r.ts) <= {within}""",  # noqa: S608
            events=rows,
            others=others,
        ),
    )


@pytest.mark.parametrize("size", [1, 3, 4])
@settings(deadline=None, max_examples=30)
@given(rows=ROWS, seed=SEEDS, partial=st.booleans())
def test_counts(size, rows, seed, partial):
    rows = sorted(rows, key=lambda row: row["ts"])
    pipeline = tm.Pipeline("test")
    made = source(pipeline).key_by("k").window(tm.count(size, partial=partial)).aggregate(**AGGREGATES)
    made.to(tm.sinks.Collect())
    found = fed(pipeline, {"rows": rows}, seed, disorder=0)[made.label]
    same(
        found,
        asked(
            f"""SELECT k, nth // {size} AS window_number, {SQL}
            FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY place) - 1 AS nth
                FROM (SELECT *, row_number() OVER () AS place FROM events))
            GROUP BY k, nth // {size} HAVING {partial} OR count(*) = {size}""",  # noqa: S608
            events=rows,
        ),
    )
