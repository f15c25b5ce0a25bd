"""The tables that Spark makes from a seed: what people search for, two months of it, and what is planted in the rest.

All chance is a hash of the seed and of what it decides, so that a table is the same however Spark cuts it up, and a
task that runs twice makes the same rows. Each table is written down, and read again by whoever needs it.

An hour of history and a second of the live part bear the same number of searches: a day passes in 24 seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

DAY: Final = 24
"""Hours of history, and seconds of the live part."""

JITTER: Final = 0.15
"""Seconds that a search is under way at most, unless it is late."""

PER_KIND: Final = 6
"""So many spikes are planted at most, and so many dips."""

APART: Final = 4
"""Seconds of the live part for each spike, and each dip, at least."""

SHORTEST: Final = 10
"""Seconds of a live part that has room for a spike and a dip."""

_FUNCTIONS: Final = (
    # evenly from 0 to 1
    """CREATE OR REPLACE TEMPORARY FUNCTION chance(seed BIGINT, what STRING, query STRING, n BIGINT) RETURNS DOUBLE
    RETURN pmod(xxhash64(seed, what, query, n), 2147483647) / 2147483647D""",
    # searches in an hour of the day, where nothing is planted
    """CREATE OR REPLACE TEMPORARY FUNCTION usual(rate DOUBLE, swing DOUBLE, peak INT, hour DOUBLE) RETURNS DOUBLE
    RETURN rate * (1 + swing * cos(2 * pi() * (hour - peak) / 24))""",
)

_QUERIES: Final = """
WITH words AS (
  SELECT split('cat dog train flight hotel rain snow football chess piano guitar pasta bread coffee garden bicycle
    moon castle river dinosaur', '\\\\s+') AS things,
    split('videos times news pictures prices near_me map history recipe lyrics', ' ') AS sides
), named AS (
  SELECT concat(things[id % 20], ' ', replace(sides[id DIV 20], '_', ' ')) AS query FROM range(200), words
), ranked AS (
  SELECT query, row_number() OVER (ORDER BY chance(:seed, 'rank', query, 0)) - 1 AS rank FROM named
)
SELECT query, 6 + 40 * exp(-rank / 60D) AS rate, 0.1 + 0.4 * chance(:seed, 'swing', query, 0) AS swing,
  CAST(24 * chance(:seed, 'peak', query, 0) AS INT) AS peak
FROM ranked
"""

_PLANTED: Final = """
WITH kinds AS (
  SELECT query, IF(rate > 28, 'dip', 'spike') AS kind FROM queries WHERE rate > 14
), numbered AS (
  SELECT query, kind, row_number() OVER (PARTITION BY kind ORDER BY chance(:seed, 'planted', query, 0)) - 1 AS n
  FROM kinds
), timed AS (
  SELECT query, kind, 2.5 + (n + 0.9 * chance(:seed, 'starts', query, 0)) * (:seconds - 8.5) / :count AS starts,
    5 + chance(:seed, 'lasts', query, 0) AS lasts,
    IF(kind = 'spike', 5 + 3 * chance(:seed, 'factor', query, 0), 0.05 * chance(:seed, 'factor', query, 0)) AS factor
  FROM numbered WHERE n < :count
)
SELECT query, kind, round(starts, 3) AS starts, round(starts + lasts, 3) AS ends, round(factor, 2) AS factor FROM timed
"""

_HISTORY: Final = """
WITH hours AS (
  SELECT explode(sequence(timestamp'2025-01-01 01:00:00', timestamp'2025-03-01 00:00:00', interval 1 hour)) AS ends
), expected AS (
  SELECT query, ends, usual(rate, swing, peak, hour(ends - interval 1 hour)) AS usual, unix_seconds(ends) AS n
  FROM queries CROSS JOIN hours
), noisy AS (
  SELECT query, ends, usual, sqrt(-2 * ln(1 - chance(:seed, 'radius', query, n)))
    * cos(2 * pi() * chance(:seed, 'angle', query, n)) AS noise
  FROM expected
)
SELECT query, ends, CAST(greatest(0, round(usual + sqrt(usual) * noise)) AS BIGINT) AS searches FROM noisy
"""

_SEARCHES: Final = """
WITH shaped AS (
  SELECT queries.*, starts, ends, factor, rate * (1 + swing) * greatest(coalesce(factor, 1), 1) AS most
  FROM queries LEFT JOIN planted USING (query)
), drawn AS (
  SELECT *, explode(sequence(1, CAST(ceil(most * :seconds) AS INT))) AS n FROM shaped
), timed AS (
  SELECT *, :seconds * chance(:seed, 'at', query, n) AS at FROM drawn
), kept AS (
  SELECT query, n, at FROM timed
  WHERE most * chance(:seed, 'kept', query, n)
    < usual(rate, swing, peak, floor(at)) * IF(at >= starts AND at < ends, factor, 1)
), travelled AS (
  SELECT query, at, chance(:seed, 'way', query, n) AS way,
    chance(:seed, 'late', query, n) < 0.002 AND at < :seconds - 6 AS late
  FROM kept
)
SELECT query, CAST(floor(at * 1e6) AS BIGINT) AS at,
  CAST(ceil((at + IF(late, 3 + 2 * way, :jitter * way)) * 1e6) AS BIGINT) AS arrives
FROM travelled
"""
"""Both times are microseconds from the beginning of the live part. What arrives after three seconds is late."""

_ROWS: Final = """
SELECT (SELECT count(*) FROM queries) AS queries, (SELECT count(*) FROM planted) AS planted,
  (SELECT count(*) FROM history) AS history, (SELECT count(*) FROM searches) AS searches
"""


def make_tables(session: Any, folder: Path, seed: int, seconds: int, splits: int) -> Mapping[str, int]:
    """Writes them all, each under its name, and makes views of them; how many rows each has."""
    for function in _FUNCTIONS:
        session.sql(function)
    told = {"seed": seed, "seconds": float(seconds), "jitter": JITTER, "count": planted_per_kind(seconds)}
    _write(session, folder, "queries", session.sql(_QUERIES, told).repartition(splits))
    _write(session, folder, "planted", session.sql(_PLANTED, told))
    _write(session, folder, "history", session.sql(_HISTORY, told).repartition(splits, "query"))
    searches = session.sql(_SEARCHES, told).repartition(splits, "at").sortWithinPartitions("arrives", "query")
    _write(session, folder, "searches", searches)
    rows: Mapping[str, int] = session.sql(_ROWS).first().asDict()
    return rows


def planted_per_kind(seconds: int) -> int:
    return max(1, min(PER_KIND, seconds // APART - 1))


def _write(session: Any, folder: Path, name: str, frame: Any) -> None:
    frame.write.parquet(str(folder / name))
    read_table(session, folder, name)


def read_table(session: Any, folder: Path, name: str) -> None:
    """Makes a view of what was written."""
    session.read.parquet(str(folder / name)).createOrReplaceTempView(name)


def described(session: Any, text: str) -> None:
    """What the jobs that follow are called on Spark's own pages."""
    session.sparkContext.setJobDescription(text)
