"""What Spark wrote down of a DataFrame, read as a source; that Spark writes it, see tests/spark/test_tables_in.py."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.api.schema import read_schema
from tidemill.core.graph import TIME_COLUMN
from tidemill.core.ids import BEGINNING, END
from tidemill.errors import DataError, PipelineError, StorageError
from tidemill.ports import Endless, Preparable, Source
from tidemill.sources.table import Part
from tidemill.storage.arrowfile import write_batches

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
WIRE = SCHEMA.append(pa.field(TIME_COLUMN, pa.int64(), nullable=False))

TYPES_DDL = (
    "b boolean, i byte, s short, n int, l long, f float, d double, t string, x binary, day date, at timestamp, "
    "local timestamp_ntz, money decimal(20, 3), list array<string>, pairs map<string, int>, inner struct<a: int>"
)


def some_of_each_type() -> pa.Table:
    at = dt.datetime(1901, 2, 3, 4, 5, 6, 789, tzinfo=dt.timezone.utc)
    row = {
        "b": True,
        "i": -128,
        "s": 32767,
        "n": -1,
        "l": 2**62,
        "f": 0.5,
        "d": -0.0,
        "t": "tide\N{WATER WAVE}",
        "x": b"\x00\xff",
        "day": dt.date(1582, 10, 4),
        "at": at,
        "local": at.replace(tzinfo=None),
        "money": Decimal("12345678901234567.891"),
        "list": ["a", None],
        "pairs": [("a", 1), ("b", None)],
        "inner": {"a": None},
    }
    nothing = dict.fromkeys(row) | {"at": dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)}
    return pa.Table.from_pylist([row, nothing], read_schema(TYPES_DDL))


def assert_same_values(rows: Sequence[dict[str, Any]], expected: pa.Table, ddl: str) -> None:
    found = pa.Table.from_pylist(list(rows), read_schema(ddl)).sort_by("at")
    assert found.to_pylist() == expected.sort_by("at").to_pylist()


def dataframe(streaming: bool = False) -> Any:
    """As Spark's looks from outside."""
    fields = [{"name": "n", "type": "long", "nullable": True}, {"name": "at", "type": "timestamp", "nullable": True}]
    schema = SimpleNamespace(jsonValue=lambda: {"type": "struct", "fields": fields})
    return SimpleNamespace(mapInArrow=None, sparkSession=None, isStreaming=streaming, schema=schema)


def part(folder, times, batch=4) -> Part:
    batches = [
        pa.RecordBatch.from_pylist(
            [{"n": i, "at": t, TIME_COLUMN: t} for i, t in enumerate(times)][at : at + batch], WIRE
        )
        for at in range(0, len(times), batch)
    ]
    written = write_batches(folder, "0", WIRE, batches)
    return Part("", ()) if written is None else Part(str(folder / written.name), tuple(written.counts))


def table(*parts: Part, timestamp: str | None = "at") -> Any:
    return tm.sources.Table(dataframe(), timestamp).written(parts)


def read_all(source, split="0", position=0, limit=3):
    reader = source.open(split, position)
    chunks: list[Any] = []
    while not chunks or not chunks[-1].ended:
        chunks.append(reader.read(limit))
    reader.close()
    return chunks


def test_it_is_a_source_that_ends_and_travels_without_its_dataframe(tmp_path):
    source = table(part(tmp_path, [1, 2]))
    assert isinstance(source, Source)
    assert not isinstance(source, (Endless, Preparable))
    assert source.schema == SCHEMA
    there = pickle.loads(pickle.dumps(source))  # noqa: S301 - as it travels
    assert there.dataframe is None
    assert [row["n"] for chunk in read_all(there) for row in chunk.batch.to_pylist()] == [0, 1]


def test_a_rewind_is_exact_from_every_position(tmp_path):
    times = list(range(0, 230, 10))
    source = table(part(tmp_path, times))
    for limit in (1, 3, 4, 100):
        for position in range(len(times) + 1):
            chunks = read_all(source, position=position, limit=limit)
            assert [n for chunk in chunks for n in chunk.batch["n"].to_pylist()] == list(range(position, len(times)))
            assert [t for chunk in chunks for t in chunk.times.tolist()] == times[position:]
            assert chunks[-1].position == len(times)
            assert all(chunk.batch.schema == SCHEMA for chunk in chunks)


