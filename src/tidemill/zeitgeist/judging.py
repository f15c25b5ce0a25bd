"""The questions to Spark SQL at the end: what was planted against what was found, and whether every search was counted.

Spark reads the tables that the run has committed as it reads any other; nothing here knows of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidemill.zeitgeist.tables import described, read_table

_ANSWERS: Final = """
WITH planted_at AS (
  SELECT query, kind, factor, starts, timestamp_micros(:begins + CAST(starts * 1e6 AS BIGINT)) AS onset,
    timestamp_micros(:begins + CAST(ends * 1e6 AS BIGINT)) AS over
  FROM planted
), matched AS (
  SELECT p.kind, p.query, p.starts, p.factor, count(a.found) AS reports,
    min_by(struct(a.usual, a.searches, (unix_micros(a.found) - unix_micros(onset)) / 1e6 AS after), a.found) AS first
  FROM planted_at p LEFT JOIN anomalies a
    ON a.query = p.query AND a.kind = p.kind AND a.ends > p.onset AND a.ends - interval 1 second < p.over
  GROUP BY ALL
)
SELECT kind, query, starts, factor, first.after, first.usual, first.searches FROM matched ORDER BY starts, query
"""

_FALSE_ALARMS: Final = """
SELECT a.kind, a.query, (unix_micros(a.ends) - :begins) / 1e6 - 1 AS starts, a.usual, a.searches
FROM anomalies a LEFT ANTI JOIN planted p
  ON a.query = p.query AND a.kind = p.kind
  AND unix_micros(a.ends) - :begins > p.starts * 1e6 AND unix_micros(a.ends) - :begins - 1e6 < p.ends * 1e6
ORDER BY starts, query
"""

_BALANCE: Final = """
WITH expected AS (
  SELECT query, bucket, sum(n) AS searches FROM (
    SELECT query, at DIV 1000000 AS bucket, 1 AS n FROM searches
    UNION ALL SELECT query, (unix_micros(at) - :begins) DIV 1000000, -1 FROM late
  ) GROUP BY query, bucket
), counted AS (
  SELECT query, (unix_micros(ends) - :begins) DIV 1000000 - 1 AS bucket, searches FROM windows
)
SELECT (SELECT count(*) FROM searches) AS made, (SELECT coalesce(sum(searches), 0) FROM windows) AS counted,
  (SELECT count(*) FROM late) AS late, count_if(coalesce(e.searches, 0) != coalesce(c.searches, 0)) AS differing
FROM expected e FULL OUTER JOIN counted c ON e.query = c.query AND e.bucket = c.bucket
"""
"""The last column: buckets in which Spark counts other than the run did."""


@dataclass(frozen=True)
class Planted:
    """One that was planted, and what came of it: how many seconds after its onset it was found, if it was."""

    kind: str
    query: str
    starts: float
    factor: float
    after: float | None
    usual: float | None
    searches: int | None


@dataclass(frozen=True)
class FalseAlarm:
    kind: str
    query: str
    starts: float
    usual: float
    searches: int


@dataclass(frozen=True)
class Balance:
    made: int
    counted: int
    late: int
    differing: int

    @property
    def good(self) -> bool:
        return self.made == self.counted + self.late and not self.differing


@dataclass(frozen=True)
class Verdict:
    planted: tuple[Planted, ...]
    false_alarms: tuple[FalseAlarm, ...]
    balance: Balance

    @property
    def missed(self) -> tuple[Planted, ...]:
        return tuple(planted for planted in self.planted if planted.after is None)

    @property
    def good(self) -> bool:
        return not self.missed and self.balance.good


def judge(session: Any, folder: Path, begins: int) -> Verdict:
    described(session, "zeitgeist: planted against found")
    for name in ("windows", "anomalies", "late"):
        read_table(session, folder, name)

    def answers(question: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in session.sql(question, {"begins": begins}).collect()]

    return Verdict(
        tuple(Planted(**row) for row in answers(_ANSWERS)),
        tuple(FalseAlarm(**row) for row in answers(_FALSE_ALARMS)),
        Balance(**answers(_BALANCE)[0]),
    )
