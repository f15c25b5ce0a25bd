"""What tasks and drivers of streaming queries do to a feed's log; that Spark calls them so, see tests/spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.errors import DataError, PipelineError, RunError, SchemaError, StorageError, UnknownStreamError
from tidemill.hosts.spark import feeding
from tidemill.storage.feedlog import FeedLog, folder_of

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
AT = dt.datetime(2024, 5, 1, tzinfo=dt.timezone.utc)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    tm.sources.Feed(SCHEMA, timestamp="at").housed(tmp_path)
    return str(tmp_path)


def rows(*numbers: int) -> pa.RecordBatch:
    """As a query has them: in another order and case, and with a column that the stream has not."""
    schema = pa.schema([("at", SCHEMA.field("at").type), ("more", pa.string()), ("N", pa.int64())])
    return pa.RecordBatch.from_pylist([{"at": AT, "more": "x", "N": n} for n in numbers], schema)


def task(folder: str, *numbers: int, batch: int = 0, partition: int = 0, query: str = "q") -> Any:
    fed = feeding.write(folder, [rows(*numbers)], query, str(batch), partition)
    return None if fed is None else tuple(fed)


def in_the_run(folder: str) -> list[int]:
    reader = tm.sources.Feed(SCHEMA, timestamp="at").housed(Path(folder)).open("0", 0)
    numbers: list[int] = []
    while (chunk := reader.read(100)).batch.num_rows:
        numbers += chunk.batch["n"].to_pylist()
    return numbers


def files(folder: str) -> int:
    return len([path for path in (Path(folder) / "data").rglob("*") if path.is_file()])


def test_a_batch_comes_whole_when_it_is_committed(folder):
    parts = [task(folder, 1, 2), None, task(folder, 3, partition=1)]
    assert in_the_run(folder) == []
    assert feeding.commit(folder, parts)
    assert in_the_run(folder) == [1, 2, 3]
    assert not feeding.commit(folder, [None, task(folder)])  # a batch without rows


def test_tasks_that_were_repeated_leave_nothing(folder):
    task(folder, 1)  # its attempt was lost, or came second
    parts = [task(folder, 1), task(folder, 2, partition=1)]
    feeding.commit(folder, parts)
    assert in_the_run(folder) == [1, 2]
    assert files(folder) == 2


def test_a_batch_that_is_repeated_is_dropped(folder):
    feeding.commit(folder, [task(folder, 1)])
    assert not feeding.commit(folder, [task(folder, 1)])
    feeding.commit(folder, [task(folder, 1, query="other")])
    feeding.commit(folder, [task(folder, 2, batch=1)])
    assert not feeding.commit(folder, [task(folder, 1)])
    assert in_the_run(folder) == [1, 1, 2]
    assert files(folder) == 3


def test_a_batch_that_fails_leaves_nothing(folder):
    feeding.abort(folder, [task(folder, 1), None])
    assert files(folder) == 0
    assert in_the_run(folder) == []


def test_a_batch_that_only_seems_to_fail_stays(folder):
    """The entry was made, and the answer was lost."""
    parts = [task(folder, 1)]
    feeding.commit(folder, parts)
    feeding.abort(folder, parts)
    assert in_the_run(folder) == [1]
    repeated = [task(folder, 1)]
    assert not feeding.commit(folder, repeated)
    feeding.abort(folder, repeated)
    assert in_the_run(folder) == [1]


def test_a_task_whose_rows_break_leaves_nothing(folder):
    def breaking() -> Any:
        yield rows(1)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        feeding.write(folder, breaking(), "q", "0", 0)
    assert files(folder) == 0


def test_files_that_the_driver_does_not_see_are_not_listed(folder):
    parts = [task(folder, 1), task(folder, 2, partition=1)]
    (Path(folder) / "data" / parts[1][2]).unlink()
    with pytest.raises(StorageError, match="must be a folder that all machines share"):
        feeding.commit(folder, parts)
    assert in_the_run(folder) == []


def test_rows_come_as_spark_before_4_1_gives_them(folder):
    given = [SimpleNamespace(asDict=lambda n=n, **_: {"N": n, "at": AT, "more": 1}) for n in range(9_000)]
    fed = feeding.write(folder, iter(given), "q", "0", 0)
    feeding.commit(folder, [fed])
    assert in_the_run(folder) == list(range(9_000))


def test_times_of_a_session_in_another_zone_are_the_same_times(folder):
    zoned = rows(1).set_column(0, "at", pa.array([AT], pa.timestamp("us", "America/Los_Angeles")))
    feeding.commit(folder, [feeding.write(folder, [zoned], "q", "0", 0)])
    chunk = tm.sources.Feed(SCHEMA, timestamp="at").housed(Path(folder)).open("0", 0).read(1)
    assert chunk.times.tolist() == [int(AT.timestamp() * 1e6)]
    assert chunk.batch["at"].to_pylist() == [AT]


# What is refused


def test_a_row_without_time_and_a_query_that_is_none(folder):
    timeless = pa.RecordBatch.from_pylist([{"n": 1, "at": None}], SCHEMA)
    with pytest.raises(DataError, match="no event time: column 'at'"):
        feeding.write(folder, [timeless], "q", "0", 0)
    with pytest.raises(RunError, match="only a streaming query"):
        feeding.write(folder, [], None, None, 0)
    assert files(folder) == 0


def test_the_feed_that_is_meant(tmp_path):
    known = {"orders": "/there"}
    assert feeding.folder_for({"stream": "orders"}, known) == "/there"
    assert feeding.folder_for({"stream": "o", "path": str(tmp_path)}, known) == str(folder_of(tmp_path, "o"))
    with pytest.raises(StorageError, match=r"\.option\('stream', \.\.\.\); feeds of this session's runs: orders"):
        feeding.folder_for({}, known)
    with pytest.raises(StorageError, match=r"no run of this session has a Feed of 'o'; feeds are: none"):
        feeding.folder_for({"stream": "o"}, {})


def test_the_querys_columns(folder):
    feeding.check_fits(folder, "more string, AT timestamp, n bigint")
    with pytest.raises(SchemaError, match=r"lacks the column 'at'"):
        feeding.check_fits(folder, "n long")
    with pytest.raises(SchemaError, match=r"'n' is of type int, and the stream's of type long\. Cast it"):
        feeding.check_fits(folder, "n int, at timestamp")


def test_a_run_gives_its_feeds_a_folder(tmp_path):
    pipeline = tm.Pipeline("p")
    pipeline.source("orders", tm.sources.Feed(SCHEMA))
    pipeline.source("rows", tm.sources.Rows([], SCHEMA))
    pipeline.sink("orders", tm.sinks.Collect())
    pipeline.sink("rows", tm.sinks.Collect())
    with pytest.raises(PipelineError, match=r"source of 'orders' .*test_feeding.* is a Feed.*storage="):
        feeding.housed(pipeline.graph(), None)
    graph, folders = feeding.housed(pipeline.graph(), tmp_path)
    assert folders == {"orders": str(tmp_path / "feeds" / "orders")}
    feeding.end(graph, "orders")
    entry = FeedLog(folders["orders"]).entry(0)
    assert entry is not None
    assert entry.end
    with pytest.raises(UnknownStreamError, match="feeds are: orders"):
        feeding.end(graph, "rows")