def test_the_watermark_is_the_newest_time_as_nothing_older_follows(tmp_path):
    chunks = read_all(table(part(tmp_path, [10, 20, 20, 30, 40])), limit=2)
    assert [(chunk.watermark, chunk.ended) for chunk in chunks] == [(20, False), (30, False), (END, True)]
    (first, last) = read_all(table(part(tmp_path, [10, 20]), timestamp=None), limit=1)
    assert (first.watermark, last.watermark) == (BEGINNING, END)


def test_a_part_without_rows_has_ended(tmp_path):
    source = table(part(tmp_path, []), part(tmp_path, [5]))
    assert list(source.splits()) == ["0", "1"]
    (chunk,) = read_all(source, "0")
    assert (chunk.batch.num_rows, chunk.watermark, chunk.position) == (0, END, 0)


def test_a_file_that_is_gone_or_altered_is_named(tmp_path):
    there = part(tmp_path, list(range(10)))
    whole = Path(there.path).read_bytes()
    for damage in (b"", whole[:-30], b"x" * len(whole)):
        (tmp_path / "damaged").write_bytes(damage)
        with pytest.raises(StorageError, match=r"damaged' can't be read here"):
            read_all(table(Part(str(tmp_path / "damaged"), there.counts)))
    with pytest.raises(StorageError, match=r"gone' can't be read here.*storage= in a folder that all of them share"):
        read_all(table(Part(str(tmp_path / "gone"), there.counts)))
    with pytest.raises(StorageError, match="was altered"):
        read_all(table(Part(there.path, (3, 3, 4))))


def test_a_file_is_whole_or_not_there(tmp_path):
    def breaking():
        yield pa.RecordBatch.from_pylist([{"n": 1, "at": 1, TIME_COLUMN: 1}], WIRE)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        write_batches(tmp_path, "0", WIRE, breaking())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match=f"column '{TIME_COLUMN}' is null"):
        write_batches(
            tmp_path,
            "0",
            WIRE,
            [
                pa.RecordBatch.from_pylist([{"n": 1}], pa.schema(list(WIRE)[:2])).append_column(
                    TIME_COLUMN, pa.nulls(1, pa.int64())
                )
            ],
        )
    assert list(tmp_path.iterdir()) == []


# What is refused


def test_what_is_no_bounded_dataframe_is_refused():
    with pytest.raises(PipelineError, match=r"The Table declared at test_table.* is made of \[1\]"):
        tm.sources.Table([1])
    with pytest.raises(PipelineError, match=r"never ends.*tm.sources.Feed.*writeStream"):
        tm.sources.Table(dataframe(streaming=True))
    with pytest.raises(PipelineError, match="splits=0"):
        tm.sources.Table(dataframe(), splits=0)
    with pytest.raises(PipelineError, match="SCHEDULED"):
        tm.sources.Table(dataframe(), tm.sources.SCHEDULED)
    with pytest.raises(PipelineError, match="no split '7'"):
        table().open("7", 0)


def test_it_is_not_read_before_spark_has_evaluated_it():
    with pytest.raises(PipelineError, match="before Spark has evaluated it"):
        tm.sources.Table(dataframe()).splits()


def test_a_pipeline_takes_a_dataframe():
    pipeline = tm.Pipeline("p")
    pipeline.source("rows", dataframe(), timestamp="at")
    pipeline.sink("rows", tm.sinks.Collect())
    source = pipeline.graph().of_kind("source")[0]
    assert isinstance(source.handle, tm.sources.Table)
    assert source.handle.timestamp == "at"
    with pytest.raises(PipelineError, match=r"timestamp='at' is given with .*Rows"):
        pipeline.source("more", tm.sources.Rows([], "at timestamp"), timestamp="at")
    with pytest.raises(PipelineError, match="never ends"):
        pipeline.source("more", dataframe(streaming=True))
