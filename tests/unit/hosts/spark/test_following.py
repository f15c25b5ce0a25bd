"""Reading the folder of a Parquet sink commit by commit; that Spark does it so, see tests/spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.core.ids import Generation
from tidemill.errors import StorageError
from tidemill.hosts.spark import following

SCHEMA = pa.schema([("day", pa.date32()), ("n", pa.int64())])
DAY = dt.date(2024, 5, 1)
FIRST = Generation(1)


def sink_in(folder: Path, **how: Any) -> Any:
    sink = tm.sinks.Parquet(folder, **how).expecting(SCHEMA, "aa")
    sink.committed(FIRST)
    return sink


def commit(sink: Any, number: int, *numbers: int) -> None:
    hand = sink.open(SCHEMA, f"{number}-1")
    hand.write(pa.RecordBatch.from_pylist([{"day": DAY, "n": n} for n in numbers], SCHEMA))
    sink.commit(FIRST, number, [hand.prepare()])


def numbers(folder: Path, start: int, end: int | None) -> list[int]:
    parts = following.parts(str(folder), start, end)
    return [n for part in parts for batch in following.read(tuple(part), ["n"]) for n in batch["n"].to_pylist()]


def test_every_step_has_whole_commits_and_all_of_them_once(tmp_path):
    sink = sink_in(tmp_path)
    start, seen = following.BEGINNING, []
    assert following.newest(str(tmp_path)) == start
    for number in range(1, 25):
        commit(sink, number, number, -number)
        if number % 3 == 0:
            end = following.newest(str(tmp_path))
            seen.append(numbers(tmp_path, start, end))
            assert numbers(tmp_path, start, end) == seen[-1]  # a query that is started again
            start = end
    assert seen == [[k for n in range(step, step + 3) for k in (n, -n)] for step in range(1, 24, 3)]
    assert numbers(tmp_path, start, following.newest(str(tmp_path))) == []
    assert len(numbers(tmp_path, following.BEGINNING, None)) == 48


def test_a_claim_brings_nothing_new(tmp_path):
    sink = sink_in(tmp_path)
    commit(sink, 1, 1)
    before = following.newest(str(tmp_path))
    sink.committed(FIRST)
    assert following.newest(str(tmp_path)) == before


def test_columns_that_are_folders_come_in_their_place_and_type(tmp_path):
    sink = sink_in(tmp_path, partition_by="day")
    commit(sink, 1, 7)
    (part,) = following.parts(str(tmp_path), following.BEGINNING, None)
    (batch,) = following.read(tuple(part), ["n", "DAY"])
    assert batch.to_pylist() == [{"n": 7, "DAY": DAY}]
    assert batch.schema.types == [pa.int64(), pa.date32()]
    assert following.schema_of(str(tmp_path)) == "day date, n long"
    with pytest.raises(StorageError, match="has no columns x; it has day, n"):
        list(following.read(tuple(part), ["x"]))


def test_what_is_no_table_or_not_the_same_any_more_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"which table is read\? \.load\(path\)"):
        following.folder_of({})
    assert following.folder_of({"path": "file:/a"}) == "/a"
    with pytest.raises(StorageError, match="no run has begun to write to it"):
        following.schema_of(str(tmp_path / "none"))
    assert following.parts(str(tmp_path / "none"), following.BEGINNING, None) == []
    sink = sink_in(tmp_path)
    commit(sink, 1, 1)
    with pytest.raises(StorageError, match="commits up to 1, and 5 was read from it before"):
        following.parts(str(tmp_path), 0, 5)
    (part,) = following.parts(str(tmp_path), 0, 1)
    Path(part.path).unlink()
    with pytest.raises(StorageError, match="which is committed, can't be read"):
        list(following.read(tuple(part), ["n"]))
